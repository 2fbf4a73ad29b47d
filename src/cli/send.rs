//! `lead send`: hands a message to an agent, a session or an address, and says what became of it.

use clap::Args;

use super::error::{CliError, Exit};
use super::folders::Folders;
use super::lookup::ours;
use super::output::{self, Output};
use super::post::{Message, SendRow, post, recipient};
use super::prompt;
use super::stop::async_runtime;
use crate::core::ids;
use crate::core::limits;
use crate::core::text;

/// Arguments of `lead send`.
#[derive(Args, Debug)]
#[command(
    after_help = "An agent that has ended is continued with the message.\nExit codes: 0 delivered, queued or resumed, 3 refused, 4 unknown, 5 it does not answer."
)]
pub(super) struct SendArgs {
    /// An agent or session (its id, the beginning of it, or the name of an agent that runs), or uds:/PATH
    to: String,
    /// What is said; `-`: it is read from standard input
    message: String,
    /// Say it in 5 to 10 words, for lists; without it they are taken from the message
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Have a session take it in at the next step of its running turn, not after it
    #[arg(long)]
    now: bool,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &SendArgs, folders: &Folders, out: &mut Output) -> Result<Exit, CliError> {
    let dir = folders.open_runtime()?;
    super::caller::refuse_silent_agents(&dir)?;
    let to = recipient(&args.to, folders, &ours(folders, &dir)?)?;
    let message = message(args)?;
    let runtime = async_runtime()?;
    let row = runtime.block_on(post(&message, &args.to, &to, folders, &dir));
    // A wait for a lock that nobody needs any more must not hold the exit up.
    runtime.shutdown_background();
    let row = row?;
    if args.json {
        out.json(&row)?;
    } else if is_refused(&row) {
        output::tell(&format!("lead: refused: {}", text::for_terminal(&row.message)));
    } else {
        out.line(&format!("{}  {}  {}", row.id, row.outcome, text::for_terminal(&row.message)))?;
    }
    Ok(if is_refused(&row) { Exit::Refused } else { Exit::Success })
}

/// Whether nobody took it.
pub(super) fn is_refused(row: &SendRow) -> bool {
    row.outcome == "refused"
}

fn message(args: &SendArgs) -> Result<Message, CliError> {
    let said = match args.message.as_str() {
        "-" => prompt::promised(limits::MESSAGE_BYTES)?.ok_or_else(too_long)?,
        said if said.len() > limits::MESSAGE_BYTES => return Err(too_long()),
        said => said.to_owned(),
    };
    if said.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let summary = args.summary.clone().unwrap_or_else(|| first_words(&said));
    Ok(Message { id: ids::random_uuid(), text: said, summary: Some(summary), now: args.now })
}

/// The summary of a message that came without one.
pub(super) fn first_words(said: &str) -> String {
    let words: Vec<&str> = said.split_whitespace().take(8).collect();
    text::one_line(&words.join(" "), 80)
}

fn too_long() -> CliError {
    CliError::usage(format!("the message is too long: it may have {} bytes", limits::MESSAGE_BYTES))
        .with_hint("write it to a file and send the file's path")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(message: &str) -> SendArgs {
        SendArgs { to: "x".into(), message: message.into(), summary: None, now: false, json: false }
    }

    #[test]
    fn a_message_has_a_megabyte_at_most_and_something_in_it() {
        let longest = "x".repeat(limits::MESSAGE_BYTES);
        assert_eq!(message(&args(&longest)).unwrap().text.len(), limits::MESSAGE_BYTES);
        let error = message(&args(&format!("{longest}x"))).unwrap_err();
        assert!(error.to_string().contains("1048576"), "{error}");
        assert!(message(&args(" \n")).is_err());
    }

    #[test]
    fn a_summary_is_made_of_the_first_words() {
        let made = message(&args("one two\nthree four five six seven eight nine ten")).unwrap().summary.unwrap();
        assert_eq!(made, "one two three four five six seven eight");
        let said = SendArgs { summary: Some("mine".into()), ..args("hello") };
        assert_eq!(message(&said).unwrap().summary.as_deref(), Some("mine"));
    }
}
