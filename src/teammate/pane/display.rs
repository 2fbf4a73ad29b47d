//! The rows at the bottom and what goes into the scrollback above them, as bytes. Pure: bytes out, no
//! terminal.
//!
//! The rows of a terminal that is made narrower are broken by it (tmux does that), so the rows that
//! the cursor has above it can become more; how many is computed from what was written in them.

use ratatui::layout::{Rect, Size};
use ratatui::text::Line;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::screen::{Palette, Screen};
use super::update::State;
use super::view::{height, view};

/// What is on the terminal.
pub(super) struct Display {
    terminal: Terminal<Screen>,
    /// Columns that were written in each row drawn last; none if nothing is drawn.
    written: Vec<u16>,
    /// Columns of the terminal then.
    columns: u16,
    /// Whether something else may have been written over it.
    is_spoilt: bool,
}

impl Display {
    pub(super) fn new(palette: Palette) -> Self {
        Self { terminal: terminal(Screen::new(palette), Rect::ZERO), written: Vec::new(), columns: 0, is_spoilt: false }
    }

    /// The bytes that put `above` into the scrollback and draw what `state` says below.
    pub(super) fn frame(&mut self, above: &[Line<'_>], state: &State) -> Vec<u8> {
        if !self.written.is_empty() && state.size.0 != self.columns {
            self.erase_at(state.size.0);
        }
        let area = Rect::new(0, 0, state.size.0, height(state));
        if !above.is_empty() || self.written.len() != usize::from(area.height) || self.is_spoilt {
            self.begin(above, area);
            self.is_spoilt = false;
        }
        self.columns = area.width;
        let Ok(drawn) = self.terminal.draw(|frame| view(state, frame));
        for (y, columns) in self.written.iter_mut().enumerate() {
            let start = y * usize::from(area.width);
            let row = drawn.buffer.content.get(start..start + usize::from(area.width)).unwrap_or_default();
            let used = row.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |x| x + 1);
            // What was emptied by spaces is not empty.
            *columns = (*columns).max(u16::try_from(used).unwrap_or(u16::MAX));
        }
        self.terminal.backend_mut().take()
    }

    /// The bytes that take away what is drawn below the transcript, and put the cursor there.
    pub(super) fn close(&mut self) -> Vec<u8> {
        if !self.written.is_empty() {
            self.erase_at(self.columns);
        }
        let screen = self.terminal.backend_mut();
        screen.raw("\x1b[?25h");
        screen.take()
    }

    /// Rows that are drawn below the cursor's.
    pub(super) fn rows_below(&self) -> u16 {
        let rows = u16::try_from(self.written.len()).unwrap_or(u16::MAX);
        rows.saturating_sub(self.terminal.backend().cursor().y + 1)
    }

    /// The next frame is drawn as if nothing were there.
    pub(super) fn redraw(&mut self) {
        self.is_spoilt = true;
    }

    /// From here on nothing is taken to be drawn; the next frame begins in the cursor's row.
    pub(super) fn forget(&mut self) {
        self.written.clear();
    }

    /// Empties the rows drawn last, on a terminal that has `columns` now; the cursor is in the first.
    fn erase_at(&mut self, columns: u16) {
        let cursor = self.terminal.backend().cursor();
        let of_row = |written: u16| written.max(1).div_ceil(columns.clamp(1, self.columns.max(1)));
        let rows: usize = self.written.iter().map(|w| usize::from(of_row(*w))).sum();
        let above: u16 = self.written.iter().take(usize::from(cursor.y)).map(|w| of_row(*w)).sum();
        let before = self.written.get(usize::from(cursor.y)).map_or(0, |w| cursor.x.min(w.saturating_sub(1)));
        let screen = self.terminal.backend_mut();
        screen.up(above + before / columns.clamp(1, self.columns.max(1)));
        screen.erase(rows);
        self.written.clear();
    }

    /// Writes `above` from the first row drawn last on, and makes room for `area` below.
    fn begin(&mut self, above: &[Line<'_>], area: Rect) {
        let mut screen = std::mem::take(self.terminal.backend_mut());
        screen.raw("\x1b[?25l");
        if !self.written.is_empty() {
            screen.up(screen.cursor().y);
        }
        for row in above {
            screen.row(row);
        }
        // What was drawn is overwritten row by row; what is lower than all that comes is emptied.
        let rows = above.len() + usize::from(area.height);
        screen.room(area.height);
        if self.written.len() > rows {
            let below = self.written.len() - above.len();
            screen.erase(below);
        }
        screen.begin(Size::new(area.width, area.height));
        self.terminal = terminal(screen, area);
        self.written = vec![0; usize::from(area.height)];
    }
}

fn terminal(screen: Screen, area: Rect) -> Terminal<Screen> {
    let Ok(terminal) = Terminal::with_options(screen, TerminalOptions { viewport: Viewport::Fixed(area) });
    terminal
}

#[cfg(test)]
#[path = "display_tests.rs"]
mod tests;
