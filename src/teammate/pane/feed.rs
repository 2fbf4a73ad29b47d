//! Lines of a transcript as rows for a person: what was said as it was said, what was done in a row
//! each. Pure.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::view::{BOLD, DIM, colour_of};
use super::wrap::{Break, cut, rows_of};
use crate::core::entry::{self, ORIGIN_NOTIFICATION, Talk};
use crate::core::message::{Block, Known, Role, telling_input, text_of};
use crate::core::server_tool;
use crate::core::text::{for_terminal, one_line, unescape};

/// Characters of what has only one row.
const SHORT: usize = 400;

/// Something that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// What it begins with.
    head: String,
    head_style: Style,
    text: String,
    style: Style,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// As many rows as it needs.
    Whole,
    /// What has room in one.
    Row,
    /// A rule across the terminal.
    Rule,
}

impl Item {
    fn new(head: impl Into<String>, head_style: Style, text: impl Into<String>, style: Style, shape: Shape) -> Self {
        Self { head: head.into(), head_style, text: text.into(), style, shape }
    }

    fn short(head: &str, head_style: Style, text: &str) -> Self {
        Self::new(head, head_style, one_line(text, SHORT), DIM, Shape::Row)
    }

    /// A note about the pane itself.
    pub(super) fn note(text: &str) -> Self {
        Self::short("", DIM, text)
    }

    /// Roughly, in bytes.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.head.len() + self.text.len()
    }

    /// In rows of `columns`.
    pub(super) fn rows(&self, columns: u16) -> Vec<Line<'static>> {
        let columns = usize::from(columns.max(1));
        let clean = |text: &str| for_terminal(text).replace('\t', "    ");
        let (head, text) = (clean(&self.head), clean(&self.text));
        let split = |row: &str, head_bytes: usize| {
            let (head, text) = row.split_at(head_bytes.min(row.len()));
            let spans = [Span::styled(head.to_owned(), self.head_style), Span::styled(text.to_owned(), self.style)];
            Line::from_iter(spans.into_iter().filter(|span| !span.content.is_empty()))
        };
        match self.shape {
            Shape::Rule => {
                let label = cut(&format!("── {text} "), columns);
                let rest = "─".repeat(columns.saturating_sub(label.width()));
                vec![split(&format!("{label}{rest}"), 0)]
            }
            Shape::Row => {
                let row = cut(&format!("{head}{text}"), columns);
                let head_bytes = row.bytes().zip(head.bytes()).take_while(|(a, b)| a == b).count();
                vec![split(&row, (0..=head_bytes).rev().find(|at| row.is_char_boundary(*at)).unwrap_or(0))]
            }
            Shape::Whole => {
                // Where there is hardly room for words, all of it is theirs.
                let indent = if columns >= 10 { "  " } else { "" };
                let mut rows = Vec::new();
                for (n, line) in text.trim_end().split('\n').enumerate() {
                    let (all, head_bytes) =
                        if n == 0 { (format!("{head}{line}"), head.len()) } else { (line.to_owned(), 0) };
                    let rest = columns - indent.len();
                    let first = if n == 0 { columns } else { rest };
                    for range in rows_of(&all, first, rest, Break::Words) {
                        let mut row = split(&all[range.clone()], head_bytes.saturating_sub(range.start));
                        if !rows.is_empty() && !range.is_empty() {
                            row.spans.insert(0, Span::raw(indent));
                        }
                        rows.push(row);
                    }
                }
                rows
            }
        }
    }
}

/// What is shown of a line; nothing of what is kept for other readers only.
pub(super) fn items_of(line: &entry::Line) -> Vec<Item> {
    match line {
        entry::Line::Talk(talk) if talk.is_meta == Some(true) || talk.is_compact_summary == Some(true) => Vec::new(),
        entry::Line::Talk(talk) => {
            talk.message.message.content.iter().flat_map(|block| of_block(talk, block)).collect()
        }
        entry::Line::Outcome(outcome) => {
            let reason = outcome.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            vec![Item::short("", DIM, &format!("run {} {}{reason}", outcome.run, outcome.status))]
        }
        entry::Line::Enqueued(enqueued) => {
            let text = mail_of(&enqueued.content)
                .map_or_else(|| enqueued.content.clone(), |mail| mail.iter().map(|m| format!("{} ", m.text)).collect());
            vec![Item::short("(kept for later) ", DIM, &text)]
        }
        entry::Line::Mode(mode) => vec![Item::short("", DIM, &format!("mode: {}", mode.mode))],
        entry::Line::Boundary(_) => {
            vec![Item::new("", DIM, "what came before was replaced by a summary", DIM, Shape::Rule)]
        }
        entry::Line::Switched(switch) => {
            vec![Item::short("", DIM, &format!("{} goes on: {}", switch.to, switch.reason))]
        }
        entry::Line::Other => Vec::new(),
    }
}

fn of_block(talk: &Talk, block: &Block) -> Vec<Item> {
    if let Some(text) = block.as_text() {
        return if text.trim().is_empty() { Vec::new() } else { of_text(talk, text) };
    }
    match block {
        Block::Known(Known::ToolUse { name, input, .. }) => vec![call(name, &telling_input(input))],
        Block::Known(Known::ToolResult { content, is_error, .. }) => result(&text_of(content), *is_error),
        Block::Other(value) if server_tool::use_id(block).is_some() => {
            vec![call(value["name"].as_str().unwrap_or_default(), &telling_input(&value["input"]))]
        }
        Block::Other(value) if value["type"] == "image" => vec![Item::short("  ", DIM, "(an image)")],
        // Thinking, and what nobody here knows.
        Block::Known(Known::Text { .. }) | Block::Other(_) => Vec::new(),
    }
}

fn of_text(talk: &Talk, text: &str) -> Vec<Item> {
    let whole = |head: String, head_style, text: &str| {
        Item::new(head, head_style, text.trim_matches('\n'), Style::new(), Shape::Whole)
    };
    match (talk.kind, talk.origin.as_ref().map(|origin| origin.kind.as_str())) {
        (Role::Assistant, _) => vec![whole("• ".to_owned(), BOLD, text)],
        (Role::User, Some(ORIGIN_NOTIFICATION)) => {
            let told = between(text, "<summary>", "</summary>").map(unescape);
            vec![Item::short("! ", DIM, told.as_deref().unwrap_or(text))]
        }
        (Role::User, _) => match (mail_of(text), &talk.from) {
            (Some(mail), _) => mail
                .iter()
                .map(|mail| {
                    whole(
                        format!("@{}: ", one_line(&mail.from, 60)),
                        colour_of(mail.colour.as_deref()).patch(BOLD),
                        &mail.text,
                    )
                })
                .collect(),
            (None, Some(from)) => vec![whole(format!("{}: ", one_line(from, 60)), BOLD, text)],
            (None, None) => vec![whole("> ".to_owned(), BOLD, text)],
        },
    }
}

fn call(name: &str, telling: &str) -> Item {
    Item::short(&format!("· {} ", one_line(name, 60)), Style::new().fg(Color::Cyan), telling)
}

/// Its first line, and how much there is beside it.
fn result(text: &str, is_error: bool) -> Vec<Item> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return Vec::new() };
    let first = one_line(first, SHORT);
    let told = match lines.count() {
        0 => first,
        more => format!("{first} (+{more} lines)"),
    };
    vec![if is_error {
        let red = Style::new().fg(Color::Red);
        Item::new("  error: ", red.add_modifier(Modifier::BOLD), told, red, Shape::Row)
    } else {
        Item::new("  ", DIM, told, DIM, Shape::Row)
    }]
}

/// A message of a member or the lead.
#[derive(Debug, PartialEq, Eq)]
struct Mail {
    from: String,
    colour: Option<String>,
    text: String,
}

/// The messages of which `text` consists; `None` if it is anything else. What they say is escaped, so
/// that none can end before its end.
fn mail_of(text: &str) -> Option<Vec<Mail>> {
    let mut left = text.trim();
    let mut all = Vec::new();
    while !left.is_empty() {
        let (attributes, after) = left.strip_prefix("<teammate-message ")?.split_once('>')?;
        let (said, rest) = after.split_once("</teammate-message>")?;
        let attribute = |name: &str| between(attributes, &format!("{name}=\""), "\"").map(unescape);
        let said = said.strip_prefix('\n').unwrap_or(said);
        all.push(Mail {
            from: attribute("teammate_id")?,
            colour: attribute("color"),
            text: unescape(said.strip_suffix('\n').unwrap_or(said)),
        });
        left = rest.trim_start();
    }
    (!all.is_empty()).then_some(all)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
