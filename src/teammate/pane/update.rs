//! What a pane knows, and what a key changes of it. Pure.

use super::edit::Editor;
use super::keys::Key;
use super::view::input_columns;
use crate::core::agent::RowState;
use crate::core::limits;

/// Whose pane it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneIdentity {
    /// The member's name.
    pub name: String,
    /// Its team.
    pub team: String,
    /// One of [`COLOURS`](crate::core::team::name::COLOURS), or `#rrggbb`.
    pub colour: Option<String>,
}

/// What the member does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doing {
    pub(super) state: RowState,
    pub(super) waiting_for: Option<String>,
    /// Those of the latest prompt, and of all replies.
    pub(super) tokens: u64,
}

/// Everything that is drawn below the transcript.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) identity: PaneIdentity,
    pub(super) doing: Doing,
    /// Columns and rows of the terminal.
    pub(super) size: (u16, u16),
    pub(super) input: Editor,
    /// Shown in place of the status until the next key.
    pub(super) hint: Option<String>,
    /// The end of the reply that is being written.
    pub(super) part: String,
    history: History,
}

/// What a key asks of the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The person says this.
    Said(String),
    /// The turn is to be interrupted.
    Interrupt,
    /// All is to be drawn again.
    Redraw,
}

/// Lines that were sent, the latest last.
#[derive(Clone, Debug, Default)]
struct History {
    sent: Vec<String>,
    /// The one that is shown, and what stood there before.
    recalled: Option<(usize, String)>,
}

/// Lines that are remembered, and the bytes of all of them together.
const REMEMBERED: (usize, usize) = (100, 1 << 20);
/// Bytes of a reply's end.
const PART_BYTES: usize = 8 << 10;

impl State {
    pub(super) fn new(identity: PaneIdentity, size: (u16, u16)) -> Self {
        Self {
            identity,
            doing: Doing { state: RowState::Starting, waiting_for: None, tokens: 0 },
            size,
            input: Editor::default(),
            hint: None,
            part: String::new(),
            history: History::default(),
        }
    }

    /// More of the reply that is being written; what is long past is forgotten.
    pub(super) fn add_part(&mut self, text: &str) {
        self.part.push_str(text);
        if self.part.len() > 2 * PART_BYTES {
            let from = self.part.len() - PART_BYTES;
            let cut = (from..).find(|at| self.part.is_char_boundary(*at)).unwrap_or(from);
            self.part.drain(..cut);
        }
    }
}

impl History {
    fn add(&mut self, text: &str) {
        self.recalled = None;
        if self.sent.last().is_some_and(|last| last == text) {
            return;
        }
        self.sent.push(text.to_owned());
        let (most, most_bytes) = REMEMBERED;
        while self.sent.len() > most || self.sent.iter().map(String::len).sum::<usize>() > most_bytes {
            self.sent.remove(0);
        }
    }

    /// The one before; `current` is kept.
    fn back(&mut self, current: &str) -> Option<String> {
        let (shown, draft) = match &self.recalled {
            Some((shown, draft)) => (*shown, draft.clone()),
            None => (self.sent.len(), current.to_owned()),
        };
        let shown = shown.checked_sub(1)?;
        self.recalled = Some((shown, draft));
        self.sent.get(shown).cloned()
    }

    /// The one after, at last what stood there before.
    fn forth(&mut self) -> Option<String> {
        let (shown, draft) = self.recalled.take()?;
        let Some(next) = self.sent.get(shown + 1) else { return Some(draft) };
        self.recalled = Some((shown + 1, draft));
        Some(next.clone())
    }
}

/// What `key` does.
pub(super) fn update(state: &mut State, key: Key) -> Option<Action> {
    state.hint = None;
    let columns = input_columns(state.size.0);
    let input = &mut state.input;
    match key {
        Key::Enter if input.text().trim().is_empty() => {}
        Key::Enter => {
            let text = std::mem::take(input).text().to_owned();
            state.history.add(&text);
            return Some(Action::Said(text));
        }
        Key::Interrupt => return Some(Action::Interrupt),
        Key::Redraw => return Some(Action::Redraw),
        Key::End if input.text().is_empty() => {
            state.hint = Some("its lead ends it: ask the lead, or `lead team kill`".to_owned());
        }
        Key::End | Key::Delete => input.delete_next(),
        Key::Text(text) | Key::Paste(text) => insert(state, &text),
        Key::Newline => insert(state, "\n"),
        Key::Backspace => input.backspace(),
        Key::Left => input.left(),
        Key::Right => input.right(),
        Key::WordLeft => input.word_left(),
        Key::WordRight => input.word_right(),
        Key::LineStart => input.line_start(),
        Key::LineEnd => input.line_end(),
        Key::KillToStart => input.kill_to_start(),
        Key::KillToEnd => input.kill_to_end(),
        Key::KillWord => input.kill_word(),
        Key::Up if input.up(columns) => {}
        Key::Up => {
            if let Some(text) = state.history.back(input.text()) {
                *input = Editor::of(text);
            }
        }
        Key::Down if input.down(columns) => {}
        Key::Down => {
            if let Some(text) = state.history.forth() {
                *input = Editor::of(text);
            }
        }
    }
    None
}

fn insert(state: &mut State, text: &str) {
    if state.input.text().len() + text.len() > limits::MESSAGE_BYTES {
        let most = limits::MESSAGE_BYTES;
        state.hint = Some(format!("not taken: a message may have {most} bytes; give it a file to read"));
    } else {
        state.input.insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let identity = PaneIdentity { name: "w".into(), team: "t".into(), colour: None };
        State::new(identity, (40, 10))
    }

    fn text(text: &str) -> Key {
        Key::Text(text.into())
    }

    fn press(state: &mut State, keys: impl IntoIterator<Item = Key>) -> Vec<Action> {
        keys.into_iter().filter_map(|key| update(state, key)).collect()
    }

    #[test]
    fn enter_sends_what_is_there_and_nothing_if_there_is_nothing() {
        let mut state = state();
        assert_eq!(press(&mut state, [Key::Enter, text(" "), Key::Newline, Key::Enter]), []);
        let said = press(&mut state, [text("a"), Key::Newline, Key::Paste("b\r\nc".into()), Key::Enter, Key::Enter]);
        assert_eq!(said, [Action::Said(" \na\nb\nc".into())]);
        assert_eq!(state.input.text(), "");
    }

    #[test]
    fn an_interrupt_keeps_what_was_typed() {
        let mut state = state();
        assert_eq!(press(&mut state, [text("a"), Key::Interrupt]), [Action::Interrupt]);
        assert_eq!(state.input.text(), "a");
    }

    #[test]
    fn the_end_of_input_ends_nothing_and_says_who_does() {
        let mut state = state();
        assert_eq!(press(&mut state, [Key::End]), []);
        assert!(state.hint.as_deref().is_some_and(|hint| hint.contains("lead")));
        assert_eq!(press(&mut state, [text("ab"), Key::LineStart]), []);
        assert_eq!(state.hint, None, "until the next key");
        assert_eq!(press(&mut state, [Key::End]), []);
        assert_eq!((state.input.text(), &state.hint), ("b", &None));
    }

    #[test]
    fn the_history_gives_back_what_was_sent_and_then_what_was_being_typed() {
        let mut state = state();
        let sent = ["one", "two", "two", "three\nlines"];
        press(&mut state, sent.into_iter().flat_map(|line| [Key::Paste(line.into()), Key::Enter]));
        press(&mut state, [text("draft")]);
        let mut shown = |key| {
            assert_eq!(update(&mut state, key), None);
            state.input.text().to_owned()
        };
        assert_eq!(shown(Key::Down), "draft");
        assert_eq!(shown(Key::Up), "three\nlines");
        assert_eq!(shown(Key::Up), "three\nlines", "to its first row");
        assert_eq!([shown(Key::Up), shown(Key::Up), shown(Key::Up)], ["two", "one", "one"]);
        assert_eq!([shown(Key::Down), shown(Key::Down)], ["two", "three\nlines"]);
        assert_eq!([shown(Key::Down), shown(Key::Down)], ["draft", "draft"]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut state = state();
        for n in 0..150 {
            press(&mut state, [text(&n.to_string()), Key::Enter]);
        }
        assert_eq!((state.history.sent.len(), state.history.sent[0].as_str()), (100, "50"));
        let long = "x".repeat(limits::MESSAGE_BYTES);
        press(&mut state, [Key::Paste(long.clone()), Key::Enter]);
        assert_eq!(state.history.sent, [long], "bytes count too");
    }

    #[test]
    fn what_is_longer_than_a_message_may_be_is_refused_with_a_hint() {
        let mut state = state();
        press(&mut state, [Key::Paste("x".repeat(limits::MESSAGE_BYTES))]);
        assert_eq!(state.hint, None);
        press(&mut state, [text("y")]);
        assert!(state.hint.as_deref().is_some_and(|hint| hint.contains("1048576")));
        assert_eq!(state.input.text().len(), limits::MESSAGE_BYTES);
    }

    #[test]
    fn of_a_reply_only_the_end_is_kept() {
        let mut state = state();
        for _ in 0..10_000 {
            state.add_part("研究");
        }
        assert!(state.part.len() <= 2 * PART_BYTES && state.part.ends_with("研究"));
    }
}
