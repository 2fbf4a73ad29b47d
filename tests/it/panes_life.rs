//! What becomes of panes on real tmux servers: looked at, closed, hidden, gone with their program,
//! their server or their lead.

use std::path::PathBuf;
use std::process::Command;

use futures_util::future::join_all;
use lead::supervisor::{PaneError, PaneRequest, PaneState, Panes, TmuxServer};
use nix::sys::signal::Signal;

use super::support::{
    Proc, Tmux, World, calls, eventually, exists, path_of, probe, program, recorded, shell, signal,
    started_in_pane as started,
};

const NOBODYS: &str = "%999";

#[tokio::test]
async fn r009_only_the_agents_own_pane_is_closed_and_the_window_is_as_before() {
    let world = World::new();
    let config = "setw -g pane-border-style fg=red,bg=black\nsetw -g pane-border-status off\n";
    let Some(tmux) = Tmux::start(&world, config, 160, 48) else { return };
    // The person's own panes, layout and options.
    tmux.call(&["split-window", "-d", "-h", "-l", "31", "-t", &tmux.seat, "exec cat"]);
    tmux.call(&["split-window", "-d", "-v", "-l", "7", "-t", &tmux.seat, "exec cat"]);
    tmux.call(&["set-option", "-w", "-t", &tmux.seat, "pane-active-border-style", "fg=green"]);
    let looks = || {
        let options = tmux.call(&["show-options", "-w", "-t", &tmux.seat]);
        let effective = "#{pane-border-status} #{pane-border-style} #{pane-active-border-style} #{window_layout}";
        (options, tmux.tell(&tmux.seat, effective), tmux.panes("#{pane_id}"))
    };
    let before = looks();
    let panes = tmux.lead().await;
    let opened = join_all(["a@t", "b@t"].map(|agent| panes.open(probe(&world, agent, &[])))).await;
    let [a, b] = [0, 1].map(|i| opened[i].as_ref().unwrap().clone());
    assert_eq!(tmux.tell(&tmux.seat, "#{pane-border-status}"), "top");

    // Somebody else's pane under a stored id: the person's, another agent's, another team's.
    let server = panes.server();
    let strangers = [(&before.2[1], "a@t"), (&tmux.seat, "a@t"), (&b.id, "a@t"), (&a.id, "a@u"), (&a.id, "")];
    for (pane, agent) in strangers {
        assert_eq!(server.close(pane, agent).await.unwrap(), PaneState::Foreign, "{pane} {agent}");
        assert!(matches!(server.hide(pane, agent).await, Err(PaneError::NotTheirs { .. })));
        assert!(matches!(panes.unhide(pane, agent).await, Err(PaneError::NotTheirs { .. })));
    }
    for none in [NOBODYS, "", "%", "0", "%0;", "%0 -a", "user:0", "@0", "%-1"] {
        assert_eq!(server.close(none, "a@t").await.unwrap(), PaneState::Gone, "{none}");
    }
    assert_eq!(tmux.panes("#{pane_id}").len(), 5);

    assert_eq!(server.close(&a.id, "a@t").await.unwrap(), PaneState::Alive { pid: a.pid });
    assert_eq!(server.close(&a.id, "a@t").await.unwrap(), PaneState::Gone);
    assert_eq!(tmux.tell(&tmux.seat, "#{pane-border-status}"), "top", "the other is still there");
    // The person closes the other; the lead is told by the process and tidies up.
    tmux.call(&["kill-pane", "-t", &b.id]);
    assert_eq!(server.close(&b.id, "b@t").await.unwrap(), PaneState::Gone);
    assert_eq!(looks(), before);
}

#[tokio::test]
async fn r010_a_stored_pane_is_known_by_id_and_mark() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let panes = tmux.lead().await;
    let pane = panes.open(probe(&world, "w@t", &[])).await.unwrap();
    let server = TmuxServer::at(pane.socket.clone(), &tmux.vars()).await.unwrap();
    assert_eq!(server.check(&pane.id, "w@t").await.unwrap(), PaneState::Alive { pid: pane.pid });
    assert_eq!(server.check(&pane.id, "w@u").await.unwrap(), PaneState::Foreign);
    assert_eq!(server.check(&tmux.seat, "w@t").await.unwrap(), PaneState::Foreign);
    assert_eq!(server.check(NOBODYS, "w@t").await.unwrap(), PaneState::Gone);

    // Another server at the same socket begins its ids anew.
    tmux.call(&["kill-server"]);
    eventually("the program is gone", || if exists(pane.pid) { Err(pane.pid) } else { Ok(()) });
    for gone in [server.check(&pane.id, "w@t").await, server.close(&pane.id, "w@t").await] {
        assert!(matches!(gone, Err(PaneError::ServerGone { .. })), "{gone:?}");
    }
    let opened = panes.open(probe(&world, "w@t", &[])).await;
    assert!(matches!(opened, Err(PaneError::ServerGone { .. })), "{opened:?}");
    let again = Tmux::at(&world, "s", "", 160, 48, &["sh", "-c", "exec cat"]);
    again.call(&["split-window", "-d", "-t", &again.seat, "exec cat"]);
    assert!(again.panes("#{pane_id}").contains(&pane.id));
    assert_eq!(server.close(&pane.id, "w@t").await.unwrap(), PaneState::Foreign);
    assert!(again.panes("#{pane_id}").contains(&pane.id));
    drop(again);
    // Nothing is on the socket; the first server's handle has nothing to end.
    drop(tmux);
}

#[tokio::test]
async fn a_failed_program_leaves_its_last_words_and_another_closes_its_pane() {
    let world = World::new();
    let config = "setw -g remain-on-exit off\n";
    let Some(tmux) = Tmux::start(&world, config, 160, 48) else { return };
    let panes = tmux.lead().await;
    let dead = |status, signal: Option<&str>| PaneState::Dead { status, signal: signal.map(str::to_owned) };
    let gate = world.gate("gate");
    let ends = [
        ("exit@t", "exit 3", dead(Some(3), None)),
        ("kill@t", "kill -KILL $$", dead(None, Some("SIGKILL"))),
        ("term@t", "kill -TERM $$", dead(None, Some("SIGTERM"))),
        ("well@t", "exit 0", PaneState::Gone),
    ];
    for (agent, end, expected) in ends {
        let pane = panes.open(shell(&world, agent, &format!("echo last words; {}; {end}", gate.wait()))).await.unwrap();
        let shown = || tmux.call(&["capture-pane", "-p", "-S", "-", "-t", &pane.id]);
        eventually("the program speaks", || match shown() {
            text if text.contains("last words") => Ok(()),
            text => Err(text),
        });
        gate.open(1);
        eventually("the program ends", || if exists(pane.pid) { Err(pane.pid) } else { Ok(()) });
        assert_eq!(panes.server().check_ended(&pane.id, agent).await.unwrap(), expected, "{agent}");
        if expected != PaneState::Gone {
            assert!(shown().contains("last words"));
            assert_eq!(panes.server().close(&pane.id, agent).await.unwrap(), expected, "{agent}");
        }
        assert!(!tmux.panes("#{pane_id}").contains(&pane.id));
    }
    // A program that is not there is a failed one.
    let mut missing = probe(&world, "none@t", &[]);
    missing.program = world.root().join("no-program");
    let pane = panes.open(missing).await.unwrap();
    assert_eq!(panes.server().check_ended(&pane.id, "none@t").await.unwrap(), dead(Some(127), None));
    // tmux may hear of a program's end before it has read what that wrote.
    eventually("what is missing is said", || match tmux.call(&["capture-pane", "-p", "-S", "-", "-t", &pane.id]) {
        text if text.contains("no-program") => Ok(()),
        text => Err(text),
    });
    // The person's own panes end as ever.
    let own = tmux.call(&["split-window", "-d", "-P", "-F", "#{pane_id}", "-t", &tmux.seat, "exit 3"]);
    eventually("the person's pane closes", || match tmux.panes("#{pane_id}") {
        left if left.contains(&own) => Err(left),
        _ => Ok(()),
    });
}

#[tokio::test]
async fn r011_inside_a_tmux_inside_a_tmux_the_inner_one_is_meant() {
    let world = World::new();
    let Some(outer) = Tmux::start(&world, "", 160, 48) else { return };
    let inner = Tmux::at(&world, "in,ner", "", 160, 48, &["sh", "-c", "exec cat"]);
    // The same id exists on both.
    assert_eq!(inner.seat, outer.seat);
    let panes = inner.lead().await;
    let pane = panes.open(probe(&world, "w@t", &[])).await.unwrap();
    assert_eq!(pane.socket, inner.socket());
    assert_eq!(started(&world, "w@t").environment["TMUX"].rsplitn(3, ',').last(), inner.socket().to_str());
    assert_eq!((inner.panes("#{pane_id}").len(), outer.panes("#{pane_id}").len()), (2, 1));
    panes.server().close(&pane.id, "w@t").await.unwrap();
    assert_eq!((inner.panes("#{pane_id}").len(), outer.panes("#{pane_id}").len()), (1, 1));
}

#[tokio::test]
async fn r018_without_room_panes_open_in_further_windows_of_the_session() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 20, 5) else { return };
    tmux.call(&["new-session", "-d", "-s", "other", "exec cat"]);
    let panes = tmux.lead().await;
    let opened = join_all((0..5).map(|i| panes.open(probe(&world, &format!("w{i}@team"), &[])))).await;
    for (i, pane) in opened.iter().map(|o| o.as_ref().unwrap()).enumerate() {
        started(&world, &format!("w{i}@team"));
        assert_eq!((pane.session.as_str(), tmux.tell(&pane.id, "#{window_name}").as_str()), ("user", "team"));
    }
    assert_eq!(tmux.tell(&tmux.seat, "#{window_panes} #{window_active}"), "1 1");
    // A larger window takes what fits, one of the team's the next.
    tmux.call(&["resize-window", "-t", &tmux.seat, "-x", "80", "-y", "24"]);
    let larger = panes.open(probe(&world, "x@team", &[])).await.unwrap();
    assert_eq!(tmux.tell(&larger.id, "#{window_id}"), tmux.tell(&tmux.seat, "#{window_id}"));
}

#[tokio::test]
async fn r018_a_window_that_shrinks_meanwhile_loses_nobody() {
    let world = World::new();
    // Right when the pane is made, before it is moved.
    let config = "set-hook -g after-new-window 'resize-window -t @0 -x 20 -y 2'\n";
    let Some(tmux) = Tmux::start(&world, config, 160, 48) else { return };
    let panes = tmux.lead().await;
    let opened = join_all(["a@team", "b@team"].map(|agent| panes.open(probe(&world, agent, &[])))).await;
    for (pane, agent) in opened.iter().map(|o| o.as_ref().unwrap()).zip(["a@team", "b@team"]) {
        started(&world, agent);
        let told = tmux.tell(&pane.id, "#{window_panes} #{window_name} #{@lead_agent} #{@lead_seat}");
        assert_eq!(told, format!("1 team {agent} {}", tmux.seat));
    }
}

#[tokio::test]
async fn a_hidden_pane_is_out_of_sight_and_comes_back() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let panes = tmux.lead().await;
    let server = panes.server();
    let window = |pane: &str| tmux.tell(pane, "#{window_id}");
    let a = panes.open(probe(&world, "a@t", &[])).await.unwrap();
    server.hide(&a.id, "a@t").await.unwrap();
    let hidden = window(&a.id);
    assert_ne!(hidden, window(&tmux.seat));
    assert_eq!(tmux.tell(&tmux.seat, "#{pane-border-status} #{window_panes}"), "off 1", "as before there were panes");
    // Again; nothing joins it there; it is still the agent's.
    server.hide(&a.id, "a@t").await.unwrap();
    let b = panes.open(probe(&world, "b@t", &[])).await.unwrap();
    assert_eq!((window(&a.id), window(&b.id)), (hidden, window(&tmux.seat)));
    assert_eq!(server.check(&a.id, "a@t").await.unwrap(), PaneState::Alive { pid: a.pid });
    for _ in 0..2 {
        panes.unhide(&a.id, "a@t").await.unwrap();
        assert_eq!(window(&a.id), window(&tmux.seat));
    }
    // Both of a window that is full come back to one that is theirs.
    tmux.call(&["resize-window", "-t", &tmux.seat, "-x", "40", "-y", "8"]);
    server.hide(&a.id, "a@t").await.unwrap();
    server.hide(&b.id, "b@t").await.unwrap();
    panes.unhide(&b.id, "b@t").await.unwrap();
    assert_ne!(window(&b.id), window(&tmux.seat));
    let told = |pane: &str| tmux.tell(pane, "#{@lead_seat} #{@lead_was_style}");
    assert_eq!(told(&b.id), format!("{} default", tmux.seat));
    // One that is alone in its window stays there, and the window takes no others meanwhile.
    server.hide(&b.id, "b@t").await.unwrap();
    assert_eq!(told(&b.id), "nobody default");
    let c = panes.open(probe(&world, "c@t", &[])).await.unwrap();
    assert_ne!(window(&c.id), window(&b.id));
    panes.unhide(&b.id, "b@t").await.unwrap();
    assert_eq!(told(&b.id), format!("{} default", tmux.seat));
}

#[tokio::test]
async fn title_and_colour_are_the_members() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let panes = tmux.lead().await;
    for (colour, expected) in [("orange", "208"), ("#12ab34", "18,171,52"), ("no colour", "default")] {
        let mut request = probe(&world, &format!("{}@t", colour.len()), &[]);
        request.title = format!("{colour} #[fg=red]title\u{7}\n");
        request.colour = colour.to_owned();
        let pane = panes.open(request).await.unwrap();
        assert_eq!(tmux.tell(&pane.id, "#{pane_title}"), format!("{colour} #[fg=red]title"));
        let style = tmux.tell(&pane.id, "#{E:pane-border-style}");
        let value = style.strip_prefix("fg=").unwrap();
        match expected {
            "208" => assert_eq!(value, "colour208"),
            "default" => assert_eq!(value, "default"),
            _ => assert_eq!(value, colour),
        }
        assert!(tmux.tell(&pane.id, "#{E:pane-border-format}").contains("##[fg=red]title"), "drawn, not obeyed");
    }
    assert_eq!(tmux.tell(&tmux.seat, "#{E:pane-border-style}"), "default", "of the lead's own pane");
}

#[tokio::test]
async fn a_pane_nobody_waits_for_any_more_is_closed() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let panes = tmux.lead().await;
    let asked = tokio::spawn({
        let (panes, request) = (panes.clone(), probe(&world, "w@t", &[]));
        async move { panes.open(request).await }
    });
    // Its request is on its way to tmux when the asker goes.
    while calls(&world).0.len() < 3 {
        tokio::task::yield_now().await;
    }
    asked.abort();
    // This one waits its turn behind it, so what came of the other is settled but for its end.
    let other = panes.open(probe(&world, "x@t", &[])).await.unwrap();
    assert_eq!(tmux.panes("#{@lead_agent}"), ["", "x@t"]);
    panes.server().close(&other.id, "x@t").await.unwrap();
}

#[tokio::test]
async fn why_there_are_no_panes_is_said() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let with = |name: &str, value: &str| {
        let mut vars = tmux.vars();
        vars.retain(|(n, _)| n != name);
        vars.push((name.to_owned(), value.to_owned()));
        vars
    };
    let fails = async |vars: Vec<(String, String)>| Panes::inside(&vars).await.unwrap_err();
    for vars in [with("TMUX", ""), with("TMUX_PANE", ""), with("TMUX", "no commas")] {
        assert!(matches!(fails(vars).await, PaneError::NotInside));
    }
    assert!(matches!(fails(with("PATH", "/nowhere")).await, PaneError::NoProgram));
    let gone = fails(with("TMUX", &format!("{},1,0", world.root().join("none").display()))).await;
    assert!(matches!(&gone, PaneError::ServerGone { .. }), "{gone:?}");
    let seat = fails(with("TMUX_PANE", NOBODYS)).await;
    assert!(matches!(&seat, PaneError::SeatGone { pane, .. } if pane == NOBODYS), "{seat:?}");
    let old = program(&world, "old/tmux", "#!/bin/sh\necho tmux 3.1c\n");
    let old = fails(with("PATH", &format!("{}:/usr/bin:/bin", old.parent().unwrap().display()))).await;
    assert!(matches!(&old, PaneError::TooOld { found } if found == "tmux 3.1c"), "{old:?}");
    for error in [PaneError::NotInside, PaneError::NoProgram, gone, seat, old] {
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

fn signal_if_there(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGCHLD);
}

/// A test that is this program again, as a process of its own with an environment of its own.
fn again(world: &World, test: &str, vars: &[(String, String)], limits: &str) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env_clear().envs(vars.iter().cloned());
    command.env("LEAD_LIMITS", limits).env("LEAD_TEST_AGAIN", world.root()).output().unwrap()
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    if std::env::var_os("LEAD_TEST_AGAIN").is_some() {
        let vars: Vec<_> = std::env::vars().collect();
        let hang = Panes::inside(&vars).await;
        let Err(PaneError::NoAnswer { waited, .. }) = hang else { panic!("{hang:?}") };
        assert_eq!(waited.as_millis(), 300);
        return;
    }
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, "", 160, 48) else { return };
    let (vars, pid) = (tmux.vars(), tmux.pid());
    signal(pid, Signal::SIGSTOP);
    let test = "panes_life::a_server_that_does_not_answer_is_given_up";
    let done = again(&world, test, &vars, "tmux=300ms,stop_term=200ms");
    signal(pid, Signal::SIGCONT);
    assert!(done.status.success(), "{done:?}");
    let clients: Vec<Proc> = world.processes().into_iter().filter(|p| p.command.contains("source-file")).collect();
    assert!(clients.is_empty(), "{clients:?}");
}

#[tokio::test]
async fn a_server_of_the_leads_own_says_how_to_attach_and_is_removed() {
    let world = World::new();
    if recorded(&world).is_none() {
        return;
    }
    let mut vars = world.environment();
    vars.retain(|(name, _)| name != "PATH");
    vars.push(("PATH".to_owned(), path_of(&world)));
    vars.push(("TMUX_TMPDIR".to_owned(), world.root().to_str().unwrap().to_owned()));
    let panes = Panes::private(&vars).await.unwrap();
    let attach = panes.attach().unwrap().to_owned();
    assert_eq!(attach, format!("tmux -S {} attach", panes.server().socket().display()));
    assert!(attach.contains(&format!("/lead-{}", std::process::id())), "{attach}");
    // A second one has another name.
    let second = Panes::private(&vars).await.unwrap();
    assert_ne!(second.server().socket(), panes.server().socket());
    second.end().await.unwrap();

    let opened = join_all((0..3).map(|i| panes.open(probe(&world, &format!("w{i}@t"), &["x y"])))).await;
    for (i, pane) in opened.iter().map(|o| o.as_ref().unwrap()).enumerate() {
        assert_eq!(started(&world, &format!("w{i}@t")).arguments, ["x y"]);
        assert_eq!((pane.session.as_str(), pane.socket.as_path()), ("lead", panes.server().socket()));
    }
    let socket = panes.server().socket().to_str().unwrap().to_owned();
    let shown = Command::new(world.root().join("bin/tmux"))
        .env_clear()
        .envs(vars.iter().cloned())
        .args(["-u", "-S", &socket, "capture-pane", "-p", "-t", panes.seat()])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("open here"), "{shown:?}");
    panes.end().await.unwrap();
    panes.end().await.unwrap();
    world.wait_quiet();
    let opened = panes.open(probe(&world, "x@t", &[])).await;
    assert!(matches!(opened, Err(PaneError::ServerGone { .. })), "{opened:?}");
}

#[tokio::test]
async fn a_server_of_a_lead_that_is_killed_ends_with_the_last_of_its_panes() {
    if let Some(root) = std::env::var_os("LEAD_TEST_AGAIN").map(PathBuf::from) {
        let vars: Vec<_> = std::env::vars().collect();
        let panes = Panes::private(&vars).await.unwrap();
        let request = PaneRequest {
            agent: "w@t".to_owned(),
            title: String::new(),
            colour: String::new(),
            cwd: root.join("tree"),
            environment: vars,
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), "read _ < gate".to_owned()],
        };
        panes.open(request).await.unwrap();
        std::process::abort();
    }
    let world = World::new();
    if recorded(&world).is_none() {
        return;
    }
    let gate = world.gate("gate");
    let mut vars = world.environment();
    vars.retain(|(name, _)| name != "PATH");
    vars.push(("PATH".to_owned(), path_of(&world)));
    vars.push(("TMUX_TMPDIR".to_owned(), world.root().to_str().unwrap().to_owned()));
    let test = "panes_life::a_server_of_a_lead_that_is_killed_ends_with_the_last_of_its_panes";
    let done = again(&world, test, &vars, "");
    assert!(!done.status.success(), "it was to abort");
    eventually("the agent lives on", || match world.processes() {
        some if some.iter().any(|p| p.command.contains("read _")) => Ok(()),
        some => Err(some),
    });
    gate.open(1);
    eventually("nothing is left", || match world.processes() {
        none if none.is_empty() => Ok(()),
        // tmux 3.3 may miss the end of a program, see `check_ended`.
        some => Err(some.iter().map(|p| signal_if_there(p.pid)).count()),
    });
}
