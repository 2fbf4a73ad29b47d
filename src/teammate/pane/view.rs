//! What is drawn below the transcript: the end of the reply that is being written, the status, and
//! the input line. Pure.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::update::State;
use super::wrap::{Break, cut, rows_of};
use crate::core::agent::RowState;
use crate::core::text::for_terminal;

/// What stands before the input, and its columns.
const PROMPT: (&str, u16) = ("> ", 2);
/// Rows of the input at the most, however high the terminal is.
const INPUT_ROWS: usize = 8;

/// What is beside the point, and what stands out.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// See above.
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The colour of a member.
pub(super) fn colour_of(name: Option<&str>) -> Style {
    let colour = match name {
        Some("blue") => Color::Blue,
        Some("green") => Color::Green,
        Some("yellow") => Color::Yellow,
        Some("purple") => Color::Magenta,
        Some("orange") => Color::Indexed(208),
        Some("pink") => Color::Indexed(211),
        Some("cyan") => Color::Cyan,
        Some("red") => Color::Red,
        Some(other) if other.starts_with('#') => match other.parse() {
            Ok(colour) => colour,
            Err(_) => return Style::new(),
        },
        _ => return Style::new(),
    };
    Style::new().fg(colour)
}

/// How many rows each part has. Together never more than the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heights {
    part: usize,
    status: usize,
    input: usize,
}

impl Heights {
    fn of(state: &State) -> Self {
        let rows = usize::from(state.size.1.max(1));
        let third = rows / 3;
        let wanted = state.input.rows(input_columns(state.size.0)).rows.len();
        let part = if third > 0 && rows > 3 { part_rows(state).len().min(third) } else { 0 };
        Self { part, status: usize::from(rows > 1), input: wanted.clamp(1, third.clamp(1, INPUT_ROWS)) }
    }
}

/// Columns of the input; one more is left for a cursor behind the last character.
pub(super) fn input_columns(width: u16) -> usize {
    usize::from(width.saturating_sub(prompt_columns(width) + 1).max(1))
}

/// A narrow terminal has no room for the prompt.
fn prompt_columns(width: u16) -> u16 {
    if width > 2 * PROMPT.1 { PROMPT.1 } else { 0 }
}

/// Rows that [`view`] fills, from one to those of the terminal.
pub(super) fn height(state: &State) -> u16 {
    let Heights { part, status, input } = Heights::of(state);
    u16::try_from(part + status + input).unwrap_or(u16::MAX)
}

/// Draws into the whole of `frame`, which is as wide as the terminal and has [`height`] rows.
pub(super) fn view(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    let heights = Heights::of(state);
    let mut rows = Vec::new();
    let part = part_rows(state);
    rows.extend(part.iter().skip(part.len().saturating_sub(heights.part)).map(|row| Line::styled(row.clone(), DIM)));
    rows.extend((0..heights.status).map(|_| status(state)));
    let first_of_input = rows.len();
    let written = state.input.rows(input_columns(area.width));
    // The cursor's row is always among those that are shown.
    let from = (written.row + 1).saturating_sub(heights.input);
    for (n, range) in written.rows.iter().cloned().enumerate().skip(from).take(heights.input) {
        let prompt = if n == 0 { PROMPT.0 } else { "  " };
        let prompt = Span::styled(&prompt[..usize::from(prompt_columns(area.width))], BOLD);
        // A tab has a column like any other character: the cursor is counted by it.
        rows.push(Line::from_iter([prompt, Span::raw(state.input.text()[range].replace('\t', " "))]));
    }
    for (y, row) in (area.y..area.bottom()).zip(&rows) {
        frame.render_widget(row, Rect { y, height: 1, ..area });
    }
    let column = u16::try_from(written.column).unwrap_or(u16::MAX).saturating_add(prompt_columns(area.width));
    let row = u16::try_from(first_of_input + written.row - from).unwrap_or(u16::MAX);
    frame.set_cursor_position(Position {
        x: area.x + column.min(area.width.saturating_sub(1)),
        y: area.y + row.min(area.height.saturating_sub(1)),
    });
}

/// The end of the reply that is being written; its last rows are enough.
fn part_rows(state: &State) -> Vec<String> {
    let text = for_terminal(state.part.trim_end()).replace('\t', "    ");
    if text.is_empty() {
        return Vec::new();
    }
    let columns = usize::from(state.size.0);
    text.split('\n')
        .flat_map(|line| rows_of(line, columns, columns, Break::Words).into_iter().map(|row| line[row].to_owned()))
        .collect()
}

/// Who it is, what it does, what it waits for, its tokens, its team: the most important first, as far as there
/// is room.
fn status(state: &State) -> Line<'static> {
    let mut room = usize::from(state.size.0);
    if let Some(hint) = &state.hint {
        return Line::styled(cut(hint, room), Style::new().fg(Color::Yellow));
    }
    let (identity, doing) = (&state.identity, &state.doing);
    let mut parts = vec![
        (identity.name.clone(), colour_of(identity.colour.as_deref()).patch(BOLD)),
        (format!("  {}", doing.state), style_of(doing.state)),
    ];
    parts.extend(doing.waiting_for.iter().map(|what| (format!(", waits for {what}"), Style::new())));
    if doing.tokens > 0 {
        parts.push((format!("  {} tokens", short_count(doing.tokens)), DIM));
    }
    parts.push((format!("  team {}", identity.team), DIM));
    let mut line = Line::default();
    for (text, style) in parts {
        let text = cut(&for_terminal(&text).replace(['\n', '\t'], " "), room);
        room -= text.width().min(room);
        line.push_span(Span::styled(text, style));
    }
    line
}

fn style_of(state: RowState) -> Style {
    let colour = match state {
        RowState::Running => Color::Green,
        RowState::Waiting | RowState::Stopping => Color::Yellow,
        RowState::Failed | RowState::Killed | RowState::Lost => Color::Red,
        RowState::Starting | RowState::Idle | RowState::Completed => return Style::new(),
    };
    Style::new().fg(colour)
}

/// `950`, `12.3k`, `4.5M`.
fn short_count(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000 => return count.to_string(),
        1_000..1_000_000 => (1_000, "k"),
        _ => (1_000_000, "M"),
    };
    format!("{}.{}{name}", count / unit, count % unit * 10 / unit)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
