//! Which tmux there is, and whether it is new enough.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::error::PaneError;
use crate::core::env::names_secret;
use crate::core::limits::deadlines;
use crate::proc::{Answered, ToolCommand, run_with_input};

/// The oldest version that will do: `remain-on-exit failed`, `new-window -e`, scripts on stdin,
/// `list-panes -f`.
const OLDEST: (u32, u32) = (3, 2);

/// Most bytes of output that are read.
const OUTPUT_BYTES: usize = 1 << 20;

/// The tmux on the `PATH` of `vars`, new enough.
pub(super) async fn find(vars: &[(String, String)]) -> Result<PathBuf, PaneError> {
    let path = value(vars, "PATH").ok_or(PaneError::NoProgram)?;
    let program = which::which_in("tmux", Some(path), "/").map_err(|_| PaneError::NoProgram)?;
    let said = run(&program, &["-V"], vars, "").await?;
    if said.timed_out {
        return Err(PaneError::NoProgram);
    }
    let found = crate::core::text::one_line(&String::from_utf8_lossy(&said.output), 60);
    if is_new_enough(&found) { Ok(program) } else { Err(PaneError::TooOld { found }) }
}

/// The value of a variable that is set and not empty.
pub(super) fn value<'a>(vars: &'a [(String, String)], name: &str) -> Option<&'a str> {
    vars.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
}

/// What tmux said.
pub(super) struct Said {
    /// What it printed, then its complaints.
    pub(super) output: Vec<u8>,
    pub(super) is_success: bool,
    pub(super) timed_out: bool,
}

/// Runs tmux to its end or its deadline, with the variables `vars` but secrets. It is told of no server
/// but by its arguments: what it has of `TMUX` may be another one.
pub(super) async fn run(
    program: &Path,
    args: &[&str],
    vars: &[(String, String)],
    input: &str,
) -> Result<Said, PaneError> {
    let is_fit = |name: &str| !name.is_empty() && !name.contains('=') && !names_secret(name);
    let mut env: Vec<_> = vars.iter().filter(|(name, _)| is_fit(name)).cloned().collect();
    env.extend(["TMUX", "TMUX_PANE"].map(|name| (name.to_owned(), String::new())));
    let command = ToolCommand {
        program: program.to_owned(),
        args: args.iter().map(|&a| a.to_owned()).collect(),
        cwd: "/".into(),
        env,
        time_limit: deadlines().tmux,
        output_bytes_kept: OUTPUT_BYTES,
        spill: None,
    };
    let Answered { mut stdout, stderr, exit, timed_out, .. } =
        run_with_input(command, input.as_bytes(), &CancellationToken::new()).await?;
    stdout.extend(stderr);
    Ok(Said { output: stdout, is_success: exit.is_success(), timed_out })
}

/// Releases are `tmux 3.4`, `tmux 3.3a`, `tmux 3.2-rc2`; what is to be one `tmux next-3.5`. Others have
/// no number of tmux's own (`tmux master`, `tmux openbsd-7.1`) and are taken for new.
fn is_new_enough(said: &str) -> bool {
    let Some(version) = said.strip_prefix("tmux ") else { return false };
    let version = version.strip_prefix("next-").unwrap_or(version);
    if !version.starts_with(|c: char| c.is_ascii_digit()) {
        return true;
    }
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse::<u32>().ok());
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    (number(major).unwrap_or(0), number(minor).unwrap_or(0)) >= OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_tmux_writes_them() {
        for good in
            ["3.2", "3.2a", "3.2-rc2", "3.3a", "3.10", "4", "4.0", "next-3.2", "next-3.6", "master", "openbsd-7.1"]
        {
            assert!(is_new_enough(&format!("tmux {good}")), "{good}");
        }
        for bad in ["tmux 3.1c", "tmux 3", "tmux 2.9a", "tmux 1.8", "tmux next-3.1", "screen 4.9", "", "3.4"] {
            assert!(!is_new_enough(bad), "{bad}");
        }
    }
}
