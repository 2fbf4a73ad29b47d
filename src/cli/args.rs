//! The command line as a whole. Each verb's arguments are in its own file.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    agents, attach, background, demo, doctor, hand_over, inbox, logs, permissions, ps, reap, reference, result, send,
};
use super::{serve, sessions, spawn, stop, task, team, transcript, wait};
use crate::lead::TeammateMode;
use crate::permission::Mode;

/// Run a session in which every agent is a process of its own
///
/// `lead -p "PROMPT"` runs one session to its end and prints the answer. The verbs look at agents
/// and stop them from any terminal, cron job or script of the same user.
#[derive(Debug, Parser)]
#[command(
    name = "lead",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    after_help = "Exit codes: 0 success, 1 failed, 2 called wrongly, 3 refused, 4 not found, 5 timed out."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub run: RunArgs,
    /// Print the version
    #[arg(short = 'v', visible_short_alias = 'V', long)]
    pub version: bool,
}

/// What to do beside running a session. Agents at work first, then what they left, then the rest.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List agents and sessions that run
    Ps(ps::PsArgs),
    /// Start an agent that lives on by itself
    Spawn(Box<spawn::SpawnArgs>),
    /// Wait until agents have ended, or have nothing to do
    Wait(wait::WaitArgs),
    /// Send a message to an agent or session
    Send(send::SendArgs),
    /// Watch an agent or session, and talk to it
    Attach(attach::AttachArgs),
    /// Stop agents: ask first, then by signals
    Stop(stop::StopArgs),
    /// Kill agents at once
    Kill(stop::StopArgs),
    /// Let an agent that its lead waits for go on in the background
    Background(background::BackgroundArgs),
    /// List and answer the questions of sessions and agents
    Permissions(permissions::PermissionsArgs),
    /// Print what an agent answered
    Result(result::ResultArgs),
    /// Print what an agent does, a line per event
    Logs(logs::LogsArgs),
    /// Print the conversation of an agent or session
    Transcript(transcript::TranscriptArgs),
    /// List, show and remove sessions
    Sessions(sessions::SessionsArgs),
    /// Make, list, show and delete teams; let scripts join them and send mail
    Team(Box<team::TeamArgs>),
    /// Make, list, change and claim the tasks of a team
    Task(Box<task::TaskArgs>),
    /// Read the mail of a member of a team
    Inbox(inbox::InboxArgs),
    /// End and record what the dead left behind
    Reap(reap::ReapArgs),
    /// Let a session go at the end of its turn, so that another lead resumes it
    HandOver(hand_over::HandOverArgs),
    /// List the types of agents there are
    Agents(agents::AgentsArgs),
    /// See agents at work without a model: they survey a folder
    Demo(demo::DemoArgs),
    /// Play models for tests
    Model(serve::ModelArgs),
    /// Look for what is wrong with the installation, and how to mend it
    Doctor(doctor::DoctorArgs),
    /// Print completions for a shell
    Completions(reference::CompletionsArgs),
    /// Print the manual page of lead or of a verb
    Man(reference::ManArgs),
}

/// How the result of a run is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// The text of the last turn
    #[default]
    Text,
    /// One JSON object; with --verbose all messages, as an array
    Json,
    /// A JSON object per line, as things happen; the last one is the result
    StreamJson,
}

/// What is read from standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum InputFormat {
    /// The prompt, or what is added to it
    #[default]
    Text,
    /// A JSON object per line, each a message that is answered by a result of its own
    StreamJson,
}

/// Who is asked what neither rules nor the mode decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PromptTool {
    /// The person, by `lead permissions` from any terminal
    Desk,
}

/// Flags of a run.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct RunArgs {
    /// What to do; standard input is added to it
    pub prompt: Option<String>,

    /// Run without a screen: print the result and exit
    #[arg(short, long, help_heading = "Run")]
    pub print: bool,
    /// Print the result in this form
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Run")]
    pub output_format: OutputFormat,
    /// Read standard input in this form; stream-json needs --output-format stream-json
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Run")]
    pub input_format: InputFormat,
    /// Print the parts of replies as they come; needs --output-format stream-json
    #[arg(long, help_heading = "Run")]
    pub include_partial_messages: bool,
    /// Tell of agents on standard error; with --output-format json, print all messages as an array
    #[arg(long, help_heading = "Run")]
    pub verbose: bool,
    /// End the run after N replies of the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    pub max_turns: Option<u32>,
    /// End the run when it has cost more than X USD, its agents included
    #[arg(long, value_name = "X", value_parser = usd, help_heading = "Run")]
    pub max_budget_usd: Option<f64>,
    /// Take the answer in the form of this JSON schema, a text or a file
    #[arg(long, value_name = "SCHEMA", help_heading = "Run")]
    pub json_schema: Option<String>,
    /// Return after the main turn and leave agents running
    #[arg(long, help_heading = "Run")]
    pub detach: bool,
    /// Run members of a team in panes or without: auto (panes inside tmux), headless or tmux
    #[arg(long, value_name = "MODE", value_parser = TeammateMode::parse, help_heading = "Run")]
    pub teammate_mode: Option<TeammateMode>,
    /// Run members of a team in panes of a tmux server that is the session's own
    #[arg(long, conflicts_with = "teammate_mode", help_heading = "Run")]
    pub tmux: bool,
    /// Work in this folder instead of the current one
    #[arg(long, value_name = "FOLDER", help_heading = "Run")]
    pub cwd: Option<PathBuf>,
    /// Read settings from this file, or from this JSON text, on top of the others
    #[arg(long, value_name = "FILE|JSON", help_heading = "Run")]
    pub settings: Option<String>,

    /// Go on with the session of this id; without a prompt, with what waits for it, if anything does
    #[arg(short, long, value_name = "ID", conflicts_with = "continue_latest", help_heading = "Session")]
    pub resume: Option<String>,
    /// Go on with the latest session of this folder
    #[arg(short = 'c', long = "continue", help_heading = "Session")]
    pub continue_latest: bool,
    /// Go on with a copy of the session under a new id; agents and messages stay with the old one
    #[arg(long, help_heading = "Session")]
    pub fork_session: bool,
    /// Give the new session this id
    #[arg(long, value_name = "UUID", help_heading = "Session")]
    pub session_id: Option<String>,

    /// Use this model: an alias, a full id, or playbook:FILE
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub model: Option<String>,
    /// Go on with this model when the other one is overloaded or broken
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub fallback_model: Option<String>,
    /// Only hand out work and put results together: workers do all else
    #[arg(long, help_heading = "Model")]
    pub coordinator: bool,
    /// Replace the system prompt
    #[arg(long, value_name = "TEXT", help_heading = "Model")]
    pub system_prompt: Option<String>,
    /// Add to the system prompt
    #[arg(long, value_name = "TEXT", help_heading = "Model")]
    pub append_system_prompt: Option<String>,

    /// Offer the main conversation these tools only, such as Read,Grep; "" is none (can be repeated)
    #[arg(long, value_name = "NAMES", num_args = 1.., help_heading = "Permissions")]
    pub tools: Vec<String>,
    /// Decide what no rule decides in this way
    #[arg(long, value_name = "MODE", value_parser = modes(), help_heading = "Permissions")]
    pub permission_mode: Option<String>,
    /// Permit every tool call that no rule forbids; the same as --permission-mode bypassPermissions
    #[arg(long, conflicts_with = "permission_mode", help_heading = "Permissions")]
    pub dangerously_skip_permissions: bool,
    /// Let calls that nothing decides wait for `lead permissions` instead of denying them at once
    #[arg(long, value_name = "WHERE", help_heading = "Permissions")]
    pub permission_prompt_tool: Option<PromptTool>,
    /// Permit these tools, such as Edit or "Bash(git log:*)" (can be repeated)
    #[arg(long, visible_alias = "allowedTools", value_name = "RULES", num_args = 1.., help_heading = "Permissions")]
    pub allowed_tools: Vec<String>,
    /// Forbid these tools (can be repeated)
    #[arg(long, visible_alias = "disallowedTools", value_name = "RULES", num_args = 1.., help_heading = "Permissions")]
    pub disallowed_tools: Vec<String>,
    /// Treat this folder like the working folder (can be repeated)
    #[arg(long, value_name = "FOLDER", num_args = 1.., help_heading = "Permissions")]
    pub add_dir: Vec<PathBuf>,
}

fn usd(text: &str) -> Result<f64, String> {
    let amount = text.trim().trim_start_matches('$').parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    amount.ok_or_else(|| "an amount of USD over 0, such as 2.50".to_owned())
}

fn modes() -> clap::builder::PossibleValuesParser {
    Mode::ALL.map(Mode::as_str).into()
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["lead"].iter().chain(args))
    }

    /// Calls `check` for each command with its path.
    fn walk(command: &Command, path: &str, check: &mut dyn FnMut(&Command, &str)) {
        check(command, path);
        for sub in command.get_subcommands() {
            walk(sub, &format!("{path} {}", sub.get_name()), check);
        }
    }

    #[test]
    fn every_flag_and_verb_has_help_of_one_form() {
        Cli::command().debug_assert();
        let well_formed = |what: &str, help: Option<String>| {
            let help = help.unwrap_or_default();
            let first = help.lines().next().unwrap_or_default();
            assert!(first.starts_with(|c: char| c.is_uppercase()), "{what}: {first:?}");
            assert!(!first.ends_with('.') && first.chars().count() <= 100, "{what}: {first:?}");
        };
        walk(&Cli::command(), "lead", &mut |command, path| {
            well_formed(path, command.get_about().map(ToString::to_string));
            for arg in command.get_arguments().filter(|a| !a.is_hide_set()) {
                well_formed(&format!("{path} {}", arg.get_id()), arg.get_help().map(ToString::to_string));
            }
            // What these print is for programs already.
            let is_text = ["lead completions", "lead man"].contains(&path);
            let has_json = is_text || command.get_arguments().any(|a| a.get_long() == Some("json"));
            assert!(has_json || command.has_subcommands(), "{path} has no --json");
        });
    }

    #[test]
    fn a_prompt_that_is_a_verb_s_name_stays_a_prompt() {
        let cli = parse(&["-p", "wait"]).unwrap();
        assert!(cli.verb.is_none() && cli.run.prompt.as_deref() == Some("wait"));
        assert!(matches!(parse(&["ps"]).unwrap().verb, Some(Verb::Ps(_))));
    }

    #[test]
    fn flags_of_other_programs_are_known_in_both_spellings() {
        let cli = parse(&["-p", "x", "--allowedTools", "Bash(git log:*)", "Read", "--disallowed-tools", "Edit,Write"]);
        let run = cli.unwrap().run;
        assert_eq!(run.allowed_tools, ["Bash(git log:*)", "Read"]);
        assert_eq!(run.disallowed_tools, ["Edit,Write"]);
        let run = parse(&["-p", "--max-turns", "3", "--output-format", "json", "go"]).unwrap().run;
        assert_eq!(
            (run.max_turns, run.output_format, run.prompt.as_deref()),
            (Some(3), OutputFormat::Json, Some("go"))
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for bad in [
            &["-p", "--continue", "--resume", "y"][..],
            &["-p", "--permission-mode", "plan", "--dangerously-skip-permissions"],
            &["-p", "--permission-mode", "yolo"],
            &["-p", "--output-format", "yaml"],
            &["-p", "--input-format", "json"],
            &["-p", "--max-turns", "0"],
            &["-p", "--max-budget-usd", "0"],
            &["-p", "--max-budget-usd", "nan"],
            &["model", "serve"],
            &["model", "serve", "--playbook", "x", "--port", "65536"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
