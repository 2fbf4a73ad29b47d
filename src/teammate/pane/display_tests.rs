//! What a terminal makes of the bytes: rows and scrollback of an emulated one.

use super::super::keys::Key;
use super::super::tests::{all_rows, terminal as emulator};
use super::super::update::{PaneIdentity, update};
use super::*;
use crate::core::agent::RowState;

struct Shown {
    display: Display,
    state: State,
    emulator: vt100::Parser,
}

impl Shown {
    fn new(columns: u16, rows: u16) -> Self {
        let identity = PaneIdentity { name: "w".into(), team: "t".into(), colour: Some("red".into()) };
        let mut state = State::new(identity, (columns, rows));
        state.doing.state = RowState::Idle;
        Self { display: Display::new(Palette::Colours), state, emulator: emulator(columns, rows) }
    }

    fn frame(&mut self, above: &[&str]) -> usize {
        let above: Vec<_> = above.iter().map(|row| Line::raw(*row)).collect();
        let bytes = self.display.frame(&above, &self.state);
        self.emulator.process(&bytes);
        bytes.len()
    }

    fn press(&mut self, key: Key) {
        update(&mut self.state, key);
        self.frame(&[]);
    }

    /// The emulator does not break rows anew, but neither does a terminal whose rows are short.
    fn resize(&mut self, columns: u16, rows: u16) {
        let (c, r) = (columns.try_into().unwrap(), rows.try_into().unwrap());
        self.emulator.screen_mut().set_size(r, c);
        self.state.size = (columns, rows);
        self.frame(&[]);
    }

    fn rows(&mut self) -> Vec<String> {
        all_rows(&mut self.emulator)
    }

    fn cursor(&self) -> (u16, u16) {
        self.emulator.screen().cursor_position()
    }
}

#[test]
fn the_transcript_is_above_and_goes_into_the_scrollback() {
    let mut shown = Shown::new(20, 5);
    shown.frame(&[]);
    assert_eq!(shown.rows(), ["w  idle  team t", ">"]);
    shown.frame(&["one"]);
    shown.frame(&["two", "", "four"]);
    assert_eq!(shown.rows(), ["one", "two", "", "four", "w  idle  team t", ">"]);
    assert_eq!(shown.cursor(), (4, 2));
    shown.press(Key::Text("研a".into()));
    assert_eq!(shown.rows()[5], "> 研a");
    assert_eq!(shown.cursor(), (4, 5));
}

#[test]
fn a_key_draws_only_what_it_changes() {
    let mut shown = Shown::new(80, 24);
    shown.frame(&["x"]);
    update(&mut shown.state, Key::Text("a".into()));
    assert!(shown.frame(&[]) < 30);
    assert!(shown.frame(&[]) < 30, "nothing changed");
}

#[test]
fn rows_below_come_and_go_without_a_trace() {
    let mut shown = Shown::new(20, 9);
    shown.frame(&["one", "two"]);
    for n in 0..5 {
        shown.state.add_part(&format!("part {n}\n"));
        shown.press(Key::Newline);
    }
    assert_eq!(shown.rows(), ["one", "two", "part 2", "part 3", "part 4", "w  idle  team t"]);
    assert_eq!(shown.cursor(), (8, 2));
    shown.state.part.clear();
    shown.frame(&["part 0", "part 4"]);
    assert_eq!(shown.rows(), ["one", "two", "part 0", "part 4", "w  idle  team t"]);
    for _ in 0..5 {
        shown.press(Key::Backspace);
    }
    assert_eq!(shown.rows(), ["one", "two", "part 0", "part 4", "w  idle  team t", ">"]);
    shown.frame(&["x"]);
    assert_eq!(shown.rows(), ["one", "two", "part 0", "part 4", "x", "w  idle  team t", ">"]);
}

#[test]
fn no_line_is_lost_whatever_the_height() {
    for rows in 1..=6 {
        for at_once in [1, 2, 3, 50] {
            let mut shown = Shown::new(20, rows);
            let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
            for lines in lines.chunks(at_once) {
                shown.frame(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let all = shown.rows();
            let below = if rows == 1 { vec![">"] } else { vec!["w  idle  team t", ">"] };
            assert_eq!(all[..100], lines, "{at_once} at once in {rows} rows");
            assert_eq!(all[100..], below, "{at_once} at once in {rows} rows");
        }
    }
}

#[test]
fn ten_thousand_lines_are_all_in_the_scrollback() {
    let mut shown = Shown::new(40, 5);
    let lines: Vec<String> = (0..10_000).map(|n| format!("{n:039}研").chars().skip(1).collect()).collect();
    for line in &lines {
        shown.frame(&[line]);
    }
    let all = shown.rows();
    assert_eq!((all.len(), &all[..10_000]), (10_002, lines.as_slice()));
}

#[test]
fn a_change_of_size_leaves_one_status_and_all_lines() {
    let lines: Vec<String> = (0..20).map(|n| format!("line {n}")).collect();
    let mut shown = Shown::new(40, 6);
    shown.frame(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for (columns, rows) in [(20, 6), (80, 6), (18, 6), (40, 6)] {
        shown.resize(columns, rows);
        let all = shown.rows();
        assert_eq!(all, [&lines[..], &["w  idle  team t".into(), ">".into()]].concat(), "{columns} x {rows}");
    }
}

#[test]
fn sizes_change_to_anything_and_back() {
    let mut shown = Shown::new(40, 6);
    for (n, columns) in [20, 1, 200, 2, 40, 3, 80, 1].into_iter().enumerate() {
        for rows in [5, 1, 24, 2, 6] {
            shown.resize(columns, rows);
            shown.frame(&["a line", "研究"]);
            shown.press(Key::Text("研".repeat(n)));
        }
    }
    shown.resize(40, 6);
    shown.frame(&["last"]);
    assert!(shown.rows().contains(&"last".to_owned()));
}

#[test]
fn closing_leaves_the_transcript_and_the_cursor_below_it() {
    let mut shown = Shown::new(20, 5);
    shown.frame(&["one", "two"]);
    shown.press(Key::Paste("a\nb".into()));
    let bytes = shown.display.close();
    shown.emulator.process(&bytes);
    shown.emulator.process(b"after\r\n");
    assert_eq!(shown.rows(), ["one", "two", "after"]);
    shown.frame(&["three"]);
    assert_eq!(shown.rows()[..5], ["one", "two", "after", "three", "w  idle  team t"]);
    assert!(!shown.emulator.screen().hide_cursor());
}

#[test]
fn without_colours_there_are_none() {
    let mut shown = Shown::new(20, 5);
    let row = Line::styled("x", super::super::view::colour_of(Some("red")).patch(super::super::view::BOLD));
    let coloured = shown.display.frame(std::slice::from_ref(&row), &shown.state);
    shown.display = Display::new(Palette::Plain);
    let plain = shown.display.frame(&[row], &shown.state);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (coloured, plain) = (text(coloured), text(plain));
    assert!(coloured.contains("\x1b[1;31mx\x1b[0m") && coloured.matches("31m").count() == 2, "{coloured:?}");
    assert!(plain.contains("\x1b[1mx\x1b[0m") && !plain.contains("31m"), "{plain:?}");
}

#[test]
fn the_other_screen_is_never_used_and_nothing_is_asked() {
    let mut shown = Shown::new(20, 5);
    let mut bytes = shown.display.frame(&[Line::raw("x")], &shown.state);
    shown.state.size = (10, 3);
    bytes.extend(shown.display.frame(&[], &shown.state));
    bytes.extend(shown.display.close());
    let text = String::from_utf8(bytes).unwrap();
    for never in ["\x1b[?1049", "\x1b[?47", "\x1b[6n", "\x1b[c", "\x1b[2J", "\x1b[J", "\x1b[0J"] {
        assert!(!text.contains(never), "{never:?} in {text:?}");
    }
}
