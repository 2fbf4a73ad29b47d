//! L6: the command line. A file per verb, one for headless runs; all of them resolve names, print
//! through `output` and fail with an error of `error`, the only place that knows exit codes.

mod args;
mod caller;
mod cost;
mod demo;
mod doctor;
mod ended;
mod ended_row;
mod error;
mod events;
mod folders;
mod leftovers;
mod log;
mod logs;
mod lookup;
mod options;
mod output;
mod prompt;
mod provider;
mod ps;
mod ps_row;
mod result;
mod result_line;
mod run;
mod serve;
mod sink;
mod start;
mod stop;
mod stream;
mod stream_input;
mod table;
mod transcript;
mod wait;

pub use start::main;
