//! The `result` line of a headless run (formats A and B.1), from what is known of the run.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::error::{CliError, Exit};
use crate::core::agent::{Denial, Leftover};
use crate::core::ids::{AgentId, SessionId, random_uuid};
use crate::core::message::Usage;
use crate::lead::{ModelUse, RunEnd, RunReport};
use crate::proc::StopSignal;

/// One `result` object. Readers may rely on `type` being first.
#[derive(Debug, Serialize)]
pub(super) struct ResultLine {
    r#type: &'static str,
    subtype: &'static str,
    is_error: bool,
    duration_ms: u64,
    duration_api_ms: u64,
    num_turns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    /// The answer in the form of `--json-schema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<String>>,
    stop_reason: Option<String>,
    session_id: Option<String>,
    total_cost_usd: f64,
    usage: Usage,
    #[serde(rename = "modelUsage")]
    model_usage: Map<String, Value>,
    permission_denials: Vec<Denial>,
    /// Agents that `--detach` left running.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    detached: Vec<AgentId>,
    /// Background commands and other processes that were ended with the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leftovers: Vec<Leftover>,
    terminal_reason: Option<&'static str>,
    api_error_status: Option<u16>,
    uuid: String,
}

/// What the fields say about how a run ended.
struct End {
    subtype: &'static str,
    terminal_reason: Option<&'static str>,
    status: Option<u16>,
    result: Option<String>,
    errors: Option<Vec<String>>,
}

const FAILED: &str = "error_during_execution";

impl End {
    fn of(end: &RunEnd) -> Self {
        let failed = |subtype, terminal_reason| Self {
            subtype,
            terminal_reason: Some(terminal_reason),
            status: None,
            result: None,
            errors: Some(vec![in_words(end)]),
        };
        match end {
            RunEnd::Answer(text) => Self {
                subtype: "success",
                terminal_reason: Some("completed"),
                status: None,
                result: Some(text.clone()),
                errors: None,
            },
            RunEnd::MaxTurns => failed("error_max_turns", "max_turns"),
            RunEnd::Budget(_) => failed("error_max_budget_usd", "max_budget_usd"),
            RunEnd::Quit(_) => failed(FAILED, "aborted_streaming"),
            RunEnd::Failed { status: None, .. } => failed(FAILED, "api_error"),
            // What existing readers know of a failure of the API: `success` that is an error.
            RunEnd::Failed { status: Some(status), message } => Self {
                subtype: "success",
                terminal_reason: Some("api_error"),
                status: Some(*status),
                result: Some(message.clone()),
                errors: None,
            },
        }
    }
}

/// Why a run did not end with an answer.
pub(super) fn in_words(end: &RunEnd) -> String {
    match end {
        RunEnd::Answer(_) => "it answered".to_owned(),
        RunEnd::MaxTurns => "the limit of replies was reached (--max-turns)".to_owned(),
        RunEnd::Quit(StopSignal::Interrupt) => "ended by SIGINT".to_owned(),
        RunEnd::Quit(StopSignal::Terminate) => "ended by SIGTERM".to_owned(),
        RunEnd::Quit(StopSignal::Hangup) => "ended by SIGHUP".to_owned(),
        RunEnd::Failed { message, .. } | RunEnd::Budget(message) => message.clone(),
    }
}

/// How the program ends after a run.
pub(super) fn exit_of(end: &RunEnd) -> Exit {
    match end {
        RunEnd::Answer(_) => Exit::Success,
        RunEnd::MaxTurns | RunEnd::Budget(_) | RunEnd::Failed { .. } => Exit::Failed,
        RunEnd::Quit(signal) => Exit::Signal(*signal),
    }
}

impl ResultLine {
    /// Of a run.
    pub(super) fn of_run(report: &RunReport) -> Self {
        let mut end = End::of(&report.end);
        if report.handed_over && end.terminal_reason == Some("completed") {
            end.terminal_reason = Some("handed_over");
        }
        Self {
            r#type: "result",
            subtype: end.subtype,
            is_error: !matches!(report.end, RunEnd::Answer(_)),
            duration_ms: millis(report.duration),
            duration_api_ms: millis(report.api_time),
            num_turns: report.turns,
            result: end.result,
            structured_output: report.structured.clone(),
            errors: end.errors,
            stop_reason: report.stop_reason.clone(),
            session_id: Some(report.session.to_string()),
            total_cost_usd: report.models.iter().map(|used| used.cost_usd).sum(),
            usage: report.usage,
            model_usage: report.models.iter().map(|used| (used.id.clone(), of_model(used))).collect(),
            permission_denials: report.denials.clone(),
            detached: report.detached.clone(),
            leftovers: report.leftovers.clone(),
            terminal_reason: end.terminal_reason,
            api_error_status: end.status,
            uuid: random_uuid(),
        }
    }

    /// Of a run that was refused before it began. `session` is known unless the latest was meant.
    pub(super) fn of_refusal(error: &CliError, session: Option<&SessionId>, took: Duration) -> Self {
        Self {
            r#type: "result",
            subtype: FAILED,
            is_error: true,
            duration_ms: millis(took),
            duration_api_ms: 0,
            num_turns: 0,
            result: None,
            structured_output: None,
            errors: Some(vec![super::error::with_causes(error)]),
            stop_reason: None,
            session_id: session.map(ToString::to_string),
            total_cost_usd: 0.0,
            usage: Usage::default(),
            model_usage: Map::new(),
            permission_denials: Vec::new(),
            detached: Vec::new(),
            leftovers: Vec::new(),
            terminal_reason: None,
            api_error_status: None,
            uuid: random_uuid(),
        }
    }
}

fn of_model(used: &ModelUse) -> Value {
    let usage = &used.usage;
    json!({
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadInputTokens": usage.cache_read_input_tokens,
        "cacheCreationInputTokens": usage.cache_creation_input_tokens,
        "webSearchRequests": usage.server_tool_use.web_search_requests,
        "costUSD": used.cost_usd,
        "contextWindow": used.window,
        "maxOutputTokens": used.max_tokens,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(id: &str, cost_usd: f64) -> ModelUse {
        let usage = Usage { output_tokens: 7, ..Usage::default() };
        ModelUse { id: id.to_owned(), usage, cost_usd, window: 200_000, max_tokens: 32_000 }
    }

    fn report(end: RunEnd) -> RunReport {
        RunReport {
            session: SessionId::random(),
            end,
            turns: 3,
            usage: Usage { input_tokens: 5, output_tokens: 7, ..Usage::default() },
            models: vec![used("m", 0.25), used("n", 0.5)],
            structured: None,
            handed_over: false,
            detached: vec![],
            leftovers: vec![],
            denials: vec![],
            duration: Duration::from_millis(1500),
            api_time: Duration::from_millis(900),
            stop_reason: Some("end_turn".to_owned()),
        }
    }

    #[test]
    fn a_success_has_the_fields_in_the_order_scripts_know() {
        let report = report(RunEnd::Answer("done".to_owned()));
        let line = serde_json::to_value(ResultLine::of_run(&report)).unwrap();
        let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "type subtype is_error duration_ms duration_api_ms num_turns result stop_reason session_id \
            total_cost_usd usage modelUsage permission_denials terminal_reason api_error_status uuid";
        assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(
            (&line["subtype"], &line["is_error"], &line["result"]),
            (&json!("success"), &json!(false), &json!("done"))
        );
        assert_eq!(line["session_id"], report.session.as_str());
        assert_eq!((&line["duration_ms"], &line["duration_api_ms"]), (&json!(1500), &json!(900)));
        assert_eq!(line["modelUsage"]["m"]["contextWindow"], 200_000);
        assert_eq!((&line["modelUsage"]["n"]["costUSD"], &line["total_cost_usd"]), (&json!(0.5), &json!(0.75)));
        assert_eq!(line["usage"]["output_tokens"], 7);
        assert_eq!((&line["terminal_reason"], &line["api_error_status"]), (&json!("completed"), &Value::Null));
    }

    #[test]
    fn r093_every_failure_is_an_error_with_a_code() {
        let failed = |status| RunEnd::Failed { status, message: "API error 529: full".to_owned() };
        let rows = [
            (RunEnd::MaxTurns, "error_max_turns", "max_turns", 1),
            (RunEnd::Budget("used up".to_owned()), "error_max_budget_usd", "max_budget_usd", 1),
            (failed(Some(529)), "success", "api_error", 1),
            (failed(None), "error_during_execution", "api_error", 1),
            (RunEnd::Quit(StopSignal::Terminate), "error_during_execution", "aborted_streaming", 143),
            (RunEnd::Quit(StopSignal::Interrupt), "error_during_execution", "aborted_streaming", 130),
            (RunEnd::Quit(StopSignal::Hangup), "error_during_execution", "aborted_streaming", 129),
        ];
        for (end, subtype, reason, code) in rows {
            let line = serde_json::to_value(ResultLine::of_run(&report(end.clone()))).unwrap();
            assert_eq!(line["is_error"], true, "{end:?}");
            assert_eq!((&line["subtype"], &line["terminal_reason"]), (&json!(subtype), &json!(reason)), "{end:?}");
            assert_eq!(exit_of(&end).code(), code);
            let is_api = subtype == "success";
            assert_eq!(line["errors"].is_array(), !is_api);
            assert_eq!(line["api_error_status"], if is_api { json!(529) } else { Value::Null });
        }
    }

    #[test]
    fn r093_a_refused_start_is_a_result_too() {
        let session = SessionId::random();
        let line = ResultLine::of_refusal(&CliError::NoModel, Some(&session), Duration::from_millis(2));
        let line = serde_json::to_value(line).unwrap();
        assert_eq!((&line["type"], &line["is_error"]), (&json!("result"), &json!(true)));
        assert_eq!(line["errors"][0], "no model was chosen");
        assert_eq!(line["session_id"], session.as_str());
    }
}
