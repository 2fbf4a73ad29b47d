//! Whoever is told what a conversation does while it does it: a stream of output, an owner, a
//! screen. Told, never asked: a witness that fails or is slow changes nothing.

use crate::core::entry::Line;
use crate::model::CallEvent;

/// Sees a conversation. Called from its loop and from its model calls, so it must not block.
pub trait Witness: Send + Sync {
    /// A line of the conversation is on disk.
    fn line(&self, line: &Line);
    /// Something happened during a model call.
    fn call(&self, event: CallEvent<'_>);
    /// The conversation is being summarised. Its boundary is the line that ends this.
    fn compacting(&self);
}

/// Sees nothing.
pub struct Nobody;

impl Witness for Nobody {
    fn line(&self, _: &Line) {}
    fn call(&self, _: CallEvent<'_>) {}
    fn compacting(&self) {}
}
