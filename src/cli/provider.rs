//! What `lead doctor` finds out about the provider: whether it is there and takes the credentials.
//! No prompt is sent, and no secret is shown.

use serde::Serialize;

use super::doctor::Finding;
use super::error::with_causes;
use super::folders::Folders;
use crate::core::env;
use crate::core::limits::deadlines;
use crate::core::provider::ProviderAccess;
use crate::model::ModelError;
use crate::model::anthropic::AnthropicModel;
use crate::settings::Settings;
use crate::settings::models::Provider;

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct ProviderCheck {
    /// Where the API is; none = it could not be asked.
    address: Option<String>,
    /// Names of the variables that hold credentials.
    credentials: Vec<&'static str>,
    /// Whether the provider answered and took them.
    usable: bool,
}

impl ProviderCheck {
    /// Asks the provider, if a model of it is configured or credentials are set.
    pub(super) fn of(settings: &Settings, folders: &Folders) -> Option<(Self, Option<Finding>)> {
        let variable = |name: &str| {
            let set = settings.env.get(name).map(String::as_str).or_else(|| folders.variable(name));
            set.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let model = settings.model.clone().or_else(|| variable(env::MODEL));
        let resolved = model.and_then(|name| settings.models().resolve(&name).ok());
        let credentials: Vec<&str> =
            env::MODEL_CREDENTIALS.into_iter().filter(|name| variable(name).is_some()).collect();
        if credentials.is_empty() && resolved.is_none_or(|m| m.provider != Provider::Anthropic) {
            return None;
        }
        let mut check = Self { address: None, credentials, usable: false };
        let client = match AnthropicModel::new(&ProviderAccess::from_vars(variable)) {
            Ok(client) => client,
            Err(error) => {
                let finding = check.finding(&error);
                return Some((check, Some(finding)));
            }
        };
        check.address = Some(client.address());
        let finding = match probe(&client) {
            Ok(()) => {
                check.usable = true;
                None
            }
            Err(error) => Some(check.finding(&error)),
        };
        Some((check, finding))
    }

    fn finding(&self, error: &ModelError) -> Finding {
        let at = self.address.as_deref().unwrap_or("the provider");
        let named = self.credentials.join(" and ");
        let mend = match error {
            ModelError::NoCredentials => "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN".to_owned(),
            ModelError::Api { status: 401 | 403, .. } if self.credentials.is_empty() => {
                "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN".to_owned()
            }
            ModelError::Api { status: 401 | 403, .. } => format!("put valid credentials into {named}"),
            ModelError::Api { status: 404, .. } => {
                "if models answer all the same nothing is wrong; else correct ANTHROPIC_BASE_URL".to_owned()
            }
            ModelError::Unusable(_) => "correct ANTHROPIC_BASE_URL or the proxy".to_owned(),
            ModelError::Api { .. } => "try again later".to_owned(),
            ModelError::NoReply(_)
            | ModelError::Overflow { .. }
            | ModelError::Thoughts { .. }
            | ModelError::Cancelled => "check the network, ANTHROPIC_BASE_URL and the proxy".to_owned(),
        };
        Finding::new(format!("{at} can't be used: {}", with_causes(error)), mend)
    }

    pub(super) fn for_person(&self) -> String {
        let address = self.address.as_deref().unwrap_or("not asked");
        let credentials = if self.credentials.is_empty() { "none".to_owned() } else { self.credentials.join(", ") };
        let state = if self.usable { "it answers and takes them" } else { "it can't be used" };
        format!("{address}, credentials: {credentials}; {state}")
    }
}

fn probe(client: &AnthropicModel) -> Result<(), ModelError> {
    let failed = |what: String| ModelError::NoReply(what);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| failed(format!("can't start the runtime: {e}")))?;
    let patience = deadlines().reply;
    let asked = runtime.block_on(async { tokio::time::timeout(patience, client.probe()).await });
    // A name that is still being looked up must not hold the answer up.
    runtime.shutdown_background();
    asked.unwrap_or_else(|_| Err(failed(format!("no answer within {patience:?}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_a_mend_that_names_the_variable() {
        let check = |credentials| ProviderCheck { address: Some("https://x".to_owned()), credentials, usable: false };
        let refused = || ModelError::Api { status: 401, message: "no".to_owned() };
        let finding = check(vec![env::AUTH_TOKEN]).finding(&refused());
        assert!(finding.what.contains("https://x") && finding.what.contains("401"), "{finding:?}");
        assert!(finding.mend.contains(env::AUTH_TOKEN) && !finding.mend.contains(env::API_KEY), "{finding:?}");
        assert!(check(vec![]).finding(&refused()).mend.contains(env::API_KEY));
        assert!(check(vec![]).finding(&ModelError::NoReply("x".into())).mend.contains(env::BASE_URL));
    }
}
