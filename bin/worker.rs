//! The `lead-worker` program: one agent that gives one answer.

fn main() -> std::process::ExitCode {
    lead::endpoint::worker_main()
}
