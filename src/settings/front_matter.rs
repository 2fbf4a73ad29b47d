//! Markdown with YAML front matter: what stands between two `---` lines at the begin of a file.

use serde::de::DeserializeOwned;

use crate::core::text::one_line;

/// What is wrong with the front matter of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The line of the file, from 1; 0 if it is not known.
    pub line: u64,
    /// In words.
    pub reason: String,
}

/// Reads `text` into its front matter and its body. A file without front matter, or with nothing in
/// it, has what `T` reads from an empty map. Keys that `T` does not know are left to it.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<(T, &str), Flaw> {
    let (yaml, body) = split(text)?;
    let yaml =
        if yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) { "{}" } else { yaml };
    match serde_saphyr::from_str(yaml) {
        Ok(read) => Ok((read, body)),
        Err(error) => {
            // The line of the file: one more than that below the first `---`.
            let line = error.location().map_or(0, |place| place.line() + 1);
            let shown = error.without_snippet().to_string();
            let reason = shown.rsplit_once(" at line ").map_or(shown.as_str(), |(reason, _)| reason);
            Err(Flaw { line, reason: one_line(reason, 300) })
        }
    }
}

fn split(text: &str) -> Result<(&str, &str), Flaw> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(rest) = rest_after_rule(text) else { return Ok(("", text)) };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if is_rule(line) {
            return Ok((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    Err(Flaw { line: 1, reason: "the front matter has no second line of ---".to_owned() })
}

fn rest_after_rule(text: &str) -> Option<&str> {
    let line = text.split_inclusive('\n').next()?;
    is_rule(line).then(|| &text[line.len()..])
}

fn is_rule(line: &str) -> bool {
    line.trim_end() == "---"
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Head {
        name: Option<String>,
        flag: bool,
    }

    fn head(name: &str, flag: bool) -> Head {
        Head { name: Some(name.to_owned()), flag }
    }

    #[test]
    fn front_matter_and_body_are_told_apart() {
        for (text, expected, body) in [
            ("---\nname: a\nflag: true\nother: [1]\n---\nbody\n---\nmore", head("a", true), "body\n---\nmore"),
            ("\u{feff}---\r\nname: a\r\n---\r\nbody", head("a", false), "body"),
            ("---\nname: 12\n---", head("12", false), ""),
            ("---\n# nothing\n---\nbody", Head::default(), "body"),
            ("---\n---\n", Head::default(), ""),
            ("no head\n---\nx", Head::default(), "no head\n---\nx"),
            ("", Head::default(), ""),
        ] {
            assert_eq!(read::<Head>(text), Ok((expected, body)), "{text:?}");
        }
    }

    #[test]
    fn a_flaw_has_its_line_in_the_file() {
        let flaw = |text: &str| read::<Head>(text).unwrap_err();
        assert_eq!(flaw("---\nname: a\n").line, 1);
        assert!(flaw("---\nname: a\n").reason.contains("second line"));
        let twice = flaw("---\nname: a\nname: b\n---\n");
        assert!(twice.line == 3 && twice.reason.contains("duplicate"), "{twice:?}");
        let nested = flaw("---\nname: a\nflag: x: y\n---\n");
        assert!(nested.line == 3 && !nested.reason.contains("line"), "{nested:?}");
        assert_eq!(flaw("---\nflag: maybe\n---\n").line, 2);
    }
}
