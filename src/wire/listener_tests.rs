use super::*;
use crate::core::agent::RegistryEntry;
use crate::core::frame::Frame;
use crate::core::limits::SOCKET_PATH_BYTES;
use crate::wire::{Connection, Inbox, Link, dial, dial_and_greet};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

const SOON: Duration = Duration::from_secs(30);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("within the deadline")
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("lead-w").tempdir_in("/tmp").unwrap()
}

fn entry(path: &Path) -> RegistryEntry {
    RegistryEntry {
        address: crate::wire::address(path),
        pid: std::process::id() as i32,
        role: "lead".into(),
        agent_id: String::new(),
        name: None,
        team: None,
        session: String::new(),
        cwd: "/".into(),
        config_dir: "/".into(),
        started: 0,
        version: String::new(),
    }
}

async fn hello(inbox: &mut Inbox) -> u64 {
    let incoming = soon(inbox.recv()).await.unwrap();
    assert!(matches!(incoming.frame, Frame::Hello(_)), "{incoming:?}");
    incoming.seq
}

#[tokio::test]
async fn greeting_tells_who_listens_and_both_know_the_other_process() {
    let dir = folder();
    let listener = Listener::bind(&dir.path().join("a.sock")).unwrap();
    let mode = std::fs::metadata(listener.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let serve = async {
        let stream = listener.accept().await.unwrap();
        assert_eq!(stream.peer().pid, std::process::id() as i32);
        let (link, mut inbox) = Connection::start(stream);
        let seq = hello(&mut inbox).await;
        link.reply(seq, Frame::HelloOk { entry: Box::new(entry(listener.path())) }).unwrap();
        link.flush(SOON).await.unwrap();
        link
    };
    let (_served, greeted) = soon(async { tokio::join!(serve, dial_and_greet(listener.path(), "shell", "")) }).await;
    let (link, _inbox, who) = greeted.unwrap();
    assert_eq!(who, entry(listener.path()));
    assert_eq!(link.peer().pid, std::process::id() as i32);
}

#[tokio::test]
async fn a_refusal_carries_its_reason() {
    let dir = folder();
    let listener = Listener::bind(&dir.path().join("a.sock")).unwrap();
    let serve = async {
        let (link, mut inbox) = Connection::start(listener.accept().await.unwrap());
        let seq = hello(&mut inbox).await;
        link.reply(seq, Frame::Refused { reason: "another protocol".into() }).unwrap();
        link.flush(SOON).await.unwrap();
    };
    let ((), greeted) = soon(async { tokio::join!(serve, dial_and_greet(listener.path(), "shell", "")) }).await;
    assert!(matches!(greeted, Err(WireError::Refused { reason }) if reason == "another protocol"));
}

#[tokio::test]
async fn dialling_nobody_fails_at_once_and_names_the_path() {
    let dir = folder();
    let path = dir.path().join("a.sock");
    let begun = Instant::now();
    let missing = soon(dial(&path, SOON)).await.unwrap_err();
    assert!(matches!(&missing, WireError::Unreachable { source, .. } if source.kind() == io::ErrorKind::NotFound));
    // A dead process leaves its socket file.
    drop(Listener::bind(&path).unwrap());
    assert!(path.exists(), "nothing is unlinked when a listener ends");
    let stale = soon(dial(&path, SOON)).await.unwrap_err();
    assert!(
        matches!(&stale, WireError::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    );
    assert!(stale.to_string().contains("a.sock"));
    assert!(begun.elapsed() < SOON / 2);
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(soon(dial(&dir.path().join("file"), SOON)).await.is_err());
}

#[tokio::test]
async fn a_taken_name_is_refused_and_the_living_listener_keeps_it() {
    let dir = folder();
    let path = dir.path().join("a.sock");
    let first = Listener::bind(&path).unwrap();
    let second = Listener::bind(&path);
    assert!(matches!(second.err(), Some(WireError::Io { source, .. }) if source.kind() == io::ErrorKind::AddrInUse));
    let (accepted, dialled) = soon(async { tokio::join!(first.accept(), dial(&path, SOON)) }).await;
    assert!(accepted.is_ok() && dialled.is_ok());
}

#[tokio::test]
async fn paths_are_bounded_when_binding_and_dialling() {
    let dir = folder();
    let base = dir.path().as_os_str().len();
    let longest = dir.path().join("x".repeat(SOCKET_PATH_BYTES - base - 1));
    assert!(Listener::bind(&longest).is_ok());
    let over = dir.path().join("x".repeat(SOCKET_PATH_BYTES - base));
    for error in [Listener::bind(&over).err(), soon(dial(&over, SOON)).await.err()] {
        assert!(error.is_some_and(|e| e.to_string().contains("90")));
    }
    assert!(!over.exists());
}

/// More processes than the bound at once: nobody is refused, the last ones are served when the
/// first have gone.
#[tokio::test]
async fn connections_over_the_bound_wait_for_a_place() {
    const MORE: usize = 44;
    let dir = folder();
    let listener = Listener::bind(&dir.path().join("a.sock")).unwrap();
    let mut clients: Vec<(Link, Inbox)> = Vec::new();
    let mut served: Vec<(Link, Inbox)> = Vec::new();
    for _ in 0..CONNECTIONS {
        let (accepted, dialled) = soon(async { tokio::join!(listener.accept(), dial(listener.path(), SOON)) }).await;
        served.push(Connection::start(accepted.unwrap()));
        clients.push(dialled.unwrap());
    }
    for _ in 0..MORE {
        clients.push(soon(dial(listener.path(), SOON)).await.unwrap());
    }
    assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "over the bound");
    clients.drain(..MORE);
    for _ in 0..MORE {
        served.push(Connection::start(soon(listener.accept()).await.unwrap()));
    }
    // The places given free belong to the late ones, who are served.
    let (link, _inbox) = clients.last().unwrap();
    let (server, inbox) = served.last_mut().unwrap();
    let answer = async {
        let seq = inbox.recv().await.unwrap().seq;
        server.reply(seq, Frame::Pong).unwrap();
    };
    let (reply, ()) = soon(async { tokio::join!(link.request(Frame::Ping, SOON), answer) }).await;
    assert_eq!(reply.unwrap(), Frame::Pong);
    assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "over the bound again");
}

/// A listener that never accepts: its backlog fills, and the next caller is told so in time.
#[tokio::test]
async fn a_full_backlog_ends_with_the_deadline_and_an_answer_once_there_is_room() {
    let dir = folder();
    let path = dir.path().join("a.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match dial(&path, Duration::from_millis(60)).await {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
        assert!(waiting.len() < 20, "the backlog has a bound");
    };
    assert!(matches!(error, WireError::TimedOut { .. }), "{error}");
    let (late, _accepted) = soon(async {
        tokio::join!(dial(&path, SOON), async {
            tokio::task::yield_now().await;
            socket.accept().unwrap()
        })
    })
    .await;
    assert!(late.is_ok());
}

#[tokio::test]
async fn a_frozen_listener_is_named_by_its_pid() {
    let dir = folder();
    let path = dir.path().join("a.sock");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (link, _inbox) = soon(dial(&path, SOON)).await.unwrap();
    let error = soon(link.request(Frame::Ping, Duration::from_millis(20))).await.unwrap_err();
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())));
}
