//! `lead completions` and `lead man`: the command line told to shells and to `man`, made from the same
//! description that reads it.

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::args::Cli;
use super::error::{CliError, Exit};
use super::output::Output;

/// Arguments of `lead completions`.
#[derive(Args, Debug)]
#[command(after_help = "For bash: lead completions bash > ~/.local/share/bash-completion/completions/lead")]
pub(super) struct CompletionsArgs {
    /// The shell that is to know them
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `lead man`.
#[derive(Args, Debug)]
#[command(after_help = "To read it: lead man | man -l -")]
pub(super) struct ManArgs {
    /// Print the page of this verb instead of that of lead
    #[arg(value_name = "VERB")]
    verb: Option<String>,
}

pub(super) fn completions(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lead", &mut script);
    out.bytes(&script)?;
    Ok(Exit::Success)
}

pub(super) fn man(args: &ManArgs, out: &mut Output) -> Result<Exit, CliError> {
    let page = page(args.verb.as_deref())?;
    clap_mangen::Man::new(page).render(&mut Written(out)).map_err(CliError::Output)?;
    Ok(Exit::Success)
}

/// What the page is about, under its whole name.
fn page(verb: Option<&str>) -> Result<Command, CliError> {
    let mut lead = Cli::command();
    lead.build();
    let Some(verb) = verb else { return Ok(lead) };
    match lead.find_subcommand(verb) {
        Some(found) => Ok(found.clone()),
        None => {
            let verbs: Vec<&str> = lead.get_subcommands().map(Command::get_name).collect();
            Err(CliError::usage(format!("there is no verb {verb:?}"))
                .with_hint(format!("verbs are: {}", verbs.join(", "))))
        }
    }
}

struct Written<'a>(&'a mut Output);

impl std::io::Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.bytes(bytes).map_err(|error| match error {
            CliError::Output(error) => error,
            other => std::io::Error::other(other.to_string()),
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl FnOnce(&mut Output) -> Result<Exit, CliError>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = Output::to(Box::new(file.reopen().unwrap()));
        print(&mut out).unwrap();
        out.flush().unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn every_verb_and_flag_is_in_the_pages_and_in_every_shell_s_completions() {
        let mut lead = Cli::command();
        lead.build();
        let whole = printed(|out| man(&ManArgs { verb: None }, out));
        for verb in lead.get_subcommands() {
            let name = verb.get_name();
            assert!(whole.contains(&name.replace('-', "\\-")), "{name} is not in lead(1)");
            let page = printed(|out| man(&ManArgs { verb: Some(name.to_owned()) }, out));
            for flag in verb.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long()) {
                assert!(page.contains(&flag.replace('-', "\\-")), "lead-{name}(1) lacks --{flag}");
            }
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = printed(|out| completions(&CompletionsArgs { shell }, out));
            for verb in lead.get_subcommands() {
                assert!(script.contains(verb.get_name()), "{shell} does not know {}", verb.get_name());
            }
        }
    }

    #[test]
    fn an_unknown_verb_has_no_page() {
        let error = page(Some("frobnicate")).unwrap_err().for_person();
        assert!(error.contains("frobnicate") && error.contains("spawn"), "{error}");
    }
}
