//! Rules of settings files and flags: `Tool`, `Tool(pattern)`.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::command::{CommandPattern, Touch};
use super::path::Target;
use super::shell::Part;
use crate::core::frame::ScopedRule;

/// A rule that was understood.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// As it was said.
    pub(super) said: ScopedRule,
    tool: String,
    pattern: Pattern,
}

#[derive(Clone, Debug)]
enum Pattern {
    /// The whole tool.
    Any,
    Command(CommandPattern),
    Path(Box<PathPattern>),
    Domain(String),
    AgentType(String),
}

/// A gitignore-style pattern and the folder it starts from.
#[derive(Clone, Debug)]
struct PathPattern {
    root: Target,
    /// What is known of the path of everything that matches.
    beginning: Target,
    matcher: Gitignore,
}

/// What patterns are relative to, beside their rule's own root.
#[derive(Clone, Copy)]
pub(super) struct Anchors<'a> {
    pub(super) cwd: &'a Path,
    pub(super) home: Option<&'a Path>,
}

/// A rule that was not understood.
pub(super) struct Misunderstood {
    /// The tool it is about, if that much is clear.
    pub(super) tool: Option<String>,
    pub(super) why: String,
}

impl Rule {
    pub(super) fn parse(said: &ScopedRule, anchors: Anchors<'_>) -> Result<Self, Misunderstood> {
        let text = said.rule.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => (tool.trim_end(), Some(rest)),
        };
        let named = !tool.is_empty() && tool.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-*".contains(&b));
        let known = (named && (!tool.contains('*') || tool.starts_with("mcp__"))).then(|| canonical(tool).to_owned());
        let fail = |why: &str| Misunderstood { tool: known.clone(), why: why.to_owned() };
        let Some(tool) = known.clone() else { return Err(fail("it does not begin with a tool's name")) };
        let pattern = match pattern {
            None => Pattern::Any,
            Some(rest) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| fail("its closing parenthesis is missing"))?;
                parse_pattern(&tool, inner.trim(), said, anchors).map_err(|why| fail(&why))?
            }
        };
        Ok(Self { said: said.clone(), tool, pattern })
    }

    /// Stands in for a rule that was not understood: about the whole tool.
    pub(super) fn whole_tool(said: &ScopedRule, tool: String) -> Self {
        Self { said: said.clone(), tool, pattern: Pattern::Any }
    }

    /// Whether it is about every call of `tool`.
    pub(super) fn covers_all_of(&self, tool: &str) -> bool {
        matches!(self.pattern, Pattern::Any) && self.concerns(tool)
    }

    /// Whether it is about `tool` at all: `Edit` rules are about all tools that edit, `Read` rules
    /// about all that read files.
    pub(super) fn concerns(&self, tool: &str) -> bool {
        let tool = canonical(tool);
        match self.tool.as_str() {
            "Edit" => ["Edit", "Write", "NotebookEdit"].contains(&tool),
            "Read" => ["Read", "Glob", "Grep"].contains(&tool),
            server if server.starts_with("mcp__") => {
                let server = server.strip_suffix('*').unwrap_or(server);
                let server = server.strip_suffix("__").unwrap_or(server);
                tool == self.tool || tool.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
            }
            own => own == tool,
        }
    }

    /// Whether it has a pattern of commands or paths, which an unreadable command may match.
    pub(super) fn is_narrow(&self) -> bool {
        !matches!(self.pattern, Pattern::Any)
    }

    /// Whether one of the path's forms matches (to deny or ask).
    pub(super) fn touches(&self, target: &Target) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Path(pattern) => target.forms().any(|form| pattern.matches(form)),
            _ => false,
        }
    }

    /// Whether all of the path's forms match (to allow).
    pub(super) fn spans(&self, target: &Target) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Path(pattern) => target.forms().all(|form| pattern.matches(form)),
            _ => false,
        }
    }

    /// Whether the whole command line is what the rule says (to deny or ask about one that can't
    /// be split).
    pub(super) fn is_line(&self, line: &str) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Command(pattern) => pattern.matches(line),
            _ => false,
        }
    }

    /// Whether the whole command line is, letter by letter, what the rule says (to allow).
    pub(super) fn is_exact_line(&self, line: &str) -> bool {
        matches!(&self.pattern, Pattern::Command(CommandPattern::Exact(exact)) if exact == line)
    }

    /// Whether the command is what the rule is about, or may become it (to deny or ask).
    pub(super) fn touches_command(&self, part: &Part) -> Touch {
        match &self.pattern {
            Pattern::Any => Touch::Yes,
            Pattern::Command(pattern) => pattern.touches(part),
            _ => Touch::No,
        }
    }

    /// Whether the command is what the rule says (to allow).
    pub(super) fn spans_command(&self, part: &Part) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Command(pattern) => pattern.spans(part),
            _ => false,
        }
    }

    /// Whether something in the folder, at any depth, may be what the rule is about.
    pub(super) fn reaches_below(&self, folder: &Target) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Path(pattern) => pattern.reaches_below(folder),
            _ => false,
        }
    }

    pub(super) fn is_domain_of(&self, host: Option<&str>) -> bool {
        match (&self.pattern, host) {
            (Pattern::Any, _) => true,
            (Pattern::Domain(domain), Some(host)) => match domain.strip_prefix("*.") {
                Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
                None => host == domain,
            },
            _ => false,
        }
    }

    pub(super) fn is_agent_type(&self, agent_type: Option<&str>) -> bool {
        match (&self.pattern, agent_type) {
            (Pattern::Any, _) => true,
            (Pattern::AgentType(own), Some(asked)) => own == asked,
            _ => false,
        }
    }
}

/// `Task` is an older name of `Agent`.
pub(super) fn canonical(tool: &str) -> &str {
    if tool == "Task" { "Agent" } else { tool }
}

fn parse_pattern(tool: &str, inner: &str, said: &ScopedRule, anchors: Anchors<'_>) -> Result<Pattern, String> {
    if inner.is_empty() {
        return Err("the parentheses are empty".to_owned());
    }
    match tool {
        "Bash" | "Agent" | "WebFetch" if inner == "*" => Ok(Pattern::Any),
        "Bash" => Ok(Pattern::Command(CommandPattern::parse(inner)?)),
        "Agent" => Ok(Pattern::AgentType(inner.to_owned())),
        "WebFetch" => match inner.strip_prefix("domain:").map(str::trim) {
            Some("*") => Ok(Pattern::Any),
            Some(domain) if !domain.is_empty() => {
                Ok(Pattern::Domain(domain.trim_end_matches('.').to_ascii_lowercase()))
            }
            _ => Err("WebFetch takes `domain:NAME`".to_owned()),
        },
        "Read" | "Edit" | "Write" | "NotebookEdit" | "Glob" | "Grep" => {
            Ok(Pattern::Path(Box::new(PathPattern::parse(inner, &said.root, anchors)?)))
        }
        _ => Err(format!("{tool} takes no pattern")),
    }
}

impl PathPattern {
    fn parse(text: &str, rule_root: &Path, anchors: Anchors<'_>) -> Result<Self, String> {
        let home = || anchors.home.map(Path::to_path_buf).ok_or_else(|| "the home folder is not known".to_owned());
        let (root, line): (PathBuf, String) = match text {
            _ if text.starts_with('!') => return Err("negation is not supported".to_owned()),
            _ if text.split('/').any(|part| part == "..") => return Err("`..` is not supported".to_owned()),
            _ if text.starts_with("//") => (PathBuf::from("/"), format!("/{}", text.trim_start_matches('/'))),
            "~" => (home()?, "/**".to_owned()),
            _ if text.starts_with("~/") => (home()?, text[1..].to_owned()),
            _ if text.starts_with('/') => (rule_root.to_path_buf(), text.to_owned()),
            _ => match text.strip_prefix("./") {
                Some(rest) => (anchors.cwd.to_path_buf(), format!("/{rest}")),
                None => (anchors.cwd.to_path_buf(), text.to_owned()),
            },
        };
        let line = if line.starts_with('#') { format!("\\{line}") } else { line };
        let mut builder = GitignoreBuilder::new("");
        builder.add_line(None, &line).map_err(|e| e.to_string())?;
        let matcher = builder.build().map_err(|e| e.to_string())?;
        let beginning = Target::new(&beginning_of(&root, &line), anchors.cwd);
        Ok(Self { root: Target::new(&root, anchors.cwd), beginning, matcher })
    }

    fn reaches_below(&self, folder: &Target) -> bool {
        let related = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        self.beginning.forms().any(|own| folder.forms().any(|other| related(own, other)))
    }

    fn matches(&self, path: &Path) -> bool {
        self.root.forms().any(|root| match path.strip_prefix(root) {
            Ok(inside) if !inside.as_os_str().is_empty() => {
                self.matcher.matched_path_or_any_parents(inside, path.is_dir()).is_ignore()
            }
            _ => false,
        })
    }
}

/// `/a/b*/c` is about something under `/a`; a pattern without a `/` in it is about any depth.
fn beginning_of(root: &Path, line: &str) -> PathBuf {
    let inner = line.trim_end_matches('/');
    if !inner.contains('/') {
        return root.to_path_buf();
    }
    let plain = |part: &&str| !part.contains(['*', '?', '[', '\\']);
    root.join(inner.trim_start_matches('/').split('/').take_while(plain).collect::<PathBuf>())
}

/// The host of a URL, lower case; `None` if it is not plain enough to be sure.
pub(super) fn host_of(url: &str) -> Option<String> {
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host_and_port = authority.rsplit('@').next()?;
    let host = match host_and_port.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => host_and_port,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b));
    (plain && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let rows = [
            ("https://Docs.Example.com:443/x", Some("docs.example.com")),
            ("https://good.com@evil.com/", Some("evil.com")),
            ("https://evil.com\\@good.com/", Some("evil.com")),
            ("https://evil.com?@good.com", Some("evil.com")),
            ("http://[::1]:80/", Some("[::1]")),
            ("http://good.com./", Some("good.com")),
            ("https://go od.com", None),
            ("good.com", None),
            ("https://%65vil.com", None),
        ];
        for (url, host) in rows {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }
}
