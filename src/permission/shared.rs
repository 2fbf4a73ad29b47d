//! A policy that can be replaced while others ask it.

use std::sync::{Arc, PoisonError, RwLock};

use super::policy::Policy;

/// The policy of one conversation, shared by its driver and its tools: a change reaches all of them
/// with the next question.
#[derive(Clone, Debug)]
pub struct SharedPolicy(Arc<RwLock<Arc<Policy>>>);

impl SharedPolicy {
    /// Begins with `policy`.
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// The present one.
    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces it.
    pub fn set(&self, policy: Policy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
}

impl From<Policy> for SharedPolicy {
    fn from(policy: Policy) -> Self {
        Self::new(policy)
    }
}
