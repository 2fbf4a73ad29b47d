//! A card of the task board, `N.json` (formats B.5).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::kept::{Kept, Object, lenient, parse_object, to_pretty_bytes};

/// Number of a card: 1 and up, such as JavaScript can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CardId(u64);

impl CardId {
    /// The largest number.
    pub const MAX: u64 = (1 << 53) - 1;

    /// From a number; `None` for 0 and what is too large.
    pub fn new(number: u64) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// Reads `7` or `#7`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.strip_prefix('#').unwrap_or(text);
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        digits.parse().ok().filter(|_| plain).and_then(Self::new)
    }

    /// The card of the file `7.json`.
    pub fn of_file(file: &str) -> Option<Self> {
        file.strip_suffix(".json").and_then(Self::parse).filter(|id| id.file() == file)
    }

    /// `7.json`.
    pub fn file(self) -> String {
        format!("{}.json", self.0)
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for CardId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("not the number of a card: {text:?}"))
    }
}

impl From<CardId> for String {
    fn from(id: CardId) -> Self {
        id.to_string()
    }
}

/// How far a card is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Status {
    /// Nobody has begun.
    #[default]
    Pending,
    /// Its owner works on it.
    InProgress,
    /// Done.
    Completed,
    /// Something of another program; such a card is shown and left alone.
    Other(String),
}

impl Status {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Status {
    fn from(word: String) -> Self {
        match word.as_str() {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            _ => Self::Other(word),
        }
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// Its number.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<CardId>,
    /// What is to be done, in a few words.
    #[serde(deserialize_with = "lenient")]
    pub subject: String,
    /// What is to be done.
    #[serde(deserialize_with = "lenient")]
    pub description: String,
    /// What is being done while it is in progress.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
    /// Exact name of the member whose it is; see [`Self::owner`].
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How far it is.
    #[serde(deserialize_with = "lenient")]
    pub status: Status,
    /// Cards that wait for this one.
    #[serde(deserialize_with = "links")]
    pub blocks: Vec<CardId>,
    /// Cards that this one waits for.
    #[serde(deserialize_with = "links")]
    pub blocked_by: Vec<CardId>,
    /// Anything.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// Those entries of a list that can be a card.
fn links<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<CardId>, D::Error> {
    let id = |value: &Value| match value {
        Value::String(text) => CardId::parse(text),
        Value::Number(number) => number.as_u64().and_then(CardId::new),
        _ => None,
    };
    Ok(Value::deserialize(from)?.as_array().into_iter().flatten().filter_map(id).collect())
}

/// The key of [`Card::metadata`] under which it says why a card was taken from its owner.
pub const NOTE: &str = "leadNote";

impl Card {
    /// Its owner, if it has one.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref().filter(|o| !o.is_empty())
    }

    /// Why it was last taken from an owner.
    pub fn note(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(NOTE)?.as_str()
    }

    /// Takes it from its owner, for this reason: it is pending again.
    pub fn free(&mut self, note: String) {
        self.owner = None;
        self.status = Status::Pending;
        self.metadata.get_or_insert_default().insert(NOTE.to_owned(), note.into());
    }
}

impl Kept<Card> {
    /// Reads the file of the card `id`; the reason if that is none. Its name counts, should it say
    /// another number inside.
    pub fn parse(bytes: &[u8], id: CardId) -> Result<Self, String> {
        let mut card: Kept<Card> = Kept::of(parse_object(bytes)?)?;
        card.edit(|c| c.id = Some(id));
        Ok(card)
    }

    /// As it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_pretty_bytes(self.object())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> CardId {
        CardId::new(number).unwrap()
    }

    #[test]
    fn numbers_are_read_as_models_write_them_and_nothing_else_is_a_card() {
        for (text, number) in [("1", 1), ("#12", 12), (" 7 ", 7), ("9007199254740991", CardId::MAX)] {
            assert_eq!(CardId::parse(text), Some(id(number)), "{text}");
        }
        for text in ["", "0", "#", "01", "+1", "-1", "1.5", "9007199254740992", "99999999999999999999", "x", "٣"] {
            assert_eq!(CardId::parse(text), None, "{text}");
        }
        assert_eq!(CardId::of_file("12.json"), Some(id(12)));
        for file in ["#1.json", " 1.json", "1.json.tmp", "x.json", ".1.json", "1"] {
            assert_eq!(CardId::of_file(file), None, "{file}");
        }
    }

    #[test]
    fn a_card_of_another_program_is_kept_but_for_what_is_changed() {
        let json = r#"{
  "id": "4",
  "subject": "s",
  "description": "d",
  "status": "on_hold",
  "blocks": [
    "x",
    5
  ],
  "blockedBy": [],
  "zeta": {
    "b": 1,
    "a": []
  }
}"#;
        let mut card = Kept::<Card>::parse(json.as_bytes(), id(4)).unwrap();
        assert_eq!(String::from_utf8(card.to_bytes()).unwrap(), json);
        assert_eq!((&card.status, &card.blocks), (&Status::Other("on_hold".into()), &vec![id(5)]));
        card.edit(|c| c.owner = Some("w".into()));
        let with_owner = format!("{},\n  \"owner\": \"w\"\n}}", json.strip_suffix("\n}").unwrap());
        assert_eq!(String::from_utf8(card.to_bytes()).unwrap(), with_owner);
        let other = Kept::<Card>::parse(json.as_bytes(), id(9)).unwrap();
        assert_eq!(other.id, Some(id(9)));
        for bad in ["", "{", "[]", "null", "{}x"] {
            assert!(Kept::<Card>::parse(bad.as_bytes(), id(1)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_new_card_has_the_fields_that_others_read() {
        let card = Card { id: Some(id(1)), subject: "s".into(), description: "d".into(), ..Card::default() };
        let bytes = serde_json::to_string(Kept::new(card).object()).unwrap();
        let wanted = r#"{"id":"1","subject":"s","description":"d","status":"pending","blocks":[],"blockedBy":[]}"#;
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn r045_a_freed_card_says_why() {
        let mut card = Card { owner: Some("w".into()), status: Status::InProgress, ..Card::default() };
        card.metadata = serde_json::from_str(r#"{"mine":1}"#).unwrap();
        card.free("w ended".into());
        assert_eq!((card.owner(), &card.status, card.note()), (None, &Status::Pending, Some("w ended")));
        assert_eq!(serde_json::to_string(&card.metadata).unwrap(), r#"{"mine":1,"leadNote":"w ended"}"#);
        assert_eq!(Card { owner: Some(String::new()), ..Card::default() }.owner(), None);
    }
}
