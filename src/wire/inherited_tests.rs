use super::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

const CHILD: &str = "LEAD_TEST_INHERITED_CHILD";

#[test]
fn only_a_connected_stream_socket_is_a_link() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = claim(theirs.as_fd()).unwrap();
    assert!(link.as_raw_fd() >= 3);
    let flags = nix::fcntl::fcntl(&link, nix::fcntl::FcntlArg::F_GETFD).unwrap();
    assert_ne!(flags & nix::libc::FD_CLOEXEC, 0, "tools must not inherit the link");
    drop(theirs);
    (&ours).write_all(b"x").unwrap();
    assert_eq!((&link).read(&mut [0; 1]).unwrap(), 1);

    let dir = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("l")).unwrap();
    let datagrams = std::os::unix::net::UnixDatagram::pair().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let null = File::open("/dev/null").unwrap();
    for fd in [listener.as_fd(), datagrams.0.as_fd(), tcp.as_fd(), null.as_fd()] {
        assert!(claim(fd).is_err());
    }
}

/// The child's side of the test below; does nothing in an ordinary run.
#[test]
fn child_side() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut link = take_parent_link().unwrap();
    let mut nothing = Vec::new();
    io::stdin().read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty(), "fd 0 is /dev/null now");
    assert!(take_parent_link().is_err(), "and no link any more");
    link.write_all(b"from the child").unwrap();
}

#[test]
fn a_child_takes_its_link_and_stdin_becomes_empty() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "wire::inherited::tests::child_side", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert_eq!(said, "from the child");
    assert!(child.wait().unwrap().success());
}
