//! Where in the text of a settings file a value stands: for messages that name line and column, and
//! for changing a file without touching anything else in it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The value at the dotted path `path` (`permissions.deny[1]`, or empty for the whole), as a piece of
/// `text`. Names may hold dots themselves. Of keys that occur twice the last one counts, as for
/// whoever reads the file.
pub(super) fn find<'t>(text: &'t str, path: &str) -> Option<&'t str> {
    if path.is_empty() {
        return Some(text.trim());
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let item: &'t RawValue = items.get(index.parse::<usize>().ok()?)?;
        return find(item.get(), rest.strip_prefix('.').unwrap_or(rest));
    }
    let Members(members) = serde_json::from_str(text).ok()?;
    members.iter().rev().find_map(|(name, value)| {
        let rest = path.strip_prefix(name.as_str())?;
        match rest.chars().next() {
            None => Some(value.get()),
            Some('.') => find(value.get(), &rest[1..]),
            Some('[') => find(value.get(), rest),
            Some(_) => None,
        }
    })
}

/// Line and column of the value at `path`, or of what it would stand in, both from 1.
pub(super) fn position(text: &str, path: &str) -> (usize, usize) {
    let mut path = path;
    loop {
        if let Some(piece) = find(text, path) {
            return line_and_column(text, offset(text, piece));
        }
        path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
    }
}

/// Where `piece`, which is a part of `text`, begins in it.
pub(super) fn offset(text: &str, piece: &str) -> usize {
    piece.as_ptr() as usize - text.as_ptr() as usize
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// An object's members in the order of the text.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"a\": {\"b.c\": [1, {\"d\": \"é\"}]},\n  \"x\": 1, \"x\":\t{ \"y\": null }\n}";

    #[test]
    fn values_are_found_by_their_path() {
        let rows = [
            ("a.b.c[1].d", Some("\"é\"")),
            ("a.b.c[0]", Some("1")),
            ("x", Some("{ \"y\": null }")),
            ("x.y", Some("null")),
            ("a.b", None),
            ("a.b.c[7]", None),
            ("a.b.c.d", None),
            ("nope", None),
        ];
        for (path, piece) in rows {
            assert_eq!(find(TEXT, path), piece, "{path}");
        }
    }

    #[test]
    fn positions_count_from_one_and_fall_back_to_what_is_there() {
        assert_eq!(position(TEXT, "a.b.c[1].d"), (2, 26));
        assert_eq!(position(TEXT, "x.y"), (3, 23));
        assert_eq!(position(TEXT, "x.y.z.w"), (3, 23));
        assert_eq!(position(TEXT, "a.b.c[1].e"), (2, 20));
        assert_eq!(position(TEXT, ""), (1, 1));
        assert_eq!(position("  [1]", "the whole"), (1, 3));
    }
}
