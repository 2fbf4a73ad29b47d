//! Panes of programs: what signals do, and what tmux makes of a pane.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::super::edit::Editor;
use super::super::view::input_columns;
use super::super::wrap::cut;
use super::glass::{Glass, eventually};
use super::*;

const CHILD: &str = "LEAD_TEST_PANE_CHILD";

/// The program of the tests below; does nothing in an ordinary run. It repeats what it is told, shows
/// lines by `lines N`, and ends by `quit` or `panic`.
#[tokio::test]
async fn child_side() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let identity = PaneIdentity { name: "w".into(), team: "t".into(), colour: Some("green".into()) };
    let (pane, mut input) = Pane::open(identity).unwrap();
    loop {
        let PaneEvent::Said(text) = input.next().await else { continue };
        match (text.as_str(), text.strip_prefix("lines ")) {
            ("quit", _) => break,
            ("panic", _) => panic!("on purpose, as part of a test"),
            (_, Some(count)) => {
                for n in 0..count.parse().unwrap() {
                    pane.show(&said(&format!("line {n}")));
                }
            }
            (text, None) => pane.show(&said(text)),
        }
    }
}

fn child_arguments() -> [OsString; 4] {
    let binary = std::env::current_exe().unwrap();
    [binary.into(), "--exact".into(), "teammate::pane::tests::program::child_side".into(), "--nocapture".into()]
}

/// Ends with the test.
struct Program(Child);

impl Program {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn child(glass: &Glass, term: &str) -> Program {
    let [binary, arguments @ ..] = child_arguments();
    let stdin: OwnedFd = glass.slave.try_clone().unwrap();
    let child = Command::new(binary)
        .args(arguments)
        .envs([(CHILD, "1"), ("TERM", term)])
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    Program(child.unwrap())
}

#[test]
fn stopping_gives_the_terminal_back_and_going_on_takes_it_again() {
    let glass = Glass::new(40, 6);
    let mut child = child(&glass, "xterm");
    let pid = child.pid();
    glass.eventually_rows(|rows| rows == [STATUS, ">"]);
    glass.type_in("hello\r");
    glass.eventually_rows(|rows| rows == ["• hello", STATUS, ">"]);
    glass.type_in("dra");
    glass.eventually_rows(|rows| rows == ["• hello", STATUS, "> dra"]);
    for _ in 0..3 {
        kill(pid, Signal::SIGTSTP).unwrap();
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        assert!(!is_raw(&glass));
        glass.eventually_rows(|rows| rows == ["• hello"]);
        glass.eventually("given back", |screen| !screen.bracketed_paste());
        kill(pid, Signal::SIGCONT).unwrap();
        glass.eventually_rows(|rows| rows == ["• hello", STATUS, "> dra"]);
        glass.eventually("taken again", vt100::Screen::bracketed_paste);
        assert!(is_raw(&glass));
    }
    glass.resize(30, 8);
    kill(pid, Signal::SIGWINCH).unwrap();
    glass.type_in("ft\r\x15quit\r");
    assert!(child.0.wait().unwrap().success());
    assert!(!is_raw(&glass));
    glass.eventually_rows(|rows| rows == ["• hello", "• draft"]);
}

#[test]
fn a_change_of_size_is_drawn_by_itself() {
    let glass = Glass::new(60, 12);
    let mut child = child(&glass, "xterm");
    glass.eventually_rows(|rows| rows == [STATUS, ">"]);
    glass.type_in("one\r\x1b\ra\x1b\rb");
    glass.eventually_rows(|rows| rows == ["• one", STATUS, ">", "  a", "  b"]);
    glass.resize(40, 5);
    kill(child.pid(), Signal::SIGWINCH).unwrap();
    glass.eventually_rows(|rows| rows == ["• one", STATUS, "  b"]);
    glass.type_in("\x7f\x7f\x7f\x7f");
    glass.eventually_rows(|rows| rows == ["• one", STATUS, ">"]);
    glass.type_in("quit\r");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_dumb_terminal_is_left_alone() {
    let glass = Glass::new(40, 6);
    for term in ["dumb", ""] {
        let mut child = child(&glass, term);
        let mut told = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(!child.0.wait().unwrap().success());
        assert!(told.contains("Dumb"), "{told}");
        assert!(!is_raw(&glass));
    }
    assert!(glass.rows().is_empty());
}

/// A tmux server of its own, with one window that runs the program.
struct Tmux {
    socket: tempfile::TempDir,
}

impl Tmux {
    /// `None` where there is no tmux.
    fn start(columns: u16, rows: u16) -> Option<Self> {
        if which::which("tmux").is_err() {
            assert!(std::env::var_os("LEAD_REQUIRE_ALL").is_none(), "tmux is missing");
            println!("SKIPPED (no tmux)");
            return None;
        }
        let it = Self { socket: tempfile::tempdir().unwrap() };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut command = it.command(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "-e"]);
        command.arg(format!("{CHILD}=1")).args(child_arguments());
        command.args([";", "set-option", "-w", "remain-on-exit", "on"]);
        let started = command.output().unwrap();
        assert!(started.status.success(), "{started:?}");
        Some(it)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.socket.path().join("s")).args(arguments).env_remove("TMUX");
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn type_in(&self, text: &str) {
        self.run(&["send-keys", "-l", "--", text]);
        self.run(&["send-keys", "Enter"]);
    }

    /// The scrollback and the screen from what is shown first on.
    fn rows(&self) -> Vec<String> {
        let text = self.run(&["capture-pane", "-p", "-S", "-"]);
        let rows = text.lines().map(|row| row.trim_end().to_owned()).filter(|row| !row.is_empty());
        rows.skip_while(|row| !row.starts_with(['•', 'w'])).collect()
    }

    fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        eventually(what, || {
            let rows = self.rows();
            if is_so(&rows) { Ok(()) } else { Err(rows) }
        });
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn a_pane_of_tmux_keeps_each_line_once_whatever_its_size() {
    let Some(tmux) = Tmux::start(60, 10) else { return };
    tmux.until("begun", |rows| rows == [STATUS, ">"]);
    tmux.type_in("lines 30");
    let mut wanted: Vec<String> = (0..30).map(|n| format!("• line {n}")).collect();
    wanted.extend([STATUS.to_owned(), ">".to_owned()]);
    tmux.until("shown", |rows| rows == wanted);
    // Wide rows at the bottom are the ones that tmux breaks when it is made narrower.
    let text = "123456789 ".repeat(5).trim_end().to_owned();
    tmux.run(&["send-keys", "-l", "--", &text]);
    let at_the_end = |columns: u16| {
        let input = Editor::of(text.clone());
        let last = input.rows(input_columns(columns)).rows.pop().unwrap();
        let prompt = if last.start == 0 { "> " } else { "  " };
        (cut(STATUS, columns.into()), format!("{prompt}{}", &text[last]).trim_end().to_owned())
    };
    let resize = |columns: u16, rows: u16| {
        tmux.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    };
    for (columns, rows) in [(40, 10), (20, 10), (60, 10), (21, 8), (100, 30), (30, 9), (60, 10)] {
        resize(columns, rows);
        let (status, last) = at_the_end(columns);
        tmux.until(&format!("in {columns} x {rows}"), |all| {
            all[..30] == wanted[..30] && all[30] == status && all.last() == Some(&last) && all.len() <= 34
        });
    }
    // What was drawn at the bottom may now be in the scrollback, out of reach. No line is lost.
    for (columns, rows) in [(13, 5), (40, 3), (100, 20), (15, 1), (13, 2), (60, 10)] {
        resize(columns, rows);
        let (status, last) = at_the_end(columns);
        tmux.until(&format!("in {columns} x {rows}"), |all| {
            all[..30] == wanted[..30] && all.last() == Some(&last) && (rows == 1 || all.contains(&status))
        });
    }
    tmux.type_in("\u{15}and so on");
    tmux.until("the end", |all| all.ends_with(&["• and so on".into(), STATUS.into(), ">".into()]));
}

#[test]
fn a_pane_that_crashed_stays_readable() {
    let Some(tmux) = Tmux::start(60, 10) else { return };
    tmux.until("begun", |rows| rows == [STATUS, ">"]);
    tmux.type_in("lines 3");
    tmux.type_in("panic");
    // The status of its end may be missing: tmux does not always hear of it.
    let is_dead = || tmux.run(&["display-message", "-p", "#{pane_dead}"]).trim() == "1";
    eventually("dead", || if is_dead() { Ok(()) } else { Err(tmux.rows()) });
    let rows = tmux.rows();
    assert_eq!(rows[..3], ["• line 0", "• line 1", "• line 2"], "{rows:#?}");
    let report = rows.iter().position(|row| row == "on purpose, as part of a test");
    assert!(report.is_some_and(|at| rows[at - 2].starts_with("thread '")), "{rows:#?}");
}
