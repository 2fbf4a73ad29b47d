//! What tests of tools share: an agent that works in a folder, with nobody to turn to.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::shell::{Shells, WorkingFolder};
use super::{AgentPort, BoxFuture, ToolContext, ToolOutput};

struct Nobody;

impl AgentPort for Nobody {
    fn call<'a>(
        &'a self,
        _: &'static str,
        _: &'a str,
        _: &'a Value,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::error("nobody") })
    }
}

/// What tools of an agent in `cwd` work with; long outputs go to `results`.
pub(super) fn context(cwd: &Path, results: &Path) -> ToolContext {
    ToolContext {
        folder: Arc::new(WorkingFolder::new(cwd, cwd, None)),
        shells: Shells::new(tokio::sync::mpsc::channel(1).0),
        cwd: cwd.to_owned(),
        results: results.to_owned(),
        env: Arc::default(),
        cancel: CancellationToken::new(),
        tool_use_id: "toolu_1".to_owned(),
        agents: Arc::new(Nobody),
        tool_state: Arc::default(),
        instructions: Arc::default(),
    }
}
