//! Every environment variable the product reads or sets, in one place (spec 9.2).

/// Overrides `~/.claude`.
pub const CONFIG_DIR: &str = "CLAUDE_CONFIG_DIR";
/// Overrides `/tmp/lead-<uid>`.
pub const RUNTIME_DIR: &str = "LEAD_RUNTIME_DIR";
/// Shortens deadlines, debug builds only.
pub const LIMITS: &str = "LEAD_LIMITS";
/// Arms a fault point, debug builds only.
pub const FAULT: &str = "LEAD_FAULT";
/// What a process says of its build, debug builds only.
pub const BUILD: &str = "LEAD_BUILD";
/// Log filter, as `tracing` understands it: `error`, `warn`, `info`, `debug`, `trace`.
pub const LOG: &str = "LEAD_LOG";
/// Turns coordinator mode on; read by leads only.
pub const COORDINATOR_MODE: &str = "CLAUDE_CODE_COORDINATOR_MODE";
/// Workers get `Bash Read Edit` only.
pub const SIMPLE: &str = "CLAUDE_CODE_SIMPLE";
/// Model of every subagent.
pub const SUBAGENT_MODEL: &str = "CLAUDE_CODE_SUBAGENT_MODEL";
/// Nothing goes to the background.
pub const DISABLE_BACKGROUND: &str = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS";
/// Removes the built-in agents in non-interactive sessions.
pub const DISABLE_BUILTIN_AGENTS: &str = "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS";
/// There are no teams.
pub const TEAMS_DISABLED: &str = "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS_DISABLED";
/// The task list of a session, in place of its team's or its own.
pub const TASK_LIST_ID: &str = "CLAUDE_CODE_TASK_LIST_ID";
/// Set for hooks: the project's root.
pub const PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// Model of the session where neither flag nor settings name one.
pub const MODEL: &str = "ANTHROPIC_MODEL";
/// Key of the Messages API, sent as `x-api-key`.
pub const API_KEY: &str = "ANTHROPIC_API_KEY";
/// Token of the Messages API, sent as bearer.
pub const AUTH_TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";
/// Where the Messages API is.
pub const BASE_URL: &str = "ANTHROPIC_BASE_URL";
/// Proxies for https, the first that is set counts.
pub const HTTPS_PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// Hosts that are reached without a proxy, the first that is set counts.
pub const NO_PROXIES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Nothing is coloured if it is set and not empty.
pub const NO_COLOR: &str = "NO_COLOR";
/// The kind of terminal; nothing is drawn on one that is `dumb`.
pub const TERM: &str = "TERM";
/// Set for tools: this is an agent's shell.
pub const CLAUDECODE: &str = "CLAUDECODE";
/// Set for tools: the session.
pub const SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// Set for tools: the agent that runs the tool.
pub const AGENT_ID: &str = "LEAD_AGENT_ID";
/// Set for tools: the runtime name of the agent's process, which the sweep looks for.
pub const RUN: &str = "LEAD_RUN";
/// Set for tools: the agent's own socket.
pub const SOCKET: &str = "LEAD_SOCKET";
/// Set for tools: the team.
pub const TEAM: &str = "LEAD_TEAM";

/// Set for tools, which nobody sits in front of: programs that would show an editor or a pager to a
/// person print, or fail with words of their own. For git no editor means the message it proposes, and
/// an empty one is refused by git itself.
pub const UNATTENDED: [(&str, &str); 6] = [
    ("GIT_EDITOR", "true"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// The variables that are set for each tool and never handed from one agent to the next.
pub const SET_FOR_TOOLS: [&str; 6] = [CLAUDECODE, SESSION_ID, AGENT_ID, RUN, SOCKET, TEAM];

/// The variables that no process of a tool inherits: those set for each tool anew, the credentials of
/// models, and the mode of a lead, which is nobody else's.
pub fn withheld_from_tools() -> impl Iterator<Item = &'static str> {
    SET_FOR_TOOLS.into_iter().chain(MODEL_CREDENTIALS).chain([COORDINATOR_MODE])
}

/// Credentials of model providers: neither agents' environments nor tools have them.
pub const MODEL_CREDENTIALS: [&str; 2] = [API_KEY, AUTH_TOKEN];

/// `1 true yes on`, in any case.
pub fn truthy(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|t| value.trim().eq_ignore_ascii_case(t))
}

/// Whether a variable's name says that it holds a secret; such ones are not in the environment of
/// agents (they go to their tools by the handshake).
pub fn names_secret(name: &str) -> bool {
    ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"].iter().any(|end| name.ends_with(end))
}

/// Variables by name.
pub type Vars = Vec<(String, String)>;

/// Splits a lead's environment for an agent: what its process gets, and what only its tools get
/// (by the handshake). Model credentials are in neither.
pub fn split_for_agent(all: impl Iterator<Item = (String, String)>) -> (Vars, Vars) {
    let mut process = Vec::new();
    let mut tools_only = Vec::new();
    for (name, value) in all {
        if name == COORDINATOR_MODE
            || SET_FOR_TOOLS.contains(&name.as_str())
            || MODEL_CREDENTIALS.contains(&name.as_str())
        {
            continue;
        }
        if names_secret(&name) {
            tools_only.push((name, value));
        } else {
            process.push((name, value));
        }
    }
    (process, tools_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_reach_tools_but_not_the_process_and_credentials_neither() {
        let all = [
            ("PATH", "/bin"),
            ("GH_TOKEN", "s"),
            ("ANTHROPIC_API_KEY", "k"),
            (COORDINATOR_MODE, "1"),
            (AGENT_ID, "a-1"),
        ];
        let (process, tools) = split_for_agent(all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        assert_eq!(process, vec![("PATH".to_owned(), "/bin".to_owned())]);
        assert_eq!(tools, vec![("GH_TOKEN".to_owned(), "s".to_owned())]);
    }

    #[test]
    fn truthy_words() {
        assert!(["1", "true", "YES", " on "].iter().all(|v| truthy(v)));
        assert!(!["", "0", "false", "off", "2"].iter().any(|v| truthy(v)));
    }
}
