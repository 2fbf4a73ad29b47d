//! A team on disk: finding it by name, its roster, who leads it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::TeamError;
use super::board::Board;
use super::files::{Found, read};
use super::lead_lock::{self, LeadLock, Leader};
use super::locks::{Held, Locks, Stop};
use super::mailbox::Mailbox;
use super::watch::Watch;
use crate::core::limits::Durability;
use crate::core::paths::ConfigDir;
use crate::core::team::name::{LEAD, agent_id, same};
use crate::core::team::roster::{Directory, LeadProcess};
use crate::core::team::{Member, Roster, name};
use crate::store::StoreError;

/// A team, by its folder. Nothing is held: each operation locks what it needs.
#[derive(Clone, Debug)]
pub struct Team {
    config: ConfigDir,
    /// Name of its folders.
    folder: String,
    /// As its roster calls it, which nothing changes; read when first asked for.
    name: Arc<OnceLock<String>>,
    locks: Locks,
    durability: Durability,
}

impl Team {
    pub(super) fn at(config: &ConfigDir, folder: &str, durability: Durability) -> Self {
        let locks = Locks::new(config, folder, durability);
        Self { config: config.clone(), folder: folder.to_owned(), name: Arc::default(), locks, durability }
    }

    /// Finds a team by its name, or by that of its folder (which another program made of a name that
    /// no file can have). [`TeamError::NoTeam`] names those there are; nothing is made.
    pub fn open(config: &ConfigDir, wanted: &str, durability: Durability) -> Result<Self, TeamError> {
        let direct = Self::at(config, wanted, durability);
        if name::is_plain(wanted) && direct.roster().is_ok_and(|roster| roster.head().name == wanted) {
            return Ok(direct);
        }
        let all = all(config, durability)?;
        let names: Vec<String> = all.iter().map(Self::name).collect();
        type Test = fn(&str, &str) -> bool;
        let tests: [Test; 2] = [|a, b| a == b, same];
        let by = |is: Test| {
            let named = names.iter().position(|name| is(name, wanted));
            named.or_else(|| all.iter().position(|team| is(&team.folder, wanted)))
        };
        match tests.into_iter().find_map(by) {
            Some(at) => Ok(all[at].clone()),
            None => Err(TeamError::NoTeam { name: wanted.to_owned(), known: names }),
        }
    }

    /// Waits no longer than this for locks.
    #[must_use]
    pub fn with_patience(mut self, patience: std::time::Duration) -> Self {
        self.locks = self.locks.with_patience(patience);
        self
    }

    /// Its name; that of its folder if the roster can't be read.
    pub fn name(&self) -> String {
        if let Some(name) = self.name.get() {
            return name.clone();
        }
        match self.roster().map(|roster| roster.head().name.clone()) {
            Ok(name) if !name.is_empty() => self.name.get_or_init(|| name).clone(),
            _ => self.folder.clone(),
        }
    }

    /// Name of its folders.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// `teams/<folder>/`.
    pub fn path(&self) -> PathBuf {
        self.config.teams().join(&self.folder)
    }

    /// `config.json`.
    pub fn roster_path(&self) -> PathBuf {
        roster_in(&self.path())
    }

    /// `inboxes/`.
    pub fn inboxes(&self) -> PathBuf {
        self.path().join("inboxes")
    }

    /// Its task board.
    pub fn board(&self) -> Board {
        Board::of_team(self.config.tasks().join(&self.folder), self.roster_path(), self.locks.clone())
    }

    /// The mailbox of a member. [`TeamError::NoMember`] if there is no such member.
    pub fn mailbox(&self, member: &str) -> Result<Mailbox, TeamError> {
        let (name, path) = self.find_mailbox(member)?;
        Ok(Mailbox::new(name, path, self.locks.clone()))
    }

    /// Exact name and mailbox file of a member.
    pub(super) fn find_mailbox(&self, member: &str) -> Result<(String, PathBuf), TeamError> {
        let path = self.roster_path();
        let directory = self.found(read(&path, Directory::parse)?)?.0;
        let Some(name) = directory.find(member) else { return Err(no_member(member, &directory)) };
        match directory.inbox_stem(name) {
            Some(stem) => Ok((name.to_owned(), self.mailbox_path(&stem))),
            None => Err(TeamError::NoMailbox { name: name.to_owned(), team: directory.team.clone() }),
        }
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn config(&self) -> &ConfigDir {
        &self.config
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    /// The roster as it is now. [`TeamError::Gone`] if the team is.
    pub fn roster(&self) -> Result<Roster, TeamError> {
        Ok(self.read_roster(Roster::parse)?.0)
    }

    /// What `parse` makes of the roster, and its bytes.
    fn read_roster<T>(&self, parse: impl Fn(&[u8]) -> Result<T, String>) -> Result<(T, Vec<u8>), TeamError> {
        self.found(read(&self.roster_path(), parse)?)
    }

    fn found<T>(&self, found: Found<T>) -> Result<(T, Vec<u8>), TeamError> {
        match found {
            Found::Whole(whole, bytes) => Ok((whole, bytes)),
            Found::Missing => Err(TeamError::Gone { team: self.folder.clone() }),
            Found::Damaged { reason, .. } => Err(StoreError::damaged(&self.roster_path(), reason).into()),
        }
    }

    /// Changes the roster, under its lock; an error of `change` leaves it as it was. `change` is
    /// called again if another program changed the roster meanwhile. Blocks.
    pub fn change_roster<T>(
        &self,
        mut change: impl FnMut(&mut Roster) -> Result<T, TeamError>,
    ) -> Result<T, TeamError> {
        self.locks.run(|held| {
            self.lock_roster_file(held)?;
            let (mut roster, bytes) = self.read_roster(Roster::parse)?;
            let before = roster.clone();
            let done = change(&mut roster)?;
            if roster != before {
                // Some programs write it without a lock.
                if self.read_roster(|_| Ok(()))?.1 != bytes {
                    return Err(Stop::Lost { path: self.roster_path() });
                }
                self.write_roster(held, &roster)?;
            }
            Ok(done)
        })
    }

    pub(super) fn lock_roster(&self, held: &mut Held<'_>) -> Result<Roster, Stop> {
        self.lock_roster_file(held)?;
        Ok(self.roster()?)
    }

    fn lock_roster_file(&self, held: &mut Held<'_>) -> Result<(), Stop> {
        match held.lock(&self.roster_path()) {
            // The folder is gone.
            Err(Stop::Failed(TeamError::Store(StoreError::Missing { .. }))) => Ok(()),
            locked => locked,
        }
    }

    pub(super) fn write_roster(&self, held: &Held<'_>, roster: &Roster) -> Result<(), Stop> {
        let path = self.roster_path();
        held.replace(&path, &path, &[&roster.to_bytes()])
    }

    /// Enters a member at the end of the roster and returns it as it stands there: by the name it has,
    /// unless somebody has that, or has mail under it, and with what follows from the name (agent id, colour). The name must be one of ours ([`TeamError::BadName`]). Blocks.
    pub fn add_member(&self, member: &Member) -> Result<Member, TeamError> {
        // Before anything is locked: for a bad name nothing is made.
        name::check_member(&member.name).map_err(TeamError::BadName)?;
        self.change_roster(|roster| self.enter(roster, member))
    }

    /// The same, into a roster that is being changed; the name was checked. Blocks.
    pub fn enter(&self, roster: &mut Roster, member: &Member) -> Result<Member, TeamError> {
        let taken: Vec<String> = file_names(&self.inboxes())?;
        let has_inbox = |stem: &str| taken.iter().any(|f| f.strip_suffix(".json").is_some_and(|f| same(f, stem)));
        let name = roster.free_name(&member.name, has_inbox);
        Ok(roster.add(Member { name, ..member.clone() }))
    }

    /// Takes a member out, with its mailbox: the next of its name is somebody else. Returns the
    /// member and how much unread mail went with it; [`TeamError::NoMember`] if it is not there.
    /// Blocks.
    pub fn remove_member(&self, member: &str) -> Result<(Member, usize), TeamError> {
        self.locks.run(|held| {
            let mut roster = self.lock_roster(held)?;
            let Some(name) = roster.member(member).map(|m| m.name.clone()) else {
                return Err(no_member(member, &roster.directory()).into());
            };
            let path =
                roster.directory().inbox_stem(&name).map(|stem| self.mailbox_path(&stem)).filter(|path| path.exists());
            let mut unread = 0;
            if let Some(path) = &path {
                held.lock(path)?;
                let mailbox = Mailbox::new(name.clone(), path.clone(), self.locks.clone());
                unread = mailbox.look().map_or(0, |seen| seen.unread().count());
            }
            let Some(removed) = roster.remove(&name) else { return Err(no_member(member, &roster.directory()).into()) };
            self.write_roster(held, &roster)?;
            if let Some(path) = &path {
                held.remove(path)?;
            }
            Ok((removed, unread))
        })
    }

    /// Writes down that a member is gone: its cards are free, with this note, and it is not active.
    /// Blocks.
    pub fn mark_gone(&self, name: &str, note: &str) -> Result<(), TeamError> {
        self.board().release(name, note)?;
        self.change_roster(|roster| {
            roster.edit_member(name, |member| member.is_active = Some(false));
            Ok(())
        })
    }

    fn mailbox_path(&self, stem: &str) -> PathBuf {
        self.inboxes().join(format!("{stem}.json"))
    }

    /// Takes the lead and enters it in the roster: for the one that created the team, and for one
    /// that takes over a team whose lead is gone. `lead` becomes the member `team-lead` if there is
    /// none. [`TeamError::Led`] while another process leads. Blocks.
    pub fn take_lead(&self, leader: &Leader, lead: &Member, started_ms: u64) -> Result<LeadLock, TeamError> {
        let lock = lead_lock::take(&self.config, &self.folder, leader)?;
        self.change_roster(|roster| {
            enter_lead(roster, leader, lead, started_ms);
            Ok(())
        })?;
        Ok(lock)
    }

    /// Watches its mailboxes and its board.
    pub fn watch(&self) -> Result<Watch, TeamError> {
        ensure(&self.inboxes())?;
        let board = self.board();
        board.prepare()?;
        Ok(Watch::open(&[&self.inboxes(), board.path()])?)
    }

    /// The living process that leads: `None` if none does, `Some(None)` if it has not said yet who
    /// it is.
    pub fn leader(&self) -> Result<Option<Option<Leader>>, TeamError> {
        Ok(lead_lock::holder(&self.config, &self.folder)?)
    }
}

fn no_member(name: &str, directory: &Directory) -> TeamError {
    let members = directory.recipients().into_iter().map(str::to_owned).collect();
    TeamError::NoMember { name: name.to_owned(), team: directory.team.clone(), members }
}

/// Says in the roster who leads.
pub(super) fn enter_lead(roster: &mut Roster, leader: &Leader, lead: &Member, started_ms: u64) {
    let id = agent_id(LEAD, &roster.head().name);
    roster.edit_head(|head| {
        head.lead_agent_id = Some(id);
        head.lead_session_id = Some(leader.session.clone());
        let socket = leader.address.clone();
        head.lead = Some(LeadProcess { pid: leader.pid, socket, started_at: started_ms });
    });
    if roster.edit_member(LEAD, |member| member.cwd.clone_from(&lead.cwd)).is_none() {
        roster.add(Member { name: LEAD.to_owned(), ..lead.clone() });
    }
}

/// All teams, in the order of their folders' names. Folders without a roster are none.
pub fn all(config: &ConfigDir, durability: Durability) -> Result<Vec<Team>, TeamError> {
    let mut folders = file_names(&config.teams())?;
    folders.retain(|folder| !folder.starts_with('.') && roster_in(&config.teams().join(folder)).exists());
    folders.sort();
    Ok(folders.iter().map(|folder| Team::at(config, folder, durability)).collect())
}

pub(super) fn roster_in(folder: &Path) -> PathBuf {
    folder.join("config.json")
}

/// The names in a folder, none if it is not there. Those that are no text are nobody's here.
pub(super) fn file_names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StoreError::at(folder, "list"))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StoreError::at(folder, "list"))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Makes a folder of a team that is there: another program may not have made it yet. The team's own
/// folder is not made, lest one come back that was just deleted.
pub(super) fn ensure(folder: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(StoreError::at(folder, "create the folder")(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
