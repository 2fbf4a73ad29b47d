//! The model calls of a [`Driver`], each in a task that sends its end as an event: the conversation's
//! next reply, and the summary of a compaction with the files that are shown again after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;

use super::compact::{Attached, attach};
use super::driver::Driver;
use super::step::Event;
use super::witness::{Nobody, Witness};
use crate::core::message::{Message, Reply, Request};
use crate::model::{CallEvent, ModelError, Observer};
use crate::permission::Decision;
use crate::tool::{Tool, ToolContext};

/// Bytes of the files that are shown again after a compaction, together.
const ATTACHED_BYTES: usize = 50_000;
/// Most tokens of a summary.
const SUMMARY_TOKENS: u32 = 20_000;

/// Hands the events of a model call on: to the witness all, to the loop when it waits and goes on.
struct CallWatch {
    witness: Arc<dyn Witness>,
    events: mpsc::Sender<Event>,
}

impl Observer for CallWatch {
    fn observe(&self, event: CallEvent<'_>) {
        self.witness.call(event);
        let waits = match event {
            CallEvent::Sent { attempt: 1 } | CallEvent::Part { .. } => return,
            CallEvent::Sent { .. } => None,
            CallEvent::Waiting(retry) => Some(format!(
                "the model: {}; repetition {} of {} in {}",
                retry.reason,
                retry.attempt,
                retry.attempts,
                humantime::format_duration(Duration::from_millis(
                    u64::try_from(retry.delay.as_millis()).unwrap_or(u64::MAX)
                ))
            )),
        };
        // A full loop has more to show than that.
        let _ = self.events.try_send(Event::ModelWaits(waits));
    }
}

impl Driver {
    pub(super) fn call_model(&mut self) {
        let request = self.request(self.conversation.messages().to_vec(), self.parts.max_tokens);
        let call = self.send(request, Arc::clone(&self.parts.witness));
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let event = match call.await {
                Ok(reply) => Event::Reply(reply),
                Err(error) => Event::ModelFailed(error),
            };
            let _ = events.send(event).await;
        });
    }

    /// Asks for a summary. System prompt and tools are the conversation's own, so that the provider
    /// finds what it has cached; the witness sees no part of it, since it is nobody's answer.
    pub(super) fn summarise(&mut self, messages: Vec<Message>, files: Vec<String>) {
        self.parts.witness.compacting();
        let request = self.request(messages, self.parts.max_tokens.min(SUMMARY_TOKENS));
        let call = self.send(request, Arc::new(Nobody));
        let read = self.readable(files);
        let mut context = self.parts.context.clone();
        context.cancel = self.cancel.child_token();
        "compaction".clone_into(&mut context.tool_use_id);
        // They come again with the next file that is read.
        context.instructions = Arc::default();
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let event = match call.await {
                Ok(reply) => {
                    let files = match read {
                        Some((tool, paths)) => read_again(&*tool, &paths, &context).await,
                        None => Vec::new(),
                    };
                    Event::Summarised { reply, files }
                }
                Err(error) => Event::ModelFailed(error),
            };
            let _ = events.send(event).await;
        });
    }

    /// The tool that reads, and those of `files` that may be read without asking anybody.
    fn readable(&self, mut files: Vec<String>) -> Option<(Arc<dyn Tool>, Vec<String>)> {
        let tool = Arc::clone(self.parts.toolbox.get("Read")?);
        let policy = self.parts.policy.get();
        files.retain(|path| {
            let input = json!({"file_path": path});
            matches!(policy.decide("Read", &input), Decision::Allow { .. })
        });
        Some((tool, files))
    }

    fn request(&self, messages: Vec<Message>, max_tokens: u32) -> Request {
        Request {
            model: self.parts.model_id.clone(),
            system: self.parts.system.clone(),
            messages,
            tools: self.parts.toolbox.specs(),
            web_search: self.parts.toolbox.offers_web_search(&self.parts.policy.get()),
            max_tokens,
            caller: self.parts.caller.clone(),
        }
    }

    /// Sends a request from a task of its own: the provider's client may fail inside.
    fn send(
        &mut self,
        request: Request,
        witness: Arc<dyn Witness>,
    ) -> impl Future<Output = Result<Reply, ModelError>> + use<> {
        self.call_began = Some(Instant::now());
        let model = Arc::clone(&self.parts.model);
        let cancel = self.cancel.child_token();
        let watch = CallWatch { witness, events: self.parts.events.clone() };
        let call = tokio::spawn(async move { model.call_observed(&request, &cancel, &watch).await });
        async move {
            call.await.unwrap_or_else(|panic| Err(ModelError::Unusable(format!("the model's client failed: {panic}"))))
        }
    }
}

/// What `paths` (oldest read first) hold now. The latest ones come first where not all fit; one that
/// can't be read is left out.
async fn read_again(tool: &dyn Tool, paths: &[String], context: &ToolContext) -> Vec<Attached> {
    let mut left = ATTACHED_BYTES;
    let mut files = Vec::new();
    for path in paths.iter().rev() {
        // What would not be shown must not count as read.
        if left == 0 {
            break;
        }
        let output = tool.run(&json!({"file_path": path}), context).await;
        if !output.is_error {
            files.extend(attach(path, &output.text, &mut left));
        }
    }
    files.reverse();
    files
}
