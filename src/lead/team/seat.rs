//! Where members run (spec 3.6): in panes beside the lead's own, on a tmux server of the session's own,
//! or without a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, OnceCell};

use super::super::options::TeammateMode;
use super::super::session::Session;
use crate::core::env::Vars;
use crate::core::ids::AgentId;
use crate::core::team::roster::{Backend as Kind, HEADLESS};
use crate::core::team::{Member, Roster};
use crate::core::text::with_causes;
use crate::store::team::Team;
use crate::supervisor::{Backend, Headless, InPanes, PanePlace};
use crate::supervisor::{PaneError, Panes, TmuxServer};

/// Where members of this session run. Found out when the first one starts.
#[derive(Debug)]
pub(in super::super) struct Seat {
    mode: TeammateMode,
    /// The lead's environment.
    vars: Vars,
    panes: OnceCell<Result<Panes, PaneError>>,
    /// Held while a member is entered in the roster: they get there in the order of the calls.
    pub(super) turn: Mutex<()>,
    /// Whether it was said why there are no panes, or how to see them.
    is_said: AtomicBool,
}

/// Closes the panes that are left of members of a team: those of crashed ones, which were kept to be read.
/// A pane whose server does not answer is an error, since it may still be there. `vars` has the `PATH` to
/// find tmux on.
pub async fn close_panes(team: &Team, vars: &[(String, String)]) -> Result<(), PaneError> {
    // Of a roster that can't be read no pane is known.
    let Ok(roster) = team.roster() else { return Ok(()) };
    let place = |member: &Member| Some((pane_in_roster(member)?, AgentId::member(&member.name, team.folder())?));
    let mut last: Option<TmuxServer> = None;
    for (place, id) in roster.members().filter_map(place) {
        let server = match last.take().filter(|server| server.socket() == place.socket) {
            Some(server) => server,
            None => TmuxServer::at(place.socket.clone(), vars).await?,
        };
        match server.close(&place.id, id.as_str()).await {
            Ok(_) | Err(PaneError::ServerGone { .. }) => last = Some(server),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Seat {
    pub(in super::super) fn new(mode: TeammateMode, vars: Vars) -> Arc<Self> {
        Arc::new(Self { mode, vars, panes: OnceCell::new(), turn: Mutex::new(()), is_said: AtomicBool::new(false) })
    }

    /// The panes, if members run in some; the error says why they can't where they were asked for.
    pub(super) async fn panes(&self) -> Result<Option<Panes>, String> {
        let found = match self.mode {
            TeammateMode::Headless => return Ok(None),
            TeammateMode::Auto | TeammateMode::Tmux => self.panes.get_or_init(|| Panes::inside(&self.vars)).await,
            TeammateMode::Private => self.panes.get_or_init(|| Panes::private(&self.vars)).await,
        };
        match (found, self.mode) {
            (Ok(panes), _) => {
                if let Some(attach) = panes.attach().filter(|_| self.is_first()) {
                    tracing::warn!(target: "lead", "members open in tmux; see them with: {attach}");
                }
                Ok(Some(panes.clone()))
            }
            (Err(error), TeammateMode::Auto) => {
                if self.is_first() {
                    tracing::warn!(target: "lead", "members run without panes: {}", with_causes(error));
                }
                Ok(None)
            }
            (Err(error), _) => Err(format!(
                "panes were asked for and can't be had: {}; teammateMode \"headless\" does without",
                with_causes(error)
            )),
        }
    }

    /// Closes what is left of a pane.
    pub(super) async fn close(&self, place: &PanePlace, id: &AgentId) {
        let closed = match TmuxServer::at(place.socket.clone(), &self.vars).await {
            Ok(server) => server.close(&place.id, id.as_str()).await.map(drop),
            Err(error) => Err(error),
        };
        // Its server may have gone with it.
        if let Err(error) = closed {
            tracing::info!(%id, "its old pane is not closed: {}", with_causes(&error));
        }
    }

    /// Closes what is left of the panes of a team.
    pub(super) async fn close_all(&self, team: &Team) -> Result<(), PaneError> {
        close_panes(team, &self.vars).await
    }

    /// Takes a pane out of sight, or brings it back beside the lead's.
    pub(super) async fn show(&self, place: &PanePlace, id: &AgentId, is_shown: bool) -> Result<(), String> {
        if !is_shown {
            let hidden = match TmuxServer::at(place.socket.clone(), &self.vars).await {
                Ok(server) => server.hide(&place.id, id.as_str()).await,
                Err(error) => Err(error),
            };
            return hidden.map_err(|error| with_causes(&error));
        }
        let panes = self.panes().await?.filter(|panes| panes.server().socket() == place.socket);
        let panes = panes.ok_or_else(|| {
            format!("its pane is on the tmux server {}, and this session has no panes there", place.socket.display())
        })?;
        panes.unhide(&place.id, id.as_str()).await.map_err(|error| with_causes(&error))
    }

    fn is_first(&self) -> bool {
        !self.is_said.swap(true, Ordering::SeqCst)
    }

    /// Removes the server that was made for this session.
    pub(in super::super) async fn end(&self) {
        if let Some(Ok(panes)) = self.panes.get()
            && let Err(error) = panes.end().await
        {
            tracing::warn!("the tmux server of this session is still there: {}", with_causes(&error));
        }
    }
}

impl Session {
    /// What runs a member: these panes, if there are some.
    pub(super) fn backend(&self, panes: Option<Panes>, colour: &str) -> Arc<dyn Backend> {
        match panes {
            Some(panes) => Arc::new(InPanes {
                panes,
                nursery: self.nursery.clone(),
                parent: self.as_leader().address,
                colour: colour.to_owned(),
            }),
            None => Arc::new(Headless),
        }
    }

    /// The pane of a member, as the roster has it.
    pub(in super::super) fn pane_of(&self, id: &AgentId) -> Option<PanePlace> {
        let (name, _) = id.as_member()?;
        let roster = self.team.as_ref()?.team.roster().ok()?;
        pane_in_roster(roster.member(name)?)
    }
}

/// Where the roster says that a member's pane is.
pub(super) fn pane_in_roster(member: &Member) -> Option<PanePlace> {
    let id = member.tmux_pane_id.clone().filter(|id| id.starts_with('%'))?;
    let socket = member.tmux_socket.as_ref()?.into();
    (member.backend() == Kind::Tmux).then(|| PanePlace { socket, id, shown: Default::default() })
}

/// Forgets panes of members that are none any more, or are in another.
pub(super) fn show_no_hidden(roster: &mut Roster) {
    let panes: Vec<String> = roster.members().filter_map(|member| member.tmux_pane_id.clone()).collect();
    if roster.head().hidden_pane_ids.iter().any(|hidden| !panes.contains(hidden)) {
        roster.edit_head(|head| head.hidden_pane_ids.retain(|hidden| panes.contains(hidden)));
    }
}

/// Says in the roster where a member runs.
pub(super) fn enter_place(member: &mut Member, pane: Option<&PanePlace>) {
    let socket = pane.map(|pane| pane.socket.to_string_lossy().into_owned());
    let (kind, id) = pane.map_or((HEADLESS, HEADLESS), |pane| ("tmux", pane.id.as_str()));
    member.backend_type = Some(kind.to_owned());
    member.tmux_pane_id = Some(id.to_owned());
    member.tmux_socket = socket;
}
