//! Which window takes a new pane. Pure: windows as tmux listed them in, a window for each pane out.

/// The smallest pane that is of use, border included. A window whose panes would be smaller is full.
const SMALLEST: (u32, u32) = (30, 6);

/// A window that agents' panes may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// How it is named as a target: its id, or the name of one that is yet to be made.
    pub target: String,
    /// Its width, characters.
    pub columns: u32,
    /// Its height, lines.
    pub rows: u32,
    /// Panes in it.
    pub panes: u32,
    /// Whether its user looks at one pane alone, which a new one would end.
    pub is_zoomed: bool,
    /// Whether it is yet to be made, around the first pane it takes.
    pub is_new: bool,
}

impl Window {
    /// Whether one more pane would be of use among equal tiles.
    fn has_room(&self) -> bool {
        let (across, down) = tiles(self.panes + 1);
        let size = |whole: u32, parts: u32| whole.saturating_sub(parts - 1) / parts;
        !self.is_zoomed && size(self.columns, across) >= SMALLEST.0 && size(self.rows, down) >= SMALLEST.1
    }
}

/// Columns and rows of tmux's layout `tiled`.
fn tiles(panes: u32) -> (u32, u32) {
    let (mut columns, mut rows) = (1, 1);
    while columns * rows < panes {
        rows += 1;
        if columns * rows < panes {
            columns += 1;
        }
    }
    (columns, rows)
}

/// A window for each of `names`, by its place in `windows`: the first that has room, else a further one,
/// which is added, as large as the first and called by the name of its first pane.
pub(super) fn place(windows: &mut Vec<Window>, names: &[String]) -> Vec<usize> {
    let size = windows.first().map_or((0, 0), |w| (w.columns, w.rows));
    names
        .iter()
        .map(|name| {
            if let Some(at) = windows.iter().position(Window::has_room) {
                windows[at].panes += 1;
                return at;
            }
            let (columns, rows) = size;
            windows.push(Window { target: name.clone(), columns, rows, panes: 1, is_zoomed: false, is_new: true });
            windows.len() - 1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(columns: u32, rows: u32) -> Vec<Window> {
        vec![Window { target: "@0".to_owned(), columns, rows, panes: 1, is_zoomed: false, is_new: false }]
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("n{i}")).collect()
    }

    #[test]
    fn a_window_is_full_when_one_more_would_be_too_small() {
        let mut windows = seat(80, 24);
        assert_eq!(place(&mut windows, &names(7)), [0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((windows[0].panes, windows[1].panes), (6, 2));
        assert_eq!((windows[1].target.as_str(), windows[1].is_new), ("n5", true));
        // One line less is one row of tiles less.
        assert_eq!(place(&mut seat(80, 19), &names(4)), [0, 0, 0, 1]);
        assert_eq!(place(&mut seat(80, 20), &names(4)), [0, 0, 0, 0]);
        assert_eq!(place(&mut seat(60, 24), &names(3)), [0, 1, 1]);
        assert_eq!(place(&mut seat(61, 24), &names(3)), [0, 0, 0]);
    }

    #[test]
    fn no_window_is_too_small_to_get_a_pane_somewhere() {
        assert_eq!(place(&mut seat(20, 5), &names(3)), [1, 2, 3]);
        assert_eq!(place(&mut Vec::new(), &names(2)), [0, 1]);
    }

    #[test]
    fn what_is_looked_at_alone_is_left_alone() {
        let mut windows = seat(200, 50);
        windows[0].is_zoomed = true;
        assert_eq!(place(&mut windows, &names(2)), [1, 1]);
    }

    #[test]
    fn tiles_are_those_of_tmux() {
        let expected = [(1, 1), (1, 2), (2, 2), (2, 2), (2, 3), (2, 3), (3, 3), (3, 3), (3, 3), (3, 4)];
        assert_eq!((1..=10).map(tiles).collect::<Vec<_>>(), expected);
    }
}
