//! From the lines of a transcript to the messages to go on with. Pure.
//!
//! What it returns is fit to be sent: roles alternate and begin with the user, every tool use has its
//! result in the message after it and every result its use, however the lines were interleaved
//! (other programs write the results of parallel calls as branches of the tree, and blocks of one
//! reply between them).

use std::collections::{HashMap, HashSet};

use super::reader::Words;
use crate::core::entry::{self, ORIGIN_SPAWN, Talk};
use crate::core::message::{Block, Known, Message, Role};

/// `message.model` of lines that a program wrote in the model's place, such as API errors.
pub(super) const SYNTHETIC: &str = "<synthetic>";

/// Stands behind the first message where the next ones are missing.
const CUT: &str = "[What came next is left out here, since it is too long.]";

/// What was said, fit to be sent.
pub(super) struct Conversation {
    /// In order.
    pub messages: Vec<Message>,
    /// The line to go on from.
    pub last_uuid: Option<String>,
    /// As the latest reply counted them; 0 without one.
    pub tokens: u64,
    /// Whether the last turn did not come to its end.
    pub is_in_turn: bool,
}

/// Lines of the conversation as they are read, first one first.
#[derive(Default)]
pub(super) struct Said {
    lines: Vec<Spoken>,
    /// By `uuid`; the first of those that share one.
    places: HashMap<String, usize>,
    boundaries: HashSet<String>,
    replies: HashMap<String, Reply>,
    /// The line that was read last, of a main conversation and of an agent's.
    last: [Option<String>; 2],
    /// Lines were left out behind the first.
    is_cut: bool,
}

/// A reply's number: its id is kept once, however many lines it has.
type Reply = u32;

/// A line: what is needed to find its place, and its words.
struct Spoken {
    parent: Parent,
    reply: Option<Reply>,
    is_sidechain: bool,
    is_synthetic: bool,
    /// Said beside what anybody wants: no answer is owed for it.
    is_note: bool,
    role: Role,
    content: Vec<Block>,
    tokens: Option<u64>,
}

#[derive(Clone, Copy)]
enum Parent {
    /// The conversation begins here.
    None,
    /// The line at this place.
    At(usize),
    /// Not before this line, so it is not its parent, and following it could go round in circles; or
    /// it is of a kind that is not read, or was lost.
    Missing,
}

impl Said {
    /// Takes a line in.
    pub fn hear(&mut self, talk: Talk, words: Words) {
        self.last[usize::from(talk.is_sidechain)] = Some(talk.uuid.clone());
        if words == Words::PassedOver {
            self.is_cut = true;
            return;
        }
        let parent = match &talk.parent_uuid {
            None => Parent::None,
            Some(parent) if self.boundaries.contains(parent) => Parent::None,
            Some(parent) => self.places.get(parent).map_or(Parent::Missing, |at| Parent::At(*at)),
        };
        let entry::Said { id, message, model, usage, .. } = talk.message;
        let Message { role, mut content } = message;
        content.shrink_to_fit();
        self.places.entry(talk.uuid).or_insert(self.lines.len());
        let reply = id.map(|id| self.reply(id));
        self.lines.push(Spoken {
            parent,
            reply,
            is_sidechain: talk.is_sidechain,
            is_synthetic: model.as_deref() == Some(SYNTHETIC),
            is_note: talk.is_meta == Some(true) || talk.origin.is_some_and(|origin| origin.kind == ORIGIN_SPAWN),
            role,
            content,
            tokens: usage.map(|usage| usage.prompt_tokens() + usage.output_tokens),
        });
    }

    /// What goes on from the boundary `uuid` goes on from nothing.
    pub fn begin_at(&mut self, uuid: String) {
        self.boundaries.insert(uuid);
    }

    fn reply(&mut self, id: String) -> Reply {
        let next = Reply::try_from(self.replies.len()).unwrap_or(Reply::MAX);
        *self.replies.entry(id).or_insert(next)
    }

    /// The conversation that ends with the last line.
    pub fn into_conversation(self) -> Conversation {
        let Self { mut lines, replies, last: [main, side], is_cut, .. } = self;
        // Older programs wrote what their agents said into the session's own file.
        let has_main = main.is_some();
        let taken = branch(&lines, replies.len(), |line| !has_main || !line.is_sidechain);
        let mut taken = taken.into_iter();
        lines.retain(|_| taken.next() == Some(true));
        let tokens = lines.iter().rev().find_map(|line| line.tokens).unwrap_or_default();
        let is_in_turn = is_in_turn(&lines);
        let mut messages = alternate(pair(group(lines)));
        if let Some(first) = messages.first_mut().filter(|_| is_cut) {
            first.content.push(Block::text(CUT));
        }
        Conversation { messages, last_uuid: main.or(side), tokens, is_in_turn }
    }
}

/// Whether an answer is owed: the last thing that asks for one is not a reply that called no tool.
fn is_in_turn(branch: &[Spoken]) -> bool {
    let last = branch.iter().rfind(|line| !line.is_note && !line.is_synthetic);
    last.is_some_and(|line| line.role == Role::User || line.content.iter().any(|block| use_id(block).is_some()))
}

/// The id of a tool use.
pub(super) fn use_id(block: &Block) -> Option<&str> {
    match block {
        Block::Known(Known::ToolUse { id, .. }) => Some(id),
        _ => None,
    }
}

/// The id that a tool result answers.
pub(super) fn result_id(block: &Block) -> Option<&str> {
    match block {
        Block::Known(Known::ToolResult { tool_use_id, .. }) => Some(tool_use_id),
        _ => None,
    }
}

/// Which lines belong to the conversation that ends with the last one: its ancestors, the other
/// blocks of their replies, and the results of their tool uses. Only lines that are `eligible` do.
fn branch(lines: &[Spoken], replies: usize, eligible: impl Fn(&Spoken) -> bool) -> Vec<bool> {
    let before = |end: usize| (0..end).rev().find(|at| eligible(&lines[*at]));
    let mut taken = vec![false; lines.len()];
    let mut at = before(lines.len());
    while let Some(i) = at {
        taken[i] = true;
        at = match lines[i].parent {
            Parent::None => None,
            Parent::At(parent) if eligible(&lines[parent]) => Some(parent),
            // What was written before is the best guess.
            Parent::At(_) | Parent::Missing => before(i),
        };
    }
    let add = |taken: &mut [bool], belongs: &dyn Fn(&Spoken) -> bool| {
        let more = lines.iter().zip(taken).filter(|(line, taken)| !**taken && eligible(line) && belongs(line));
        more.for_each(|(_, taken)| *taken = true);
    };
    let mut wanted = vec![false; replies];
    let of_branch = lines.iter().zip(&taken).filter(|(_, taken)| **taken);
    of_branch.filter_map(|(line, _)| line.reply).for_each(|reply| wanted[reply as usize] = true);
    add(&mut taken, &|line| line.reply.is_some_and(|reply| wanted[reply as usize]));
    let of_branch = lines.iter().zip(&taken).filter(|(_, taken)| **taken);
    let uses: HashSet<&str> = of_branch.flat_map(|(line, _)| &line.content).filter_map(use_id).collect();
    add(&mut taken, &|line| line.content.iter().filter_map(result_id).any(|id| uses.contains(id)));
    taken
}

/// A reply, or what was said between two, before uses and results are paired.
struct Turn {
    role: Role,
    reply: Option<Reply>,
    content: Vec<Block>,
}

/// Joins the lines of each reply and the user lines between two replies. Blocks of a reply that
/// come after the results of its first ones still belong to it.
fn group(branch: Vec<Spoken>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for Spoken { role, reply, mut content, .. } in branch.into_iter().filter(|line| !line.is_synthetic) {
        let last = turns.len().saturating_sub(1);
        // Those without an id (written by hand) end with the next user line.
        let continues = |at: usize, turn: &Turn| match role {
            Role::User => turn.role == role && at == last,
            Role::Assistant => turn.role == role && turn.reply == reply && (reply.is_some() || at == last),
        };
        let open = turns.iter_mut().enumerate().skip(last.saturating_sub(1));
        match open.rev().find(|(at, turn)| continues(*at, turn)) {
            Some((_, turn)) => turn.content.append(&mut content),
            None => turns.push(Turn { role, reply, content }),
        }
    }
    turns
}

/// What the model said and what it was answered; either may be nothing.
type Exchange = (Vec<Block>, Vec<Block>);

/// Puts each tool use's result directly behind its reply, and drops uses and results that have no
/// counterpart.
fn pair(mut turns: Vec<Turn>) -> Vec<Exchange> {
    // Some models use an id again: a result belongs to the latest use before it.
    let mut open: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut answers: HashMap<(usize, usize), (usize, usize)> = HashMap::new();
    for (t, turn) in turns.iter().enumerate() {
        for (b, block) in turn.content.iter().enumerate() {
            match (turn.role, use_id(block), result_id(block)) {
                (Role::Assistant, Some(id), _) => {
                    open.insert(id, (t, b));
                }
                (Role::User, _, Some(id)) => {
                    if let Some(asked) = open.remove(id) {
                        answers.insert(asked, (t, b));
                    }
                }
                _ => {}
            }
        }
    }
    let mut exchanges = Vec::with_capacity(turns.len());
    for t in 0..turns.len() {
        let (role, mut content) = (turns[t].role, std::mem::take(&mut turns[t].content));
        let mut results = Vec::new();
        match role {
            Role::User => {
                content.retain(|block| use_id(block).is_none() && result_id(block).is_none());
                std::mem::swap(&mut content, &mut results);
            }
            Role::Assistant => {
                let mut places = (0..).map(|b| (t, b));
                content.retain(|block| {
                    let place = places.next();
                    if use_id(block).is_none() {
                        return result_id(block).is_none();
                    }
                    let Some((t, b)) = place.and_then(|place| answers.get(&place)) else { return false };
                    results.push(std::mem::replace(&mut turns[*t].content[*b], taken()));
                    true
                });
            }
        }
        exchanges.push((content, results));
    }
    exchanges
}

/// What stays where a result was.
fn taken() -> Block {
    Block::Known(Known::ToolResult { tool_use_id: String::new(), content: Vec::new(), is_error: false })
}

/// Drops what says nothing (blank text, replies of thinking only) and joins neighbours of one
/// role. Begins with the user.
fn alternate(exchanges: Vec<Exchange>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for (mut reply, answers) in exchanges {
        reply.retain(says_something);
        // Thinking before a use that was dropped would end the message, which is refused.
        while reply.last().is_some_and(Block::is_thinking) {
            reply.pop();
        }
        if !reply.is_empty() && messages.is_empty() {
            continue;
        }
        for (role, mut content) in [(Role::Assistant, reply), (Role::User, answers)] {
            content.retain(says_something);
            content.shrink_to_fit();
            match messages.last_mut() {
                _ if content.is_empty() => {}
                Some(last) if last.role == role => last.content.append(&mut content),
                _ => messages.push(Message { role, content }),
            }
        }
    }
    messages
}

pub(super) fn says_something(block: &Block) -> bool {
    block.as_text().is_none_or(|text| !text.trim().is_empty())
}
