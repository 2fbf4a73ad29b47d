//! Decisions about a shell command: about each of its parts, and about each file it redirects to.

use std::path::{Path, PathBuf};

use super::mode::Mode;
use super::path::{Target, git_is_ordinary};
use super::policy::{Decision, Policy, by_rule};
use super::read_only::{Verdict, judge};
use super::rule::Rule;
use super::shell::{Expansion, Part, Unparsed, Word, split};
use crate::core::text::one_line;

impl Policy {
    pub(super) fn decide_command(&self, command: &str) -> Decision {
        let line = command.trim();
        let parts = split(line, &self.cwd, self.home.as_deref());
        let known = parts.as_deref().unwrap_or_default();
        if let Some(denied) = self.rule_about(&self.deny, "denied", line, known) {
            return denied;
        }
        let asked = self.rule_about(&self.ask, "asked about", line, known);
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
    fn rule_about(&self, rules: &[Rule], verb: &str, line: &str, parts: &[Part]) -> Option<Decision> {
        let commands = rules.iter().filter(|r| r.concerns("Bash"));
        let mut commands = commands.filter(|r| r.is_line(line) || parts.iter().any(|part| r.touches_command(part)));
        if let Some(rule) = commands.next() {
            return Some(by_rule(verb, rule));
        }
        // Rules about a whole tool don't reach into another one.
        let narrow = |tool: &'static str| rules.iter().filter(move |r| r.is_narrow() && r.concerns(tool));
        let found = parts.iter().find_map(|part| {
            let read = || self.files_named(part);
            let written = || part.writes().flat_map(|word| self.targets(part, word));
            narrow("Read")
                .find(|rule| read().any(|f| rule.touches(&f) || (f.real.is_dir() && rule.touches(&f.child()))))
                .or_else(|| narrow("Edit").find(|rule| written().any(|file| rule.touches(&file))))
        });
        found.map(|rule| by_rule(verb, rule))
    }

    fn decide_unparsed(&self, line: &str, why: &Unparsed) -> Decision {
        let unclear = format!("the command can't be taken apart for checking ({why})");
        if self.read_only_bash {
            return Decision::deny(format!("{unclear}; this agent may only run commands that read"));
        }
        if let Some(rule) = self.allows_whole(line) {
            return by_rule("allowed", rule);
        }
        match self.mode {
            Mode::Plan => Decision::deny(format!("{unclear}; mode plan only runs commands that read")),
            Mode::BypassPermissions if !self.has_narrow_rules() => Decision::allow("mode bypassPermissions"),
            Mode::BypassPermissions => Decision::ask(format!("{unclear}, and there are rules it may fall under")),
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
        }
        decision
    }

    fn decide_part(&self, part: &Part) -> Decision {
        let shown = one_line(&part.raw(), 80);
        if part.dirs.is_none() && !part.words.is_empty() && self.mode != Mode::Plan {
            return Decision::ask(format!("`{shown}`: the folder it runs in can't be told"));
        }
        if let Some(rule) = self.allow.iter().find(|r| r.concerns("Bash") && r.spans_command(part)) {
            return by_rule("allowed", rule);
        }
        match self.acts(part) {
            None => Decision::allow(format!("`{shown}` only reads")),
            Some(why) if self.mode == Mode::Plan => {
                Decision::deny(format!("`{shown}`: {why}; mode plan only runs commands that read"))
            }
            Some(why) => Decision::ask(format!("`{shown}`: {why}")),
        }
    }

    /// A redirection counts as an edit of its file; a rule that allows the whole command covers
    /// the file too, except where edits always ask.
    fn decide_redirect(&self, part: &Part, word: &Word, covered: bool) -> Decision {
        let targets: Vec<Target> = self.targets(part, word).collect();
        if targets.is_empty() {
            return match self.mode {
                Mode::BypassPermissions if !self.has_narrow_rules() => Decision::allow("mode bypassPermissions"),
                Mode::Plan => Decision::deny("mode plan: the command writes a file"),
                _ => Decision::ask(format!("`> {}`: which file that is can't be told", word.raw)),
            };
        }
        targets.iter().fold(Decision::allow("no file is written"), |decision, target| {
            let edit = self.decide_path("Edit", target);
            let protected = super::path::protected(target).is_some();
            match edit {
                Decision::Ask { .. } | Decision::Deny { .. } if covered && !protected => decision,
                edit => decision.stricter(edit),
            }
        })
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
                let trusted = |dir: &PathBuf| {
                    let target = Target::new(dir, &self.cwd);
                    self.areas.contain(&target) && git_is_ordinary(&target.real)
                };
                (!dirs.iter().all(trusted)).then_some("git obeys the configuration of the folder it runs in")
            }
        }
    }

    fn allows_whole(&self, line: &str) -> Option<&Rule> {
        self.allow.iter().find(|r| r.covers_all_of("Bash") || (r.concerns("Bash") && r.is_exact_line(line)))
    }

    /// Whether something is denied or asked about that an unreadable command may fall under.
    fn has_narrow_rules(&self) -> bool {
        let reaches = |r: &Rule| r.is_narrow() && (r.concerns("Bash") || r.concerns("Edit"));
        self.deny.iter().chain(&self.ask).any(reaches)
    }

    /// The files a word may be, one for each folder the part may run in; none if unknown.
    fn targets(&self, part: &Part, word: &Word) -> impl Iterator<Item = Target> {
        let absolute = word.text.starts_with('/');
        let dirs = match &part.dirs {
            _ if word.expansion != Expansion::None => &[],
            Some(dirs) => dirs.as_slice(),
            None if absolute => std::slice::from_ref(&self.cwd),
            None => &[],
        };
        dirs.iter().map(|dir| Target::new(Path::new(&word.text), dir)).collect::<Vec<_>>().into_iter()
    }

    /// Files that the part names in its arguments (also as `--option=file`) and input
    /// redirections.
    fn files_named(&self, part: &Part) -> impl Iterator<Item = Target> {
        let inputs = part.redirects.iter().filter(|r| !r.writes).map(|r| r.target.clone());
        let arguments = part.arguments().iter().map(|word| match word.text.split_once('=') {
            Some((option, value)) if option.starts_with('-') => Word { text: value.to_owned(), ..word.clone() },
            _ => word.clone(),
        });
        let words: Vec<Word> = inputs.chain(arguments).filter(|w| !w.text.is_empty()).collect();
        words.into_iter().flat_map(|word| self.targets(part, &word).collect::<Vec<_>>())
    }
}
