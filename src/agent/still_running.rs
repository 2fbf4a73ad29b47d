//! What runs in the background while a conversation is summarised (R070): told right behind the
//! summary, since a model that left it out would never ask for it, stop it or wait for it again.

use super::input::Input;
use crate::core::shell::ShellState;
use crate::core::text::one_line;

/// Characters of each description.
const DESCRIPTION: usize = 120;

/// The reminder of these agents (what they are called, what they do) and background commands; none
/// if nothing runs.
pub fn still_running(agents: &[(String, String)], shells: &[ShellState]) -> Option<Input> {
    let agents = agents.iter().map(|(called, what)| format!("- agent {called}: {}", one_line(what, DESCRIPTION)));
    let shells = shells.iter().map(|shell| {
        let (what, file) = (one_line(&shell.description, DESCRIPTION), &shell.output_file);
        format!("- background command {}: {what} (output file: {file})", shell.id)
    });
    let rows: Vec<String> = agents.chain(shells).collect();
    if rows.is_empty() {
        return None;
    }
    let text = format!(
        "These were running in the background when the conversation was summarised, and are yours still. You are told \
of each when it ends, if you were not already:\n{}",
        rows.join("\n")
    );
    Some(Input { text, is_meta: true, ..Input::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::ShellId;

    #[test]
    fn each_is_a_line_and_nothing_is_no_reminder() {
        assert_eq!(still_running(&[], &[]), None);
        let shell = ShellState {
            id: ShellId::parse("b-0a1b2c3d").unwrap(),
            description: "Build\nit".to_owned(),
            pid: 1,
            started_ms: 0,
            cwd: "/w".to_owned(),
            output_file: "/s/b-0a1b2c3d.output".to_owned(),
        };
        let agents = [("scout (a-1111111111111111)".to_owned(), "Look".to_owned())];
        let input = still_running(&agents, &[shell]).unwrap();
        assert!(input.is_meta);
        let rows: Vec<&str> = input.text.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                "- agent scout (a-1111111111111111): Look",
                "- background command b-0a1b2c3d: Build it (output file: /s/b-0a1b2c3d.output)"
            ]
        );
    }
}
