//! What is drawn, in terminals of all sizes.

use ratatui::backend::{Backend as _, TestBackend};
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::super::keys::Key;
use super::super::update::{Doing, PaneIdentity, update};
use super::*;

fn state(columns: u16, rows: u16) -> State {
    let identity = PaneIdentity { name: "worker".into(), team: "demo".into(), colour: Some("pink".into()) };
    let mut state = State::new(identity, (columns, rows));
    state.doing = Doing { state: RowState::Running, waiting_for: None, tokens: 12_345 };
    state
}

fn typed(state: &mut State, text: &str) {
    assert_eq!(update(state, Key::Paste(text.into())), None);
}

fn drawn(state: &State) -> Terminal<TestBackend> {
    let (columns, rows) = (state.size.0, height(state));
    assert!(rows >= 1 && rows <= state.size.1.max(1), "{rows} rows of {:?}", state.size);
    let viewport = Viewport::Fixed(Rect::new(0, 0, columns, rows));
    let mut terminal = Terminal::with_options(TestBackend::new(columns, rows), TerminalOptions { viewport }).unwrap();
    terminal.draw(|frame| view(state, frame)).unwrap();
    terminal
}

/// The rows without what is empty at their ends, and the cursor.
fn rows(state: &State) -> (Vec<String>, (u16, u16)) {
    let mut terminal = drawn(state);
    let buffer = terminal.backend().buffer();
    let row = |cells: &[ratatui::buffer::Cell]| {
        let (mut row, mut x) = (String::new(), 0);
        while let Some(cell) = cells.get(x) {
            row.push_str(cell.symbol());
            // What a wide character covers is not seen.
            x += cell.symbol().width().max(1);
        }
        row.trim_end().to_owned()
    };
    let rows = buffer.content.chunks(usize::from(buffer.area.width)).map(row).collect();
    let Position { x, y } = terminal.backend_mut().get_cursor_position().unwrap();
    (rows, (x, y))
}

#[test]
fn the_status_says_the_most_important_first() {
    let mut state = state(80, 24);
    assert_eq!(rows(&state), (vec!["worker  running  12.3k tokens  team demo".into(), ">".into()], (2, 1)));
    state.doing.state = RowState::Waiting;
    state.doing.waiting_for = Some("permission for Bash\u{1b}[2J\nrm".into());
    assert_eq!(rows(&state).0[0], "worker  waiting, waits for permission for Bash[2J rm  12.3k tokens  team demo");
    state.size.0 = 40;
    assert_eq!(rows(&state).0[0], "worker  waiting, waits for permission f…");
    state.size.0 = 20;
    assert_eq!(rows(&state).0[0], "worker  waiting, wa…");
    state.size.0 = 200;
    assert!(rows(&state).0[0].ends_with("team demo"));
}

#[test]
fn the_name_has_the_members_colour() {
    let terminal = drawn(&state(80, 24));
    let cells = &terminal.backend().buffer().content;
    assert_eq!((cells[0].symbol(), cells[0].fg), ("w", Color::Indexed(211)));
    assert!(cells[0].modifier.contains(Modifier::BOLD));
    for colour in crate::core::team::name::COLOURS {
        assert!(colour_of(Some(colour)).fg.is_some(), "{colour}");
    }
    assert_eq!(colour_of(Some("#ff8000")).fg, Some(Color::Rgb(255, 128, 0)));
    for odd in [None, Some("#ff"), Some("#研究"), Some("mauve"), Some("\u{1b}[31m")] {
        assert_eq!(colour_of(odd), Style::new(), "{odd:?}");
    }
}

#[test]
fn the_input_wraps_and_the_cursors_row_is_always_shown() {
    let mut state = state(20, 12);
    typed(&mut state, "0123456789abcdefXY研究");
    let (shown, cursor) = rows(&state);
    assert_eq!(shown[1..], ["> 0123456789abcdefX", "  Y研究"]);
    assert_eq!(cursor, (7, 2));
    typed(&mut state, "\n2\n3\n\t4\n5\n6");
    let (shown, cursor) = rows(&state);
    assert_eq!(shown[1..], ["  3", "   4", "  5", "  6"], "a third of the terminal");
    assert_eq!(cursor, (3, 4));
    for _ in 0..20 {
        update(&mut state, Key::Up);
    }
    let (shown, cursor) = rows(&state);
    assert_eq!((shown[1].as_str(), shown.len()), ("> 0123456789abcdefX", 5));
    assert_eq!(cursor.1, 1);
}

#[test]
fn a_hint_stands_in_place_of_the_status_until_the_next_key() {
    let mut state = state(80, 24);
    update(&mut state, Key::End);
    assert_eq!(rows(&state).0[0], "its lead ends it: ask the lead, or `lead team kill`");
    typed(&mut state, "x");
    assert!(rows(&state).0[0].starts_with("worker"));
}

#[test]
fn of_a_reply_that_is_written_the_last_rows_are_shown() {
    let mut state = state(20, 9);
    state.add_part("one\ntwo three four five six seven\n");
    assert_eq!(rows(&state).0[..3], ["one", "two three four five", "six seven"]);
    state.add_part("\u{1b}[31meight\n\n");
    assert_eq!(rows(&state).0[..3], ["two three four five", "six seven", "[31meight"]);
    state.size.1 = 3;
    assert_eq!(rows(&state).0, ["worker  running  12…", ">"], "no room for it");
}

#[test]
fn no_size_is_too_small() {
    for columns in (0..=12).chain([20, 40, 80, 200, 1000]) {
        for lines in 0..=12 {
            let mut state = state(columns, lines);
            for text in ["", "研究員 \u{301}👩‍👩‍👧\n\ta", "x\ny\nz\n0123456789012345678901234567890"] {
                typed(&mut state, text);
                state.add_part(text);
                for key in [Key::Up, Key::LineStart, Key::Down, Key::Down] {
                    update(&mut state, key);
                    drawn(&state);
                }
            }
        }
    }
    assert_eq!(rows(&state(20, 1)), (vec![">".into()], (2, 0)));
}

#[test]
fn a_long_paste_is_drawn_in_a_few_rows() {
    let mut state = state(80, 24);
    typed(&mut state, &"0123456789abcde\n".repeat(4 << 10));
    assert_eq!(state.input.text().len(), 64 << 10);
    let (shown, cursor) = rows(&state);
    assert_eq!((shown.len(), shown[7].as_str(), cursor), (9, "  0123456789abcde", (2, 8)));
}

#[test]
fn counts_are_short() {
    let shown = [0, 999, 1_000, 12_345, 999_999, 1_000_000, 45_678_901].map(short_count);
    assert_eq!(shown, ["0", "999", "1.0k", "12.3k", "999.9k", "1.0M", "45.6M"]);
}
