use super::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A shell with a child of its own.
struct Family {
    shell: Child,
    sleep: i32,
}

impl Family {
    fn new(agent: Option<&str>) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).env_remove(env::AGENT_ID);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(agent) = agent {
            command.env(env::AGENT_ID, agent);
        }
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { shell, sleep: line.trim().parse().unwrap() }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.sleep), nix::sys::signal::Signal::SIGKILL);
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn the_nearest_known_ancestor_is_found() {
    let family = Family::new(None);
    let (own, parent, sleep) = (std::process::id() as i32, family.shell.id() as i32, family.sleep);
    let known = |list: Vec<i32>| move |pid: i32| list.contains(&pid).then_some(pid);
    assert_eq!(descends_from(sleep, &known(vec![own, parent])), Some(parent));
    assert_eq!(descends_from(sleep, &known(vec![sleep, own])), Some(sleep));
    assert_eq!(descends_from(sleep, &known(vec![own])), Some(own));
    assert_eq!(descends_from(own, &known(vec![sleep, parent])), None);
    assert_eq!(descends_from(sleep, &known(vec![])), None);
    assert_eq!(descends_from(i32::MAX, &known(vec![own])), None);
}

#[test]
fn the_environment_names_the_agent() {
    let family = Family::new(Some("a-1a2b3c4d5e6f7890"));
    let agent = AgentId::parse("a-1a2b3c4d5e6f7890");
    assert_eq!(agent_of_environ(family.sleep), agent);
    assert_eq!(descends_from(family.sleep, &agent_of_environ), agent);
    for not_an_id in ["../../x", ""] {
        assert_eq!(agent_of_environ(Family::new(Some(not_an_id)).sleep), None);
    }
    assert_eq!(agent_of_environ(i32::MAX), None);
}
