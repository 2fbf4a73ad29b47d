//! Which files a Markdown text imports by `@path`: pure, nothing is looked up.

/// Imports of one text that count.
const IMPORTS: usize = 100;

/// The paths behind each `@` that begins a word outside of code, in order. A path ends at white
/// space; `\ ` stands for a blank in it.
pub(super) fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The fence that is open: its character and length.
    let mut fence: Option<(char, usize)> = None;
    for line in text.lines() {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| line.chars().take_while(|c| *c == mark).count());
        match (fence, mark) {
            (Some((open, least)), Some(mark))
                if mark == open && length >= least && line[length..].trim().is_empty() =>
            {
                fence = None;
            }
            (Some(_), _) => {}
            // With a further backtick it is code within a line.
            (None, Some(mark)) if length >= 3 && !(mark == '`' && line[length..].contains('`')) => {
                fence = Some((mark, length));
            }
            (None, _) => of_line(line, &mut found),
        }
    }
    found.truncate(IMPORTS);
    found
}

fn of_line(line: &str, found: &mut Vec<String>) {
    let mut rest = line;
    let mut begins_word = true;
    while let Some(c) = rest.chars().next() {
        if c == '`' {
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            rest = after_code(&rest[ticks..], ticks);
            begins_word = false;
        } else if c == '@' && begins_word {
            let (path, after) = path(&rest[1..]);
            if !path.is_empty() {
                found.push(path);
            }
            rest = after;
            begins_word = false;
        } else {
            begins_word = c.is_whitespace();
            rest = &rest[c.len_utf8()..];
        }
    }
}

/// What follows the code that was opened by so many backticks; code that is not closed is none.
fn after_code(text: &str, ticks: usize) -> &str {
    let mut at = 0;
    while let Some(next) = text[at..].find('`') {
        let begin = at + next;
        let length = text[begin..].len() - text[begin..].trim_start_matches('`').len();
        at = begin + length;
        if length == ticks {
            return &text[at..];
        }
    }
    text
}

/// A path and what follows it.
fn path(text: &str) -> (String, &str) {
    let mut path = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && chars.next_if(|(_, next)| *next == ' ').is_some() {
            path.push(' ');
        } else if c.is_whitespace() {
            return (path, &text[at..]);
        } else {
            path.push(c);
        }
    }
    (path, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_outside_of_code_import() {
        for (text, paths) in [
            ("See @docs/a.md and @~/b.md.\n- @/abs/c", vec!["docs/a.md", "~/b.md.", "/abs/c"]),
            ("@a\\ b.md x", vec!["a b.md"]),
            ("me@example.com (@x) @", vec![]),
            ("`@no` @yes `` `@no` `` @also", vec!["yes", "also"]),
            ("```sh\n@no\n``` x\n@no\n```\n@yes", vec!["yes"]),
            ("~~~~\n@no\n```\n~~~\n@no\n~~~~~\n@yes", vec!["yes"]),
            ("  ```\n  @no", vec![]),
            ("```one line``` @yes", vec!["yes"]),
            ("an open ` tick @yes", vec!["yes"]),
            ("ä`ö`ü @é.md", vec!["é.md"]),
            ("", vec![]),
        ] {
            assert_eq!(imports(text), paths, "{text:?}");
        }
        assert_eq!(imports(&"@x ".repeat(IMPORTS + 1)).len(), IMPORTS);
    }
}
