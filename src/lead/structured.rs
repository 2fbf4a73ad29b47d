//! `--json-schema`: the tool `StructuredOutput`, by which the main conversation gives its answer in
//! a form that was asked for. A valid call ends the run.
//!
//! Limits: of leads only, so that no worker carries the validator; a schema that refers to another
//! file or address is refused, nothing is fetched.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::error::LeadError;
use crate::core::agent::Activity;
use crate::core::message::ToolSpec;
use crate::core::text;
use crate::tool::{BoxFuture, Tool, ToolContext, ToolOutput};

/// The tool's name.
pub(super) const STRUCTURED_OUTPUT: &str = "StructuredOutput";

/// Faults of one input that are told.
const FAULTS: usize = 10;

/// Characters of one fault.
const FAULT_CHARS: usize = 300;

/// What was given, once it was valid.
pub(super) type Given = Arc<OnceLock<Value>>;

/// The tool of one schema.
pub(super) struct StructuredOutput {
    schema: Value,
    validator: Validator,
    given: Given,
}

impl StructuredOutput {
    /// Compiles the schema; the valid input will be in `given`.
    pub(super) fn new(schema: &Value, given: Given) -> Result<Self, LeadError> {
        let refuse = |why: String| LeadError::Usage(format!("--json-schema: {why}"));
        if schema["type"] != "object" {
            return Err(refuse("the schema's `type` must be \"object\", since a tool's input is one".to_owned()));
        }
        let validator =
            jsonschema::validator_for(schema).map_err(|error| refuse(format!("in the schema: {}", told(&error))))?;
        Ok(Self { schema: schema.clone(), validator, given })
    }

    fn take(&self, input: &Value) -> ToolOutput {
        let mut faults = self.validator.iter_errors(input);
        let shown: Vec<String> = faults.by_ref().take(FAULTS).map(|error| format!("- {}", told(&error))).collect();
        if shown.is_empty() {
            // A second valid call of the same reply changes nothing.
            let _ = self.given.set(input.clone());
            return ToolOutput::ok("Taken.").with(input.clone());
        }
        let more = match faults.count() {
            0 => String::new(),
            more => format!("\n- and {more} more"),
        };
        ToolOutput::error(format!(
            "the input does not fit the schema:\n{}{more}\nCall {STRUCTURED_OUTPUT} again with all of it corrected.",
            shown.join("\n")
        ))
    }
}

/// A fault with its place. It may quote what it is about, which may be long.
fn told(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    text::one_line(&format!("{}: {error}", if place.is_empty() { "/" } else { &place }), FAULT_CHARS)
}

impl Tool for StructuredOutput {
    fn name(&self) -> Cow<'_, str> {
        STRUCTURED_OUTPUT.into()
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: STRUCTURED_OUTPUT.to_owned(),
            description: "Gives your final answer. Call it once, when everything else is done: a call that fits the \
                          schema ends the session. Text alone is not taken as the answer."
                .to_owned(),
            input_schema: self.schema.clone(),
        }
    }

    fn is_read_only(&self) -> bool {
        // What else the same reply calls comes first.
        false
    }

    fn describe(&self, _: &Value) -> Activity {
        let tool = STRUCTURED_OUTPUT.to_owned();
        Activity { tool, description: "Giving the answer".to_owned(), is_search: false, is_read: false }
    }

    fn run<'a>(&'a self, input: &'a Value, _: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.take(input) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(schema: &Value) -> (StructuredOutput, Given) {
        let given = Given::default();
        (StructuredOutput::new(schema, Arc::clone(&given)).unwrap_or_else(|e| panic!("{e}")), given)
    }

    #[test]
    fn a_wrong_input_is_told_with_its_places_and_a_right_one_is_kept() {
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 3}},
            "additionalProperties": false,
        });
        let (tool, given) = tool(&schema);
        assert_eq!(tool.spec().input_schema, schema);
        for (input, parts) in [
            (json!({}), &["name"][..]),
            (json!({"name": 5, "n": 4}), &["/name", "/n", "3"]),
            (json!({"name": "x", "other": 1}), &["other"]),
            (json!("text"), &["object"]),
        ] {
            let output = tool.take(&input);
            assert!(output.is_error && parts.iter().all(|p| output.text.contains(p)), "{input}: {output:?}");
        }
        assert_eq!(given.get(), None);
        for n in [3, 2] {
            assert!(!tool.take(&json!({"name": "x", "n": n})).is_error);
        }
        assert_eq!(given.get(), Some(&json!({"name": "x", "n": 3})), "the first one counts");
    }

    #[test]
    fn many_faults_are_counted_and_not_all_told() {
        let (tool, _) = tool(&json!({"type": "object", "additionalProperties": {"type": "string"}}));
        let input: serde_json::Map<String, Value> = (0..30).map(|n| (format!("k{n}"), json!(n))).collect();
        let text = tool.take(&Value::Object(input)).text;
        assert!(text.lines().count() < 15 && text.contains("and 20 more"), "{text}");
    }

    #[test]
    fn a_schema_that_can_t_be_used_is_refused() {
        for (schema, part) in [
            (json!({"type": "string"}), "object"),
            (json!(true), "object"),
            (json!({"type": "object", "properties": 5}), "properties"),
            (json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}), "example.com"),
        ] {
            let error = StructuredOutput::new(&schema, Given::default()).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.contains(part)), "{schema}: {error:?}");
        }
    }
}
