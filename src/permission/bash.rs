//! Decisions about a shell command: about each of its parts, and about each file it names.

use std::path::Path;

use super::command::Touch;
use super::files::Named;
use super::mode::Mode;
use super::path::{Target, git_root, protected};
use super::policy::{Decision, Policy, by_rule};
use super::read_only::{Verdict, judge};
use super::rule::Rule;
use super::shell::{Part, Unparsed, Word, split};
use crate::core::text::one_line;

impl Policy {
    /// `folder` is where the command would run.
    pub(super) fn decide_command(&self, command: &str, folder: &Path) -> Decision {
        // Only what a shell takes for blank: to it another one is a part of a word.
        let line = command.trim_matches([' ', '\t', '\n']);
        let parts = split(line, folder, self.home.as_deref());
        let known = parts.as_deref().unwrap_or_default();
        if let Some(rule) = self.rule_about(&self.deny, line, known) {
            return by_rule("denied", rule);
        }
        let asked = self.rule_about(&self.ask, line, known).map(|rule| by_rule("asked about", rule));
        let asked = asked.or_else(|| known.iter().find_map(|part| self.unclear(part)).map(Decision::ask));
        let decision = match &parts {
            Err(why) => self.decide_unparsed(line, why),
            Ok(parts) => self.decide_parts(line, parts),
        };
        match asked {
            Some(asked) => asked.stricter(decision),
            None => decision,
        }
    }

    /// The first rule of `rules` that concerns the line, one of its parts, or a file that a part
    /// names.
    fn rule_about<'a>(&self, rules: &'a [Rule], line: &str, parts: &[Part]) -> Option<&'a Rule> {
        let commands = rules.iter().filter(|r| r.concerns("Bash"));
        let touched = |rule: &Rule| parts.iter().any(|part| rule.touches_command(part) == Touch::Yes);
        if let Some(rule) = commands.into_iter().find(|r| r.is_line(line) || touched(r)) {
            return Some(rule);
        }
        // Rules about a whole tool don't reach into another one.
        let narrow = |tool: &'static str| rules.iter().filter(move |r| r.is_narrow() && r.concerns(tool));
        // Most often there are none, and no file need be looked for.
        narrow("Read").chain(narrow("Edit")).next()?;
        parts.iter().find_map(|part| {
            let read = self.files_named(part);
            let mut written = self.written(part);
            if self.acts(part).is_some() {
                written.extend(read.iter().cloned());
            }
            let inside = |rule: &Rule, file: &Target| file.real.is_dir() && rule.touches(&file.child());
            narrow("Read")
                .find(|rule| read.iter().any(|file| rule.touches(file) || inside(rule, file)))
                .or_else(|| narrow("Edit").find(|rule| written.iter().any(|f| rule.touches(f) || inside(rule, f))))
        })
    }

    /// Why it can't be told whether the part falls under a rule that denies or asks.
    fn unclear(&self, part: &Part) -> Option<String> {
        let shown = one_line(&part.raw(), 80);
        let rules = || self.deny.iter().chain(&self.ask).filter(|r| r.is_narrow());
        let said = |rule: &Rule| format!("rule {} of {}", rule.said.rule, rule.said.source);
        if let Some(rule) = rules().find(|r| r.concerns("Bash") && r.touches_command(part) == Touch::May) {
            return Some(format!("`{shown}` may become what {} is about; write it out", said(rule)));
        }
        let rule = rules().find(|r| r.concerns("Read"))?;
        if self.reads_unknown(part) {
            return Some(format!("which files `{shown}` reads can't be told, and there is {}", said(rule)));
        }
        let searched = self.searched(part);
        let reaching = rules().find(|r| r.concerns("Read") && searched.iter().any(|f| r.reaches_below(f)))?;
        Some(format!("`{shown}` also searches files of {}; the tool Grep leaves them out", said(reaching)))
    }

    fn decide_unparsed(&self, line: &str, why: &Unparsed) -> Decision {
        let unclear = format!("the command can't be taken apart for checking ({why})");
        if self.read_only_bash {
            return Decision::deny(format!("{unclear}; this agent may only run commands that read"));
        }
        let exact = self.allow.iter().find(|r| r.concerns("Bash") && r.is_exact_line(line));
        let hidden = self.has_narrow_rules();
        if let Some(rule) = exact.or_else(|| self.allows_whole(line).filter(|_| !hidden)) {
            return by_rule("allowed", rule);
        }
        match self.mode {
            Mode::Plan => Decision::deny(format!("{unclear}; mode plan only runs commands that read")),
            Mode::BypassPermissions if !hidden => Decision::allow("mode bypassPermissions"),
            _ if hidden => Decision::ask(format!("{unclear}, and there are rules it may fall under")),
            _ => Decision::ask(unclear),
        }
    }

    fn decide_parts(&self, line: &str, parts: &[Part]) -> Decision {
        if self.read_only_bash
            && let Some(why) = parts.iter().find_map(|part| self.changes_something(part))
        {
            return Decision::deny(format!("{why}; this agent may only run commands that read"));
        }
        let free = self.mode == Mode::BypassPermissions;
        let whole = self.allows_whole(line);
        let mut decision = match whole {
            Some(rule) => by_rule("allowed", rule),
            None if free => Decision::allow("mode bypassPermissions"),
            None => Decision::allow("every part of the command only reads or is allowed by a rule"),
        };
        for part in parts {
            if whole.is_none() && !free {
                decision = decision.stricter(self.decide_part(part));
            }
            for word in part.writes() {
                decision = decision.stricter(self.decide_redirect(part, word, whole.is_some()));
            }
            if !free && let Some(why) = self.changes_protected(part) {
                decision = decision.stricter(Decision::ask(why));
            }
        }
        decision
    }

    fn decide_part(&self, part: &Part) -> Decision {
        let shown = one_line(&part.raw(), 80);
        let refused = |why: &str| match self.mode {
            Mode::Plan => Decision::deny(format!("`{shown}`: {why}; mode plan only runs commands that read")),
            _ => Decision::ask(format!("`{shown}`: {why}")),
        };
        if part.dirs.is_none() && !part.words.is_empty() {
            return refused("the folder it runs in can't be told");
        }
        let Some(why) = self.acts(part) else { return Decision::allow(format!("`{shown}` only reads")) };
        match self.allow.iter().find(|r| r.concerns("Bash") && r.spans_command(part)) {
            // The same words do something else elsewhere: `./run`, `make`, `npm test`.
            Some(rule) if rule.is_narrow() && !self.runs_inside(part) => refused(&format!(
                "it runs outside of the working folders ({}), where rule {} of {} does not hold",
                self.areas.describe(),
                rule.said.rule,
                rule.said.source
            )),
            Some(rule) => by_rule("allowed", rule),
            None => refused(why),
        }
    }

    fn runs_inside(&self, part: &Part) -> bool {
        let mut dirs = part.dirs.iter().flatten();
        dirs.all(|dir| self.areas.contain(&Target::new(dir, dir)))
    }

    /// A redirection counts as an edit of its file; a rule that allows the whole command covers
    /// the file too, except where edits always ask.
    fn decide_redirect(&self, part: &Part, word: &Word, covered: bool) -> Decision {
        let targets = match self.targets(part, word) {
            Named::Known(targets) if word.pattern.is_none() => targets,
            _ => {
                return match self.mode {
                    Mode::BypassPermissions if !self.has_narrow_rules() => Decision::allow("mode bypassPermissions"),
                    Mode::Plan => Decision::deny("mode plan: the command writes a file"),
                    _ => Decision::ask(format!("`> {}`: which file that is can't be told", word.raw)),
                };
            }
        };
        targets.iter().fold(Decision::allow("no file is written"), |decision, target| {
            let edit = self.decide_path("Edit", target);
            match edit {
                Decision::Ask { .. } | Decision::Deny { .. } if covered && protected(target).is_none() => decision,
                edit => decision.stricter(edit),
            }
        })
    }

    /// Why a command that does not only read asks whatever rules say: it names a file whose edits
    /// always ask. Git is left out: it keeps its own files, and adding one to it is no edit.
    fn changes_protected(&self, part: &Part) -> Option<String> {
        if part.command() == "git" || self.acts(part).is_none() {
            return None;
        }
        let why = self.files_named(part).iter().find_map(protected)?;
        Some(format!("`{}`: {why}: changes there always ask", one_line(&part.raw(), 80)))
    }

    /// Why the part does not only read, its redirections included.
    fn changes_something(&self, part: &Part) -> Option<String> {
        let shown = one_line(&part.raw(), 80);
        match part.writes().next() {
            Some(word) => Some(format!("`> {}` writes a file", word.raw)),
            None => self.acts(part).map(|why| format!("`{shown}`: {why}")),
        }
    }

    /// Why the command itself does not only read.
    fn acts(&self, part: &Part) -> Option<&'static str> {
        let Some(dirs) = &part.dirs else {
            return (!part.words.is_empty()).then_some("the folder it runs in can't be told");
        };
        match judge(part) {
            Verdict::ReadOnly => None,
            Verdict::Other(why) => Some(why),
            Verdict::Git => {
                let own = git_root(&self.cwd);
                let is_own = |dir: &std::path::PathBuf| {
                    let target = Target::new(dir, dir);
                    self.areas.contain(&target) && own.is_ok() && git_root(&target.real) == own
                };
                (!dirs.iter().all(is_own))
                    .then_some("git obeys the configuration of the folder it runs in, which is not this repository's")
            }
        }
    }

    fn allows_whole(&self, line: &str) -> Option<&Rule> {
        self.allow.iter().find(|r| r.covers_all_of("Bash") || (r.concerns("Bash") && r.is_exact_line(line)))
    }

    /// Whether something is denied or asked about that an unreadable command may fall under.
    fn has_narrow_rules(&self) -> bool {
        let reaches = |r: &Rule| r.is_narrow() && ["Bash", "Edit", "Read"].iter().any(|tool| r.concerns(tool));
        self.deny.iter().chain(&self.ask).any(reaches)
    }

    /// The files the part's redirections write, as far as they can be told.
    fn written(&self, part: &Part) -> Vec<Target> {
        let known = part.writes().filter_map(|word| match self.targets(part, word) {
            Named::Known(targets) => Some(targets),
            Named::Unknown => None,
        });
        known.flatten().collect()
    }
}
