//! A tool's input, read with errors that tell a model how to call again.

use serde_json::{Map, Value};

/// The parameters of one call.
pub(super) struct Arguments<'a> {
    object: &'a Map<String, Value>,
}

impl<'a> Arguments<'a> {
    /// Fails if `input` is no object or has a parameter that is not in `known`.
    pub(super) fn new(input: &'a Value, known: &[&str]) -> Result<Self, String> {
        let Some(object) = input.as_object() else { return Err("the input must be an object".to_owned()) };
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("there is no parameter `{key}`; parameters are: {}", known.join(", "))),
            None => Ok(Self { object }),
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{key}` is {other}, expected a string")),
        }
    }

    pub(super) fn required(&self, key: &str) -> Result<&'a str, String> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(format!("`{key}` is missing: give a string that is not empty")),
        }
    }

    /// A text that must be given, but may be empty.
    pub(super) fn given(&self, key: &str) -> Result<&'a str, String> {
        self.text(key)?.ok_or_else(|| format!("`{key}` is missing: give a string, which may be empty"))
    }

    /// A list; also one that is written as a string, which models do.
    pub(super) fn list(&self, key: &str) -> Result<Vec<Value>, String> {
        let parsed = match self.value(key) {
            None => return Err(format!("`{key}` is missing: give a list")),
            Some(Value::Array(items)) => Some(items.clone()),
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(_) => None,
        };
        parsed.ok_or_else(|| format!("`{key}` is no list"))
    }

    /// An object; also one that is written as a string, which models do.
    pub(super) fn object(&self, key: &str) -> Result<Option<Map<String, Value>>, String> {
        let parsed = match self.value(key) {
            None => return Ok(None),
            Some(Value::Object(object)) => Some(object.clone()),
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(_) => None,
        };
        parsed.map(Some).ok_or_else(|| format!("`{key}` is no object"))
    }

    /// A number; also one that is written as a string, which models do.
    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_u64().and_then(|n| usize::try_from(n).ok()),
        };
        number.map(Some).ok_or_else(|| format!("`{key}` is {value}, expected a whole number that is not negative"))
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(Some(text == "true")),
            Some(other) => Err(format!("`{key}` is {other}, expected true or false")),
        }
    }
}
