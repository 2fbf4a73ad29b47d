//! Panes on real terminals: pseudo terminals whose other end is an emulator.

mod glass;
mod program;

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::termios::{LocalModes, tcgetattr};
use serde_json::json;

use self::glass::Glass;
use super::screen::Palette;
use super::*;
use crate::core::entry::{Line, parse_line};

fn opened(glass: &Glass) -> (Pane, PaneInput) {
    let identity = PaneIdentity { name: "w".into(), team: "t".into(), colour: None };
    Pane::open_on(glass.slave.as_fd(), identity, Palette::Colours).unwrap()
}

fn said(text: &str) -> Line {
    let line = json!({"type": "assistant", "parentUuid": null, "uuid": "u",
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}});
    parse_line(line.to_string().as_bytes()).unwrap()
}

const STATUS: &str = "w  starting  team t";

fn is_raw(glass: &Glass) -> bool {
    !tcgetattr(&glass.slave).unwrap().local_modes.contains(LocalModes::ICANON)
}

#[tokio::test]
async fn what_is_shown_and_typed_arrives_and_the_terminal_is_given_back() {
    let glass = Glass::new(40, 6);
    let before = tcgetattr(&glass.slave).unwrap().local_modes;
    let (pane, mut input) = opened(&glass);
    pane.show(&said("hello"));
    pane.part("more to ");
    pane.part("come");
    glass.until(&mut input, "shown", |rows| rows == ["• hello", "more to come", STATUS, ">"]).await;
    assert!(is_raw(&glass));
    glass.type_in("研究 \x1b\rb\x1b[D\x03");
    glass.until(&mut input, "typed", |rows| rows[3..] == ["> 研究", "  b"]).await;
    glass.type_in("\r\x04");
    glass
        .until(&mut input, "sent", |rows| rows.last().is_some_and(|row| row == ">") && rows[2].starts_with("its lead"))
        .await;
    assert_eq!(glass.events(), [PaneEvent::Interrupt, PaneEvent::Said("研究 \nb".into())]);
    let bytes = "x".repeat(64 << 10);
    let paste = format!("\x1b[200~{bytes}\x1b[201~\r");
    let typing = glass.type_slowly(paste);
    glass.until_event(&mut input, &PaneEvent::Said(bytes)).await;
    typing.join().unwrap();
    pane.show(&said("more to come!"));
    drop(input);
    assert!(is_raw(&glass), "as long as something may be shown");
    drop(pane);
    assert_eq!(tcgetattr(&glass.slave).unwrap().local_modes, before);
    glass.eventually("given back", |screen| !screen.bracketed_paste() && !screen.hide_cursor());
    glass.eventually_rows(|rows| rows == ["• hello", "• more to come!"]);
}

/// A witness of the conversation may be asked from anywhere.
#[test]
fn a_pane_can_be_shown_on_by_every_thread() {
    fn check<T: Clone + Send + Sync>() {}
    check::<Pane>();
}

#[tokio::test]
async fn a_terminal_that_is_gone_is_said_once() {
    for _ in 0..20 {
        let mut glass = Glass::new(40, 6);
        let (pane, mut input) = opened(&glass);
        glass.hang_up();
        glass.until_event(&mut input, &PaneEvent::Closed).await;
        pane.show(&said("to nobody"));
        pane.note("neither");
        tokio::select! {
            biased;
            event = input.next() => panic!("{event:?}"),
            () = std::future::ready(()) => {}
        }
    }
}

#[tokio::test]
async fn a_terminal_that_takes_nothing_stops_nobody_and_misses_nothing() {
    let glass = Glass::new(40, 6);
    let (pane, mut input) = opened(&glass);
    let lines: Vec<String> = (0..10_000).map(|n| format!("• line {n}")).collect();
    let closed = glass.close_eyes();
    for line in &lines {
        pane.show(&said(&line[4..]));
    }
    drop(closed);
    glass
        .until(&mut input, "all", |rows| {
            rows.len() == 10_002 && rows[..10_000] == lines && rows[10_000..] == [STATUS, ">"]
        })
        .await;
}

#[tokio::test]
async fn what_waits_for_the_terminal_is_bounded() {
    let glass = Glass::new(1000, 6);
    let (pane, mut input) = opened(&glass);
    let closed = glass.close_eyes();
    let long = "x ".repeat(512 << 10);
    for _ in 0..20 {
        pane.show(&said(&long));
    }
    drop(closed);
    let on_screen = |text: &'static str| move |parser: &mut vt100::Parser| parser.screen().contents().contains(text);
    glass.until_seen(&mut input, "a note", on_screen(" lines were not shown: the terminal did not take them)")).await;
    pane.show(&said("then again"));
    glass.until_seen(&mut input, "the next", on_screen("• then again")).await;
}

#[tokio::test]
async fn a_panic_gives_the_terminal_back_and_who_survives_it_takes_it_again() {
    let glass = Glass::new(60, 8);
    let (pane, mut input) = opened(&glass);
    pane.show(&said("before"));
    glass.until(&mut input, "shown", |rows| rows.len() == 3).await;
    let other = std::thread::spawn(|| panic!("of another thread, as part of a test"));
    assert!(other.join().is_err() && is_raw(&glass));
    let panicked = std::panic::catch_unwind(|| panic!("on purpose, as part of a test"));
    assert!(panicked.is_err() && !is_raw(&glass));
    glass.eventually("given back", |screen| !screen.bracketed_paste());
    glass.write_as_other(b"a report\r\n");
    pane.show(&said("after"));
    assert!(is_raw(&glass));
    let all = ["• before", STATUS, ">", "a report", "• after", STATUS, ">"];
    glass.until(&mut input, "drawn below it", |rows| rows == all).await;
}

#[tokio::test]
async fn nothing_wakes_up_while_nothing_happens() {
    use std::future::Future as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let glass = Glass::new(40, 6);
    let (pane, mut input) = opened(&glass);
    pane.show(&said("x"));
    glass.until(&mut input, "shown", |rows| rows.len() == 3).await;
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut next = std::pin::pin!(input.next());
    let mut polls = 0;
    // What was noticed before settles; then the runtime turns, and nothing is told.
    if let Poll::Ready(event) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
        panic!("{event:?}");
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
        if count.0.swap(0, Ordering::SeqCst) > 0 {
            polls += 1;
            assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    assert!(polls <= 2, "{polls}");
    glass.type_in("\x03");
    assert_eq!(next.await, PaneEvent::Interrupt);
}

#[tokio::test]
async fn without_a_terminal_there_is_no_pane() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let identity = PaneIdentity { name: "w".into(), team: "t".into(), colour: None };
    let error = Pane::open_on(null.as_fd(), identity, Palette::Plain).err().unwrap();
    assert!(matches!(error, PaneError::NoTerminal(_)), "{error:?}");
    assert_eq!(error.to_string(), "standard input is no terminal that a pane could be shown on");
}

/// An emulated terminal that keeps all that scrolls out.
pub(super) fn terminal(columns: u16, rows: u16) -> vt100::Parser {
    vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 100_000)
}

/// The scrollback and the screen, without what is empty at the ends.
pub(super) fn all_rows(parser: &mut vt100::Parser) -> Vec<String> {
    let (rows, columns) = parser.screen().size();
    let (rows, columns) = (usize::from(rows.get()), columns.get());
    let screen = parser.screen_mut();
    let mut all: Vec<String> = Vec::new();
    let behind = screen.scrollback_len();
    // The screen is a window that can be moved up.
    let mut at = behind;
    loop {
        screen.set_scrollback(at);
        let take = if at == 0 { rows } else { at.min(rows) };
        all.extend(screen.rows(0, columns).take(take).map(|row| row.trim_end().to_owned()));
        if at == 0 {
            break;
        }
        at -= take;
    }
    while all.last().is_some_and(String::is_empty) {
        all.pop();
    }
    all
}
