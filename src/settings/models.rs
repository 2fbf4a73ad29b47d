//! Which model a name means, and which one a child gets (spec 1.2, 7.3). Pure; called at start
//! and at each spawn, so that an unknown model fails the spawn and not the first request.

use std::collections::BTreeMap;
use std::fmt;

/// Prefix of models that are playbooks.
pub const PLAYBOOK: &str = "playbook:";
const ANTHROPIC: &str = "anthropic:";
/// In a definition: the parent's model.
const INHERIT: &str = "inherit";
const DEFAULT_WINDOW: u64 = 200_000;
const DEFAULT_MAX_TOKENS: u32 = 32_000;
const LARGE_WINDOW: u64 = 1_000_000;

/// What the short names stand for.
const ALIASES: [(&str, &str); 3] =
    [("opus", "claude-opus-5-5"), ("sonnet", "claude-sonnet-5-5"), ("haiku", "claude-haiku-5-5")];

/// Ids without their date of models that differ from the defaults: window, and most tokens of a reply.
/// One that is missing works all the same: it is summarised earlier than it would have to be.
const SIZES: [(&str, u64, u32); 14] = [
    ("claude-fable-5-2", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-fable-5-1", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-fable-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-opus-5-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-opus-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-opus-4-8", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-opus-4-7", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-opus-4-6", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-sonnet-5-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-sonnet-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-sonnet-4-6", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-haiku-5-5", LARGE_WINDOW, DEFAULT_MAX_TOKENS),
    ("claude-3-5-haiku", DEFAULT_WINDOW, 8_192),
    ("claude-3-haiku", DEFAULT_WINDOW, 4_096),
];

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The Messages API.
    Anthropic,
    /// A playbook's file, or the name of a built-in one.
    Playbook,
}

/// A model that was found. Displays as `anthropic:ID` or `playbook:FILE`, which resolves to the
/// same model again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedModel {
    /// Who answers.
    pub provider: Provider,
    /// Id or file, without prefix.
    pub id: String,
    /// Context window, tokens.
    pub window: u64,
    /// Most tokens of a reply.
    pub max_tokens: u32,
}

impl fmt::Display for ResolvedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.provider {
            Provider::Anthropic => ANTHROPIC,
            Provider::Playbook => PLAYBOOK,
        };
        write!(f, "{prefix}{}", self.id)
    }
}

/// A name that is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown model {name:?}; known: {known}, a full id beginning with `claude-`, or `playbook:FILE`")]
pub struct UnknownModel {
    /// What was asked for.
    pub name: String,
    /// Aliases and ids of the table, separated by commas.
    pub known: String,
}

/// What `lead.models` says about one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelEntry {
    /// The id that the name stands for; none = the name is an id itself.
    pub id: Option<String>,
    /// Context window, tokens.
    pub window: Option<u64>,
    /// Most tokens of a reply.
    pub max_tokens: Option<u32>,
}

/// Aliases and ids with their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTable {
    entries: BTreeMap<String, ModelEntry>,
    window: Option<u64>,
}

impl Default for ModelTable {
    fn default() -> Self {
        Self::new(BTreeMap::new(), None)
    }
}

impl ModelTable {
    /// The built-in aliases with `configured` on top (`lead.models`); `window` overrides the window
    /// of every model (`lead.contextWindow`).
    pub fn new(configured: BTreeMap<String, ModelEntry>, window: Option<u64>) -> Self {
        let mut entries: BTreeMap<String, ModelEntry> = ALIASES
            .into_iter()
            .map(|(alias, id)| (alias.to_owned(), ModelEntry { id: Some(id.to_owned()), ..ModelEntry::default() }))
            .collect();
        for (name, entry) in configured {
            let slot = entries.entry(name).or_default();
            *slot = ModelEntry {
                id: entry.id.or(slot.id.take()),
                window: entry.window.or(slot.window),
                max_tokens: entry.max_tokens.or(slot.max_tokens),
            };
        }
        Self { entries, window }
    }

    /// Finds the model `name`: an alias, an id of the table, any id beginning with `claude-`, or
    /// `playbook:FILE`; also what [`ResolvedModel`] displays as.
    pub fn resolve(&self, name: &str) -> Result<ResolvedModel, UnknownModel> {
        let trimmed = name.trim();
        if let Some(file) = trimmed.strip_prefix(PLAYBOOK).filter(|f| !f.is_empty()) {
            return Ok(self.sized(Provider::Playbook, file, &[]));
        }
        let plain = trimmed.strip_prefix(ANTHROPIC).unwrap_or(trimmed);
        let entry = self.entries.get(plain);
        let id = entry.and_then(|e| e.id.as_deref()).unwrap_or(plain);
        if entry.is_none() && !is_full_id(plain) {
            let known = self.entries.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(UnknownModel { name: name.to_owned(), known });
        }
        let of_id = self.entries.get(id);
        Ok(self.sized(Provider::Anthropic, id, &[entry, of_id]))
    }

    fn is_alias(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|e| e.id.is_some())
    }

    fn sized(&self, provider: Provider, id: &str, entries: &[Option<&ModelEntry>]) -> ResolvedModel {
        let said = || entries.iter().flatten();
        let (_, window, max_tokens) = SIZES
            .into_iter()
            .find(|(name, ..)| provider == Provider::Anthropic && *name == without_date(id))
            .unwrap_or(("", DEFAULT_WINDOW, DEFAULT_MAX_TOKENS));
        ResolvedModel {
            provider,
            id: id.to_owned(),
            window: self.window.or_else(|| said().find_map(|e| e.window)).unwrap_or(window),
            max_tokens: said().find_map(|e| e.max_tokens).unwrap_or(max_tokens),
        }
    }
}

fn is_full_id(name: &str) -> bool {
    name.strip_prefix("claude-").is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:@[]".contains(&b))
    })
}

/// `claude-x-1` of `claude-x-1-20250101`, `claude-x-1@20250101` or `claude-x-1-latest`.
pub(super) fn without_date(id: &str) -> &str {
    let is_date = |text: &str| text == "latest" || (text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()));
    match id.rsplit_once(['-', '@']) {
        Some((bare, date)) if is_date(date) => bare,
        _ => id,
    }
}

/// What was said about a child's model, by whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildModel<'a> {
    /// `CLAUDE_CODE_SUBAGENT_MODEL`.
    pub env: Option<&'a str>,
    /// `model` of the call; the caller leaves it out in coordinator mode and for forks.
    pub call: Option<&'a str>,
    /// `model` of the definition.
    pub definition: Option<&'a str>,
}

/// The model of a child: environment > call > definition > parent. An empty text counts as not
/// said, `inherit` as the parent's.
///
/// An alias stays with the parent's provider: under a playbook `haiku` is that playbook, since a
/// run without credentials would otherwise fail at the first child that asks for a cheaper model.
pub fn child_model(
    said: ChildModel<'_>,
    parent: &ResolvedModel,
    table: &ModelTable,
) -> Result<ResolvedModel, UnknownModel> {
    let chosen =
        [said.env, said.call, said.definition].into_iter().flatten().map(str::trim).find(|name| !name.is_empty());
    match chosen {
        None | Some(INHERIT) => Ok(parent.clone()),
        Some(alias) if parent.provider == Provider::Playbook && table.is_alias(alias) => Ok(parent.clone()),
        Some(name) => table.resolve(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ModelTable {
        let entry = |id: Option<&str>, window, max_tokens| ModelEntry { id: id.map(str::to_owned), window, max_tokens };
        ModelTable::new(
            BTreeMap::from([
                ("opus".to_owned(), entry(Some("claude-opus-9"), None, None)),
                ("claude-opus-9".to_owned(), entry(None, Some(1_000_000), Some(64_000))),
                ("haiku".to_owned(), entry(None, None, Some(8_000))),
            ]),
            None,
        )
    }

    #[test]
    fn names_resolve_to_provider_id_and_sizes() {
        let rows = [
            ("sonnet", "anthropic:claude-sonnet-5-5", 1_000_000, 32_000),
            ("opus", "anthropic:claude-opus-9", 1_000_000, 64_000),
            ("haiku", "anthropic:claude-haiku-5-5", 1_000_000, 8_000),
            ("claude-sonnet-4-5-20250929", "anthropic:claude-sonnet-4-5-20250929", 200_000, 32_000),
            ("claude-opus-4-6@20260205", "anthropic:claude-opus-4-6@20260205", 1_000_000, 32_000),
            ("claude-3-haiku-20240307", "anthropic:claude-3-haiku-20240307", 200_000, 4_096),
            (" claude-new-1 ", "anthropic:claude-new-1", 200_000, 32_000),
            ("anthropic:claude-opus-9", "anthropic:claude-opus-9", 1_000_000, 64_000),
            ("playbook:my book.yaml", "playbook:my book.yaml", 200_000, 32_000),
        ];
        for (name, shown, window, max_tokens) in rows {
            let model = table().resolve(name).unwrap();
            assert_eq!((model.to_string().as_str(), model.window, model.max_tokens), (shown, window, max_tokens));
            assert_eq!(table().resolve(shown).unwrap().id, model.id);
        }
        assert_eq!(ModelTable::new(BTreeMap::new(), Some(5)).resolve("opus").unwrap().window, 5);
    }

    #[test]
    fn r104_an_unknown_model_is_an_error_that_lists_the_known_ones() {
        for bad in ["gpt-9", "", "claude-", "claude-x y", "playbook:", "Opus", "openai:x"] {
            let error = ModelTable::default().resolve(bad).unwrap_err().to_string();
            assert!(error.contains("haiku, opus, sonnet") && error.contains("playbook:FILE"), "{bad}: {error}");
        }
    }

    #[test]
    fn r104_the_order_is_environment_call_definition_parent() {
        let parent = table().resolve("claude-parent-1").unwrap();
        let id =
            |env, call, definition| child_model(ChildModel { env, call, definition }, &parent, &table()).map(|m| m.id);
        assert_eq!(id(Some("claude-e"), Some("claude-c"), Some("claude-d")).unwrap(), "claude-e");
        assert_eq!(id(None, Some("claude-c"), Some("claude-d")).unwrap(), "claude-c");
        assert_eq!(id(Some(" "), Some(""), Some("claude-d")).unwrap(), "claude-d");
        assert_eq!(id(None, None, None).unwrap(), "claude-parent-1");
        assert_eq!(id(None, None, Some("inherit")).unwrap(), "claude-parent-1");
        assert!(id(None, Some("nope"), Some("claude-d")).is_err());
    }

    #[test]
    fn aliases_stay_with_a_playbook_and_full_ids_do_not() {
        let parent = table().resolve("playbook:b.yaml").unwrap();
        let of =
            |call| child_model(ChildModel { call, ..ChildModel::default() }, &parent, &table()).map(|m| m.to_string());
        assert_eq!(of(Some("haiku")).unwrap(), "playbook:b.yaml");
        assert_eq!(of(None).unwrap(), "playbook:b.yaml");
        assert_eq!(of(Some("claude-x")).unwrap(), "anthropic:claude-x");
        assert_eq!(of(Some("playbook:c.yaml")).unwrap(), "playbook:c.yaml");
        assert!(of(Some("nope")).is_err());
    }
}
