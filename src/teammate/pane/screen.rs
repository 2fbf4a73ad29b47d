//! Drawing as bytes for a terminal, by movements that are relative to where the cursor is: the place
//! of what is drawn on the terminal is never known, and need not be.

use std::convert::Infallible;
use std::io::Write as _;

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

/// Whether there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Palette {
    /// There are.
    #[default]
    Colours,
    /// Only bold and dim.
    Plain,
}

/// Bytes that draw, collected until they are taken. Position (0, 0) is the first column of the first
/// row of what is drawn.
#[derive(Debug, Default)]
pub(super) struct Screen {
    bytes: Vec<u8>,
    cursor: Position,
    size: Size,
    palette: Palette,
}

impl Screen {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette, ..Self::default() }
    }

    /// What was collected.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Where the cursor is.
    pub(super) fn cursor(&self) -> Position {
        self.cursor
    }

    /// Bytes that move nothing.
    pub(super) fn raw(&mut self, bytes: &str) {
        self.bytes.extend_from_slice(bytes.as_bytes());
    }

    /// From here on, the cursor's row is the first one, and its column the first.
    pub(super) fn begin(&mut self, size: Size) {
        self.raw("\r");
        self.cursor = Position::ORIGIN;
        self.size = size;
    }

    /// Goes up, and to the first column.
    pub(super) fn up(&mut self, rows: u16) {
        self.raw("\r");
        if rows > 0 {
            let _ = write!(self.bytes, "\x1b[{rows}A");
        }
    }

    /// Empties `rows` rows, the cursor's first, without scrolling.
    pub(super) fn erase(&mut self, rows: usize) {
        // Each row by itself: a terminal that is told to empty all of its screen may first put what is
        // there into its scrollback. And the cursor is brought back by memory, since it may have been
        // stopped by the end of the screen.
        self.raw("\x1b7");
        for _ in 0..rows {
            self.raw("\x1b[2K\x1b[B");
        }
        self.raw("\x1b8");
    }

    /// A row for good; the cursor is at the first column of the next, which may be a new one.
    pub(super) fn row(&mut self, line: &Line<'_>) {
        self.raw("\x1b[2K");
        for span in &line.spans {
            let codes = self.codes(line.style.patch(span.style));
            let content = &span.content;
            if codes.is_empty() {
                self.raw(content);
            } else {
                let _ = write!(self.bytes, "\x1b[{codes}m{content}\x1b[0m");
            }
        }
        self.raw("\r\n");
    }

    /// Makes sure that there are `rows` rows from the cursor's on, all of them empty.
    pub(super) fn room(&mut self, rows: u16) {
        self.raw("\x1b[2K");
        for _ in 1..rows {
            self.raw("\r\n\x1b[2K");
        }
        self.up(rows.saturating_sub(1));
    }

    fn go_to(&mut self, to: Position) {
        let Position { x, y } = self.cursor;
        if to.y < y {
            let _ = write!(self.bytes, "\x1b[{}A", y - to.y);
        } else if to.y > y {
            let _ = write!(self.bytes, "\x1b[{}B", to.y - y);
        }
        if to.x != x {
            let _ = write!(self.bytes, "\x1b[{}G", to.x + 1);
        }
        self.cursor = to;
    }

    /// The codes that switch a style on.
    fn codes(&self, style: Style) -> String {
        let mut codes = Vec::new();
        for (modifier, code) in [(Modifier::BOLD, "1"), (Modifier::DIM, "2")] {
            if style.add_modifier.contains(modifier) {
                codes.push(code.to_owned());
            }
        }
        if self.palette == Palette::Colours
            && let Some(colour) = style.fg
        {
            codes.extend(code_of(colour));
        }
        codes.join(";")
    }
}

/// The code that switches a colour on.
fn code_of(colour: Color) -> Option<String> {
    let basic = |n: u8| Some(n.to_string());
    match colour {
        Color::Reset => None,
        Color::Black => basic(30),
        Color::Red => basic(31),
        Color::Green => basic(32),
        Color::Yellow => basic(33),
        Color::Blue => basic(34),
        Color::Magenta => basic(35),
        Color::Cyan => basic(36),
        Color::Gray => basic(37),
        Color::DarkGray => basic(90),
        Color::LightRed => basic(91),
        Color::LightGreen => basic(92),
        Color::LightYellow => basic(93),
        Color::LightBlue => basic(94),
        Color::LightMagenta => basic(95),
        Color::LightCyan => basic(96),
        Color::White => basic(97),
        Color::Indexed(n) => Some(format!("38;5;{n}")),
        Color::Rgb(r, g, b) => Some(format!("38;2;{r};{g};{b}")),
    }
}

impl Backend for Screen {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        // A character that the terminal takes for wider than it was measured must not begin a row.
        self.raw("\x1b[?7l");
        let mut current = String::new();
        for (x, y, cell) in content {
            self.go_to(Position { x, y });
            let codes = self.codes(cell.style());
            if codes != current {
                self.raw("\x1b[0m");
                if !codes.is_empty() {
                    let _ = write!(self.bytes, "\x1b[{codes}m");
                }
                current = codes;
            }
            self.raw(cell.symbol());
            let width = u16::try_from(cell.symbol().width()).unwrap_or(u16::MAX);
            // In the last column it stays, whatever the terminal makes of that: the next column is
            // always named.
            self.cursor.x = if width == 1 && x + 1 < self.size.width { x + 1 } else { u16::MAX };
        }
        if !current.is_empty() {
            self.raw("\x1b[0m");
        }
        self.raw("\x1b[?7h");
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        self.raw("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        self.raw("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Infallible> {
        self.go_to(position.into());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.clear_region(ClearType::All)
    }

    /// What is drawn begins with empty rows each time, so that of a region all is emptied.
    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        self.go_to(Position::ORIGIN);
        self.erase(usize::from(self.size.height));
        Ok(())
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
