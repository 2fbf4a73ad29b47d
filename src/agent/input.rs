//! What a conversation is told: user messages, from people, agents and tools, as they are handed in
//! and as they are recorded.

use crate::core::entry::Origin;
use crate::core::message::Block;
use crate::tool::ToolOutput;

/// Something to tell the model as a user message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// What is said.
    pub text: String,
    /// The whole content, in order, where it is more than [`Self::text`]: images and the like, which
    /// go to the model as they are.
    pub blocks: Vec<Block>,
    /// Where it came from; none = typed by a person or the first prompt.
    pub origin: Option<Origin>,
    /// Duplicate guard of a delivered message.
    pub msg_id: Option<String>,
    /// Who sent it.
    pub from: Option<String>,
    /// Not part of what anybody said: a reminder.
    pub is_meta: bool,
}

impl Input {
    /// The blocks of the message.
    pub(super) fn content(&self) -> Vec<Block> {
        if self.blocks.is_empty() { vec![Block::text(self.text.clone())] } else { self.blocks.clone() }
    }
}

/// A user line to record.
#[derive(Clone, Debug, PartialEq)]
pub enum UserLine {
    /// An input.
    Input(Input),
    /// The result of a tool.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// What the tool answered.
        output: ToolOutput,
    },
}
