//! A typed view of a JSON object that several programs write: fields we do not know stay, and the
//! order of all of them stays.

use std::ops::Deref;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// A JSON object whose fields have an order.
pub type Object = Map<String, Value>;

/// An object and what we understand of it. `T` serializes to an object and reads any (its fields
/// are lenient), so that a field of another type than ours is as if it were not there and
/// still is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T> {
    object: Object,
    view: T,
}

impl<T: Serialize + DeserializeOwned> Kept<T> {
    /// A new object of what we know.
    pub fn new(view: T) -> Self {
        Self { object: to_object(&view), view }
    }

    /// What there is of `T` in `object`; the reason if there is nothing.
    pub fn of(object: Object) -> Result<Self, String> {
        let view = T::deserialize(Value::Object(object.clone())).map_err(|e| e.to_string())?;
        Ok(Self { object, view })
    }

    /// Changes what we know. Only fields whose value becomes another are touched; new ones go to
    /// the end.
    pub fn edit<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let before = to_object(&self.view);
        let result = change(&mut self.view);
        let after = to_object(&self.view);
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            self.object.shift_remove(name);
        }
        for (name, value) in after {
            if before.get(&name) != Some(&value) {
                self.object.insert(name, value);
            }
        }
        result
    }

    /// All of it, unknown fields included.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.view
    }
}

fn to_object<T: Serialize>(view: &T) -> Object {
    match serde_json::to_value(view) {
        Ok(Value::Object(object)) => object,
        // No view of ours: they are structs with string keys.
        _ => Object::new(),
    }
}

/// Reads a field, or `None` (the default) if it has a type that we do not expect.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// As other programs write these files: 2 spaces, no newline at the end.
pub(super) fn to_pretty_bytes(object: &Object) -> Vec<u8> {
    // A map of values with string keys can always be written.
    serde_json::to_vec_pretty(object).unwrap_or_default()
}

/// Reads an object. Half a surrogate pair, which JavaScript writes where a text was cut, becomes
/// U+FFFD.
pub(super) fn parse_object(bytes: &[u8]) -> Result<Object, String> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(object) => Ok(object),
        Err(e) => mend_surrogates(bytes).and_then(|b| serde_json::from_slice(&b).ok()).ok_or_else(|| e.to_string()),
    }
}

/// What some editors put before UTF-8.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Replaces `\ud83d` without its other half by `\ufffd`, the same in length; `None` if there is
/// none.
pub fn mend_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < json.len() {
        if json[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(json, at) {
            Some(0xd800..=0xdbff) if matches!(unit(json, at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                mended.get_or_insert_with(|| json.to_vec())[at..at + 6].copy_from_slice(b"\\ufffd");
                at += 6;
            }
            _ => at += 2,
        }
    }
    mended
}

/// The code unit of the escape `\uXXXX` at `at`.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let escape = json.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u").filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct View {
        #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    }

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn only_what_changes_is_touched_and_the_order_stays() {
        let mut kept = Kept::<View>::of(object(json!({"z": [1], "count": "many", "name": "a", "b": {}}))).unwrap();
        assert_eq!((kept.name.as_deref(), kept.count), (Some("a"), None));
        kept.edit(|v| v.name = Some("c".into()));
        assert_eq!(Value::Object(kept.object().clone()).to_string(), r#"{"z":[1],"count":"many","name":"c","b":{}}"#);
        kept.edit(|v| {
            v.name = None;
            v.count = Some(3);
        });
        assert_eq!(Value::Object(kept.object().clone()).to_string(), r#"{"z":[1],"count":3,"b":{}}"#);
    }

    #[test]
    fn halves_of_surrogate_pairs_become_replacement_characters() {
        let read = |json: &str| parse_object(json.as_bytes()).map(|o| o["t"].as_str().unwrap().to_owned());
        assert_eq!(read(r#"{"t":"\ud83d\ude00"}"#).unwrap(), "\u{1f600}");
        assert_eq!(read(r#"{"t":"a\ud83db"}"#).unwrap(), "a\u{fffd}b");
        assert_eq!(read(r#"{"t":"\ude00\ud83d\ud83d\ude00"}"#).unwrap(), "\u{fffd}\u{fffd}\u{1f600}");
        assert_eq!(read(r#"{"t":"\\ud83d"}"#).unwrap(), "\\ud83d");
        assert_eq!(mend_surrogates(br#"{"t":"\\ud83d \u00e9"}"#), None);
        assert_eq!(read("\u{feff}{\"t\":\"x\"}").unwrap(), "x");
        assert!(read(r#"{"t":"\ud83d""#).is_err());
    }
}
