//! Tables for people: columns as wide as their widest cell, two blanks apart. Cells are made safe
//! for a terminal and cut, so that no agent's words break the table.

use std::fmt::Write as _;
use std::time::Duration;

use crate::core::text;

/// How a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A column: its title, how it is shown, and the most characters a cell of it may have.
pub(super) type Column = (&'static str, Align, usize);

/// The lines of a table with a line of titles.
pub(super) fn render(columns: &[Column], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().zip(columns).map(|(cell, (_, _, most))| text::one_line(cell, *most)).collect())
        .collect();
    let titles: Vec<String> = columns.iter().map(|(title, ..)| (*title).to_owned()).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| rows.iter().chain([&titles]).filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in [&titles].into_iter().chain(&rows) {
        let mut line = String::new();
        for ((cell, (_, align, _)), width) in row.iter().zip(columns).zip(&widths) {
            let _ = match align {
                Align::Left => write!(line, "{cell:width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A duration in its largest unit, such as `45s`, `3m`, `2h`, `5d`.
pub(super) fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A count with `k` or `M` from 10,000 on.
pub(super) fn short_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Bytes as MiB with one decimal.
pub(super) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_cut_and_cannot_break_the_table() {
        let columns = [("NAME", Align::Left, 8), ("N", Align::Right, 5), ("WHAT", Align::Left, 20)];
        let row = |a: &str, b: &str, c: &str| vec![a.to_owned(), b.to_owned(), c.to_owned()];
        let rows = [row("a\nb\u{1b}[31m", "7", ""), row("very-long-name", "12345", "x")];
        let expected = "NAME           N  WHAT\na b [31m       7\nvery-lon…  12345  x\n";
        assert_eq!(render(&columns, &rows), expected);
        assert_eq!(render(&columns, &[]), "NAME  N  WHAT\n");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0, 59, 60, 3599, 3600, 86_399, 86_400].map(|s| short_duration(Duration::from_secs(s)));
        assert_eq!(shown, ["0s", "59s", "1m", "59m", "1h", "23h", "1d"]);
        assert_eq!([0, 9999, 10_000, 9_999_999, 10_000_000].map(short_count), ["0", "9999", "10k", "9999k", "10M"]);
        assert_eq!(mebibytes(1_572_864), "1.5 MiB");
    }
}
