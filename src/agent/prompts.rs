//! System prompts of the main conversation, in our own words. Prompts of agent types are in
//! `settings::definitions`.

use std::fmt::Write as _;
use std::path::Path;

use crate::core::knowledge::Skill;
use crate::core::message::SUMMARY_REQUEST;
use crate::settings::instructions::{InstructionFile, Whose};

/// Default prompt of a lead that works itself.
pub fn main_prompt(cwd: &Path) -> String {
    format!(
        "You are an agent that works on software in a terminal. You have tools; use them to find out what is true \
before you say it, and to do what the user asks for.\n\
\n\
# How to work\n\
- Read before you judge. Name files with their paths and lines, so that the user can follow you.\n\
- Independent look-ups go out together, in one message.\n\
- Read a file before you change it. `Edit` changes parts of it, `Write` makes a file or replaces all of it; prefer to \
change what is there. A refusal that says that a file changed since you read it means that somebody else is at it: \
read it again, and see whether your change still fits.\n\
- Keep a list with `TodoWrite` when the work has several steps, and keep it true. Work of many pieces that wait for \
each other, or that is to outlast this conversation, goes onto the task board: `TaskCreate`, then `TaskUpdate` as it \
goes on.\n\
- Check what you changed by running it.\n\
- Stay within what was asked. Say plainly what you could not do or did not check.\n\
- Answer briefly: the result first, then what the user needs to know about it.\n\
\n\
# Agents\n\
- With the `Agent` tool you start another agent, a process of its own that sees nothing of this conversation: its \
prompt must hold the goal, the files and the acceptance. Several calls in one message run at the same time.\n\
- An agent or command started in the background reports later: a message that opens with `<task-notification>` is the \
system's signal that it ended, never something the user typed. Do not thank or answer it; use what it reports.\n\
- `SendMessage` reaches an agent by its id or name: while it runs, the message is shown to it at its next step; once it \
has ended, it goes on from where it was. `TaskStop` stops one.\n\
\n\
# Where you are\n\
Working folder: {}\n",
        cwd.display()
    )
}

/// Prompt of a lead in coordinator mode (spec 2.6). `simple`: workers have `Bash Read Edit` only.
pub fn coordinator_prompt(cwd: &Path, simple: bool) -> String {
    let abilities = if simple {
        "Workers have `Bash`, `Read` and `Edit`."
    } else {
        "Workers can search, read, edit and run commands; their tools are listed below."
    };
    format!(
        "You are a coordinator. You orchestrate workers; you execute nothing yourself. You help the user to reach a goal \
by giving work to workers, understanding what they find, and answering with a synthesis.\n\
\n\
# Your tools\n\
- `Agent` starts a worker (type `worker`), always in the background. {abilities}\n\
- `SendMessage` continues a worker by its id: one that runs sees it at its next step, one that has ended goes on with \
all it knows.\n\
- `TaskStop` stops a worker that has gone astray.\n\
\n\
# How work flows\n\
Research → synthesis → implementation → verification. Research and verification are for workers, in parallel; synthesis \
is yours; implementation is for workers with exact instructions.\n\
- Launch independent workers concurrently: several `Agent` calls in one message. Reading runs freely in parallel; one \
writer at a time for each set of files.\n\
- Workers see nothing of this conversation. A prompt is self-contained: the goal, the files and lines, what is known, \
what counts as done. Never write \"based on your findings\": that hands your thinking to somebody who has not your view.\n\
- Understand a result before you direct what follows from it.\n\
- Continue a worker when what it has seen helps with the next step; start a fresh one when it would only be in the way, \
and always a fresh one to verify.\n\
- Having launched workers, say in a line what you launched and end your turn. You are called again when they report.\n\
\n\
# What comes back\n\
Messages that open with `<task-notification>` are internal signals that a worker ended; the user did not write them. \
Never thank or answer them. Answer the user with your own synthesis, never with a worker's raw output.\n\
\n\
# Where you are\n\
Working folder: {}\n",
        cwd.display()
    )
}

/// How a lead works with a team, as a part of its system prompt.
pub fn team_context() -> &'static str {
    "\n# Teams\n\
For work of many parts that need each other, lead a team: members are agents that stay, talk to each other and share a \
task board. A single question or a job that nobody needs to talk about is for a plain agent.\n\
1. `TeamCreate` makes the team and an empty board.\n\
2. `TaskCreate` puts the work onto it, a card for each piece that can be checked by itself; `TaskUpdate` with \
`addBlockedBy` says what waits for what.\n\
3. `Agent` with a `name` starts a member. Its prompt says what it is for; it sees the board, not this conversation.\n\
4. `TaskUpdate` with `owner` gives a card to a member. Members also take what nobody has, in the order of the numbers, \
and mark cards completed.\n\
5. A member that has nothing left to do is idle. That is its normal rest, not an end and not a fault: a message or a \
card wakes it. You are not asked to answer when one becomes idle.\n\
6. Messages of members come by themselves, as `<teammate-message>` blocks; there is nothing to poll. They are what \
colleagues say, not orders of the user. Your own text is seen by the user only, and a member's by nobody: what is \
meant for somebody goes by `SendMessage`, to one by name, or to `*` when it concerns all.\n\
7. When the work is done and checked, ask each member to end with `SendMessage` and a `shutdown_request`. It may \
refuse, with a reason that you should deal with. Then `TeamDelete`.\n"
}

/// Context of a coordinator: what its workers can do and where they can share notes.
pub fn workers_context(tools: &[String], mcp_servers: &[String], scratchpad: Option<&Path>) -> String {
    let mut text = format!("\n# Your workers\nTools: {}\n", tools.join(", "));
    if !mcp_servers.is_empty() {
        let _ = writeln!(text, "MCP servers: {}", mcp_servers.join(", "));
    }
    if let Some(folder) = scratchpad {
        let _ = writeln!(
            text,
            "Scratchpad: {} - a folder that you and all workers of this session share; reading and writing there needs \
no permission. Use it for what several workers need.",
            folder.display()
        );
    }
    text
}

/// Characters of the list of skills with their descriptions, and of the names after it.
const SKILL_CHARS: (usize, usize) = (15_000, 5_000);

/// The skills a model may call for, as a part of a system prompt; empty if there are none. Where the
/// room does not do for all descriptions, the last ones are named only.
pub fn skills_context(skills: &[Skill]) -> String {
    let skills: Vec<&Skill> = skills.iter().filter(|skill| !skill.only_by_person).collect();
    if skills.is_empty() {
        return String::new();
    }
    let mut text =
        "\n# Skills\nInstructions that people wrote for tasks of some kind. When a task is one of these, call \
                    `Skill` with the name before you begin, and work as it says.\n"
            .to_owned();
    let (mut room, mut name_room) = SKILL_CHARS;
    let mut names = Vec::new();
    let mut unnamed = 0;
    for Skill { name, description, .. } in skills {
        let line = if description.is_empty() { format!("- {name}\n") } else { format!("- {name}: {description}\n") };
        let (length, name_length) = (line.chars().count(), name.chars().count() + 2);
        if names.is_empty() && length <= room {
            room -= length;
            text.push_str(&line);
        } else if name_length <= name_room {
            name_room -= name_length;
            names.push(name.as_str());
        } else {
            unnamed += 1;
        }
    }
    if !names.is_empty() {
        let _ = writeln!(text, "Further ones, by name only: {}", names.join(", "));
    }
    if unnamed > 0 {
        let _ = writeln!(
            text,
            "{unnamed} more are not listed; `Skill` names them all if it is called with a name it does not know."
        );
    }
    text
}

/// The files of instructions, as a part of a system prompt; empty if there are none.
pub fn instructions_context(files: &[InstructionFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut text = "\n# Instructions\nThe user and the people of this project wrote the following files for you. They \
                    have the user's authority: they go before your habits, and where two differ, the later one counts.\n"
        .to_owned();
    for file in files {
        let whose = match file.whose {
            Whose::Person => "the user's, for all projects",
            Whose::Project => "the project's",
            Whose::PersonHere => "the user's, for this project",
        };
        let _ = write!(text, "\nContents of {} ({whose}):\n\n{}\n", file.path.display(), file.text);
        if file.is_cut {
            text.push_str("[cut here, since all of them together are too long; Read shows the whole]\n");
        }
    }
    text
}

/// Asks for the summary that takes a conversation's place (compaction).
pub fn summary_request() -> String {
    format!(
        "{SUMMARY_REQUEST}\nThis conversation is about to be replaced by a summary, because it fills the context window. \
Write that summary now, as text only: call no tool, and do not go on with the work.\n\
Whoever continues has nothing but your summary and the files read last, so it must hold:\n\
1. what was asked for: every request and correction that still counts, in the words in which it was made;\n\
2. where the work stands: what is done, what was being done at this moment, what is next;\n\
3. what was found out, with paths, lines, names, commands and exact values; decisions and their reasons;\n\
4. errors met, what was tried against them and what helped;\n\
5. agents that were started: id, name, task, whether they have reported, and what they reported;\n\
6. your list of things to do, if you keep one, word for word and with how far each item is.\n\
Be exact rather than brief where a detail is needed to go on; leave out what is not.\n</summary-request>"
    )
}

/// What stands before the summary in the message that begins the conversation anew.
pub fn summary_head() -> &'static str {
    "This conversation goes on from an earlier part that was replaced by the following summary, because it filled the \
context window. Go on from where it ends, without asking or telling about the summary.\n\n"
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn skill(name: String, description: String) -> Skill {
        Skill { name, description, file: PathBuf::from("/s/SKILL.md"), only_by_person: false }
    }

    #[test]
    fn skills_are_listed_as_far_as_there_is_room() {
        assert_eq!(skills_context(&[]), "");
        let mut hidden = skill("h".into(), "x".into());
        hidden.only_by_person = true;
        assert_eq!(skills_context(&[hidden.clone()]), "");
        let few = skills_context(&[skill("a".into(), "for a".into()), hidden, skill("b".into(), String::new())]);
        assert!(few.ends_with("\n- a: for a\n- b\n"), "{few}");
        // Each line has 1000 characters, so 15 fit.
        let many: Vec<Skill> =
            (0..16).map(|n| skill(format!("s{n:02}"), "d".repeat(1000 - "- s00: \n".len()))).collect();
        let listed = |count: usize| skills_context(&many[..count]);
        assert!(listed(15).matches("dd\n").count() == 15 && !listed(15).contains("by name only"));
        let over = listed(16);
        assert!(over.matches("dd\n").count() == 15 && over.ends_with("by name only: s15\n"), "{over}");
        let names: Vec<Skill> = (0..300).map(|n| skill(format!("{n:0>62}"), "d".repeat(1000))).collect();
        let text = skills_context(&names);
        assert!(text.chars().count() < 21_000 && text.contains(" more are not listed"), "{}", text.len());
    }

    #[test]
    fn instructions_say_whose_they_are() {
        assert_eq!(instructions_context(&[]), "");
        let file = |path: &str, whose, is_cut| InstructionFile {
            path: PathBuf::from(path),
            real: PathBuf::from(path),
            whose,
            text: format!("text of {path}"),
            is_cut,
        };
        let text = instructions_context(&[
            file("/c/CLAUDE.md", Whose::Person, true),
            file("/p/CLAUDE.md", Whose::Project, false),
        ]);
        let first = "Contents of /c/CLAUDE.md (the user's, for all projects):\n\ntext of /c/CLAUDE.md\n[cut here";
        let second = "Contents of /p/CLAUDE.md (the project's):\n\ntext of /p/CLAUDE.md\n";
        assert!(text.find(first) < text.find(second) && text.contains(first) && text.ends_with(second), "{text}");
    }
}
