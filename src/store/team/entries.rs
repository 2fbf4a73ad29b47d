//! The entries of a mailbox file as pieces of its bytes, so that rewriting it changes what is meant
//! to change and nothing else. Pure.

use std::ops::Range;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::core::team::Mail;
use crate::core::team::kept::{BOM, mend_surrogates};

/// An entry.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its place in the file, from 0.
    pub index: usize,
    /// Where it is in the file.
    pub at: Range<usize>,
    /// What it says, or why that can't be told.
    pub mail: Result<Mail, String>,
    /// Where the values of its fields are, from its beginning.
    read: Option<Range<usize>>,
    msg_id: Option<Range<usize>>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    read: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    msg_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow, default)]
    read: Option<&'a RawValue>,
}

/// Also of a null: the field is there.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// The entries of a mailbox file; the reason if it is none.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    parse_where(bytes, |_| true)
}

/// Those of them that are not marked read. Most are, and looking into each takes its time.
pub(super) fn parse_unread(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    parse_where(bytes, |raw| !is_marked_read(raw))
}

fn parse_where(bytes: &[u8], is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Entry>, String> {
    let array = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let raw: Vec<&RawValue> = serde_json::from_slice(array).map_err(|e| e.to_string())?;
    let all = raw.into_iter().map(RawValue::get).enumerate();
    Ok(all.filter(|(_, raw)| is_wanted(raw)).map(|(n, raw)| Entry::of(n, raw, range_in(bytes, raw))).collect())
}

fn is_marked_read(raw: &str) -> bool {
    serde_json::from_str::<Read<'_>>(raw).is_ok_and(|fields| fields.read.is_some_and(|read| read.get() == "true"))
}

/// Where a piece of `whole` is in it.
fn range_in(whole: &[u8], piece: &str) -> Range<usize> {
    let start = piece.as_ptr().addr() - whole.as_ptr().addr();
    start..start + piece.len()
}

impl Entry {
    fn of(index: usize, raw: &str, at: Range<usize>) -> Self {
        let place = |value: Option<&RawValue>| value.map(|value| range_in(raw.as_bytes(), value.get()));
        match serde_json::from_str::<Fields<'_>>(raw) {
            Ok(fields) => {
                Self { index, at, mail: read_mail(raw), read: place(fields.read), msg_id: place(fields.msg_id) }
            }
            Err(e) => Self { index, at, mail: Err(e.to_string()), read: None, msg_id: None },
        }
    }

    /// Whether its receiver is done with it: it is read, or can't be.
    pub(super) fn is_done(&self) -> bool {
        self.mail.as_ref().map_or(true, |mail| mail.read)
    }

    /// Its text with `"read": true`.
    pub(super) fn marked(&self, raw: &str) -> String {
        with_value(raw, self.read.as_ref(), "read", "true")
    }

    /// Its text with this id.
    pub(super) fn stamped(&self, raw: &str, id: &str) -> String {
        with_value(raw, self.msg_id.as_ref(), "msg_id", &format!("\"{id}\""))
    }
}

/// Whether this is an entry that can be read.
pub(super) fn is_mail(raw: &str) -> bool {
    Entry::of(0, raw, 0..raw.len()).mail.is_ok()
}

/// Reads an entry. What is optional may be of any type.
fn read_mail(raw: &str) -> Result<Mail, String> {
    match serde_json::from_str(raw) {
        Ok(mail) => Ok(mail),
        Err(e) => mend_surrogates(raw.as_bytes())
            .and_then(|mended| serde_json::from_slice(&mended).ok())
            .ok_or_else(|| e.to_string()),
    }
}

fn with_value(raw: &str, place: Option<&Range<usize>>, name: &str, value: &str) -> String {
    match place {
        Some(place) => format!("{}{value}{}", &raw[..place.start], &raw[place.end..]),
        None => {
            // Mail has fields, so there is something before the bracket.
            let end = raw.rfind('}').unwrap_or(raw.len());
            let fields = raw[..end].trim_ascii_end();
            format!("{fields},\"{name}\":{value}{}", &raw[fields.len()..])
        }
    }
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Drop,
    Become(String),
}

/// The file with each entry's fate carried out. Everything else of it stays byte for byte.
pub(super) fn rebuild(bytes: &[u8], entries: &[Entry], fates: &[Fate]) -> Vec<u8> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return bytes.to_vec() };
    let mut out = bytes[..first.at.start].to_vec();
    let mut is_first = true;
    let mut before = first.at.start;
    for (entry, fate) in entries.iter().zip(fates) {
        // The comma and the white space in front of it.
        let gap = &bytes[before..entry.at.start];
        before = entry.at.end;
        let text = match fate {
            Fate::Drop => continue,
            Fate::Keep => &bytes[entry.at.clone()],
            Fate::Become(text) => text.as_bytes(),
        };
        if !is_first {
            out.extend_from_slice(gap);
        }
        is_first = false;
        out.extend_from_slice(text);
    }
    out.extend_from_slice(&bytes[last.at.end..]);
    out
}
