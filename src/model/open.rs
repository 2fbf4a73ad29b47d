//! From a model's name to whoever answers for it.

use std::sync::Arc;

use super::playbook::PlaybookModel;
use super::{Model, ModelError};

/// When a playbook's file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// Now, so that a broken one fails the start.
    Open,
    /// At the first call, so that a process that must be ready soon does not wait for it.
    FirstCall,
}

/// Opens `spec`: `playbook:FILE`, `playbook:survey`, or `anthropic:ID`.
pub fn open(spec: &str, read_at: ReadAt) -> Result<Arc<dyn Model>, ModelError> {
    match spec.strip_prefix("playbook:") {
        Some(book) => Ok(Arc::new(match read_at {
            ReadAt::Open => PlaybookModel::open(book)?,
            ReadAt::FirstCall => PlaybookModel::deferred(book),
        })),
        None => Err(ModelError::Unusable(format!(
            "the model {spec} can't be used: this version plays playbooks only; use --model playbook:FILE, or see it run with `lead demo`"
        ))),
    }
}
