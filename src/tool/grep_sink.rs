//! What `Grep` does with each match, and which part of it all is shown.

use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use tokio_util::sync::CancellationToken;

use crate::core::limits::TOOL_OUTPUT_BYTES;

/// Characters of a line that are shown.
const LINE_CHARS: usize = 1000;

/// `output_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Content,
    Files,
    Count,
}

impl Mode {
    pub(super) fn parse(word: Option<&str>) -> Result<Self, String> {
        match word {
            None => Ok(Self::Files),
            Some(word) => [Self::Content, Self::Files, Self::Count]
                .into_iter()
                .find(|mode| mode.word() == word)
                .ok_or_else(|| format!("there is no output_mode {word:?}; modes: content, files_with_matches, count")),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Files => "files_with_matches",
            Self::Count => "count",
        }
    }
}

/// The lines that are shown: `limit` of them after `skip`.
pub(super) struct Page {
    text: String,
    skip: usize,
    limit: Option<usize>,
    seen: usize,
    shown: usize,
    /// A separator is due before the next line.
    gap: bool,
}

impl Page {
    /// A limit of 0 is none.
    pub(super) fn new(skip: Option<usize>, limit: Option<usize>) -> Self {
        let limit = limit.filter(|l| *l > 0);
        Self { text: String::new(), skip: skip.unwrap_or(0), limit, seen: 0, shown: 0, gap: false }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.seen += 1;
        if self.seen <= self.skip || self.limit.is_some_and(|l| self.shown >= l) || self.text.len() > TOOL_OUTPUT_BYTES
        {
            return;
        }
        if std::mem::take(&mut self.gap) && self.shown > 0 {
            self.text.push_str("--\n");
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.shown += 1;
    }

    fn gap(&mut self) {
        self.gap = true;
    }

    /// Whether nothing that comes now would be shown. One line more than the limit is looked at,
    /// to know whether something was left out.
    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|l| self.seen > self.skip.saturating_add(l)) || self.text.len() > TOOL_OUTPUT_BYTES
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn lines(&self) -> usize {
        self.shown
    }

    pub(super) fn notice(&self) -> Option<String> {
        if self.seen > 0 && self.shown == 0 {
            return Some(format!("[offset {} is beyond the end: there are {}]", self.skip, self.seen));
        }
        (self.seen > self.skip + self.shown)
            .then(|| format!("[more follow: continue with offset {}]", self.skip + self.shown))
    }
}

/// Looks at the matches in one file.
pub(super) struct Sight<'a> {
    mode: Mode,
    name: &'a str,
    numbers: bool,
    surrounded: bool,
    page: &'a mut Page,
    cancel: &'a CancellationToken,
    matches: u64,
}

impl<'a> Sight<'a> {
    pub(super) fn new(
        mode: Mode,
        name: &'a str,
        numbers: bool,
        surrounded: bool,
        page: &'a mut Page,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { mode, name, numbers, surrounded, page, cancel, matches: 0 }
    }

    /// Ends the file; whether something matched.
    pub(super) fn finish(self) -> bool {
        if self.matches > 0 {
            match self.mode {
                Mode::Count => self.page.line(&format!("{}:{}", self.name, self.matches)),
                Mode::Content if self.surrounded => self.page.gap(),
                Mode::Content | Mode::Files => {}
            }
        }
        self.matches > 0
    }

    fn show(&mut self, number: Option<u64>, bytes: &[u8], mark: char) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let number = number.filter(|_| self.numbers).map(|n| format!("{n}{mark}")).unwrap_or_default();
        let line = match text.char_indices().nth(LINE_CHARS) {
            None => format!("{}{mark}{number}{text}", self.name),
            Some((at, _)) => {
                format!("{}{mark}{number}{} [line cut: {} bytes in all]", self.name, &text[..at], bytes.len())
            }
        };
        self.page.line(&line);
    }

    fn goes_on(&self) -> bool {
        !self.cancel.is_cancelled() && !self.page.is_full()
    }
}

impl Sink for Sight<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        match self.mode {
            Mode::Files => {
                self.matches += 1;
                return Ok(false);
            }
            Mode::Count => self.matches += found.lines().count() as u64,
            Mode::Content => {
                self.matches += 1;
                for (number, line) in (0..).zip(found.lines()) {
                    self.show(found.line_number().map(|n| n + number), line, ':');
                }
            }
        }
        Ok(self.goes_on())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, Self::Error> {
        self.show(context.line_number(), context.bytes(), '-');
        Ok(self.goes_on())
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, Self::Error> {
        self.page.gap();
        Ok(self.goes_on())
    }
}
