//! Tells an agent's owner each line of its conversation as soon as it is on disk (R097).

use std::sync::{Mutex, PoisonError};

use crate::agent::Witness;
use crate::core::entry::Line;
use crate::core::frame::Frame;
use crate::model::CallEvent;
use crate::wire::Link;

/// Sees an agent's conversation for its owner. What the link does not take, because it is full or
/// gone, the owner reads from the transcript at the end of the run.
#[derive(Default)]
pub(super) struct LineTeller(Mutex<Option<Link>>);

impl LineTeller {
    /// From now on over this link; none = to nobody.
    pub(super) fn tell(&self, link: Option<Link>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }
}

impl Witness for LineTeller {
    fn line(&self, line: &Line) {
        let link = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(link) = link else { return };
        if let Some(json) = line.to_bytes().ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
            let _ = link.send(Frame::Entry { json });
        }
    }

    fn call(&self, _: CallEvent<'_>) {}
}
