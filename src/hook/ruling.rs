//! What a hook's end means: a pure decision over its exit and its words.

use std::time::Duration;

use serde_json::Value;

use crate::core::limits::HOOK_CHARS;
use crate::core::text;
use crate::proc::Answered;

/// What becomes of the matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It goes on.
    Proceed,
    /// A hook refuses it, in these words.
    Blocked(String),
    /// The hooks were not heard to the end: whoever asked does not want it any more.
    Cancelled,
}

/// What one hook came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It has nothing against it.
    Fine,
    /// It refuses.
    No(String),
    /// It is of no use, and why.
    Useless(String),
    /// It was ended because nobody waits for it.
    Cancelled,
}

/// Exit 0 is a yes unless JSON on stdout says otherwise, exit 2 a no with the words on stderr, all else a
/// failure of the hook.
pub(super) fn heard(answered: &Answered, limit: Duration) -> Heard {
    if answered.cancelled {
        return Heard::Cancelled;
    }
    if answered.timed_out {
        return Heard::Useless(format!("it was stopped after {}", humantime::format_duration(limit)));
    }
    match answered.exit.code {
        Some(0) => by_json(&answered.stdout),
        Some(2) => Heard::No(words(&String::from_utf8_lossy(&answered.stderr))),
        _ => {
            let said = text::one_line(&String::from_utf8_lossy(&answered.stderr), 300);
            let said = if said.is_empty() { String::new() } else { format!(": {said}") };
            Heard::Useless(format!("it failed ({}){said}", answered.exit))
        }
    }
}

fn by_json(stdout: &[u8]) -> Heard {
    let stdout = stdout.trim_ascii();
    // Whatever else it prints is for nobody.
    if !stdout.starts_with(b"{") {
        return Heard::Fine;
    }
    let said: Value = match serde_json::from_slice(stdout) {
        Ok(said) => said,
        Err(error) => return Heard::Useless(format!("what it printed is no JSON: {error}")),
    };
    if said["decision"] == "block" {
        return Heard::No(words(said["reason"].as_str().unwrap_or_default()));
    }
    if said["continue"] == false {
        return Heard::No(words(said["stopReason"].as_str().unwrap_or_default()));
    }
    Heard::Fine
}

fn words(said: &str) -> String {
    match said.trim() {
        "" => "it gave no reason".to_owned(),
        said => text::cap(said, HOOK_CHARS, |all| format!("[cut: it said {all} characters]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Exit;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Answered {
        Answered {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit: Exit { code: Some(code), signal: None, known: true },
            timed_out: false,
            cancelled: false,
        }
    }

    fn of(answered: &Answered) -> Heard {
        heard(answered, Duration::from_secs(60))
    }

    #[test]
    fn an_exit_and_its_words_are_a_ruling() {
        let no = |words: &str| Heard::No(words.to_owned());
        for (code, stdout, stderr, wanted) in [
            (0, "", "", Heard::Fine),
            (0, "noted", "noise", Heard::Fine),
            (0, r#"{"decision": "approve"}"#, "", Heard::Fine),
            (0, r#"{"continue": true}"#, "", Heard::Fine),
            (0, "\n{\"decision\": \"block\", \"reason\": \"no tests\"}\n", "", no("no tests")),
            (0, r#"{"decision": "block"}"#, "", no("it gave no reason")),
            (0, r#"{"continue": false, "stopReason": "enough"}"#, "x", no("enough")),
            (2, r#"{"decision": "approve"}"#, " write tests\nfirst \n", no("write tests\nfirst")),
            (2, "said on stdout", "", no("it gave no reason")),
        ] {
            assert_eq!(of(&ended(code, stdout, stderr)), wanted, "{code} {stdout}");
        }
        let useless = |code, stdout: &str, stderr: &str| match of(&ended(code, stdout, stderr)) {
            Heard::Useless(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(useless(0, "{decision: block}", "").contains("no JSON"));
        let failed = useless(1, "", "line one\nline two");
        assert!(failed.contains('1') && failed.ends_with(": line one line two"), "{failed}");
        assert!(useless(127, "", "").contains("127"));
    }

    #[test]
    fn time_that_is_over_and_turns_that_are_stop_nothing_by_themselves() {
        let mut answered = ended(2, "", "no");
        answered.timed_out = true;
        assert_eq!(of(&answered), Heard::Useless("it was stopped after 1m".to_owned()));
        answered.cancelled = true;
        assert_eq!(of(&answered), Heard::Cancelled);
    }

    #[test]
    fn long_words_are_cut() {
        let said = |chars: usize| match of(&ended(2, "", &"é".repeat(chars))) {
            Heard::No(words) => words,
            other => panic!("{other:?}"),
        };
        assert_eq!(said(HOOK_CHARS).chars().count(), HOOK_CHARS);
        assert!(said(HOOK_CHARS + 1).ends_with("[cut: it said 10001 characters]"));
    }
}
