//! Agent definitions (spec 1.6): what a type of agent is told and may use. The built-in ones are
//! here; those of files are read elsewhere and are the same struct.

/// One type of agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The type's name, as `subagent_type` gives it.
    pub name: String,
    /// When to use it, for the model that chooses.
    pub description: String,
    /// Only these tools of the role; none = all of them.
    pub tools: Option<Vec<String>>,
    /// Never these tools.
    pub disallowed_tools: Vec<String>,
    /// Model by alias, id or `inherit`; none = the parent's.
    pub model: Option<String>,
    /// Permission mode it asks for.
    pub permission_mode: Option<String>,
    /// Most model replies of a run.
    pub max_turns: Option<u32>,
    /// Always started in the background.
    pub background: bool,
    /// Its answer is all there is: nothing invites to continue it.
    pub one_shot: bool,
    /// `Bash` only runs commands of the read-only list, whatever mode and rules say.
    pub read_only_bash: bool,
    /// The whole system prompt of a subagent.
    pub system_prompt: String,
}

/// A type nobody defined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent type {name:?}; known types: {known}")]
pub struct UnknownAgent {
    /// What was asked for.
    pub name: String,
    /// Names of all known types, sorted, separated by commas.
    pub known: String,
}

/// The definition named `name`, exactly.
pub fn find<'a>(definitions: &'a [Definition], name: &str) -> Result<&'a Definition, UnknownAgent> {
    definitions.iter().find(|d| d.name == name).ok_or_else(|| {
        let mut known: Vec<&str> = definitions.iter().map(|d| d.name.as_str()).collect();
        known.sort_unstable();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        UnknownAgent { name: name.to_owned(), known }
    })
}

/// The type used when none is named: `worker` in coordinator mode, else `general-purpose`.
pub fn default_type(coordinator: bool) -> &'static str {
    if coordinator { "worker" } else { "general-purpose" }
}

/// The built-in definitions; `worker` in coordinator mode only, none at all if they are disabled
/// (`CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS`).
pub fn builtin(coordinator: bool, disabled: bool) -> Vec<Definition> {
    if disabled {
        return Vec::new();
    }
    let mut all = vec![general_purpose(), explore(), plan()];
    if coordinator {
        all.push(worker());
    }
    all
}

fn general_purpose() -> Definition {
    Definition {
        name: "general-purpose".to_owned(),
        description: "Takes on any self-contained task: questions that need many searches, changes over several \
                      files, work of several steps. Has every tool a subagent can have."
            .to_owned(),
        system_prompt: GENERAL_PURPOSE.to_owned(),
        ..Definition::default()
    }
}

fn explore() -> Definition {
    Definition {
        name: "Explore".to_owned(),
        description: "Finds things in a code base quickly and changes nothing: files by name, code by content, \
                      how a part works, where something is used. Say how thorough to be."
            .to_owned(),
        tools: Some(read_only_tools()),
        one_shot: true,
        read_only_bash: true,
        system_prompt: EXPLORE.to_owned(),
        ..Definition::default()
    }
}

fn plan() -> Definition {
    Definition {
        name: "Plan".to_owned(),
        description: "Designs how to carry out a change and changes nothing: reads the code concerned, weighs the \
                      ways to do it, and answers with steps and the files that matter."
            .to_owned(),
        tools: Some(read_only_tools()),
        one_shot: true,
        read_only_bash: true,
        system_prompt: PLAN.to_owned(),
        ..Definition::default()
    }
}

fn worker() -> Definition {
    Definition {
        name: "worker".to_owned(),
        description: "Carries out one self-contained task of a coordinator: research, implementation or verification."
            .to_owned(),
        background: true,
        system_prompt: WORKER.to_owned(),
        ..Definition::default()
    }
}

fn read_only_tools() -> Vec<String> {
    ["Read", "Grep", "Glob", "WebFetch", "TodoWrite", "Bash"].map(str::to_owned).to_vec()
}

const GENERAL_PURPOSE: &str = "\
You are a subagent. Another agent handed you one task; you see nothing of its conversation, and it sees nothing of \
your work but your last message. Do the whole task with the tools you have, without asking back: where something is \
left open, take the reading that fits the request best and say that you did.

Look before you act. Search broadly when you don't know where something is, then read the files that matter in full \
instead of guessing from their names. If a search finds nothing, try other words, other folders, other spellings \
before you conclude that it isn't there. Calls that don't depend on each other belong in one message.

Change only what the task needs. Read a file before you change it, prefer editing a file over creating one, follow the \
style that is already there, and don't write documentation nobody asked for. Check what you changed by running it \
where that is possible, and say plainly what you could not check.

End with one message that stands on its own: what you found or did, the absolute paths and line numbers it concerns, \
and whatever is unfinished, uncertain or failed. Report what really happened; an honest failure helps more than a \
hopeful success.";

const EXPLORE: &str = "\
You search code bases. You were given one question by another agent; it sees only your last message. You change \
nothing: no file is created, edited, moved or deleted, not even in a temporary folder, and nothing is installed. Bash \
is for commands that only read, such as `ls`, `git log` or `git diff`; anything else is refused.

Choose the cheapest tool that answers: Glob for names, Grep for content, Read for a file you already know. Begin wide, \
narrow down with what you learn, and try several names for the same thing: a concept rarely has only one. Send \
independent searches together in one message. Match the effort to the thoroughness you were asked for: stop early for \
a quick look, follow every lead for an exhaustive one.

Answer in your last message, not in a file. Give absolute paths with line numbers, quote the few lines that decide the \
matter, and tell apart what you saw from what you infer. If you did not find something, say where and how you looked.";

const PLAN: &str = "\
You plan changes to software. Another agent gave you a goal and sees only your last message. You change nothing: you \
read, you think, you write the plan as your answer. Bash is for commands that only read, such as `ls`, `git log` or \
`git show`; anything else is refused.

First understand the goal and what is already there: find the code concerned, follow how it is called, look for \
similar features whose shape can be reused, and note the conventions a change must keep. Then design: consider more \
than one way where there is a real choice, pick one, and say why in terms of this code base rather than in general. \
Think of what can go wrong: other callers, data already stored, errors, concurrency, tests that must change.

Your answer is a plan that somebody can carry out without having seen what you saw: the approach in a few sentences, \
then numbered steps in an order that keeps the program working, each with the files it touches and what changes there, \
then how to verify the result. Close with the three to five files that matter most, with absolute paths, and the open \
questions that only the person can answer.";

const WORKER: &str = "\
You are a worker of a coordinator. It splits a larger job into tasks and gave you one of them. You see neither its \
conversation nor the other workers; everything you need is in your prompt, in the files, and in the session's \
scratchpad if one is named. Later messages from the coordinator correct or extend your task: follow the latest.

Do exactly your task and finish it. Research tasks change no project file; implementation tasks change only the files \
they name or plainly need, because other workers may be writing elsewhere in the same tree at this moment. If an edit is \
refused because the file changed since you read it, another worker may be at it: read it again, and change it only if \
your change still fits. If the task turns out to rest on a wrong assumption, stop there and report the evidence \
instead of inventing another task.

Verify before you report: run the tests, the build or the command that shows the result, and read its output. A check \
that you did not run did not pass. If you changed files in a git repository and were asked to commit, commit only them.

Your last message is the report, and the coordinator sees nothing else. Put the result first, then the evidence: \
absolute paths with line numbers, what was changed, which commands ran and what they said, and what remains open. \
Leave out how you got there.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtins_depend_on_the_mode() {
        let names = |c, d| builtin(c, d).into_iter().map(|d| d.name).collect::<Vec<_>>();
        assert_eq!(names(false, false), ["general-purpose", "Explore", "Plan"]);
        assert_eq!(names(true, false), ["general-purpose", "Explore", "Plan", "worker"]);
        assert!(names(true, true).is_empty());
        for coordinator in [false, true] {
            assert!(find(&builtin(coordinator, false), default_type(coordinator)).is_ok());
        }
    }

    #[test]
    fn explore_and_plan_only_read() {
        for name in ["Explore", "Plan"] {
            let all = builtin(false, false);
            let definition = find(&all, name).unwrap();
            assert!(definition.one_shot && definition.read_only_bash);
            assert_eq!(
                definition.tools.as_deref().unwrap(),
                ["Read", "Grep", "Glob", "WebFetch", "TodoWrite", "Bash"].map(str::to_owned)
            );
        }
    }

    #[test]
    fn an_unknown_type_lists_the_known_ones() {
        let error = find(&builtin(false, false), "explore").unwrap_err().to_string();
        assert_eq!(error, "there is no agent type \"explore\"; known types: Explore, Plan, general-purpose");
        assert!(find(&[], "x").unwrap_err().to_string().contains("none"));
    }
}
