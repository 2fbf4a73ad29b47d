//! The shape of a playbook file. Everything is typed and unknown keys are errors, so that a slip of
//! the pen in a test's playbook can't pass as a turn that never plays.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::message::Usage;
use crate::core::text;

/// A playbook: who is played, and how.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Playbook {
    /// File to which each request is appended as one JSON line; relative to the playbook's folder.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// The agents; the first whose `match` holds is played.
    pub agents: Vec<AgentRule>,
}

/// Why a playbook can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaybookError {
    /// The file can't be read.
    #[error("playbook {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no playbook.
    #[error("playbook {origin}, line {line}, column {column}: {reason}")]
    Parse {
        /// The file, or the name of the built-in one.
        origin: String,
        /// Line, from 1; 0 if unknown.
        line: u64,
        /// Column, from 1; 0 if unknown.
        column: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl Playbook {
    /// Reads a playbook from YAML; `origin` is named in errors.
    pub fn parse(yaml: &str, origin: &str) -> Result<Self, PlaybookError> {
        serde_saphyr::from_str(yaml).map_err(|error| {
            let (line, column) = error.location().map_or((0, 0), |place| (place.line(), place.column()));
            let shown = error.without_snippet().to_string();
            let reason = shown.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(&shown);
            PlaybookError::Parse { origin: origin.to_owned(), line, column, reason: text::one_line(reason, 300) }
        })
    }

    /// Reads a playbook file. A relative `record` becomes relative to the file's folder.
    pub fn read(path: &Path) -> Result<Self, PlaybookError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PlaybookError::Read { path: path.to_owned(), source })?;
        let mut book = Self::parse(&text, &path.display().to_string())?;
        if let (Some(record), Some(folder)) = (&book.record, path.parent()) {
            book.record = Some(folder.join(record));
        }
        Ok(book)
    }
}

/// How one kind of agent is played.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRule {
    /// Whom this is for; without it, everybody.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// The turns; the first that is not used up and whose `when` holds is played.
    #[serde(default)]
    pub turns: Vec<TurnRule>,
    /// Played when no turn is left; takes no `when` and is never used up. Without it: empty text.
    #[serde(default, deserialize_with = "otherwise")]
    pub otherwise: TurnRule,
}

/// Whom an agent rule is for: all regexes given must be found.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// `lead`, `worker`, `teammate`.
    #[serde(default)]
    pub role: Option<Pattern>,
    /// The agent's type; `main` or `coordinator` for a lead.
    #[serde(default, rename = "type")]
    pub agent_type: Option<Pattern>,
    /// The agent's name.
    #[serde(default)]
    pub name: Option<Pattern>,
    /// The system prompt.
    #[serde(default)]
    pub system: Option<Pattern>,
    /// Text of the first user message.
    #[serde(default)]
    pub prompt: Option<Pattern>,
}

/// One turn.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnRule {
    /// When it may be played; without it, any time.
    #[serde(default)]
    pub when: When,
    /// What is thought before; signed, so that a strict server notices if it is changed.
    #[serde(default)]
    pub thinking: Option<String>,
    /// Blocks of other kinds, as the provider sends them, before the text; such as `server_tool_use`.
    #[serde(default)]
    pub blocks: Vec<Value>,
    /// What is said.
    #[serde(default)]
    pub text: Option<String>,
    /// The tools called, after the text.
    #[serde(default)]
    pub tools: Vec<ToolRule>,
    /// How long the model seems to think, in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Why the reply ends, if it is not for the usual reason. After `pause_turn` the next turn is the
    /// rest of the same message.
    #[serde(default)]
    pub stop_reason: Option<String>,
    /// Tokens reported; without it an estimate, a quarter of the characters, but never so much that a
    /// window of the usual size is full. `usage: {input_tokens: 180000}` makes the agent compact.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// The provider's error that is given first.
    #[serde(default)]
    pub error: Option<ErrorRule>,
    /// How the reply's stream is broken, after the error if there is one.
    #[serde(default)]
    pub fault: Option<FaultRule>,
    /// Pause before each event of a stream, in milliseconds.
    #[serde(default)]
    pub event_delay_ms: u64,
    /// How often the turn may be played.
    #[serde(default)]
    pub repeat: Repeat,
}

impl TurnRule {
    /// Of how many blocks its reply is made.
    pub fn blocks(&self) -> usize {
        usize::from(self.thinking.is_some()) + self.blocks.len() + usize::from(self.text.is_some()) + self.tools.len()
    }

    /// Whether the turn is over once its error was given: it has nothing to say.
    pub fn is_error_only(&self) -> bool {
        self.error.is_some()
            && self.fault.is_none()
            && self.text.is_none()
            && self.tools.is_empty()
            && self.blocks.is_empty()
    }
}

/// When a turn may be played: all conditions given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Found in the latest user message, tool results included.
    #[serde(default)]
    pub latest: Option<Pattern>,
    /// Found in some user message so far, tool results included.
    #[serde(default)]
    pub any: Option<Pattern>,
    /// Number of `<task-notification>` blocks so far, in user text (not in tool results).
    #[serde(default)]
    pub notifications: Option<Count>,
    /// Number of messages of a team's members so far.
    #[serde(default)]
    pub mails: Option<Count>,
    /// Number of tool results so far.
    #[serde(default)]
    pub results: Option<Count>,
    /// `true`: for requests to summarise the conversation (compaction), which no other turn answers.
    /// They leave nothing in the history, so `repeat` does not count them.
    #[serde(default)]
    pub summary: bool,
}

/// A tool call of a turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRule {
    /// The tool.
    pub name: String,
    /// Its arguments; variables are filled into every string.
    #[serde(default = "no_input")]
    pub input: Value,
}

fn no_input() -> Value {
    Value::Object(serde_json::Map::new())
}

/// An error instead of a reply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    /// HTTP status.
    pub status: u16,
    /// What the provider says.
    #[serde(default)]
    pub message: String,
    /// How often it is given before the turn goes on.
    #[serde(default = "once")]
    pub times: u32,
    /// What the provider asks to wait, in seconds.
    #[serde(default)]
    pub retry_after: Option<u64>,
}

/// A broken stream instead of a whole one: `fault: stall`, or `fault: {kind: stall, times: 2}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// What is broken.
    pub kind: FaultKind,
    /// How often before the turn goes on.
    pub times: u32,
}

/// How a stream is broken. Where there is no tool call, the last block is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The connection ends before the first call's JSON.
    CutBefore,
    /// It ends within the first call's JSON.
    CutInTool,
    /// It ends after the last block, before the reply's end.
    CutAfter,
    /// The stream ends in order, but without the reply's end.
    NoEnd,
    /// Nothing but pings after the reply's begin.
    Stall,
    /// An event that is no JSON.
    Malformed,
    /// An error event after the reply's begin: the provider is overloaded.
    Overloaded,
}

impl<'de> Deserialize<'de> for FaultRule {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            kind: FaultKind,
            #[serde(default = "once")]
            times: u32,
        }
        struct WordOrLong;
        impl<'de> Visitor<'de> for WordOrLong {
            type Value = FaultRule;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the kind of fault, or `kind` and `times`")
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<FaultRule, E> {
                FaultKind::deserialize(word.into_deserializer()).map(|kind| FaultRule { kind, times: 1 })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FaultRule, A::Error> {
                let Long { kind, times } = Long::deserialize(MapAccessDeserializer::new(map))?;
                Ok(FaultRule { kind, times })
            }
        }
        d.deserialize_any(WordOrLong)
    }
}

fn once() -> u32 {
    1
}

/// `otherwise` is a turn without the keys that decide about being played.
fn otherwise<'de, D: Deserializer<'de>>(d: D) -> Result<TurnRule, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Otherwise {
        #[serde(default)]
        thinking: Option<String>,
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        tools: Vec<ToolRule>,
        #[serde(default)]
        delay_ms: u64,
        #[serde(default)]
        usage: Option<Usage>,
        #[serde(default)]
        error: Option<ErrorRule>,
        #[serde(default)]
        fault: Option<FaultRule>,
        #[serde(default)]
        event_delay_ms: u64,
    }
    let Otherwise { thinking, text, tools, delay_ms, usage, error, fault, event_delay_ms } = Otherwise::deserialize(d)?;
    Ok(TurnRule { thinking, text, tools, delay_ms, usage, error, fault, event_delay_ms, ..TurnRule::default() })
}

/// A regular expression, compiled while the file is read so that a broken one has a line.
#[derive(Clone, Debug)]
pub struct Pattern(pub Regex);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Regex::new(&text).map(Self).map_err(|error| {
            // The error is a drawing over several lines, the last of which says what is wrong.
            let shown = error.to_string();
            let what = shown.lines().last().unwrap_or_default().trim_start_matches("error: ");
            D::Error::custom(format!("broken regex {text:?}: {what}"))
        })
    }
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `>=`, also a bare number.
    AtLeast,
    /// `>`.
    Above,
    /// `==`.
    Exactly,
    /// `<=`.
    AtMost,
    /// `<`.
    Below,
}

/// A condition on a number: `">=3"`, `"==0"`, or `3` for at least three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    compare: Compare,
    number: usize,
}

impl Count {
    /// Reads `>=3` and its like; the error says what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let operators = [
            (">=", Compare::AtLeast),
            ("<=", Compare::AtMost),
            ("==", Compare::Exactly),
            (">", Compare::Above),
            ("<", Compare::Below),
            ("", Compare::AtLeast),
        ];
        let text = text.trim();
        let found = operators.into_iter().find_map(|(sign, compare)| Some((compare, text.strip_prefix(sign)?)));
        let number = found.and_then(|(compare, rest)| Some((compare, rest.trim().parse().ok()?)));
        match number {
            Some((compare, number)) => Ok(Self { compare, number }),
            None => Err(format!("{text:?} is no comparison; write a number, or one after >= > == <= <")),
        }
    }

    /// Whether `actual` fulfils it.
    pub fn holds(self, actual: usize) -> bool {
        let order = actual.cmp(&self.number);
        match self.compare {
            Compare::AtLeast => order != Ordering::Less,
            Compare::Above => order == Ordering::Greater,
            Compare::Exactly => order == Ordering::Equal,
            Compare::AtMost => order != Ordering::Greater,
            Compare::Below => order == Ordering::Less,
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // A bare number is read as text too, and parses as such.
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

/// How often a turn may be played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Once; also `repeat: false`.
    #[default]
    Once,
    /// A number of times.
    Times(u32),
    /// Without end: `repeat: true`.
    Always,
}

impl Repeat {
    /// Whether a turn that was played `used` times is used up.
    pub fn is_used_up(self, used: u32) -> bool {
        match self {
            Self::Once => used >= 1,
            Self::Times(times) => used >= times,
            Self::Always => false,
        }
    }
}

impl<'de> Deserialize<'de> for Repeat {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct BoolOrNumber;
        impl Visitor<'_> for BoolOrNumber {
            type Value = Repeat;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a number of times")
            }
            fn visit_bool<E>(self, always: bool) -> Result<Repeat, E> {
                Ok(if always { Repeat::Always } else { Repeat::Once })
            }
            fn visit_u64<E: serde::de::Error>(self, times: u64) -> Result<Repeat, E> {
                u32::try_from(times).map(Repeat::Times).map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, times: i64) -> Result<Repeat, E> {
                u32::try_from(times).map(Repeat::Times).map_err(E::custom)
            }
        }
        d.deserialize_any(BoolOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(yaml: &str) -> (u64, String) {
        match Playbook::parse(yaml, "b.yaml") {
            Err(e @ PlaybookError::Parse { line, .. }) => (line, e.to_string()),
            other => panic!("{yaml}: {other:?}"),
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let cases = [
            ("agents:\n  - turns:\n      - {txet: hi}\n", 3, "txet"),
            ("agents:\n  - match: {prompt: '('}\n", 2, "broken regex \"(\": unclosed group"),
            ("agents:\n  - turns:\n      - when: {results: '=>3'}\n", 3, ">= > == <= <"),
            ("agents:\n  - turns:\n      - {repeat: often}\n", 3, "number of times"),
            ("agents:\n  - turns:\n      - {text: x, repeat: -1}\n", 3, ""),
            ("agents:\n  - otherwise:\n      when: {results: 1}\n", 3, "when"),
            ("agents:\n  - turns:\n      - {fault: cut}\n", 3, "cut_before"),
            ("agents:\n  - turns:\n      - {fault: {kind: stall, time: 2}}\n", 3, "time"),
            ("agents:\n  - turns: [\n", 2, ""),
            ("record: x\n", 1, "agents"),
        ];
        for (yaml, line, part) in cases {
            let (at, text) = error(yaml);
            assert_eq!(at, line, "{text}");
            assert!(text.contains(part) && text.starts_with("playbook b.yaml, line "), "{text}");
        }
    }

    #[test]
    fn counts_compare_at_and_beside_their_number() {
        let holds = |text: &str| [2, 3, 4].map(|n| Count::parse(text).is_ok_and(|c| c.holds(n)));
        assert_eq!(holds(">=3"), [false, true, true]);
        assert_eq!(holds("3"), [false, true, true]);
        assert_eq!(holds("> 3"), [false, false, true]);
        assert_eq!(holds("==3"), [false, true, false]);
        assert_eq!(holds("<=3"), [true, true, false]);
        assert_eq!(holds("<3"), [true, false, false]);
        assert!(["", "=3", ">=", "3x", "-1"].iter().all(|t| Count::parse(t).is_err()));
    }
}
