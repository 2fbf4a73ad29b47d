//! Rules of settings files and flags: `Tool`, `Tool(pattern)`.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::path::Target;
use super::shell::Part;
use crate::core::frame::ScopedRule;

/// Commands that run the command behind them.
const WRAPPERS: [&str; 13] = [
    "sudo", "doas", "env", "nohup", "timeout", "xargs", "command", "builtin", "exec", "nice", "stdbuf", "setsid",
    "busybox",
];

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

#[derive(Clone, Debug)]
enum CommandPattern {
    Exact(String),
    Prefix(String),
    /// `*` stands for any characters.
    Wildcard(String),
}

/// A gitignore-style pattern and the folder it starts from.
#[derive(Clone, Debug)]
struct PathPattern {
    root: Target,
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

    /// Whether the command may be what the rule is about, in any disguise that can be seen through
    /// (to deny or ask).
    pub(super) fn touches_command(&self, part: &Part) -> bool {
        let Pattern::Command(pattern) = &self.pattern else { return matches!(self.pattern, Pattern::Any) };
        if pattern.matches(&part.raw()) {
            return true;
        }
        for at in 0..part.words.len() {
            let text = part.resolved(at);
            let name = part.words[at].text.as_str();
            let bare = name.rsplit('/').next().unwrap_or(name);
            if pattern.matches(&text) || pattern.matches(&format!("{bare}{}", &text[name.len()..])) {
                return true;
            }
            if at == 0 && !WRAPPERS.contains(&bare) {
                return false;
            }
        }
        false
    }

    /// Whether the command is what the rule says (to allow): as written, or with its quotes
    /// resolved. Variables set for the command must be part of the pattern.
    pub(super) fn spans_command(&self, part: &Part) -> bool {
        let Pattern::Command(pattern) = &self.pattern else { return matches!(self.pattern, Pattern::Any) };
        let disguised = part.command().contains(char::is_whitespace);
        !part.words.is_empty()
            && !disguised
            && (pattern.matches(&part.raw()) || (part.assignments.is_empty() && pattern.matches(&part.resolved(0))))
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

impl CommandPattern {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix(":*") {
            Some("") => Err("nothing stands before `:*`".to_owned()),
            Some(prefix) if !prefix.contains('*') => Ok(Self::Prefix(prefix.to_owned())),
            Some(prefix) => Ok(Self::Wildcard(format!("{prefix} *"))),
            None if text.contains('*') => Ok(Self::Wildcard(text.to_owned())),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => {
                text.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
            }
            Self::Wildcard(pattern) => {
                // `ls *` is also `ls` alone.
                let alone = pattern.strip_suffix(" *").is_some_and(|start| wildcard(start, text));
                alone || wildcard(pattern, text)
            }
        }
    }
}

/// `*` in `pattern` stands for any characters, nothing else is special.
fn wildcard(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
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
        Ok(Self { root: Target::new(&root, anchors.cwd), matcher })
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
    fn wildcards() {
        let rows = [
            ("git * main", "git push origin main", true),
            ("git * main", "git main", false),
            ("ls *", "ls", true),
            ("ls *", "lsof", false),
            ("ls*", "lsof", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("*x*", "axb", true),
        ];
        for (pattern, text, expected) in rows {
            let command = CommandPattern::Wildcard(pattern.to_owned());
            assert_eq!(command.matches(text), expected, "{pattern} {text}");
        }
    }

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
