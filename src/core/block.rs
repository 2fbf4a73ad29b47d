//! How blocks are read: each text straight into its place. Derived, as an untagged choice of kinds,
//! every block would be gathered first and then copied for each kind that is tried, which takes three
//! times as long; and a resume reads up to all blocks of a transcript.
//!
//! A block that lacks what its kind needs is kept as it is, and fails nothing.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::message::{Block, Known};
use super::server_tool::cites;

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Piece::deserialize(d).map(Self::from)
    }
}

/// Reads the `content` of a message: blocks, a text, or nothing.
pub(super) fn blocks_or_text<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Block>, D::Error> {
    Piece::deserialize(d)?.into_content().map_err(|_| D::Error::custom("content is neither a text nor blocks"))
}

/// JSON where a block or content may be.
enum Piece {
    Object(Fields),
    Array(Vec<Block>),
    Text(String),
    /// Null, a boolean or a number.
    Scalar(Value),
}

impl Piece {
    /// Back as it was if it is no content.
    fn into_content(self) -> Result<Vec<Block>, Value> {
        match self {
            Self::Array(blocks) => Ok(blocks),
            Self::Text(text) => Ok(vec![Block::text(text)]),
            Self::Scalar(Value::Null) => Ok(Vec::new()),
            Self::Scalar(other) => Err(other),
            Self::Object(fields) => Err(fields.into()),
        }
    }
}

impl From<Piece> for Block {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Object(fields) => fields.into_known().map_or_else(|fields| Self::Other(fields.into()), Self::Known),
            Piece::Array(blocks) => Self::Other(blocks.into_iter().map(Value::from).collect()),
            Piece::Text(text) => Self::Other(text.into()),
            Piece::Scalar(value) => Self::Other(value),
        }
    }
}

impl From<Block> for Value {
    fn from(block: Block) -> Self {
        match block {
            Block::Other(value) => value,
            known @ Block::Known(_) => serde_json::to_value(known).unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(PieceVisitor)
    }
}

struct PieceVisitor;

impl<'de> Visitor<'de> for PieceVisitor {
    type Value = Piece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("content")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Piece, E> {
        Ok(Piece::Scalar(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Piece, E> {
        Ok(Piece::Scalar(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Piece, E> {
        Ok(Piece::Scalar(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Piece, E> {
        Ok(Piece::Scalar(value.into()))
    }
    fn visit_str<E>(self, text: &str) -> Result<Piece, E> {
        Ok(Piece::Text(text.to_owned()))
    }
    fn visit_string<E>(self, text: String) -> Result<Piece, E> {
        Ok(Piece::Text(text))
    }
    fn visit_unit<E>(self) -> Result<Piece, E> {
        Ok(Piece::Scalar(Value::Null))
    }
    fn visit_none<E>(self) -> Result<Piece, E> {
        Ok(Piece::Scalar(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Piece, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = items.next_element()? {
            blocks.push(block);
        }
        Ok(Piece::Array(blocks))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Piece, A::Error> {
        let mut fields = Fields::default();
        while let Some(FieldName(name)) = map.next_key()? {
            if name == "content" && fields.are_of_result() {
                match map.next_value::<Piece>()?.into_content() {
                    Ok(content) => fields.content = Some(content),
                    Err(other) => fields.all.push((name, other)),
                }
            } else {
                fields.all.push((name, map.next_value()?));
            }
        }
        Ok(Piece::Object(fields))
    }
}

/// Those that most blocks have need no memory of their own.
struct FieldName(Cow<'static, str>);

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl Visitor<'_> for NameVisitor {
            type Value = FieldName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }
            fn visit_str<E>(self, name: &str) -> Result<FieldName, E> {
                const COMMON: [&str; 8] = ["type", "text", "id", "name", "input", "tool_use_id", "content", "is_error"];
                let common = COMMON.into_iter().find(|common| *common == name);
                Ok(FieldName(common.map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed)))
            }
        }
        d.deserialize_str(NameVisitor)
    }
}

/// The fields of an object, in their order.
#[derive(Default)]
struct Fields {
    all: Vec<(Cow<'static, str>, Value)>,
    /// The content of what is a tool result for certain; it is not in `all` then.
    content: Option<Vec<Block>>,
}

impl Fields {
    fn get(&self, name: &str) -> Option<&Value> {
        self.all.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn are_of_result(&self) -> bool {
        self.text("type") == Some("tool_result") && self.text("tool_use_id").is_some()
    }

    /// Null where there is none.
    fn take(&mut self, name: &str) -> Value {
        self.all.iter_mut().find(|(other, _)| other == name).map(|(_, value)| value.take()).unwrap_or_default()
    }

    /// Empty where there is none.
    fn take_text(&mut self, name: &str) -> String {
        match self.take(name) {
            Value::String(text) => text,
            _ => String::new(),
        }
    }

    /// Back as they are if they lack what their kind needs.
    fn into_known(mut self) -> Result<Known, Self> {
        let has_text = |name| self.text(name).is_some();
        let has_content = || self.get("content").is_none_or(|v| v.is_null() || v.is_string() || v.is_array());
        match self.text("type") {
            Some("text") if has_text("text") && !self.get("citations").is_some_and(cites) => {
                Ok(Known::Text { text: self.take_text("text") })
            }
            Some("tool_use") if has_text("id") && has_text("name") && self.get("input").is_some() => {
                let (id, name) = (self.take_text("id"), self.take_text("name"));
                Ok(Known::ToolUse { id, name, input: self.take("input") })
            }
            Some("tool_result") if has_text("tool_use_id") && has_content() => {
                let tool_use_id = self.take_text("tool_use_id");
                let before = self.take("content");
                let read = || Piece::deserialize(before).ok()?.into_content().ok();
                let content = self.content.take().or_else(read).unwrap_or_default();
                let is_error = self.get("is_error") == Some(&Value::Bool(true));
                Ok(Known::ToolResult { tool_use_id, content, is_error })
            }
            _ => Err(self),
        }
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        let mut all: Map<String, Value> =
            fields.all.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        if let Some(content) = fields.content {
            all.insert("content".to_owned(), content.into_iter().map(Self::from).collect());
        }
        Self::Object(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::Message;
    use super::*;

    fn read(text: &str) -> Block {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_block_that_lacks_what_its_kind_needs_is_kept_as_it_is() {
        for odd in [
            json!({"type": "text", "text": 5, "more": [1]}),
            json!({"type": "text"}),
            json!({"type": "text", "text": "x", "citations": [{}]}),
            json!({"type": "tool_use", "id": "t", "name": "Read"}),
            json!({"type": "tool_use", "id": null, "name": "Read", "input": {}}),
            json!({"type": "tool_result", "tool_use_id": "t", "content": 5}),
            json!({"type": "tool_result", "tool_use_id": "t", "content": {"type": "text", "text": "x"}}),
            json!({"type": "tool_result", "content": [{"type": "text", "text": "x"}], "is_error": false}),
            json!({"type": ["text"], "text": "x"}),
            json!({"z": 1, "type": "image", "a": {"d": 1, "c": [1.5, -1, null, true]}}),
            json!({"text": "x"}),
            json!("a word"),
            json!(["a", {"type": "text", "text": "x"}]),
            json!(null),
            json!(-1),
        ] {
            assert_eq!(read(&odd.to_string()), Block::Other(odd.clone()));
            assert_eq!(serde_json::from_value::<Block>(odd.clone()).unwrap(), Block::Other(odd.clone()));
            assert_eq!(serde_json::to_string(&read(&odd.to_string())).unwrap(), odd.to_string(), "in its order");
        }
    }

    #[test]
    fn blocks_are_read_whatever_the_order_of_their_fields_and_whatever_else_they_hold() {
        assert_eq!(read(r#"{"text":"x","cache_control":{"type":"ephemeral"},"type":"text"}"#), Block::text("x"));
        let used = read(r#"{"input":{"b":1.50,"a":null},"name":"Read","id":"t","type":"tool_use"}"#);
        assert_eq!(used, Block::tool_use("t", "Read", json!({"b": 1.5, "a": null})));
        let result = Block::tool_result("t", "no", true);
        for text in [
            r#"{"is_error":true,"content":[{"type":"text","text":"no"}],"type":"tool_result","tool_use_id":"t"}"#,
            r#"{"tool_use_id":"t","type":"tool_result","content":[{"type":"text","text":"no"}],"is_error":true}"#,
            r#"{"type":"tool_result","tool_use_id":"t","content":"no","is_error":true,"content":"no"}"#,
        ] {
            assert_eq!(read(text), result, "{text}");
        }
        let empty = Block::Known(Known::ToolResult { tool_use_id: "t".into(), content: vec![], is_error: false });
        for text in ["", r#","content":null"#, r#","content":[],"is_error":null"#] {
            assert_eq!(read(&format!(r#"{{"type":"tool_result","tool_use_id":"t"{text}}}"#)), empty, "{text}");
        }
    }

    #[test]
    fn content_is_blocks_a_text_or_nothing() {
        let content =
            |text: &str| serde_json::from_str(&format!(r#"{{"role":"user"{text}}}"#)).map(|m: Message| m.content);
        assert_eq!(content(r#","content":"x""#).unwrap(), [Block::text("x")]);
        assert_eq!(content(r#","content":null"#).unwrap(), []);
        let blocks = content(r#","content":[{"type":"text","text":"x"},"y"]"#).unwrap();
        assert_eq!(blocks, [Block::text("x"), Block::Other(json!("y"))]);
        for bad in ["", r#","content":5"#, r#","content":{"type":"text","text":"x"}"#] {
            assert!(content(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_come_through_other_formats() {
        let blocks =
            vec![Block::text("x"), Block::tool_result("t", "y", true), Block::Other(json!({"type": "z", "n": -1}))];
        let bytes = rmp_serde::to_vec_named(&blocks).unwrap();
        assert_eq!(rmp_serde::from_slice::<Vec<Block>>(&bytes).unwrap(), blocks);
    }
}
