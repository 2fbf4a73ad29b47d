//! Which tools a role has (spec 1.5), as a pure function. Called once when a conversation starts;
//! a tool outside the pool does not exist for that model.

/// What a conversation is, as far as its tools are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main conversation of a session.
    Main,
    /// The main conversation in coordinator mode.
    Coordinator,
    /// A background subagent.
    AsyncWorker,
    /// A background subagent of a coordinator.
    CoordinatorWorker {
        /// `CLAUDE_CODE_SIMPLE` is set.
        simple: bool,
    },
    /// A subagent started in the foreground, also after it moved to the background.
    SyncWorker,
    /// A member of a team.
    Teammate {
        /// It was started in plan mode.
        plan: bool,
    },
}

/// What an agent definition or a flag says about tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restriction<'a> {
    /// Only these; none = all of the role.
    pub tools: Option<&'a [String]>,
    /// Never these.
    pub disallowed: &'a [String],
}

const WORKER: [&str; 15] = [
    "Read",
    "WebSearch",
    "TodoWrite",
    "Grep",
    "WebFetch",
    "Glob",
    "Bash",
    "Edit",
    "Write",
    "NotebookEdit",
    "Skill",
    "StructuredOutput",
    "ToolSearch",
    "EnterWorktree",
    "ExitWorktree",
];
const SIMPLE: [&str; 3] = ["Bash", "Read", "Edit"];
const COORDINATOR: [&str; 4] = ["Agent", "SendMessage", "TaskStop", "StructuredOutput"];
const COORDINATOR_MCP: [&str; 2] = ["subscribe_pr_activity", "unsubscribe_pr_activity"];
const TEAMMATE: [&str; 6] = ["SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "Agent"];

/// The role's tools ∩ the definition's ∩ `existing`, in the order of `existing`, each once.
///
/// In `restriction`, `Task` means `Agent`, `*` everything, `mcp__server` all tools of that server,
/// and a pattern in parentheses is dropped: `Bash(git:*)` names `Bash`. A disallowed entry with a
/// pattern thus takes the whole tool away, which is narrower than meant, never wider.
pub fn pool(role: Role, restriction: Restriction<'_>, existing: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for &tool in existing {
        let wanted = restriction.tools.is_none_or(|tools| tools.iter().any(|entry| names(entry, tool)))
            && !restriction.disallowed.iter().any(|entry| names(entry, tool));
        if wanted && role_has(role, tool) && !out.iter().any(|t| t == tool) {
            out.push(tool.to_owned());
        }
    }
    out
}

fn role_has(role: Role, tool: &str) -> bool {
    let worker = WORKER.contains(&tool) || tool.starts_with("mcp__");
    match role {
        Role::Main => true,
        Role::Coordinator => COORDINATOR.contains(&tool) || bare_mcp_name(tool).is_some_and(is_coordinator_mcp),
        Role::AsyncWorker => worker,
        Role::CoordinatorWorker { simple: true } => SIMPLE.contains(&tool),
        Role::CoordinatorWorker { simple: false } => worker && tool != "StructuredOutput",
        Role::SyncWorker => worker || tool == "SendMessage",
        Role::Teammate { plan } => worker || TEAMMATE.contains(&tool) || (plan && tool == "ExitPlanMode"),
    }
}

fn is_coordinator_mcp(bare: &str) -> bool {
    COORDINATOR_MCP.contains(&bare)
}

/// `subscribe` of `mcp__server__subscribe`.
fn bare_mcp_name(tool: &str) -> Option<&str> {
    let (server, bare) = tool.strip_prefix("mcp__")?.rsplit_once("__")?;
    (!server.is_empty()).then_some(bare)
}

fn names(entry: &str, tool: &str) -> bool {
    let entry = entry.split('(').next().unwrap_or(entry).trim();
    let entry = if entry == "Task" { "Agent" } else { entry };
    if entry == "*" || entry == tool {
        return true;
    }
    let server = entry.strip_suffix("__*").unwrap_or(entry);
    server.starts_with("mcp__") && tool.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 32] = [
        "Agent",
        "SendMessage",
        "TaskStop",
        "TaskOutput",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskUpdate",
        "TeamCreate",
        "TeamDelete",
        "AskUserQuestion",
        "ExitPlanMode",
        "Read",
        "WebSearch",
        "TodoWrite",
        "Grep",
        "WebFetch",
        "Glob",
        "Bash",
        "Edit",
        "Write",
        "NotebookEdit",
        "Skill",
        "StructuredOutput",
        "ToolSearch",
        "EnterWorktree",
        "ExitWorktree",
        "mcp__github__create_issue",
        "mcp__github__subscribe_pr_activity",
        "mcp__my__hub__unsubscribe_pr_activity",
        "mcp__subscribe_pr_activity",
        "SomethingNew",
    ];

    fn sorted(mut names: Vec<String>) -> Vec<String> {
        names.sort();
        names
    }

    fn expected(parts: &[&[&str]]) -> Vec<String> {
        sorted(parts.concat().iter().map(|s| (*s).to_owned()).collect())
    }

    #[test]
    fn every_row_of_the_role_table() {
        let worker = [
            "Read",
            "WebSearch",
            "TodoWrite",
            "Grep",
            "WebFetch",
            "Glob",
            "Bash",
            "Edit",
            "Write",
            "NotebookEdit",
            "Skill",
            "ToolSearch",
            "EnterWorktree",
            "ExitWorktree",
            "mcp__github__create_issue",
            "mcp__github__subscribe_pr_activity",
            "mcp__my__hub__unsubscribe_pr_activity",
            "mcp__subscribe_pr_activity",
        ];
        let structured = ["StructuredOutput"];
        let tasks = ["SendMessage", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "Agent"];
        let rows: [(Role, Vec<String>); 8] = [
            (Role::Main, expected(&[&ALL])),
            (
                Role::Coordinator,
                expected(&[&[
                    "Agent",
                    "SendMessage",
                    "TaskStop",
                    "StructuredOutput",
                    "mcp__github__subscribe_pr_activity",
                    "mcp__my__hub__unsubscribe_pr_activity",
                ]]),
            ),
            (Role::AsyncWorker, expected(&[&worker, &structured])),
            (Role::CoordinatorWorker { simple: false }, expected(&[&worker])),
            (Role::CoordinatorWorker { simple: true }, expected(&[&["Bash", "Read", "Edit"]])),
            (Role::SyncWorker, expected(&[&worker, &structured, &["SendMessage"]])),
            (Role::Teammate { plan: false }, expected(&[&worker, &structured, &tasks])),
            (Role::Teammate { plan: true }, expected(&[&worker, &structured, &tasks, &["ExitPlanMode"]])),
        ];
        for (role, tools) in rows {
            assert_eq!(sorted(pool(role, Restriction::default(), &ALL)), tools, "{role:?}");
        }
    }

    #[test]
    fn a_definition_narrows_and_never_widens() {
        let strings = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let with = |role, tools: Option<&[&str]>, disallowed: &[&str]| {
            let tools = tools.map(strings);
            let disallowed = strings(disallowed);
            pool(role, Restriction { tools: tools.as_deref(), disallowed: &disallowed }, &ALL)
        };
        assert_eq!(
            with(Role::AsyncWorker, Some(&["Bash(git:*)", "Read", "Agent", "Nope", "Read"]), &[]),
            ["Read", "Bash"]
        );
        assert_eq!(with(Role::AsyncWorker, Some(&["*"]), &[]), pool(Role::AsyncWorker, Restriction::default(), &ALL));
        assert_eq!(with(Role::AsyncWorker, Some(&[]), &[]), Vec::<String>::new());
        assert_eq!(with(Role::Teammate { plan: false }, Some(&["Task", "Read"]), &["Read(/x)"]), ["Agent"]);
        assert_eq!(
            with(Role::AsyncWorker, Some(&["mcp__github"]), &["mcp__github__create_issue"]),
            ["mcp__github__subscribe_pr_activity"]
        );
        assert_eq!(with(Role::AsyncWorker, Some(&["mcp__git"]), &[]), Vec::<String>::new());
        assert!(
            !with(Role::Main, None, &["mcp__github__*", "Task"]).iter().any(|t| t.contains("github") || t == "Agent")
        );
    }

    #[test]
    fn only_tools_that_exist_are_in_a_pool() {
        assert_eq!(pool(Role::Main, Restriction::default(), &["Read", "Glob", "Read"]), ["Read", "Glob"]);
        assert_eq!(
            pool(Role::CoordinatorWorker { simple: true }, Restriction::default(), &["Grep"]),
            Vec::<String>::new()
        );
    }
}
