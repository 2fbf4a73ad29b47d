//! How the lines of a conversation are read: all their fields side by side, as they are on disk.
//! Derived with `flatten`, each line would be gathered as a whole first and then copied, its texts
//! included, which takes twice as long; a resume reads up to all lines of a transcript.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::block::blocks_or_text;
use super::entry::{Origin, Place, Said, Talk};
use super::message::{Block, Message, Role, Usage};

/// Content on its way into a [`Said`].
pub(super) trait Words: for<'de> Deserialize<'de> {
    fn blocks(self) -> Vec<Block>;
}

/// All of it.
pub(super) struct All(Vec<Block>);

impl<'de> Deserialize<'de> for All {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        blocks_or_text(d).map(Self)
    }
}

impl Words for All {
    fn blocks(self) -> Vec<Block> {
        self.0
    }
}

/// Passed over.
impl Words for IgnoredAny {
    fn blocks(self) -> Vec<Block> {
        Vec::new()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "W: Words")]
pub(super) struct FlatTalk<W> {
    parent_uuid: Option<String>,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(rename = "type")]
    kind: Role,
    message: FlatSaid<W>,
    uuid: String,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    origin: Option<Origin>,
    #[serde(default)]
    msg_id: Option<String>,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    tool_use_result: Option<Value>,
    #[serde(default)]
    is_meta: Option<bool>,
    #[serde(default)]
    is_compact_summary: Option<bool>,
    #[serde(default)]
    is_visible_in_transcript_only: Option<bool>,
    #[serde(default)]
    run: Option<u32>,
    #[serde(default)]
    user_type: String,
    #[serde(default)]
    entrypoint: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    session_id: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    git_branch: String,
    #[serde(default)]
    team_name: Option<String>,
    #[serde(default)]
    agent_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(bound = "W: Words")]
struct FlatSaid<W> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    role: Role,
    content: W,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
}

impl<W: Words> From<FlatTalk<W>> for Talk {
    fn from(flat: FlatTalk<W>) -> Self {
        Self {
            parent_uuid: flat.parent_uuid,
            is_sidechain: flat.is_sidechain,
            agent_id: flat.agent_id,
            kind: flat.kind,
            message: flat.message.into(),
            uuid: flat.uuid,
            timestamp: flat.timestamp,
            origin: flat.origin,
            msg_id: flat.msg_id,
            from: flat.from,
            tool_use_result: flat.tool_use_result,
            is_meta: flat.is_meta,
            is_compact_summary: flat.is_compact_summary,
            is_visible_in_transcript_only: flat.is_visible_in_transcript_only,
            run: flat.run,
            place: Place {
                user_type: flat.user_type,
                entrypoint: flat.entrypoint,
                cwd: flat.cwd,
                session_id: flat.session_id,
                version: flat.version,
                git_branch: flat.git_branch,
                team_name: flat.team_name,
                agent_name: flat.agent_name,
            },
        }
    }
}

impl<W: Words> From<FlatSaid<W>> for Said {
    fn from(flat: FlatSaid<W>) -> Self {
        let FlatSaid { id, kind, role, content, model, stop_reason, usage } = flat;
        Self { id, kind, message: Message { role, content: content.blocks() }, model, stop_reason, usage }
    }
}

impl<'de> Deserialize<'de> for Talk {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        FlatTalk::<All>::deserialize(d).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        FlatSaid::<All>::deserialize(d).map(Self::from)
    }
}
