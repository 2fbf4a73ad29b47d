//! The roster, `config.json` of a team (formats A and B.5): who leads it and who is in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::clock::Millis;
use super::kept::{Kept, Object, lenient, parse_object, to_pretty_bytes};
use super::name::{self, LEAD, agent_id, same};

/// `backendType` and pane of a member that is a process without a pane.
pub const HEADLESS: &str = "in-process";

/// What a roster says about the team itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    /// Name, as it was given.
    pub name: String,
    /// What the team is for.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// When it was made.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Millis>,
    /// `team-lead@<name>`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lead_agent_id: Option<String>,
    /// Session of the lead; absent while nobody leads.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lead_session_id: Option<String>,
    /// Process of the lead. A hint for readers: the lead's lock decides.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub lead: Option<LeadProcess>,
    /// Panes that were hidden.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub hidden_pane_ids: Vec<String>,
    /// Folders in which all members may use a tool.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub team_allowed_paths: Vec<AllowedPath>,
}

/// The process that leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadProcess {
    /// Its pid.
    pub pid: i32,
    /// Its address.
    pub socket: String,
    /// When it started.
    pub started_at: Millis,
}

/// A folder in which all members may use a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedPath {
    /// The folder.
    pub path: String,
    /// The tool.
    pub tool_name: String,
    /// Who allowed it.
    pub added_by: String,
    /// When.
    pub added_at: Millis,
}

/// A member. Only its name is always there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// `<name>@<team>`.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// Its model.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it was asked first.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A name of [`name::COLOURS`], or `#rrggbb`.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Whether it has to plan first.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub plan_mode_required: Option<bool>,
    /// When it joined.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Millis>,
    /// Its pane (`%7`), [`HEADLESS`], or empty.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub tmux_pane_id: Option<String>,
    /// The tmux server of the pane.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub tmux_socket: Option<String>,
    /// Its working folder.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its worktree.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub worktree_path: Option<String>,
    /// Its session.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its address.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Of other programs.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub subscriptions: Option<Vec<Value>>,
    /// See [`Backend`].
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub backend_type: Option<String>,
    /// Whether it is in a turn, for other readers.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub is_active: Option<bool>,
    /// Its permission mode, after a change.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// What runs a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A process without a pane (of other programs: inside the lead).
    Headless,
    /// The pane of a tmux server.
    Tmux,
    /// A script; never dead by itself.
    External,
    /// Something else of another program, or not said.
    Other(Option<String>),
}

impl Member {
    /// What runs it.
    pub fn backend(&self) -> Backend {
        match self.backend_type.as_deref() {
            Some(HEADLESS) => Backend::Headless,
            Some("tmux") => Backend::Tmux,
            Some("external") => Backend::External,
            other => Backend::Other(other.map(str::to_owned)),
        }
    }

    /// Whether it is the team's lead.
    pub fn is_lead(&self) -> bool {
        same(&self.name, LEAD)
    }
}

/// An entry of `members`.
#[derive(Clone, Debug, PartialEq)]
enum Slot {
    Member(Box<Kept<Member>>),
    /// Not a member as far as we know: kept where it is.
    Other(Value),
}

/// A roster, with all that other programs wrote into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    /// Its object holds `members` too, as a placeholder that marks their place.
    head: Kept<Head>,
    slots: Vec<Slot>,
}

impl Roster {
    /// A team without members.
    pub fn new(head: Head) -> Self {
        Self { head: Kept::new(head), slots: Vec::new() }
    }

    /// Reads `config.json`; the reason if that is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut object = parse_object(bytes)?;
        let members = match object.get_mut(MEMBERS).map(Value::take) {
            None => Vec::new(),
            Some(Value::Array(members)) => members,
            Some(_) => return Err("`members` is not a list".to_owned()),
        };
        let slot = |value: Value| match value.as_object().cloned().map(Kept::of) {
            Some(Ok(member)) => Slot::Member(Box::new(member)),
            _ => Slot::Other(value),
        };
        Ok(Self { head: Kept::of(object)?, slots: members.into_iter().map(slot).collect() })
    }

    /// As it is written: 2 spaces, fields where they were.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut object: Object = self.head.object().clone();
        let members = self.slots.iter().map(|slot| match slot {
            Slot::Member(member) => Value::Object(member.object().clone()),
            Slot::Other(value) => value.clone(),
        });
        object.insert(MEMBERS.to_owned(), Value::Array(members.collect()));
        to_pretty_bytes(&object)
    }

    /// What it says about the team.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Changes what it says about the team.
    pub fn edit_head<R>(&mut self, change: impl FnOnce(&mut Head) -> R) -> R {
        self.head.edit(change)
    }

    /// The members, the lead included, in their order.
    pub fn members(&self) -> impl Iterator<Item = &Member> + Clone {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Member(member) => Some(&***member),
            Slot::Other(_) => None,
        })
    }

    /// Their names.
    pub fn names(&self) -> Vec<&str> {
        self.members().map(|m| m.name.as_str()).collect()
    }

    /// The member of this name: exactly so spelt, else in another case.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members().find(|m| m.name == name).or_else(|| self.members().find(|m| same(&m.name, name)))
    }

    /// Changes the member of exactly this name; `None` if there is none.
    pub fn edit_member<R>(&mut self, name: &str, change: impl FnOnce(&mut Member) -> R) -> Option<R> {
        self.slots
            .iter_mut()
            .find_map(|slot| match slot {
                Slot::Member(member) if member.name == name => Some(member),
                _ => None,
            })
            .map(|member| member.edit(change))
    }

    /// Adds a member at the end, the lead at the beginning, with what follows from its name: its agent
    /// id and, if it has none, its colour; returns it. The name must be free ([`Self::free_name`]).
    pub fn add(&mut self, mut member: Member) -> Member {
        if member.color.is_none() && !member.is_lead() {
            let taken = self.members().filter(|m| !m.is_lead()).filter_map(|m| m.color.as_deref());
            member.color = Some(name::next_colour(taken).to_owned());
        }
        member.agent_id = Some(agent_id(&member.name, &self.head.name));
        let at = if member.is_lead() { 0 } else { self.slots.len() };
        self.slots.insert(at, Slot::Member(Box::new(Kept::new(member.clone()))));
        member
    }

    /// A name for a new member: the one wanted, or one with a number. `has_inbox` says whether
    /// there is an inbox of a stem already (of one that left): its mail is for somebody else.
    pub fn free_name(&self, wanted: &str, has_inbox: impl Fn(&str) -> bool) -> String {
        name::unique(wanted, |name| {
            let stem_of = |m: &str| if name::is_plain(m) { m.to_owned() } else { name::sanitise(m) };
            same(name, LEAD) || has_inbox(name) || self.members().any(|m| same(&stem_of(&m.name), name))
        })
    }

    /// Takes the member of exactly this name out.
    pub fn remove(&mut self, name: &str) -> Option<Member> {
        let at = self.slots.iter().position(|slot| matches!(slot, Slot::Member(m) if m.name == name))?;
        match self.slots.remove(at) {
            Slot::Member(member) => Some(Member::clone(&member)),
            Slot::Other(_) => None,
        }
    }

    /// Who can be written to.
    pub fn directory(&self) -> Directory {
        Directory { team: self.head.name.clone(), members: self.names().into_iter().map(str::to_owned).collect() }
    }

    /// Who mail to everybody goes to: the members but its sender.
    pub fn others(&self, sender: &str) -> Vec<&str> {
        self.members().map(|m| m.name.as_str()).filter(|name| !same(name, sender)).collect()
    }
}

/// The names of a team: all that a sender needs of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The team's name.
    pub team: String,
    members: Vec<String>,
}

impl Directory {
    /// Reads `config.json` as [`Roster::parse`] does, and faster.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Names {
            name: String,
            members: Vec<Name>,
        }
        #[derive(Deserialize)]
        struct Name {
            name: String,
        }
        match serde_json::from_slice::<Names>(bytes) {
            Ok(names) => Ok(Self { team: names.name, members: names.members.into_iter().map(|m| m.name).collect() }),
            // Somebody wrote something unusual.
            Err(_) => Ok(Roster::parse(bytes)?.directory()),
        }
    }

    /// Who mail can be sent to: the members, and the lead whoever that will be.
    pub fn recipients(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.members.iter().map(String::as_str).collect();
        if !names.iter().any(|n| same(n, LEAD)) {
            names.insert(0, LEAD);
        }
        names
    }

    /// The exact name of a recipient: exactly so spelt, else in another case.
    pub fn find(&self, name: &str) -> Option<&str> {
        let recipients = self.recipients();
        let find = |is: fn(&str, &str) -> bool| recipients.iter().copied().find(|r| is(r, name));
        find(|a, b| a == b).or_else(|| find(same))
    }

    /// The name of an inbox file without `.json`; `None` if `name` has none of its own.
    pub fn inbox_stem(&self, name: &str) -> Option<String> {
        name::inbox_stem(name, self.members.iter().map(String::as_str))
    }
}

const MEMBERS: &str = "members";

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
