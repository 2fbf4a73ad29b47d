//! Why a piece of text was not found in a file, as far as the file tells: what is most like it, and in
//! what they differ. Pure.

use super::lines::{name_lines, numbered, quoted, without_numbers};

/// Lines of the file that are shown.
const SHOWN: usize = 12;
/// Places that are compared when nothing is alike but single lines.
const PLACES: usize = 200;
/// Lines compared with lines at the most, in each way.
const COMPARED: usize = 10_000_000;
/// Shortest line that says where a piece may belong, characters.
const TELLING: usize = 6;

/// A way to look away from a difference.
type Blur = fn(&str) -> String;

const BLURS: [(&str, Blur); 4] = [
    ("white space", no_space),
    ("quotes or dashes", plain),
    ("upper and lower case", lower),
    ("several small things", all),
];

/// What to tell about `old`, which is not in `text`.
pub(super) fn nearest(text: &str, old: &str) -> String {
    if let Some(stripped) = without_numbers(old)
        && text.replace("\r\n", "\n").contains(&stripped)
    {
        return "the line numbers that Read puts before the lines are no part of the file: leave them out".to_owned();
    }
    let file: Vec<&str> = text.lines().collect();
    let wanted: Vec<&str> = old.lines().collect();
    let blank = |line: &&&str| line.trim().is_empty();
    let wanted = &wanted[wanted.iter().take_while(blank).count()..];
    let wanted = &wanted[..wanted.len() - wanted.iter().rev().take_while(blank).count()];
    if wanted.is_empty() {
        return "it is white space only, and the file has no such piece".to_owned();
    }
    let affordable = file.len().saturating_mul(wanted.len()) <= COMPARED;
    for (what, blur) in BLURS.into_iter().filter(|_| affordable) {
        let blurred: Vec<String> = file.iter().map(|line| blur(line)).collect();
        let sought: Vec<String> = wanted.iter().map(|line| blur(line)).collect();
        let places = places(&blurred, &sought);
        if let Some(first) = places.first() {
            let numbers: Vec<usize> = places.iter().map(|at| at + 1).collect();
            return format!(
                "it differs only in {what} from what begins in {}:\n{}",
                name_lines(&numbers),
                compared(&file, *first, wanted)
            );
        }
    }
    match most_alike(&file, wanted) {
        Some(at) => format!("the closest is what begins in line {}:\n{}", at + 1, compared(&file, at, wanted)),
        None => format!("nothing like it is among its {} lines", file.len()),
    }
}

/// Where `sought` stands in `file`. Its first line may be the end of one, its last line the beginning.
fn places(file: &[String], sought: &[String]) -> Vec<usize> {
    let last = sought.len() - 1;
    let fits =
        |window: &[String]| sought.iter().zip(window).enumerate().all(|(n, (part, line))| fits(n, last, part, line));
    if sought.iter().all(String::is_empty) {
        return Vec::new();
    }
    file.windows(sought.len()).enumerate().filter(|(_, w)| fits(w)).map(|(at, _)| at).take(PLACES).collect()
}

/// Whether line `n` of a piece that ends with line `last` is (or begins, or ends) that line of a file.
fn fits(n: usize, last: usize, part: &str, line: &str) -> bool {
    match n {
        0 if last == 0 => line.contains(part),
        0 => line.ends_with(part),
        _ if n == last => line.starts_with(part),
        _ => line == part,
    }
}

/// Where most lines are the same but for white space, if any line that tells something is.
fn most_alike(file: &[&str], wanted: &[&str]) -> Option<usize> {
    let same = |a: &str, b: &str| a.trim() == b.trim();
    let mut telling = wanted.iter().enumerate().filter(|(_, line)| line.trim().chars().count() >= TELLING).take(50);
    let (offset, anchor) = telling.find(|(_, a)| file.iter().any(|line| same(line, a)))?;
    let starts =
        file.iter().enumerate().filter(|(_, line)| same(line, anchor)).map(|(at, _)| at.saturating_sub(offset));
    let score = |start: &usize| wanted.iter().zip(&file[*start..]).filter(|(a, b)| same(a, b)).count();
    // Of equals the first.
    starts.take(PLACES).collect::<Vec<_>>().into_iter().rev().max_by_key(score)
}

/// The lines of the file from `at`, and the first one that differs beside what was given.
fn compared(file: &[&str], at: usize, wanted: &[&str]) -> String {
    let mut out = String::new();
    let window = file[at..].iter().take(wanted.len());
    for (number, line) in (at + 1..).zip(window.clone()).take(SHOWN) {
        out.push_str(&numbered(number, line, line.len()));
    }
    if wanted.len() > SHOWN {
        out.push_str("   ...\n");
    }
    let differs = |(n, (line, given)): &(usize, (&&str, &&str))| !fits(*n, wanted.len() - 1, given, line);
    match window.zip(wanted).enumerate().find(differs) {
        Some((n, (line, given))) => {
            out.push_str(&format!("line {} has {}, you gave {}", at + 1 + n, quoted(line), quoted(given)));
        }
        None => out.push_str("the lines are there, but not one after the other as you gave them"),
    }
    out
}

/// Without any white space.
fn no_space(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace() && *c != '\u{200b}' && *c != '\u{feff}').collect()
}

/// With the quotes, dashes and blanks of a keyboard.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{2032}' | '`' | '"' => out.push('\''),
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{ab}' | '\u{bb}' | '\u{2033}' => out.push('\''),
            '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
            '\u{2026}' => out.push_str("..."),
            '\u{a0}' | '\u{202f}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn lower(line: &str) -> String {
    line.to_lowercase()
}

fn all(line: &str) -> String {
    lower(&plain(&no_space(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn main() {\n\tlet name = \"x\";\n\tprint(name);\n}\n\nfn other() {\n    it\u{2019}s(1);\n    print(name);\n}\n";

    #[test]
    fn the_difference_is_named() {
        for (old, expected) in [
            ("    let name = \"x\";", "only in white space from what begins in line 2:\n     2\t\tlet"),
            ("    let name = \"x\";", r#"line 2 has "\tlet name = \"x\";", you gave "    let name = \"x\";""#),
            ("\n{\n    let name = \"x\";\n    pri", "white space from what begins in line 1"),
            ("let name = 'x'", "only in quotes or dashes from what begins in line 2"),
            ("it's(1)", "only in quotes or dashes from what begins in line 7"),
            ("FN main()", "only in upper and lower case from what begins in line 1"),
            ("LET  name = 'x'", "only in several small things"),
            ("print( name )", "only in white space from what begins in lines 3 and 8"),
            ("     1\tfn main() {\n     2\t\tlet name", "line numbers that Read puts"),
            ("fn other() {\n    it_is(1);\n    print(name);", "the closest is what begins in line 6"),
            (
                "fn other() {\n    it_is(1);\n    print(name);",
                "line 7 has \"    it’s(1);\", you gave \"    it_is(1);\"",
            ),
            ("unheard of", "nothing like it is among its 9 lines"),
            (" \n\n\n", "white space only"),
        ] {
            let told = nearest(FILE, old);
            assert!(told.contains(expected), "{old:?}: {told}");
        }
        assert!(nearest("", "x").contains("0 lines"));
        let anchored = nearest("a longer line\nb\n", "zzz\nyyy\na longer line");
        assert!(anchored.contains("begins in line 1"), "{anchored}");
    }

    #[test]
    fn it_says_little_of_much() {
        let file = "some longer line\n".repeat(100_000);
        let told = nearest(&file, &"some  longer line\n".repeat(1000));
        assert!(told.len() < 2000, "{}", told.len());
        let told = nearest(&file, &format!("{}x", "some longer line\n".repeat(1000)));
        assert!(told.len() < 2000 && told.contains("closest"), "{told}");
    }
}
