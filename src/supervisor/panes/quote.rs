//! Every text on its way to tmux, which reads it up to three times: as a script, as a format, and as
//! what it draws. Each of these has its own escape here and nowhere else.

use std::fmt::Write as _;

use crate::core::team::name::COLOURS;
use crate::core::text;

/// Characters of a title.
const TITLE_CHARS: usize = 60;

/// A word of a script. Everything that could mean something there is written as a number, so nothing
/// is left that separates, expands, comments or continues. A byte 0 can't be written.
pub(super) fn word(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b':' | b'@' | b'%');
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    out.push('"');
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    out.push('"');
    out
}

/// A text where tmux expects a format: it comes out as it is. Hashes before `[` are left alone by
/// tmux, since that is a style; an empty expansion keeps the two apart.
pub(super) fn format(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut is_behind_hash = false;
    for c in text.chars() {
        match c {
            '#' => out.push_str("##"),
            '[' if is_behind_hash => out.push_str("#{l:}["),
            c => out.push(c),
        }
        is_behind_hash = c == '#';
    }
    out
}

/// A title: one line of what a terminal can show, as a format.
pub(super) fn title(text: &str) -> String {
    format(&text::one_line(text, TITLE_CHARS))
}

/// What stands on an agent's pane to tell that it is the agent's. Only characters that mean nothing to
/// tmux in any place; different agents have different marks.
pub(super) fn mark(agent: &str) -> String {
    let mut out = String::with_capacity(agent.len());
    for byte in agent.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'@') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, ".{byte:02x}");
        }
    }
    out
}

/// A colour as tmux calls it: of a member's colours those that terminals do not have get a number.
/// What is no colour is that of the terminal.
pub(super) fn colour(name: &str) -> &str {
    match name {
        "purple" => "magenta",
        "orange" => "colour208",
        "pink" => "colour213",
        name if COLOURS.contains(&name) => name,
        hex if hex.len() == 7 && hex.starts_with('#') && hex[1..].bytes().all(|b| b.is_ascii_hexdigit()) => hex,
        _ => "default",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_character_that_means_something_to_a_script_is_a_number() {
        for c in " \t\n\r;#'\"\\$~{}[]()`&|<>*?!=+^,\u{1b}\u{7f}ä".chars() {
            let text = format!("a{c}");
            let numbers: String = c.to_string().bytes().map(|b| format!("\\{b:03o}")).collect();
            assert_eq!(word(&text), format!("\"a{numbers}\""));
        }
        assert_eq!(word(""), "\"\"");
        assert_eq!(word("kill-pane"), "kill-pane");
        assert_eq!(word("/a.b_c-d:@1%2"), "/a.b_c-d:@1%2");
    }

    #[test]
    fn hashes_are_doubled_and_kept_apart_from_brackets() {
        assert_eq!(format("#(x) #{y} #S # ## [z]"), "##(x) ##{y} ##S ## #### [z]");
        assert_eq!(format("#[fg=red]##["), "###{l:}[fg=red]#####{l:}[");
    }

    #[test]
    fn titles_are_one_line_without_controls() {
        assert_eq!(title("a\u{1b}]0;b\u{7}\nc\td #[x]"), "a ]0;b c d ###{l:}[x]");
        assert_eq!(title(&"x".repeat(TITLE_CHARS)), "x".repeat(TITLE_CHARS));
        assert_eq!(title(&"x".repeat(TITLE_CHARS + 1)), format!("{}…", "x".repeat(TITLE_CHARS)));
    }

    #[test]
    fn colours_are_known_to_tmux() {
        let known = ["blue", "green", "yellow", "magenta", "colour208", "colour213", "cyan", "red"];
        assert_eq!(COLOURS.map(colour), known);
        assert_eq!(colour("#00fF7a"), "#00fF7a");
        for bad in ["", "#12345", "#1234567", "#12345g", "red]#(x)", "#ä1234"] {
            assert_eq!(colour(bad), "default", "{bad}");
        }
    }

    proptest! {
        #[test]
        fn marks_differ_as_agents_do_and_need_no_escape(a in ".*", b in ".*") {
            let plain = |m: &str| m.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-@.".contains(&b));
            prop_assert!(plain(&mark(&a)) && plain(&mark(&b)));
            prop_assert_eq!(mark(&a) == mark(&b), a == b);
            prop_assert_eq!(word(&mark(&a)) == mark(&a), !a.is_empty());
        }
    }
}
