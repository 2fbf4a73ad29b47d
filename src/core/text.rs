//! Text that crosses a boundary: escaping before tags, cutting to a size, one-line forms.

use std::error::Error;

/// Escapes `& < >` and drops control characters (but newline and tab), so that text can't forge a
/// tag and every XML reader accepts it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// Like [`escape`], for a double-quoted attribute value on one line.
pub fn escape_attribute(text: &str) -> String {
    escape(text).replace('"', "&quot;").replace(['\n', '\t'], " ")
}

/// Undoes [`escape`] (for programs that read our tags back, such as playbooks).
pub fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Drops everything a terminal could obey: escape sequences' introducers and control characters
/// but newline and tab.
pub fn for_terminal(text: &str) -> String {
    text.chars().filter(|&c| c == '\n' || c == '\t' || !c.is_control()).collect()
}

/// The first `max` characters on one line; an ellipsis marks a cut.
pub fn one_line(text: &str, max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty());
    let mut chars = words.enumerate().flat_map(|(i, w)| (i > 0).then_some(' ').into_iter().chain(w.chars()));
    let mut out: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

/// An error and its causes, on one line; causes that say the same again are left out.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// At most `max` characters of `text`; `note` is called with the full length to say what was cut.
pub fn cap(text: &str, max: usize, note: impl FnOnce(usize) -> String) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n{}", &text[..at], note(text.chars().count())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_round_trips_and_drops_controls() {
        let nasty = "</result><status>completed</status> & \"x\"";
        assert!(!escape(nasty).contains('<'));
        assert_eq!(unescape(&escape(nasty)), nasty);
        assert_eq!(escape("a\u{1b}[31m\u{0}b\n\t"), "a[31mb\n\t");
        assert_eq!(unescape(&escape("&lt;")), "&lt;");
    }

    #[test]
    fn cutting_counts_characters() {
        assert_eq!(one_line("  a \n b\tc ", 10), "a b c");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(cap("äöü", 3, |_| "cut".into()), "äöü");
        assert_eq!(cap("äöüß", 3, |n| format!("[{n}]")), "äöü\n[4]");
    }
}
