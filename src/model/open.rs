//! From a model's name to whoever answers for it.

use std::sync::Arc;

use super::anthropic::AnthropicModel;
use super::playbook::PlaybookModel;
use super::{Model, ModelError};
use crate::core::provider::ProviderAccess;

/// When a playbook's file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// Now, so that a broken one fails the start.
    Open,
    /// At the first call, so that a process that must be ready soon does not wait for it.
    FirstCall,
}

/// Like [`open_with`], for a caller without any access to providers: playbooks only.
pub fn open(spec: &str, read_at: ReadAt) -> Result<Arc<dyn Model>, ModelError> {
    open_with(spec, read_at, &ProviderAccess::default())
}

/// Opens `spec`: `playbook:FILE`, a built-in playbook such as `playbook:survey`, or `anthropic:ID`. Nothing is connected yet;
/// that `access` can't be used at all is an error now, before a run begins.
pub fn open_with(spec: &str, read_at: ReadAt, access: &ProviderAccess) -> Result<Arc<dyn Model>, ModelError> {
    match spec.split_once(':') {
        Some(("playbook", book)) => Ok(Arc::new(match read_at {
            ReadAt::Open => PlaybookModel::open(book)?,
            ReadAt::FirstCall => PlaybookModel::deferred(book),
        })),
        Some(("anthropic", _)) => Ok(Arc::new(AnthropicModel::new(access)?)),
        _ => Err(ModelError::Unusable(format!(
            "the model {spec} can't be used: it begins neither with anthropic: nor with playbook:"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::provider::Credentials;

    #[test]
    fn a_model_opens_by_its_provider_or_says_why_not() {
        let credentials = Credentials { api_key: Some("k".into()), auth_token: None };
        let paid = ProviderAccess { credentials, ..ProviderAccess::default() };
        assert!(open_with("anthropic:claude-x", ReadAt::Open, &paid).is_ok());
        assert!(open("playbook:survey", ReadAt::Open).is_ok());
        assert!(open("playbook:/no/such/book", ReadAt::FirstCall).is_ok());
        assert!(matches!(open("playbook:/no/such/book", ReadAt::Open), Err(ModelError::Unusable(_))));
        assert!(matches!(open("anthropic:claude-x", ReadAt::Open), Err(ModelError::NoCredentials)));
        for unknown in ["claude-x", "openai:x", ""] {
            assert!(matches!(open_with(unknown, ReadAt::Open, &paid), Err(ModelError::Unusable(_))), "{unknown}");
        }
        let elsewhere = ProviderAccess { base_url: Some("http://example.com".into()), ..paid };
        assert!(matches!(open_with("anthropic:claude-x", ReadAt::Open, &elsewhere), Err(ModelError::Unusable(_))));
    }
}
