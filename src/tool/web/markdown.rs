//! From HTML to text with a little Markdown: headings, lists, quotes, code, tables, links.
//!
//! Works on the stream of tokens and builds no tree: a hostile page (a million open tags) costs as
//! much as its bytes, and no stack. So what a browser would move or close by itself is taken as it
//! stands.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

use super::address::Address;

/// Deepest list or quote that is indented; what is deeper is indented like it. Without a bound the
/// indents of a page of nested lists would be as long as the square of its size.
const INDENTS: usize = 6;
/// Longest address of a link that is shown.
const LINK_BYTES: usize = 500;
/// Tokens between two looks whether to go on.
const CHECK: usize = 4096;

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    /// Its title, on one line; may be empty.
    pub title: String,
    /// Its body.
    pub body: String,
}

/// The text of the page `html` that lies at `base`; nothing if `stop` says so meanwhile.
pub(super) fn text_of(html: &str, base: &Address, stop: impl Fn() -> bool) -> Option<Text> {
    let mut emitter = DefaultEmitter::default();
    // What scripts and styles hold is no markup.
    emitter.naively_switch_states(true);
    let mut writer = Writer::new(base);
    for (count, token) in Tokenizer::new_with_emitter(html, emitter).enumerate() {
        if count % CHECK == 0 && stop() {
            return None;
        }
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.open(&tag),
            Token::EndTag(tag) => writer.close(&tag.name),
            Token::String(text) => writer.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    Some(writer.finish())
}

/// What separates the text so far from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

struct Writer<'a> {
    base: &'a Address,
    title: String,
    out: String,
    gap: Gap,
    /// Put before the next text, such as a bullet.
    lead: String,
    /// Lists that are open, the number of the latest item where they have numbers.
    lists: Vec<Option<u32>>,
    quotes: usize,
    /// Of nested `pre`.
    verbatim: usize,
    tables: usize,
    /// A cell of a table that is not within another: it stays on its line.
    in_cell: bool,
    /// The link that is open, and where its text begins.
    link: Option<(String, usize)>,
    /// The element that is left out, and how many of its kind are open.
    skipped: Option<(Vec<u8>, usize)>,
    in_title: bool,
}

impl<'a> Writer<'a> {
    fn new(base: &'a Address) -> Self {
        Self {
            base,
            title: String::new(),
            out: String::new(),
            gap: Gap::None,
            lead: String::new(),
            lists: Vec::new(),
            quotes: 0,
            verbatim: 0,
            tables: 0,
            in_cell: false,
            link: None,
            skipped: None,
            in_title: false,
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        let attribute = |name: &[u8]| {
            let value = tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        match name {
            b"script" | b"style" | b"noscript" | b"template" | b"svg" | b"math" | b"iframe" | b"object" | b"canvas"
            | b"select" | b"textarea" | b"audio" | b"video"
                if !tag.self_closing =>
            {
                self.skipped = Some((name.to_vec(), 1));
            }
            b"title" => self.in_title = self.title.is_empty(),
            b"br" => match self.verbatim {
                0 => self.separate(Gap::Line),
                _ => self.out.push('\n'),
            },
            b"hr" => {
                self.separate(Gap::Paragraph);
                self.write("---");
                self.separate(Gap::Paragraph);
            }
            b"img" => {
                if let Some(alt) = attribute(b"alt") {
                    self.text(&format!("[image: {alt}]"));
                }
            }
            b"a" => {
                self.end_link();
                let href = attribute(b"href").filter(|href| !href.starts_with('#') && href.len() <= LINK_BYTES);
                if let Some(to) = href.and_then(|href| self.base.join(&href).ok()) {
                    self.write("[");
                    self.link = Some((to.to_string(), self.out.len()));
                }
            }
            b"ul" | b"ol" => {
                self.separate(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
                let first = attribute(b"start").and_then(|start| start.parse().ok()).unwrap_or(1);
                self.lists.push((name == b"ol").then(|| u32::saturating_sub(first, 1)));
            }
            b"li" => {
                self.separate(Gap::Line);
                self.lead = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number = number.saturating_add(1);
                        format!("{number}. ")
                    }
                    _ => "- ".to_owned(),
                };
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.separate(Gap::Paragraph);
                self.lead = format!("{} ", "#".repeat(usize::from(name[1] - b'0')));
            }
            b"blockquote" => {
                self.separate(Gap::Paragraph);
                self.quotes += 1;
            }
            b"pre" => {
                self.separate(Gap::Paragraph);
                if self.verbatim == 0 {
                    self.write("```\n");
                }
                self.verbatim += 1;
            }
            b"code" | b"kbd" | b"samp" => self.tick(),
            b"table" => {
                self.separate(Gap::Paragraph);
                self.tables += 1;
                self.in_cell = false;
            }
            b"tr" => {
                self.in_cell = false;
                self.separate(Gap::Line);
            }
            b"td" | b"th" => {
                let is_first = self.gap >= Gap::Line || self.out.ends_with('\n');
                self.in_cell = self.tables == 1;
                if self.in_cell {
                    self.separate(Gap::Space);
                    if !is_first {
                        self.write("| ");
                        self.gap = Gap::None;
                    }
                }
            }
            name => self.separate(around(name)),
        }
    }

    fn close(&mut self, name: &[u8]) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"a" => self.end_link(),
            b"ul" | b"ol" => {
                self.lists.pop();
                self.lead.clear();
                self.separate(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
            }
            b"blockquote" => {
                self.separate(Gap::Paragraph);
                self.quotes = self.quotes.saturating_sub(1);
            }
            b"pre" if self.verbatim > 0 => {
                self.verbatim -= 1;
                if self.verbatim == 0 {
                    if !self.out.ends_with('\n') {
                        self.out.push('\n');
                    }
                    self.write("```");
                    self.separate(Gap::Paragraph);
                }
            }
            b"code" | b"kbd" | b"samp" => self.tick(),
            b"table" => {
                self.tables = self.tables.saturating_sub(1);
                self.in_cell = false;
                self.separate(Gap::Paragraph);
            }
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.lead.clear();
                self.separate(Gap::Paragraph);
            }
            name => self.separate(around(name)),
        }
    }

    /// Makes at least this much room before the next text.
    fn separate(&mut self, gap: Gap) {
        let most = match () {
            () if self.in_cell && self.verbatim == 0 => Gap::Space,
            // What begins an item stands beside its bullet.
            () if !self.lead.is_empty() => Gap::Line,
            () => Gap::Paragraph,
        };
        self.gap = self.gap.max(gap.min(most));
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.verbatim > 0 {
            self.out.extend(text.chars().filter(|&c| c == '\n' || c == '\t' || !c.is_control()));
            return;
        }
        for (at, word) in text.split(|c: char| c.is_ascii_whitespace() || c.is_control()).enumerate() {
            if at > 0 {
                self.separate(Gap::Space);
            }
            if !word.is_empty() {
                self.write(word);
            }
        }
    }

    /// Writes `text` after what separates it from the text before.
    fn write(&mut self, text: &str) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        if self.out.is_empty() || gap >= Gap::Line {
            match gap {
                _ if self.out.is_empty() => {}
                Gap::Paragraph => self.out.push_str("\n\n"),
                _ => self.out.push('\n'),
            }
            for _ in 0..self.quotes.min(INDENTS) {
                self.out.push_str("> ");
            }
            for _ in 1..self.lists.len().min(INDENTS) {
                self.out.push_str("  ");
            }
        } else if gap == Gap::Space && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
        self.out.push_str(&std::mem::take(&mut self.lead));
        self.out.push_str(text);
    }

    fn tick(&mut self) {
        if self.verbatim == 0 {
            self.write("`");
        }
    }

    fn end_link(&mut self) {
        let Some((to, begin)) = self.link.take() else { return };
        if self.out[begin..].trim().is_empty() {
            self.out.truncate(begin - 1);
        } else {
            self.out.push_str("](");
            self.out.push_str(&to);
            self.out.push(')');
        }
    }

    fn finish(mut self) -> Text {
        self.end_link();
        if self.verbatim > 0 {
            self.verbatim = 0;
            self.out.push_str("\n```");
        }
        let title: Vec<&str> = self.title.split_whitespace().collect();
        Text { title: title.join(" "), body: self.out.trim().to_owned() }
    }
}

/// What separates an element from what is around it.
fn around(name: &[u8]) -> Gap {
    match name {
        b"p" | b"dl" | b"figure" | b"form" | b"fieldset" => Gap::Paragraph,
        b"div" | b"section" | b"article" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"address"
        | b"figcaption" | b"details" | b"summary" | b"dt" | b"dd" | b"body" | b"html" | b"head" | b"option" | b"tr"
        | b"caption" | b"li" | b"legend" | b"center" => Gap::Line,
        b"td" | b"th" | b"button" | b"label" => Gap::Space,
        _ => Gap::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> Text {
        let base = Address::parse("https://a.example/d/page").unwrap();
        text_of(html, &base, || false).unwrap()
    }

    fn body(html: &str) -> String {
        text(html).body
    }

    #[test]
    fn a_page_becomes_readable_text() {
        let html = "<!doctype html><html><head><title> A\n page </title><style>p{}</style>\
            <script>if (a<b) document.write('<p>no</p>')</script></head><body>\
            <nav><a href=#top>Top</a></nav><h1>Head</h1><p>One   <b>bold</b> &amp; caf&eacute;.<p>Two\
            <br>lines <a href='../x?y=1'>link</a>, <a href=\"javascript:alert(1)\">none</a><a href=/i><img src=i></a>\
            <!-- <p>hidden</p> --><noscript>turn it on</noscript></body></html>";
        let text = text(html);
        assert_eq!(text.title, "A page");
        assert_eq!(text.body, "Top\n\n# Head\n\nOne bold & café.\n\nTwo\nlines [link](https://a.example/x?y=1), none");
    }

    #[test]
    fn lists_quotes_code_and_tables_keep_their_shape() {
        assert_eq!(
            body("<ul><li>a<ul><li>b</li></ul></li><li><p>c</p></li></ul><ol start=3><li>x<li>y</ol>after"),
            "- a\n  - b\n- c\n\n3. x\n4. y\n\nafter"
        );
        assert_eq!(body("<blockquote>q<p>r</blockquote>s"), "> q\n\n> r\n\ns");
        assert_eq!(
            body("<p>Run <code>ls -l</code>:<pre><code>a\n  b &lt; c\n</code></pre>x"),
            "Run `ls -l`:\n\n```\na\n  b < c\n```\n\nx"
        );
        assert_eq!(
            body("<table><tr><th>A</th><th>B</th></tr><tr><td><p>1</p></td><td>2</td></tr></table>z"),
            "A | B\n1 | 2\n\nz"
        );
        assert_eq!(body("a<img alt='a cat' src=x>b<hr>c"), "a[image: a cat]b\n\n---\n\nc");
    }

    #[test]
    fn what_is_broken_is_read_as_far_as_it_goes() {
        for html in [
            "",
            "<",
            "<a href=",
            "<a href=x>",
            "</li></ul></blockquote></pre></table>",
            "<pre>",
            "&#x;&#xD800;",
            "<svg><svg></svg>x",
        ] {
            let _ = text(html);
        }
        assert_eq!(body("a</svg>b<svg>c</svg>d"), "abd");
        assert_eq!(body("<pre>x"), "```\nx\n```");
        assert_eq!(body("a\u{1b}[31mb"), "a [31mb");
    }

    #[test]
    fn a_hostile_page_costs_no_more_than_its_size() {
        for (open, times) in [("<div>", 30_000), ("<ul><li>x", 20_000), ("<b>", 30_000), ("<a href=x>y", 10_000)] {
            let html = open.repeat(times);
            assert!(body(&html).len() <= 40 * html.len(), "{open}");
        }
        for html in ["<table><tr><td>x".repeat(20_000), "<blockquote>x".repeat(20_000), "<p ".repeat(30_000)] {
            assert!(body(&html).len() <= 40 * html.len());
        }
        let attributes: String = (0..10_000).map(|n| format!(" a{n}=1")).collect();
        assert_eq!(body(&format!("<p{attributes}>x")), "x");
    }

    #[test]
    fn a_cancelled_conversion_ends() {
        let base = Address::parse("https://a.example/").unwrap();
        assert_eq!(text_of("<p>x", &base, || true), None);
    }
}
