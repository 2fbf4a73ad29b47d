//! Identities. An [`AgentId`] is `a-` + 16 hex digits, or `name@team` of a member; a [`ShellId`] `b-` + 8.
//! As long as they are only taken from `parse`, `member` or `random`, they are always safe in a file name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name of an agent, team or member, bytes.
pub const NAME_BYTES: usize = 64;

/// `a-` + 16 lower-case hex digits; `a` + 16 hex (other readers' form) is accepted when parsing. Of a
/// member of a team `name@team`, both of them names of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(String);

impl AgentId {
    /// A fresh random id.
    pub fn random() -> Self {
        let hex = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("a-{}", &hex[..16]))
    }

    /// A member of a team; `None` unless both names are of the kind that we give ([`is_plain_name`]).
    pub fn member(name: &str, team: &str) -> Option<Self> {
        (is_plain_name(name) && is_plain_name(team)).then(|| Self(format!("{name}@{team}")))
    }

    /// Name and team of a member; `None` of any other agent.
    pub fn as_member(&self) -> Option<(&str, &str)> {
        self.0.split_once('@')
    }

    /// Reads `a-<16 hex>`, `a<16 hex>` or `name@team`; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((name, team)) = text.split_once('@') {
            return Self::member(name, team);
        }
        let hex = text.strip_prefix("a-").or_else(|| text.strip_prefix('a'))?;
        is_lower_hex(hex, 16).then(|| Self(format!("a-{hex}")))
    }

    /// `a-…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `a<16 hex>`, as other programs write it; of a member its id.
    pub fn undashed(&self) -> String {
        match self.0.strip_prefix("a-").filter(|_| self.as_member().is_none()) {
            Some(hex) => format!("a{hex}"),
            None => self.0.clone(),
        }
    }

    /// `agent-a<16 hex>`: the stem of the transcript and its companions (the dash of the id is
    /// dropped, since other readers know that form). The transcript of a member is that of its session,
    /// which is found by its link or the roster.
    pub fn file_stem(&self) -> String {
        format!("agent-{}", self.undashed())
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for AgentId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("not an agent id: {text:?}"))
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> String {
        id.0
    }
}

/// A background shell: `b-` + 8 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShellId(String);

impl ShellId {
    /// A fresh random id.
    pub fn random() -> Self {
        let hex = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("b-{}", &hex[..8]))
    }

    /// Reads `b-<8 hex>`; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        is_lower_hex(text.strip_prefix("b-")?, 8).then(|| Self(text.to_owned()))
    }

    /// `b-…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ShellId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("not the id of a background shell: {text:?}"))
    }
}

impl From<ShellId> for String {
    fn from(id: ShellId) -> String {
        id.0
    }
}

/// A session's UUID, lower case with dashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

impl SessionId {
    /// A fresh random id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// Reads a UUID in any usual spelling; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(|u| Self(u.to_string()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("not a session id (a UUID): {text:?}"))
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> String {
        id.0
    }
}

/// A random UUID as text: entry ids, message ids.
pub fn random_uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// `p-` + 8 random hex digits: a question at a permission desk.
pub fn random_question() -> String {
    format!("p-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
}

/// 12 random lower-case hex digits: the name of a process in the runtime folder.
pub fn random_runtime_name() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..12].to_owned()
}

/// Exactly `len` lower-case hex digits.
pub fn is_lower_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A name by which an agent can be addressed: `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`, not reserved
/// and not shaped like an id. The error says what is wrong and suggests a name.
pub fn check_name(name: &str) -> Result<(), String> {
    check_name_of("agent", name)
}

/// The same for another kind of thing; suggested names begin with `kind` where nothing is left of
/// the one given, or where that is reserved.
pub fn check_name_of(kind: &str, name: &str) -> Result<(), String> {
    let shown = if name.chars().count() > 80 {
        format!("{}…", name.chars().take(80).collect::<String>())
    } else {
        name.to_owned()
    };
    if !is_plain_name(name) {
        return Err(format!(
            "the name {shown:?} can't be used: names are 1 to 64 letters, digits, `_` or `-`, and begin with a letter or digit; try {:?}",
            suggest_name(kind, name)
        ));
    }
    if is_reserved(name) {
        return Err(format!("the name {shown:?} is reserved; try {:?}", suggest_name(kind, name)));
    }
    Ok(())
}

/// `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`: what can stand for a file as it is.
pub fn is_plain_name(name: &str) -> bool {
    name.len() <= NAME_BYTES
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_reserved(name: &str) -> bool {
    ["team-lead", "user", "main"].iter().any(|r| name.eq_ignore_ascii_case(r)) || AgentId::parse(name).is_some()
}

fn suggest_name(kind: &str, name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(48)
        .collect();
    while out.ends_with('-') {
        out.pop();
    }
    if out.is_empty() {
        format!("{kind}-1")
    } else if is_reserved(&out) {
        format!("{kind}-{out}")
    } else {
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_ids_parse_both_spellings_and_nothing_else() {
        let id = AgentId::parse("a1a2b3c4d5e6f7890").unwrap_or_else(AgentId::random);
        assert_eq!(id.as_str(), "a-1a2b3c4d5e6f7890");
        assert_eq!(AgentId::parse("a-1a2b3c4d5e6f7890"), Some(id.clone()));
        assert_eq!(id.file_stem(), "agent-a1a2b3c4d5e6f7890");
        for bad in ["", "a-", "a-../../etc/passwd1", "a-1A2b3c4d5e6f7890", "a-1a2b3c4d5e6f78900", "b-12345678"] {
            assert_eq!(AgentId::parse(bad), None, "{bad}");
        }
        assert!(AgentId::parse(AgentId::random().as_str()).is_some());
    }

    #[test]
    fn members_are_agents_too() {
        let id = AgentId::parse("a-b_2@team-1").unwrap();
        assert_eq!((id.as_member(), id.undashed()), (Some(("a-b_2", "team-1")), "a-b_2@team-1".to_owned()));
        assert_eq!(AgentId::random().as_member(), None);
        for bad in ["@", "a@", "@b", "../a@b", "a@b/c", "a@b@c", "a@-b", "\n@b", "研@b"] {
            assert_eq!(AgentId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn shell_ids_are_b_and_eight_digits() {
        let id = ShellId::random();
        assert_eq!(ShellId::parse(id.as_str()), Some(id));
        for bad in ["", "b-", "b-1234567", "b-123456789", "b-1234567G", "b-../../x", "b12345678", "a-12345678"] {
            assert_eq!(ShellId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_checked_with_a_suggestion() {
        for good in ["a", "researcher-2", "A_b", &"x".repeat(64)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in
            ["", "../x", "a/b", "研究员", "-x", "team-lead", "User", "a\nb", &"x".repeat(65), "a-1a2b3c4d5e6f7890"]
        {
            let error = check_name(bad).err().unwrap_or_default();
            assert!(error.contains("try"), "{bad}: {error}");
        }
    }
}
