//! The model of a main conversation: counts the tokens of every call, and goes on with another
//! model when the first one fails for good (`--fallback-model`).
//!
//! Limits: one switch, there is no way back. Workers have models of their own and do not switch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::call::{BoxFuture, CallEvent, Model, ModelError, Observer, Retrying};
use crate::core::message::{Reply, Request, Usage};

/// A model and what requests to it say.
#[derive(Clone)]
pub struct Named {
    /// With provider prefix.
    pub spec: String,
    /// The id in requests.
    pub id: String,
    /// Most tokens of a reply.
    pub max_tokens: u32,
    /// Who answers.
    pub model: Arc<dyn Model>,
}

/// Counts, and switches once.
pub struct MeteredModel {
    first: Named,
    fallback: Option<Named>,
    state: Mutex<State>,
}

struct State {
    used: BTreeMap<String, Usage>,
    switched: Option<String>,
}

impl MeteredModel {
    /// `first` answers; `fallback` does from the moment on at which `first` is overloaded, broken,
    /// used up (429) or not to be reached after all repetitions.
    pub fn new(first: Named, fallback: Option<Named>) -> Self {
        let used = BTreeMap::from([(first.spec.clone(), Usage::default())]);
        Self { first, fallback, state: Mutex::new(State { used, switched: None }) }
    }

    /// Tokens so far, by model with provider prefix; the first model is always there.
    pub fn used(&self) -> BTreeMap<String, Usage> {
        self.state().used.clone()
    }

    /// Why the fallback answers by now, if it does.
    pub fn switched(&self) -> Option<String> {
        self.state().switched.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        &self,
        request: &Request,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Result<Reply, ModelError> {
        let fallback = match (&self.fallback, self.switched()) {
            (None, _) => {
                return self.count(&self.first, self.first.model.call_observed(request, cancel, observer).await);
            }
            (Some(fallback), Some(_)) => fallback,
            (Some(fallback), None) => {
                let watch = Watch { observer, seen: Mutex::default() };
                let error = match self.first.model.call_observed(request, cancel, &watch).await {
                    Err(error) if error.may_pass() => error,
                    answer => return self.count(&self.first, answer),
                };
                let reason = error.to_string();
                self.state().switched = Some(reason.clone());
                watch.withdraw(&format!("{reason}; {} goes on", fallback.id));
                fallback
            }
        };
        let mut request = request.clone();
        request.model.clone_from(&fallback.id);
        request.max_tokens = fallback.max_tokens;
        self.count(fallback, fallback.model.call_observed(&request, cancel, &Again(observer)).await)
    }

    fn count(&self, by: &Named, answer: Result<Reply, ModelError>) -> Result<Reply, ModelError> {
        if let Ok(reply) = &answer {
            self.state().used.entry(by.spec.clone()).or_default().add(&reply.usage);
        }
        answer
    }
}

impl Model for MeteredModel {
    fn call_observed<'a>(
        &'a self,
        request: &'a Request,
        cancel: &'a CancellationToken,
        observer: &'a dyn Observer,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.answer(request, cancel, observer))
    }
}

/// Passes everything on, and knows which reply is told in part.
struct Watch<'a> {
    observer: &'a dyn Observer,
    seen: Mutex<(u32, Option<String>)>,
}

impl Watch<'_> {
    /// The parts told last will never be whole: whoever shows them takes them back.
    fn withdraw(&self, reason: &str) {
        let (attempt, partial) = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.observer.observe(CallEvent::Waiting(Retrying {
            attempt,
            attempts: attempt,
            delay: Duration::ZERO,
            reason,
            discarded_message_id: partial.as_deref(),
        }));
    }
}

impl Observer for Watch<'_> {
    fn observe(&self, event: CallEvent<'_>) {
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CallEvent::Sent { attempt } => *seen = (attempt, None),
                CallEvent::Part { message_id, .. } if seen.1.as_deref() != Some(message_id) => {
                    seen.1 = Some(message_id.to_owned());
                }
                CallEvent::Part { .. } => {}
                CallEvent::Waiting(_) => seen.1 = None,
            }
        }
        self.observer.observe(event);
    }
}

/// Passes on what follows a failed attempt: its first attempt is not the call's first.
struct Again<'a>(&'a dyn Observer);

impl Observer for Again<'_> {
    fn observe(&self, event: CallEvent<'_>) {
        self.0.observe(match event {
            CallEvent::Sent { attempt } => CallEvent::Sent { attempt: attempt + 1 },
            other => other,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::playbook::PlaybookModel;
    use crate::model::playbook::testing::{Conversation, book};

    fn named(id: &str, yaml: &str) -> Named {
        let model = Arc::new(PlaybookModel::from(book(yaml)));
        Named { spec: format!("playbook:{id}"), id: id.to_owned(), max_tokens: 7, model }
    }

    async fn ask(model: &MeteredModel) -> Result<String, ModelError> {
        let reply = model.call(&Conversation::lead("go").request, &CancellationToken::new()).await?;
        Ok(crate::core::message::text_of(&reply.content))
    }

    const TOKENS: &str = "usage: {input_tokens: 2, output_tokens: 3}";

    #[tokio::test]
    async fn a_model_that_fails_for_a_while_is_replaced_once_and_for_good() {
        for why in ["error: {status: 529}", "error: {status: 429}", "error: {status: 408}", "fault: stall"] {
            replaced(why).await;
        }
    }

    async fn replaced(why: &str) {
        let first = named("a", &format!("agents: [{{turns: [{{{why}, text: a, {TOKENS}}}]}}]"));
        let second = named("b", &format!("agents: [{{otherwise: {{text: b, {TOKENS}}}}}]"));
        let model = MeteredModel::new(first, Some(second));
        assert_eq!(model.switched(), None);
        for _ in 0..2 {
            assert_eq!(ask(&model).await.ok().as_deref(), Some("b"), "the first one would answer by now");
        }
        assert!(model.switched().is_some_and(|told| told.contains("529") || !why.contains("529")));
        let used = model.used();
        assert_eq!(used.keys().collect::<Vec<_>>(), ["playbook:a", "playbook:b"]);
        assert_eq!(used["playbook:a"], Usage::default());
        assert_eq!((used["playbook:b"].input_tokens, used["playbook:b"].output_tokens), (4, 6));
    }

    #[tokio::test]
    async fn what_another_model_would_refuse_too_is_no_reason_to_switch() {
        for status in [400, 401, 413, 499] {
            let yaml = format!("agents: [{{turns: [{{error: {{status: {status}}}}}]}}]");
            let model = MeteredModel::new(named("a", &yaml), Some(named("b", "agents: [{otherwise: {text: b}}]")));
            assert!(ask(&model).await.is_err(), "{status}");
            assert_eq!(model.switched(), None);
        }
        let alone = MeteredModel::new(named("a", "agents: [{turns: [{error: {status: 500}}]}]"), None);
        assert!(matches!(ask(&alone).await, Err(ModelError::Api { status: 500, .. })));
    }

    #[tokio::test]
    async fn a_reply_told_in_part_is_withdrawn() {
        struct Broken;
        impl Model for Broken {
            fn call_observed<'a>(
                &'a self,
                _: &'a Request,
                _: &'a CancellationToken,
                observer: &'a dyn Observer,
            ) -> BoxFuture<'a, Result<Reply, ModelError>> {
                observer.observe(CallEvent::Sent { attempt: 1 });
                observer.observe(CallEvent::Part { message_id: "m1", event: "{}" });
                Box::pin(async { Err(ModelError::Api { status: 529, message: String::new() }) })
            }
        }
        #[derive(Default)]
        struct Told(Mutex<Vec<String>>);
        impl Observer for Told {
            fn observe(&self, event: CallEvent<'_>) {
                self.0.lock().unwrap().push(match event {
                    CallEvent::Sent { attempt } => format!("sent {attempt}"),
                    CallEvent::Part { message_id, .. } => message_id.to_owned(),
                    CallEvent::Waiting(retry) => format!("withdrawn {:?}", retry.discarded_message_id),
                });
            }
        }
        let first = Named { model: Arc::new(Broken), ..named("a", "agents: [{}]") };
        let model = MeteredModel::new(first, Some(named("b", "agents: [{otherwise: {text: b}}]")));
        let told = Told::default();
        let request = Conversation::lead("go").request;
        model.call_observed(&request, &CancellationToken::new(), &told).await.unwrap_or_else(|e| panic!("{e}"));
        let told = told.0.into_inner().unwrap();
        assert_eq!(told[..4], ["sent 1", "m1", "withdrawn Some(\"m1\")", "sent 2"]);
    }
}
