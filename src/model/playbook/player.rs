//! A playbook as a [`Model`]: delays, errors given a number of times, and the record of requests.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::book::{Playbook, PlaybookError};
use super::events::events;
use super::play::{ErrorsGiven, Turn, play_after};
use super::strict::check_request;
use crate::core::message::{Reply, Request};
use crate::model::{BoxFuture, CallEvent, Model, ModelError, Observer};

/// The playbooks that come with the program.
const BUILT_IN: [(&str, &str); 2] =
    [("survey", include_str!("survey.yaml")), ("survey-team", include_str!("survey-team.yaml"))];

/// Plays a playbook. One serves any number of conversations; errors are counted over all of them.
#[derive(Debug)]
pub struct PlaybookModel {
    spec: String,
    book: OnceLock<Result<Playbook, String>>,
    given: Mutex<ErrorsGiven>,
}

impl PlaybookModel {
    /// Opens what follows `playbook:` in a model's name: a built-in playbook, else a file (as seen
    /// from this process's working folder). The error names file, line and reason.
    pub fn open(spec: &str) -> Result<Self, ModelError> {
        let model = Self::deferred(spec);
        model.book()?;
        Ok(model)
    }

    /// Like [`Self::open`], but the file is read at the first call, which gives the error if there is
    /// one. For agents: reading takes a millisecond or two, which their start would wait for, and
    /// their lead has opened the same playbook before.
    pub fn deferred(spec: &str) -> Self {
        Self { spec: spec.to_owned(), book: OnceLock::new(), given: Mutex::default() }
    }

    fn book(&self) -> Result<&Playbook, ModelError> {
        let book = self.book.get_or_init(|| read(&self.spec).map_err(|error| shown(&error)));
        book.as_ref().map_err(|error| ModelError::Unusable(error.clone()))
    }

    /// Appends `request` to the playbook's record, if it has one; `body` is what came over the wire.
    pub(in crate::model) fn record(&self, request: &Request, body: Option<&str>) -> Result<(), ModelError> {
        match &self.book()?.record {
            Some(path) => record(path, request, body),
            None => Ok(()),
        }
    }

    /// The turn for `request`; counts its error or fault. Warnings go to the log.
    pub(in crate::model) fn next(&self, request: &Request) -> Result<Turn, ModelError> {
        let book = self.book()?;
        let turn = {
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = play_after(book, request, &given);
            if let Some(place) = turn.place.filter(|_| turn.answer.is_err() || turn.fault.is_some()) {
                *given.entry(place).or_default() += 1;
            }
            turn
        };
        for warning in &turn.warnings {
            tracing::warn!(place = ?turn.place, "playbook: {warning}");
        }
        Ok(turn)
    }
}

impl PlaybookModel {
    async fn answer(&self, request: &Request, cancel: &CancellationToken) -> Result<Reply, ModelError> {
        if self.book.get().is_none() {
            // What this process has to say already, such as that it is ready, goes out first.
            tokio::task::yield_now().await;
        }
        self.record(request, None)?;
        check_request(request)
            .map_err(|what| ModelError::Api { status: 400, message: format!("invalid_request_error: {what}") })?;
        let turn = self.next(request)?;
        // Even a timer of no length waits for the clock's next tick, so none is set then.
        let is_cancelled = match turn.delay {
            Duration::ZERO => cancel.is_cancelled(),
            delay => tokio::time::timeout(delay, cancel.cancelled()).await.is_ok(),
        };
        if is_cancelled {
            return Err(ModelError::Cancelled);
        }
        let reply = turn.answer.map_err(|error| ModelError::answered(error.status, error.message))?;
        // There is no stream to break, only its end for the caller.
        match turn.fault {
            Some(fault) => Err(ModelError::NoReply(format!("the playbook's fault {fault:?}"))),
            None => Ok(reply),
        }
    }
}

/// A playbook that was read already.
impl From<Playbook> for PlaybookModel {
    fn from(book: Playbook) -> Self {
        Self { spec: String::new(), book: OnceLock::from(Ok(book)), given: Mutex::default() }
    }
}

impl Model for PlaybookModel {
    fn call_observed<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            observer.observe(CallEvent::Sent { attempt: 1 });
            let reply = self.answer(request, cancel).await?;
            for event in events(&reply).iter().filter(|event| event["type"] != "ping") {
                observer.observe(CallEvent::Part { message_id: &reply.id, event: &event.to_string() });
            }
            Ok(reply)
        })
    }
}

/// Appends a request to the record. One write in append mode: many processes share the file.
fn record(path: &Path, request: &Request, body: Option<&str>) -> Result<(), ModelError> {
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let mut line = json!({
        "pid": std::process::id(),
        "caller": request.caller,
        "model": request.model,
        "system": request.system,
        "messages": request.messages,
        "tools": tools,
    });
    if let Some(body) = body {
        line["body"] = body.into();
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(|error| ModelError::Unusable(format!("the playbook's record {}: {error}", path.display())))
}

fn read(spec: &str) -> Result<Playbook, PlaybookError> {
    match BUILT_IN.iter().find(|(name, _)| *name == spec) {
        Some((name, yaml)) => Playbook::parse(yaml, name),
        None => Playbook::read(Path::new(spec)),
    }
}

fn shown(error: &PlaybookError) -> String {
    match error {
        PlaybookError::Read { source, .. } => {
            let built_in = BUILT_IN.map(|(name, _)| name).join(", ");
            format!("{error}: {source} (built in are: {built_in})")
        }
        PlaybookError::Parse { .. } => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::playbook::testing::{Conversation, book};

    const SOON: Duration = Duration::from_secs(30);

    async fn call(model: &PlaybookModel, request: &Request) -> Result<Reply, ModelError> {
        let cancel = CancellationToken::new();
        match tokio::time::timeout(SOON, model.call(request, &cancel)).await {
            Ok(answer) => answer,
            Err(_) => panic!("no answer"),
        }
    }

    #[test]
    fn every_built_in_playbook_opens_and_a_broken_file_is_named_with_its_line() {
        for (name, _) in BUILT_IN {
            assert!(PlaybookModel::open(name).is_ok(), "{name}: {:?}", PlaybookModel::open(name).err());
        }
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let path = folder.path().join("b.yaml");
        let spec = path.display().to_string();
        let missing = PlaybookModel::open(&spec).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(missing.contains(&spec) && missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "agents:\n  - turn: []\n").unwrap_or_else(|e| panic!("{e}"));
        let broken = PlaybookModel::open(&spec).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(broken.contains(&spec) && broken.contains("line 2") && broken.contains("turn"), "{broken}");
    }

    #[tokio::test]
    async fn a_deferred_playbook_is_read_once_at_the_first_call() {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let path = folder.path().join("b.yaml");
        let model = PlaybookModel::deferred(&path.display().to_string());
        std::fs::write(&path, "agents: [{turns: [{text: hi}]}]").unwrap_or_else(|e| panic!("{e}"));
        let request = Conversation::lead("go").request;
        assert!(call(&model, &request).await.is_ok());
        std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(call(&model, &request).await.is_ok());
        let missing = PlaybookModel::deferred(&path.display().to_string());
        assert!(matches!(call(&missing, &request).await, Err(ModelError::Unusable(e)) if e.contains("b.yaml")));
    }

    #[tokio::test]
    async fn errors_are_counted_over_calls() {
        let model = PlaybookModel::from(book(
            "agents: [{turns: [{error: {status: 529, message: busy, times: 2}}, {text: there}]}]",
        ));
        let request = Conversation::lead("go").request;
        for _ in 0..2 {
            let error = call(&model, &request).await.err();
            assert!(matches!(&error, Some(ModelError::Api { status: 529, message }) if message == "busy"), "{error:?}");
        }
        for _ in 0..2 {
            let text = call(&model, &request).await.map(|r| crate::core::message::text_of(&r.content));
            assert!(matches!(&text, Ok(t) if t == "there"), "{text:?}");
        }
    }

    #[tokio::test]
    async fn errors_that_say_too_long_are_overflows() {
        for (status, message, overflow) in [
            (413, "", true),
            (400, "prompt is too long: 9 > 5", true),
            (400, "bad", false),
            (500, "prompt is too long", false),
        ] {
            let yaml = format!("agents: [{{turns: [{{error: {{status: {status}, message: '{message}'}}}}]}}]");
            let error = call(&PlaybookModel::from(book(&yaml)), &Conversation::lead("go").request).await.err();
            assert_eq!(matches!(error, Some(ModelError::Overflow { .. })), overflow, "{status} {message}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_fault_fails_its_call_and_the_next_one_goes_on() {
        let model = PlaybookModel::from(book("agents: [{turns: [{text: there, fault: {kind: stall, times: 2}}]}]"));
        let request = Conversation::lead("go").request;
        for _ in 0..2 {
            assert!(matches!(call(&model, &request).await, Err(ModelError::NoReply(what)) if what.contains("Stall")));
        }
        assert!(call(&model, &request).await.is_ok());
    }

    #[tokio::test]
    async fn an_observer_is_told_the_parts_of_the_reply() {
        #[derive(Default)]
        struct Parts(Mutex<Vec<(String, serde_json::Value)>>);
        impl Observer for Parts {
            fn observe(&self, event: CallEvent<'_>) {
                if let CallEvent::Part { message_id, event } = event {
                    let event = serde_json::from_str(event).unwrap_or_default();
                    self.0.lock().unwrap().push((message_id.to_owned(), event));
                }
            }
        }
        let text = "a text long enough to come in parts";
        let model = PlaybookModel::from(book(&format!("agents: [{{turns: [{{text: {text}}}]}}]")));
        let (request, cancel, parts) = (Conversation::lead("go").request, CancellationToken::new(), Parts::default());
        let reply = model.call_observed(&request, &cancel, &parts).await.unwrap_or_else(|e| panic!("{e}"));
        let parts = parts.0.lock().unwrap();
        assert!(parts.iter().all(|(id, _)| *id == reply.id));
        let told: Vec<&str> = parts.iter().filter_map(|(_, e)| e["delta"]["text"].as_str()).collect();
        assert!(told.len() > 1 && told.concat() == text, "{told:?}");
        assert_eq!(parts.last().map(|(_, e)| e["type"].clone()), Some(json!("message_stop")));
    }

    #[tokio::test]
    async fn a_request_that_breaks_the_rules_is_refused_like_by_a_provider() {
        let model = PlaybookModel::from(book("agents: [{}]"));
        let mut request = Conversation::lead("go").request;
        request.messages.push(request.messages[0].clone());
        let error = call(&model, &request).await.err();
        assert!(matches!(error, Some(ModelError::Api { status: 400, message }) if message.contains("messages.1")));
    }

    #[tokio::test]
    async fn a_slow_turn_ends_when_it_is_cancelled() {
        let model = PlaybookModel::from(book("agents: [{otherwise: {text: late, delay_ms: 600000}}]"));
        let request = Conversation::lead("go").request;
        let cancel = CancellationToken::new();
        let (answer, ()) = tokio::join!(tokio::time::timeout(SOON, model.call(&request, &cancel)), async {
            tokio::task::yield_now().await;
            cancel.cancel();
        });
        assert!(matches!(answer, Ok(Err(ModelError::Cancelled))));
        let at_once = PlaybookModel::from(book("agents: [{}]"));
        for model in [&model, &at_once] {
            assert!(matches!(model.call(&request, &cancel).await, Err(ModelError::Cancelled)));
        }
    }

    #[tokio::test]
    async fn each_request_is_recorded_as_one_line_beside_the_playbook() {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let path = folder.path().join("b.yaml");
        std::fs::write(&path, "record: seen.jsonl\nagents: [{turns: [{text: hi}]}]\n")
            .unwrap_or_else(|e| panic!("{e}"));
        let spec = path.display().to_string();
        let open = || PlaybookModel::open(&spec).unwrap_or_else(|e| panic!("{e}"));
        let (one, two) = (open(), open());
        let request = Conversation::lead("line\nbreak").request;
        for model in [&one, &two, &one] {
            assert!(call(model, &request).await.is_ok());
        }
        let seen = std::fs::read_to_string(folder.path().join("seen.jsonl")).unwrap_or_default();
        let lines: Vec<serde_json::Value> =
            seen.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["caller"]["type"], "main");
        assert_eq!(lines[0]["messages"][0]["content"][0]["text"], "line\nbreak");
        assert_eq!(lines[0]["tools"], json!(["Agent", "Bash"]));
    }
}
