//! Names of teams and members, and the files they stand for. Two different names never stand for
//! the same file, and no name leads out of its folder.

use super::super::ids;
pub use super::super::ids::{NAME_BYTES, is_plain_name as is_plain};

/// Name of a team's lead among its members.
pub const LEAD: &str = "team-lead";

/// Whether two names are the same: case does not count.
pub fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// The name of the folder or file that other programs make for a name: every character that is no
/// ASCII letter or digit becomes `-`.
pub fn sanitise(name: &str) -> String {
    // Characters as JavaScript counts them, which is how those programs replace them.
    name.encode_utf16()
        .map(|unit| u8::try_from(unit).ok().filter(u8::is_ascii_alphanumeric).map_or('-', char::from))
        .collect()
}

/// What the inbox of `member` is called, without `.json`: its name, or the sanitised form if
/// another program gave it one that no file can have. `None` if another of `members` has the same
/// file: nobody could tell whose mail it is.
pub fn inbox_stem<'a>(member: &str, members: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let stem = |name: &str| if is_plain(name) { name.to_owned() } else { sanitise(name) };
    let mine = stem(member);
    let is_shared = members.into_iter().any(|other| other != member && same(&stem(other), &mine));
    (!mine.is_empty() && mine.len() <= 200 && !is_shared).then_some(mine)
}

/// Checks a name that a member is to have; the error suggests another.
pub fn check_member(name: &str) -> Result<(), String> {
    ids::check_name(name)
}

/// Checks a name that a team is to have; the error suggests another.
pub fn check_team(name: &str) -> Result<(), String> {
    ids::check_name_of("team", name)
}

/// `wanted`, or with `-2`, `-3`, … behind it the first that is not taken. A long one is cut, so
/// that it stays a name.
pub fn unique(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(wanted) {
        return wanted.to_owned();
    }
    let mut number: u64 = 2;
    loop {
        let end = format!("-{number}");
        let room = NAME_BYTES - end.len();
        let stem: String = wanted.chars().take(room).collect();
        let name = format!("{stem}{end}");
        if !is_taken(&name) {
            return name;
        }
        number += 1;
    }
}

/// The id of a member, as other programs write it.
pub fn agent_id(member: &str, team: &str) -> String {
    format!("{member}@{team}")
}

/// Colours of members, in the order in which they are given.
pub const COLOURS: [&str; 8] = ["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"];

/// The colour of the next member: the first of those that the fewest have.
pub fn next_colour<'a>(taken: impl Iterator<Item = &'a str> + Clone) -> &'static str {
    let uses = |colour: &str| taken.clone().filter(|t| *t == colour).count();
    COLOURS.into_iter().min_by_key(|colour| uses(colour)).unwrap_or(COLOURS[0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn folders_of_others_are_found_by_their_rule() {
        assert_eq!(sanitise("obs team!"), "obs-team-");
        assert_eq!(sanitise("my_team"), "my-team");
        assert_eq!(sanitise("研究員"), "---");
        assert_eq!(sanitise("\u{1f600}"), "--", "two units in JavaScript");
        assert_eq!(sanitise("../../x"), "------x");
    }

    #[test]
    fn r108_two_names_never_have_one_inbox() {
        let stem = |name: &str, others: &[&str]| inbox_stem(name, others.iter().copied());
        assert_eq!(stem("worker", &["worker", "team-lead"]).as_deref(), Some("worker"));
        assert_eq!(stem("my worker", &["my worker", "x"]).as_deref(), Some("my-worker"));
        assert_eq!(stem("my worker", &["my worker", "my-worker"]), None);
        assert_eq!(stem("my-worker", &["my worker", "my-worker"]), None);
        assert_eq!(stem("研究員", &["研究員", "分析者"]), None);
        assert_eq!(stem("Caf\u{e9}", &["Caf\u{e9}", "Cafe\u{301}"]).as_deref(), Some("Caf-"), "the other is Cafe-");
        assert_eq!(stem("Worker", &["Worker", "worker"]), None, "one file where case does not count");
        assert_eq!(stem("", &[""]), None);
        assert_eq!(stem(&"x".repeat(300), &[]), None);
    }

    #[test]
    fn a_taken_name_gets_the_first_free_number() {
        let taken = ["a", "A-2", "b"];
        let is_taken = |name: &str| taken.iter().any(|t| same(t, name));
        assert_eq!(unique("c", is_taken), "c");
        assert_eq!(unique("A", is_taken), "A-3");
        let long = "x".repeat(64);
        let second = unique(&long, |name| name == long);
        assert_eq!(second, format!("{}-2", "x".repeat(62)));
        assert!(is_plain(&second));
    }

    #[test]
    fn colours_go_round_and_fill_gaps() {
        let mut given: Vec<&str> = Vec::new();
        for _ in 0..9 {
            given.push(next_colour(given.iter().copied()));
        }
        assert_eq!(given[..8], COLOURS);
        assert_eq!(given[8], "blue");
        given.remove(1);
        assert_eq!(next_colour(given.into_iter()), "green");
    }

    #[test]
    fn r107_bad_names_are_refused_with_one_that_would_do() {
        let long = "x".repeat(300);
        let two_forms = ["Caf\u{e9}", "Cafe\u{301}"];
        let bad = ["", "研究員", "../../x", "a/b", "/etc/passwd", ".", "..", "-x", "--", "_x", "a\nb", "a\0b", "a b"];
        let reserved = ["team-lead", "Team-Lead", "user", "MAIN", "*", "a-1a2b3c4d5e6f7890", "main/", "user!"];
        for name in bad.into_iter().chain(reserved).chain(two_forms).chain([long.as_str()]) {
            for check in [check_member, check_team] {
                let refusal = check(name).unwrap_err();
                let suggestion = refusal.rsplit('"').nth(1).unwrap();
                assert_eq!(check(suggestion), Ok(()), "{name:?}: {refusal}");
                assert!(refusal.len() < 400 && !refusal.contains('\n'), "{refusal}");
            }
        }
        for good in ["a", "0", "researcher-2", "A_b", &"x".repeat(64)] {
            assert_eq!((check_member(good), check_team(good)), (Ok(()), Ok(())), "{good}");
        }
        assert!(check_member(&"x".repeat(65)).is_err());
    }

    proptest! {
        #[test]
        fn r107_whatever_a_name_is_its_file_stays_in_its_folder(name in any::<String>()) {
            prop_assert_eq!(check_member(&name).is_ok(), check_team(&name).is_ok());
            if check_member(&name).is_ok() {
                prop_assert!(is_plain(&name));
            }
            if let Some(stem) = inbox_stem(&name, [name.as_str()]) {
                prop_assert!(stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            }
        }

        #[test]
        fn r108_of_many_names_no_two_share_a_file(names in prop::collection::vec("[aAbBé研 /._-]{1,3}", 1..6)) {
            let mut stems: Vec<_> = names.iter().filter_map(|n| {
                inbox_stem(n, names.iter().map(String::as_str)).map(|s| (s.to_ascii_lowercase(), n))
            }).collect();
            stems.sort();
            stems.dedup();
            for pair in stems.windows(2) {
                prop_assert_ne!(&pair[0].0, &pair[1].0);
            }
        }
    }
}
