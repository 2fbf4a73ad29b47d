//! The decision: deny > ask > allow over all rules, then the mode's table.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::mode::Mode;
use super::path::{Areas, Target, protected};
use super::rule::{Anchors, Rule, canonical, host_of};
use crate::core::frame::{PermissionRules, ScopedRule};

/// What becomes of a call, and why in words a model can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It runs.
    Allow {
        /// Which rule or mode says so.
        reason: String,
    },
    /// Somebody has to be asked.
    Ask {
        /// Which rule, mode or path makes it a question.
        reason: String,
    },
    /// It does not run.
    Deny {
        /// Which rule, mode or path forbids it.
        reason: String,
    },
}

impl Decision {
    /// The reason, whatever the decision.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow { reason } | Self::Ask { reason } | Self::Deny { reason } => reason,
        }
    }

    pub(super) fn allow(reason: impl Into<String>) -> Self {
        Self::Allow { reason: reason.into() }
    }

    pub(super) fn ask(reason: impl Into<String>) -> Self {
        Self::Ask { reason: reason.into() }
    }

    pub(super) fn deny(reason: impl Into<String>) -> Self {
        Self::Deny { reason: reason.into() }
    }

    /// The one that permits less; of equals the first.
    pub(super) fn stricter(self, other: Self) -> Self {
        let rank = |d: &Self| match d {
            Self::Allow { .. } => 0,
            Self::Ask { .. } => 1,
            Self::Deny { .. } => 2,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// Rules, mode and places of one conversation.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) mode: Mode,
    pub(super) allow: Vec<Rule>,
    pub(super) ask: Vec<Rule>,
    pub(super) deny: Vec<Rule>,
    pub(super) cwd: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) read_only_bash: bool,
    /// Where reading is free, and editing as far as the mode says.
    pub(super) areas: Areas,
    /// Where reading alone is free.
    readable: Areas,
}

/// What the mode's table has a column for.
enum Kind {
    Reads(&'static str),
    Edits(&'static str),
    Bash,
    Network,
    Internal,
    Plan,
    Other,
}

impl Policy {
    /// Compiles `rules` for a conversation that works in `cwd` (absolute) with the session's
    /// `scratchpad`; `home` is what `~` means. `read_only_bash` limits `Bash` to commands that only
    /// read, whatever mode and rules say.
    ///
    /// Also returns one warning for each rule that could not be understood: such an allow rule is
    /// ignored, such a deny or ask rule is about its whole tool.
    pub fn new(
        mode: Mode,
        rules: &PermissionRules,
        cwd: &Path,
        scratchpad: Option<&Path>,
        home: Option<&Path>,
        read_only_bash: bool,
    ) -> (Self, Vec<String>) {
        let anchors = Anchors { cwd, home };
        let mut warnings = Vec::new();
        let allow = compile("allow", &rules.allow, anchors, &mut warnings);
        let ask = compile("ask", &rules.ask, anchors, &mut warnings);
        let deny = compile("deny", &rules.deny, anchors, &mut warnings);
        let added = rules.additional_directories.iter().map(PathBuf::as_path);
        let policy = Self {
            mode,
            allow,
            ask,
            deny,
            cwd: cwd.to_path_buf(),
            home: home.map(Path::to_path_buf),
            read_only_bash,
            areas: Areas::new(std::iter::once(cwd).chain(added).chain(scratchpad), cwd),
            readable: Areas::default(),
        };
        (policy, warnings)
    }

    /// Makes reading (not editing) free in further folders, such as the session's tool results.
    #[must_use]
    pub fn with_readable(mut self, folders: &[PathBuf]) -> Self {
        for folder in folders {
            self.readable.add(folder, &self.cwd);
        }
        self
    }

    /// The present mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes the mode for all later decisions.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Decides about a call of `tool` with `input`.
    pub fn decide(&self, tool: &str, input: &Value) -> Decision {
        self.decide_from(tool, input, &self.cwd)
    }

    /// Decides about a call of `tool`; a shell command would run in `folder`, which need not be the
    /// folder that everything else is relative to.
    pub fn decide_from(&self, tool: &str, input: &Value, folder: &Path) -> Decision {
        let tool = canonical(tool);
        let decision = match kind(tool) {
            Kind::Bash => match input.get("command").and_then(Value::as_str) {
                Some(command) => self.decide_command(command, folder),
                None => Decision::deny("`command` is missing: give the command line as a string"),
            },
            Kind::Reads(key) | Kind::Edits(key) => match self.target(tool, key, input) {
                Some(target) => self.decide_path(tool, &target),
                None => Decision::deny(format!("`{key}` is missing: give a path as a string")),
            },
            Kind::Plan => self.decide_leaving_plan(tool),
            Kind::Network | Kind::Internal | Kind::Other => self.decide_other(tool, input),
        };
        match decision {
            Decision::Ask { reason } if self.mode == Mode::DontAsk => {
                Decision::deny(format!("{reason}; mode dontAsk answers every question with no"))
            }
            decision => decision,
        }
    }

    /// The rule that denies every call of `tool`, if there is one: the tool need not be offered.
    pub fn denies_tool(&self, tool: &str) -> Option<&ScopedRule> {
        self.deny.iter().find(|rule| rule.covers_all_of(tool)).map(|rule| &rule.said)
    }

    /// The rule that denies starting agents of this type, if there is one.
    pub fn denies_agent_type(&self, agent_type: &str) -> Option<&ScopedRule> {
        self.deny
            .iter()
            .find(|rule| rule.concerns("Agent") && rule.is_agent_type(Some(agent_type)))
            .map(|rule| &rule.said)
    }

    /// Whether a rule denies reading the file `path`; tools that look into many files leave such
    /// ones out.
    pub fn denies_reading(&self, path: &Path) -> bool {
        if !self.deny.iter().any(|rule| rule.concerns("Read")) {
            return false;
        }
        let target = Target::new(path, &self.cwd);
        self.deny.iter().any(|rule| rule.concerns("Read") && rule.touches(&target))
    }

    fn target(&self, tool: &str, key: &str, input: &Value) -> Option<Target> {
        match input.get(key) {
            Some(Value::String(path)) => Some(Target::new(Path::new(path), &self.cwd)),
            None | Some(Value::Null) if searches(tool) => Some(Target::new(&self.cwd, &self.cwd)),
            _ => None,
        }
    }

    /// Decides about reading or editing one file, or about searching one folder.
    pub(super) fn decide_path(&self, tool: &str, target: &Target) -> Decision {
        // A rule about what lies in a folder is about searching that folder too.
        let child = (searches(tool) && target.real.is_dir()).then(|| target.child());
        let touched = |rule: &&Rule| {
            rule.concerns(tool) && (rule.touches(target) || child.as_ref().is_some_and(|c| rule.touches(c)))
        };
        if let Some(rule) = self.deny.iter().find(touched) {
            return by_rule("denied", rule);
        }
        let edits = matches!(kind(tool), Kind::Edits(_));
        let by_mode = if edits { self.edit_by_mode(target) } else { self.read_by_mode(target) };
        if let Some(rule) = self.ask.iter().find(touched) {
            return by_rule("asked about", rule).stricter(by_mode);
        }
        if edits
            && self.mode != Mode::BypassPermissions
            && let Some(why) = protected(target)
        {
            return Decision::ask(format!("{why}: edits there always ask")).stricter(by_mode);
        }
        let spanned = |rule: &&Rule| rule.concerns(tool) && rule.spans(child.as_ref().unwrap_or(target));
        match self.allow.iter().find(spanned) {
            Some(rule) => by_rule("allowed", rule),
            None => by_mode,
        }
    }

    fn read_by_mode(&self, target: &Target) -> Decision {
        let path = target.real.display();
        if self.mode == Mode::BypassPermissions || self.areas.contain(target) || self.readable.contain(target) {
            return Decision::allow(format!("mode {}: reading {path} is free", self.mode));
        }
        Decision::ask(format!("{path} is outside the folders that may be read freely ({})", self.areas.describe()))
    }

    fn edit_by_mode(&self, target: &Target) -> Decision {
        let path = target.real.display();
        match self.mode {
            Mode::BypassPermissions => Decision::allow("mode bypassPermissions"),
            Mode::Plan => Decision::deny(format!("mode plan: nothing may be changed, also not {path}")),
            Mode::AcceptEdits if self.areas.contain(target) => {
                Decision::allow(format!("mode acceptEdits: {path} is in a working folder"))
            }
            Mode::AcceptEdits => {
                Decision::ask(format!("{path} is outside the folders that may be edited ({})", self.areas.describe()))
            }
            Mode::Default | Mode::DontAsk => Decision::ask(format!("mode {}: editing {path} asks", self.mode)),
        }
    }

    fn decide_other(&self, tool: &str, input: &Value) -> Decision {
        let host = input.get("url").and_then(Value::as_str).and_then(host_of);
        let agent_type = input.get("subagent_type").and_then(Value::as_str);
        let matches = |rule: &&Rule| {
            rule.concerns(tool)
                && (rule.covers_all_of(tool)
                    || match tool {
                        "WebFetch" => rule.is_domain_of(host.as_deref()),
                        "Agent" => rule.is_agent_type(agent_type),
                        _ => false,
                    })
        };
        if let Some(rule) = self.deny.iter().find(matches) {
            return by_rule("denied", rule);
        }
        let by_mode = self.other_by_mode(tool);
        if let Some(rule) = self.ask.iter().find(matches) {
            return by_rule("asked about", rule).stricter(by_mode);
        }
        match self.allow.iter().find(matches) {
            Some(rule) => by_rule("allowed", rule),
            None => by_mode,
        }
    }

    /// Whether a plan is good is for whoever is asked to say: no rule says yes in their place.
    fn decide_leaving_plan(&self, tool: &str) -> Decision {
        if self.mode != Mode::Plan {
            return Decision::deny(format!(
                "you are not in plan mode (mode {}), so there is nothing to leave",
                self.mode
            ));
        }
        match self.deny.iter().find(|rule| rule.concerns(tool) && rule.covers_all_of(tool)) {
            Some(rule) => by_rule("denied", rule),
            None => Decision::ask("mode plan: nothing is changed before the plan is approved"),
        }
    }

    fn other_by_mode(&self, tool: &str) -> Decision {
        match (kind(tool), self.mode) {
            (Kind::Internal, _) => Decision::allow(format!("{tool} needs no permission")),
            (_, Mode::BypassPermissions) => Decision::allow("mode bypassPermissions"),
            (Kind::Other, Mode::Plan) => Decision::deny(format!("mode plan: {tool} may change something")),
            (_, mode) => Decision::ask(format!("mode {mode}: {tool} asks")),
        }
    }
}

fn compile(kind: &str, said: &[ScopedRule], anchors: Anchors<'_>, warnings: &mut Vec<String>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for scoped in said {
        match Rule::parse(scoped, anchors) {
            Ok(rule) => rules.push(rule),
            Err(misunderstood) => {
                let consequence = match misunderstood.tool.filter(|_| kind != "allow") {
                    Some(tool) => {
                        let text = format!("taken as a rule about all of {tool}");
                        rules.push(Rule::whole_tool(scoped, tool));
                        text
                    }
                    None => "ignored".to_owned(),
                };
                let ScopedRule { rule, source, .. } = scoped;
                warnings.push(format!(
                    "{kind} rule {rule:?} of {source} is not understood ({}): {consequence}",
                    misunderstood.why
                ));
            }
        }
    }
    rules
}

/// A decision that a rule made; `verb` is `denied`, `asked about` or `allowed`.
pub(super) fn by_rule(verb: &str, rule: &Rule) -> Decision {
    let reason = format!("{verb} by rule {} of {}", rule.said.rule, rule.said.source);
    match verb {
        "denied" => Decision::deny(reason),
        "allowed" => Decision::allow(reason),
        _ => Decision::ask(reason),
    }
}

fn searches(tool: &str) -> bool {
    matches!(tool, "Glob" | "Grep")
}

fn kind(tool: &str) -> Kind {
    match tool {
        "Read" => Kind::Reads("file_path"),
        "Glob" | "Grep" => Kind::Reads("path"),
        "Edit" | "Write" => Kind::Edits("file_path"),
        "NotebookEdit" => Kind::Edits("notebook_path"),
        "Bash" => Kind::Bash,
        "WebFetch" | "WebSearch" => Kind::Network,
        "Agent" | "SendMessage" | "Skill" | "TodoWrite" | "StructuredOutput" | "ToolSearch" | "TeamCreate"
        | "TeamDelete" | "AskUserQuestion" | "TaskCreate" | "TaskGet" | "TaskList" | "TaskUpdate" | "TaskStop"
        | "TaskOutput" => Kind::Internal,
        "ExitPlanMode" => Kind::Plan,
        name if name.starts_with("mcp__") => Kind::Network,
        _ => Kind::Other,
    }
}
