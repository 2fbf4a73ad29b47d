//! Replies that are not over: the provider runs tools of its own (its web search) and pauses within
//! a reply, or waits for results of our tools to go on with its own (see
//! [`crate::core::server_tool`]). Part of [`Conversation`]'s steps.

use super::step::{Conversation, Effect, TurnEnd};
use crate::core::message::{Block, Message, Role};
use crate::core::server_tool;

/// Pauses of one reply after which it is taken as it is: a provider that only ever pauses would be
/// paid without end.
const PAUSES: u32 = 10;

impl Conversation {
    /// Adds what the model said. What follows a pause belongs to the same message.
    pub(super) fn push_reply(&mut self, content: &[Block]) {
        // A reply of white space only is no message that could be sent back to the API.
        let says = |block: &Block| block.as_text().map_or(!block.is_thinking(), |text| !text.trim().is_empty());
        if !content.iter().any(says) {
            return;
        }
        match self.messages.last_mut() {
            Some(last) if last.role == Role::Assistant => last.content.extend_from_slice(content),
            _ => self.messages.push(Message::assistant(content.to_vec())),
        }
    }

    /// What follows a reply without calls of our tools that ended for this reason, if it is not over:
    /// it is sent back, and nothing else with it.
    pub(super) fn after_pause(&mut self, stop_reason: Option<&str>) -> Option<Vec<Effect>> {
        if stop_reason != Some(server_tool::PAUSED) {
            self.pauses = 0;
            return None;
        }
        if self.cancelled {
            return Some(self.finish(TurnEnd::Cancelled));
        }
        self.pauses += 1;
        if self.pauses > PAUSES {
            self.pauses = 0;
            return None;
        }
        Some(vec![self.next_call()])
    }

    /// Whether nothing but results of tools may be said now.
    pub(super) fn must_wait(&self) -> bool {
        server_tool::is_open(&self.messages)
    }

    /// Gives up what the provider has not finished: something else is said.
    pub(super) fn give_up_open(&mut self) {
        if self.must_wait() {
            server_tool::drop_unpaired(&mut self.messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::input::{Input, UserLine};
    use crate::agent::step::{Call, Class, Classify, Event};
    use crate::core::agent::Activity;
    use crate::core::message::{Known, Reply, Usage};
    use crate::model::ModelError;
    use crate::tool::ToolOutput;

    struct Plain;

    impl Classify for Plain {
        fn classify(&self, call: &Call) -> (Class, Activity) {
            let activity =
                Activity { tool: call.name.clone(), description: String::new(), is_search: false, is_read: false };
            (Class::Read, activity)
        }
    }

    fn search(id: &str) -> Block {
        Block::Other(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}))
    }

    fn found(id: &str) -> Block {
        Block::Other(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}))
    }

    fn reply(content: Vec<Block>, stop_reason: &str) -> Event {
        let stop_reason = Some(stop_reason.to_owned());
        Event::Reply(Reply { id: "m".into(), model: "x".into(), content, stop_reason, usage: Usage::default() })
    }

    fn said(text: &str) -> Event {
        Event::Inputs(vec![Input { text: text.to_owned(), ..Input::default() }])
    }

    fn begun() -> Conversation {
        let mut conversation = Conversation::new(Vec::new(), None);
        conversation.step(said("go"), &Plain);
        conversation
    }

    fn calls_model(effects: &[Effect]) -> bool {
        effects.last() == Some(&Effect::CallModel)
    }

    #[test]
    fn a_paused_reply_is_sent_back_and_goes_on_in_its_message() {
        let mut conversation = begun();
        let effects = conversation.step(reply(vec![Block::text("let me see"), search("s")], "pause_turn"), &Plain);
        assert!(matches!(effects[..], [Effect::RecordReply(_), Effect::CallModel]), "{effects:?}");
        // What is said meanwhile waits for the end of the reply.
        assert_eq!(conversation.step(said("and?"), &Plain), []);
        assert_eq!(conversation.messages().len(), 2);
        let effects = conversation.step(reply(vec![found("s"), search("t")], "pause_turn"), &Plain);
        assert!(calls_model(&effects) && conversation.messages().len() == 2);
        let effects = conversation.step(reply(vec![found("t"), Block::text("so it is")], "end_turn"), &Plain);
        assert!(
            matches!(&effects[1], Effect::RecordUser(lines) if matches!(&lines[..], [UserLine::Input(i)] if i.text == "and?"))
        );
        assert!(calls_model(&effects));
        let roles: Vec<Role> = conversation.messages().iter().map(|m| m.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User]);
        assert_eq!(
            conversation.messages()[1].content,
            [Block::text("let me see"), search("s"), found("s"), search("t"), found("t"), Block::text("so it is")]
        );
        assert_eq!(conversation.last_text(), "so it is");
    }

    #[test]
    fn results_of_tools_come_alone_while_the_provider_has_not_answered() {
        let mut conversation = begun();
        let mixed = vec![search("s"), Block::tool_use("t", "Read", json!({}))];
        conversation.step(reply(mixed, "tool_use"), &Plain);
        conversation.step(said("hurry"), &Plain);
        let effects = conversation.step(Event::ToolDone { id: "t".into(), output: ToolOutput::ok("out") }, &Plain);
        assert!(matches!(effects[..], [Effect::RecordUser(_), Effect::CallModel]), "{effects:?}");
        let last = conversation.messages().last().unwrap();
        assert!(matches!(last.content[..], [Block::Known(Known::ToolResult { .. })]), "{last:?}");
        let more = vec![found("s"), Block::tool_use("u", "Read", json!({}))];
        conversation.step(reply(more, "tool_use"), &Plain);
        let effects = conversation.step(Event::ToolDone { id: "u".into(), output: ToolOutput::ok("out") }, &Plain);
        assert_eq!(effects.len(), 3, "now it is said: {effects:?}");
    }

    #[test]
    fn what_was_not_finished_is_given_up_before_something_else_is_said() {
        for end in [ModelError::Cancelled, ModelError::NoReply("cut".into())] {
            let mut conversation = begun();
            conversation.step(reply(vec![Block::text("let me see"), search("s")], "pause_turn"), &Plain);
            conversation.step(Event::ModelFailed(end), &Plain);
            assert!(conversation.is_idle());
            assert!(calls_model(&conversation.step(said("again"), &Plain)));
            assert_eq!(conversation.messages()[1].content, [Block::text("let me see")]);
        }
    }

    #[test]
    fn a_cancelled_pause_ends_the_turn() {
        let mut conversation = begun();
        conversation.step(Event::Cancel, &Plain);
        let effects = conversation.step(reply(vec![search("s")], "pause_turn"), &Plain);
        assert_eq!(effects.last(), Some(&Effect::EndTurn(TurnEnd::Cancelled)));
    }

    #[test]
    fn a_reply_that_only_pauses_ends_some_time() {
        let mut conversation = begun();
        for _ in 0..PAUSES {
            assert!(calls_model(&conversation.step(reply(vec![Block::text("hm")], "pause_turn"), &Plain)));
        }
        let effects = conversation.step(reply(vec![Block::text("hm")], "pause_turn"), &Plain);
        assert!(matches!(effects.last(), Some(Effect::EndTurn(TurnEnd::Answer { .. }))), "{effects:?}");
        // The limit of replies counts them too.
        let mut limited = Conversation::new(Vec::new(), Some(2));
        limited.step(said("go"), &Plain);
        assert!(calls_model(&limited.step(reply(vec![search("s")], "pause_turn"), &Plain)));
        let effects = limited.step(reply(vec![found("s"), search("t")], "pause_turn"), &Plain);
        assert_eq!(effects.last(), Some(&Effect::EndTurn(TurnEnd::MaxTurns)));
    }
}
