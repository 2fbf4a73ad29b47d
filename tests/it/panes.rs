//! Panes on real tmux servers: what the programs in them are given, where they open, and that only
//! ours are touched. What leads make of panes is tested elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures_util::future::join_all;
use lead::supervisor::{PaneError, PaneRequest, PaneState};

use super::support::{
    Proc, Tmux, World, calls, eventually, ids, optional, probe, program, recorded, recorded_with,
    started_in_pane as started,
};

/// Texts that something on the way could obey, split, expand or drop.
const NASTY: [&str; 14] = [
    "#(touch bad)",
    "#{pane_id}##{pane_id}#[fg=red]##[",
    "%1 %Y %if",
    "a;",
    ";",
    "\\;",
    "a\\",
    "q'\"q",
    "two  words ",
    "line\nbreak\r\ttab",
    "",
    "$HOME ~ `touch bad` $(touch bad) {x} [y] !z *",
    "-t",
    "\u{1b}]0;x\u{7}ä研\u{1f600}",
];

#[tokio::test]
async fn r001_a_panes_program_gets_its_very_arguments_folder_and_environment() {
    let world = World::with_tree("#(touch bad) #{pane_id} ##[x %Y 'q\" $HOME;");
    let Some(tmux) = Tmux::start(&world, "", 120, 40) else { return };
    tmux.call(&["set-environment", "-t", &tmux.seat, "OF_SESSION", "1\nfake=2"]);
    let panes = tmux.lead().await;
    let mut request = probe(&world, "w@t", &NASTY);
    request.title = NASTY.concat();
    request.environment.push(("NASTY".to_owned(), NASTY.join("|")));
    for own in ["TMUX", "TERM", "PWD", "", "a=b"] {
        request.environment.push((own.to_owned(), "of another terminal".to_owned()));
    }
    let expected: BTreeMap<String, String> = request.environment.iter().cloned().collect();
    let pane = panes.open(request).await.unwrap();

    let got = started(&world, "w@t");
    assert_eq!(got.arguments, NASTY);
    assert_eq!(Path::new(&got.cwd), world.cwd());
    let of_tmux = ["TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "PWD", "", "a=b"];
    let without = |vars: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        vars.iter().filter(|(n, _)| !of_tmux.contains(&n.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    // Nothing of the server's environment (SSH_TTY) or the session's, nothing that tmux changes.
    assert_eq!(without(&got.environment), without(&expected));
    assert_eq!(got.environment["TMUX"].split(',').next(), tmux.socket().to_str());
    assert_eq!(got.environment["TMUX_PANE"], pane.id);
    assert!(got.environment["TERM"].starts_with(['s', 't']), "{:?}", got.environment["TERM"]);

    // It is the pane's own process, with nothing between it and the server.
    assert_eq!(tmux.tell(&pane.id, "#{pane_pid}"), pane.pid.to_string());
    assert_eq!(Proc::of(pane.pid).unwrap().parent, tmux.pid());
    let title = tmux.tell(&pane.id, "#{pane_title}");
    assert_eq!(title, "#(touch bad)#{pane_id}##{pane_id}#[fg=red]##[%1 %Y %ifa;;\\;a…");
    for folder in [world.cwd(), world.root(), Path::new("/")] {
        assert!(!folder.join("bad").exists(), "something was executed in {folder:?}");
    }
}

#[tokio::test]
async fn r001_no_shell_comes_between_whatever_the_users_is() {
    let world = World::new();
    let Some(_real) = optional("tmux") else { return };
    let eater = program(&world, "eater", "#!/bin/sh\nexec cat > /dev/null\n");
    let shells = [Some(eater), optional("fish"), optional("csh"), Some("/bin/false".into())];
    for (i, user_shell) in shells.into_iter().flatten().enumerate() {
        let user_shell = user_shell.display();
        let config = format!("set -g default-shell '{user_shell}'\nset -g default-command '{user_shell} -l'\n");
        recorded(&world).unwrap();
        let tmux = Tmux::at(&world, &format!("s{i}"), &config, 120, 40, &["sh", "-c", "exec cat"]);
        let panes = tmux.lead().await;
        let with = format!("with{i}@t");
        let without = format!("without{i}@t");
        let wanted = [probe(&world, &with, &["a b", "$X"]), probe(&world, &without, &[])];
        for opened in join_all(wanted.map(|request| panes.open(request))).await {
            let pane = opened.unwrap();
            assert_eq!(Proc::of(pane.pid).unwrap().parent, tmux.pid(), "{user_shell}");
        }
        assert_eq!(started(&world, &with).arguments, ["a b", "$X"], "{user_shell}");
        assert!(started(&world, &without).arguments.is_empty(), "{user_shell}");
    }
}

#[tokio::test]
async fn r002_forty_panes_at_once_all_open_in_few_calls() {
    let world = World::heavy();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    let panes = tmux.lead().await;
    let before = calls(&world).0.len();
    let request = |i: usize| probe(&world, &format!("w{i}@t"), &[&i.to_string()]);
    let opened = join_all((0..40).map(|i| panes.open(request(i)))).await;
    let opened: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids(&opened).iter().collect::<BTreeSet<_>>().len(), 40);
    for (i, pane) in opened.iter().enumerate() {
        assert_eq!(started(&world, &format!("w{i}@t")).arguments, [i.to_string()]);
        assert_eq!(
            panes.server().check(&pane.id, &format!("w{i}@t")).await.unwrap(),
            PaneState::Alive { pid: pane.pid }
        );
    }
    // Two looks and two scripts: the first request may have gone alone.
    let asked = calls(&world).0.len() - before - opened.len();
    assert!(asked <= 4, "{asked} calls for 40 panes");
    assert_eq!(tmux.panes("#{session_name}"), vec!["user"; 41]);
}

#[tokio::test]
async fn a_request_that_can_not_be_met_takes_no_other_along() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    let panes = tmux.lead().await;
    let missing = PaneRequest { cwd: world.root().join("nowhere"), ..probe(&world, "a@t", &[]) };
    let zero = probe(&world, "b@t", &["a\0b"]);
    let relative = PaneRequest { program: "probe".into(), ..probe(&world, "c@t", &[]) };
    let wanted = [probe(&world, "w@t", &["1"]), missing, zero, relative, probe(&world, "x@t", &["2"])];
    let opened = join_all(wanted.map(|request| panes.open(request))).await;
    let said: Vec<String> =
        opened.iter().map(|o| o.as_ref().map_or_else(ToString::to_string, |_| String::new())).collect();
    assert!(said[1].contains("nowhere"), "{said:?}");
    assert!(said[2].contains("byte 0"), "{said:?}");
    assert!(said[3].contains("full path"), "{said:?}");
    assert_eq!(
        (started(&world, "w@t").arguments, started(&world, "x@t").arguments),
        (vec!["1".into()], vec!["2".into()])
    );
    assert_eq!(tmux.panes("#{@lead_agent}"), ["", "w@t", "x@t"]);
}

#[tokio::test]
async fn what_tmux_refuses_takes_no_other_along() {
    let world = World::new();
    // On the way to tmux the windows of some are asked for in a session that does not exist.
    let Some(()) = recorded_with(&world, "sed '/^new-window.*refuse/s/ -t [^ ]*/ -t nowhere:/'") else { return };
    let tmux = Tmux::at(&world, "s", "", 200, 50, &["sh", "-c", "exec cat"]);
    let panes = tmux.lead().await;
    let agents = ["a@t", "refuse1@t", "b@t", "refuse2@t"];
    let opened = join_all(agents.map(|agent| panes.open(probe(&world, agent, &[])))).await;
    for (agent, result) in agents.iter().zip(&opened) {
        match result {
            Ok(pane) => assert_eq!(tmux.tell(&pane.id, "#{@lead_agent}"), *agent),
            Err(PaneError::Refused { said }) => assert!(said.contains("nowhere"), "{said}"),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(opened.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(tmux.panes("#{@lead_agent}"), ["", "a@t", "b@t"]);
    assert_eq!(started(&world, "b@t").arguments, Vec::<String>::new());
}

#[tokio::test]
async fn r004_r011_nothing_is_typed_and_each_call_names_the_server() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    let panes = tmux.lead().await;
    let pane = panes.open(probe(&world, "w@t", &["send-keys"])).await.unwrap();
    let server = panes.server();
    assert_eq!(pane.socket, server.socket());
    server.hide(&pane.id, "w@t").await.unwrap();
    panes.unhide(&pane.id, "w@t").await.unwrap();
    server.check(&pane.id, "w@t").await.unwrap();
    server.close(&pane.id, "w@t").await.unwrap();
    let (calls, scripts) = calls(&world);
    let named = format!("-u -S {} source-file -", tmux.socket().display());
    assert!(calls.len() > 8, "{calls:?}");
    for call in &calls {
        assert!(*call == named || call == "-V", "{call}");
    }
    let commands: BTreeSet<&str> = scripts.lines().filter_map(|line| line.split(' ').next()).collect();
    let known = [
        "display-message",
        "if-shell",
        "join-pane",
        "list-panes",
        "list-windows",
        "new-window",
        "rename-window",
        "select-layout",
        "select-pane",
        "set-option",
        "show-environment",
    ];
    assert!(commands.iter().all(|c| known.contains(c)), "{commands:?}");
    // Words are the same in commands that hang on a condition, where what is between them is not.
    let typed = |line: &&str| line.contains("send") && !line.contains("probe");
    assert_eq!(scripts.lines().find(typed), None);
}

#[tokio::test]
async fn r007_numbers_of_windows_and_panes_do_not_matter() {
    let world = World::new();
    let config = "set -g base-index 1\nset -g pane-base-index 1\nset -g renumber-windows on\n";
    let Some(tmux) = Tmux::start(&world, config, 60, 12) else { return };
    for _ in 0..3 {
        tmux.call(&["new-window", "-d", "-t", "user:", "exec cat"]);
    }
    let panes = tmux.lead().await;
    let mut opened = Vec::new();
    for i in 0..4 {
        opened.push(panes.open(probe(&world, &format!("w{i}@t"), &[])).await.unwrap());
    }
    // Windows before theirs go, and with them all numbers change.
    for window in ["user:3", "user:2"] {
        tmux.call(&["kill-window", "-t", window]);
    }
    for (i, pane) in opened.iter().enumerate().rev() {
        let agent = format!("w{i}@t");
        assert_eq!(panes.server().close(&pane.id, &agent).await.unwrap(), PaneState::Alive { pid: pane.pid });
        assert!(!tmux.panes("#{pane_id}").contains(&pane.id));
        let left = tmux.panes("#{@lead_agent}").into_iter().filter(|mark| !mark.is_empty()).count();
        assert_eq!(left, i);
    }
    assert!(tmux.panes("#{pane_id}").contains(&tmux.seat));
}

#[tokio::test]
async fn r008_panes_open_beside_the_lead_and_not_where_the_person_looks() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    // The person: a terminal that shows another window, of two panes.
    tmux.call(&["new-window", "-n", "elsewhere", "-t", "user:", "exec cat"]);
    tmux.call(&["split-window", "-t", "user:elsewhere", "exec cat"]);
    tmux.call(&["new-session", "-d", "-s", "other", "exec cat"]);
    let real = optional("tmux").unwrap();
    let socket = tmux.socket().to_str().unwrap();
    let looks = ["env", "TMUX=", real.to_str().unwrap(), "-u", "-S", socket, "attach", "-t", "user"];
    let person = Tmux::at(&world, "person", "", 200, 50, &looks);
    eventually("the person is there", || match tmux.call(&["list-clients"]) {
        clients if clients.contains("user") => Ok(()),
        clients => Err(clients),
    });
    let seen = || tmux.call(&["list-clients", "-F", "#{session_name} #{window_id} #{pane_id} #{window_layout}"]);
    let before = (seen(), tmux.tell(&tmux.seat, "#{pane_active}"));
    let panes = tmux.lead().await;
    let opened = join_all((0..3).map(|i| panes.open(probe(&world, &format!("w{i}@t"), &[])))).await;
    for (i, pane) in opened.iter().map(|o| o.as_ref().unwrap()).enumerate() {
        assert_eq!(tmux.tell(&pane.id, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
        assert_eq!((pane.session.as_str(), pane.window.as_str()), ("user", tmux.tell(&tmux.seat, "#W").as_str()));
        panes.server().hide(&pane.id, &format!("w{i}@t")).await.unwrap();
        assert_ne!(tmux.tell(&pane.id, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
        panes.unhide(&pane.id, &format!("w{i}@t")).await.unwrap();
        assert_eq!(tmux.tell(&pane.id, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
    }
    assert_eq!((seen(), tmux.tell(&tmux.seat, "#{pane_active}")), before);
    // Tiles of the same height.
    let window = tmux.tell(&tmux.seat, "#{window_id}");
    let heights = tmux.call(&["list-panes", "-t", &window, "-F", "#{pane_width}x#{pane_height}"]);
    assert_eq!(heights.lines().count(), 4);
    drop(person);
}

#[tokio::test]
async fn a_pane_that_is_looked_at_alone_stays_so() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 200, 50) else { return };
    tmux.call(&["split-window", "-t", &tmux.seat, "exec cat"]);
    tmux.call(&["resize-pane", "-Z", "-t", &tmux.seat]);
    let panes = tmux.lead().await;
    let pane = panes.open(probe(&world, "w@team", &[])).await.unwrap();
    assert_eq!(tmux.tell(&tmux.seat, "#{window_zoomed_flag}"), "1");
    assert_eq!((pane.session.as_str(), pane.window.as_str()), ("user", "team"));
}
