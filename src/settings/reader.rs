//! Typed reading of JSON objects with errors that name the key.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::core::text::one_line;

/// A value that is not what its key takes.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) found: String,
    pub(super) expected: &'static str,
}

/// An object and the key it is under. `null` reads as not there.
pub(super) struct Reader<'a> {
    object: Option<&'a Map<String, Value>>,
    prefix: String,
}

impl<'a> Reader<'a> {
    pub(super) fn top(value: &'a Value) -> Result<Self, Wrong> {
        Self::of(Some(value), String::new())
    }

    fn of(value: Option<&'a Value>, path: String) -> Result<Self, Wrong> {
        match value {
            None | Some(Value::Null) => Ok(Self { object: None, prefix: path }),
            Some(Value::Object(object)) => Ok(Self { object: Some(object), prefix: path }),
            Some(other) => {
                let key = if path.is_empty() { "the whole".to_owned() } else { path };
                Err(Wrong { key, found: describe(other), expected: "an object" })
            }
        }
    }

    fn path(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.object?.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn wrong(&self, key: &str, expected: &'static str) -> Wrong {
        Wrong { key: self.path(key), found: self.value(key).map_or("missing".to_owned(), describe), expected }
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Wrong> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.wrong(key, expected)),
        }
    }

    pub(super) fn object(&self, key: &str) -> Result<Reader<'a>, Wrong> {
        Self::of(self.value(key), self.path(key))
    }

    /// Keys of this object, with their values' readers where those are objects.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.object.into_iter().flat_map(|o| o.keys().map(String::as_str))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Wrong> {
        self.read(key, "a string", |v| v.as_str().map(str::to_owned))
    }

    pub(super) fn word<T: Copy>(
        &self,
        key: &str,
        expected: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Wrong> {
        self.read(key, expected, |v| {
            words.iter().find(|(word, _)| v.as_str() == Some(word)).map(|(_, meaning)| *meaning)
        })
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Wrong> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(super) fn count<T: TryFrom<u64>>(&self, key: &str) -> Result<Option<T>, Wrong> {
        self.read(key, "a whole number that is not negative", |v| v.as_u64().and_then(|n| T::try_from(n).ok()))
    }

    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, Wrong> {
        self.read(key, "a duration such as \"10m\" or a number of milliseconds", |v| match v {
            Value::String(text) => humantime::parse_duration(text.trim()).ok(),
            other => other.as_u64().map(Duration::from_millis),
        })
    }

    /// USD per million tokens.
    pub(super) fn price(&self, key: &str) -> Result<Option<f64>, Wrong> {
        self.read(key, "a price in USD per million tokens", |v| v.as_f64().filter(|n| n.is_finite() && *n >= 0.0))
    }

    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, Wrong> {
        let Some(list) = self.read(key, "a list of strings", Value::as_array)? else { return Ok(Vec::new()) };
        let text = |(i, v): (usize, &Value)| {
            v.as_str().map(str::to_owned).ok_or_else(|| Wrong {
                key: format!("{}[{i}]", self.path(key)),
                found: describe(v),
                expected: "a string",
            })
        };
        list.iter().enumerate().map(text).collect()
    }

    /// Text of a string, number or truth value, as environment variables take it.
    pub(super) fn scalar(&self, key: &str) -> Result<Option<String>, Wrong> {
        self.read(key, "a string", |v| match v {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(v.to_string()),
            _ => None,
        })
    }

    pub(super) fn is_string(&self, key: &str) -> bool {
        self.value(key).is_some_and(Value::is_string)
    }
}

pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(text) => format!("the string {:?}", one_line(text, 40)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
