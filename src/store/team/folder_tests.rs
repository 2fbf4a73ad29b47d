use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::super::lifecycle::{NewTeam, create, delete};
use super::super::testing::{Place, letter, member_named, tree};
use super::*;
use crate::core::team::board::NewCard;
use crate::core::team::claim::Wanted;

fn leader(pid: i32) -> Leader {
    Leader { pid, address: format!("uds:/run/{pid}.sock"), session: "s".into() }
}

fn lead_member() -> Member {
    Member { name: LEAD.into(), agent_type: Some("team-lead".into()), cwd: Some("/x".into()), ..Member::default() }
}

fn new_team(name: &str, lead: bool) -> NewTeam {
    let lead = lead.then(|| (leader(7), lead_member()));
    NewTeam { name: name.into(), description: Some("d".into()), lead, created_ms: 5 }
}

/// A folder as released programs leave it, under a name that no file can have.
const FOREIGN: &str = r#"{
  "name": "obs team!",
  "createdAt": 1767225600000,
  "leadAgentId": "team-lead@obs team!",
  "leadSessionId": "11111111-1111-4111-8111-111111111111",
  "members": [
    {
      "agentId": "team-lead@obs team!",
      "name": "team-lead",
      "agentType": "team-lead",
      "model": "m",
      "joinedAt": 1767225600000,
      "tmuxPaneId": "",
      "cwd": "/x",
      "subscriptions": []
    },
    {
      "agentId": "my worker@obs team!",
      "name": "my worker",
      "agentType": "general-purpose",
      "color": "blue",
      "planModeRequired": false,
      "joinedAt": 1767225600001,
      "tmuxPaneId": "%1",
      "cwd": "/x",
      "subscriptions": [],
      "backendType": "tmux",
      "isActive": true,
      "later": {
        "a": 1
      }
    }
  ]
}"#;

#[test]
fn a_team_is_made_whole_with_what_others_read() {
    let place = Place::new();
    let made = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
    let roster: Value = serde_json::from_slice(&fs::read(made.team.roster_path()).unwrap()).unwrap();
    let wanted = json!({
        "name": "t", "description": "d", "createdAt": 5, "leadAgentId": "team-lead@t", "leadSessionId": "s",
        "lead": {"pid": 7, "socket": "uds:/run/7.sock", "startedAt": 5},
        "members": [{"agentId": "team-lead@t", "name": "team-lead", "agentType": "team-lead", "cwd": "/x"}],
    });
    assert_eq!(roster.to_string(), wanted.to_string());
    let there: Vec<String> = tree(place.config.root())
        .into_iter()
        .map(|(path, _)| path.strip_prefix(place.config.root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    let wanted = [
        "lead",
        "lead/locks",
        "lead/locks/.teams.flock",
        "lead/locks/t.flock",
        "lead/locks/t.lead",
        "tasks",
        "tasks/t",
        "tasks/t/.lock",
        "teams",
        "teams/t",
        "teams/t/config.json",
        "teams/t/inboxes",
    ];
    assert_eq!(there, wanted);
    for (path, _) in tree(place.config.root()) {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn r107_bad_names_are_refused_and_nothing_is_touched() {
    let place = Place::new();
    let team = place.team("t", &[]);
    let before = tree(place.config.root().parent().unwrap());
    let long = "x".repeat(300);
    for bad in ["研究員", "../../x", "a/b", "Cafe\u{301}", "Caf\u{e9}", &long, "-x", "a\nb", ".", "", "main", "*"] {
        let error = create(&place.config, &new_team(bad, false), Durability::Process).unwrap_err();
        assert!(matches!(&error, TeamError::BadName(text) if text.contains("try \"")), "{bad}: {error}");
        let error = team.add_member(&member_named(bad)).unwrap_err();
        assert!(matches!(&error, TeamError::BadName(text) if text.contains("try \"")), "{bad}: {error}");
        assert!(matches!(place.open(bad), Err(TeamError::NoTeam { .. })), "{bad}");
        assert!(
            matches!(Board::open(&place.config, bad, Durability::Process), Err(TeamError::BadName(_))) || bad == "main"
        );
    }
    assert_eq!(tree(place.config.root().parent().unwrap()), before);
}

#[test]
fn r051_equal_names_never_share_anything() {
    let place = Place::new();
    let first = place.team("Team", &["a"]);
    let _ = first.send(&letter("a", "x")).unwrap();
    first.board().create(&NewCard { subject: "one".into(), ..NewCard::default() }).unwrap();
    let before = (tree(&first.path()), tree(first.board().path()));
    for wanted in ["team-2", "team-3"] {
        let made = create(&place.config, &new_team("team", false), Durability::Process).unwrap();
        assert_eq!((made.team.name().as_str(), made.team.folder()), (wanted, wanted));
        assert_eq!(made.team.roster().unwrap().names(), [""; 0]);
    }
    assert_eq!((tree(&first.path()), tree(first.board().path())), before);
    assert_eq!(place.open("TEAM").unwrap().folder(), "Team");
    assert_eq!(place.open("team-2").unwrap().folder(), "team-2");
    let names: Vec<_> = all(&place.config, Durability::Process).unwrap().iter().map(Team::name).collect();
    assert_eq!(names, ["Team", "team-2", "team-3"]);
    // A folder that another program has for a name of its own.
    place.foreign("obs-team-", FOREIGN);
    let made = create(&place.config, &new_team("obs-team-", false), Durability::Process).unwrap();
    assert_eq!(made.team.folder(), "obs-team--2");
}

#[test]
fn r051_of_many_who_make_a_team_of_one_name_each_gets_its_own() {
    let place = Place::new();
    let mut names: Vec<String> = std::thread::scope(|s| {
        let makers: Vec<_> = (0..8)
            .map(|n| {
                let name = if n % 2 == 0 { "t" } else { "T" };
                s.spawn(|| create(&place.config, &new_team(name, false), Durability::Process).unwrap().team.name())
            })
            .collect();
        makers.into_iter().map(|m| m.join().unwrap().to_ascii_lowercase()).collect()
    });
    names.sort();
    assert_eq!(names, ["t", "t-2", "t-3", "t-4", "t-5", "t-6", "t-7", "t-8"]);
}

#[test]
fn a_new_team_begins_with_an_empty_list() {
    let place = Place::new();
    let left = Board::open(&place.config, "t", Durability::Process).unwrap();
    left.create(&NewCard { subject: "left".into(), ..NewCard::default() }).unwrap();
    let team = place.team("t", &[]);
    assert_eq!(team.board().path(), left.path());
    let card = team.board().create(&NewCard { subject: "new".into(), ..NewCard::default() }).unwrap();
    assert_eq!(card.id.unwrap().number(), 1);
}

#[test]
fn r053_links_of_all_that_were_members_go_with_their_team() {
    let place = Place::new();
    let links = place.config.agent_links();
    std::fs::create_dir_all(&links).unwrap();
    let link = |id: &str| std::os::unix::fs::symlink("/nowhere", links.join(id)).unwrap();
    let left = || {
        let mut left = file_names(&links).unwrap();
        left.sort();
        left
    };
    let team = place.team("t", &["ann"]);
    // bob has left before, and its lead died at that.
    ["ann@t", "bob@t", "ann@other", "a-0123456789abcdef"].into_iter().for_each(link);
    delete(&team).unwrap();
    assert_eq!(left(), ["a-0123456789abcdef", "ann@other"]);
    // Whoever deletes may die as well.
    link("ann@t");
    place.team("t", &[]);
    assert_eq!(left(), ["a-0123456789abcdef", "ann@other"]);
}

#[test]
fn r053_a_deleted_team_leaves_its_name_free_and_others_alone() {
    let place = Place::new();
    let other = place.team("other", &["a"]);
    let _ = other.send(&letter("a", "x")).unwrap();
    let before = (tree(&other.path()), tree(other.board().path()));
    for _ in 0..2 {
        let made = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
        assert_eq!(made.team.name(), "t");
        made.team.add_member(&member_named("w")).unwrap();
        let _ = made.team.send(&letter("w", "x")).unwrap();
        made.team.board().create(&NewCard::default()).unwrap();
        delete(&made.team).unwrap();
        assert!(!made.team.path().exists() && !made.team.board().path().exists());
        assert!(matches!(made.team.roster(), Err(TeamError::Gone { .. })));
        delete(&made.team).unwrap();
    }
    assert_eq!((tree(&other.path()), tree(other.board().path())), before);
    assert_eq!(file_names(&place.config.teams()).unwrap(), ["other"]);
}

#[test]
fn r052_making_and_deleting_touches_nothing_but_leftovers_of_its_kind() {
    let place = Place::new();
    let dead = place.foreign("dead", r#"{"name":"dead","leadSessionId":"gone","members":[]}"#);
    let halfway = place.config.teams().join("no-roster");
    let hidden = place.config.teams().join(".mine");
    let leftovers = [".coming-1", ".going-2"].map(|name| place.config.teams().join(name));
    for folder in [&halfway, &hidden, &leftovers[0], &leftovers[1]] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("x"), "").unwrap();
    }
    let made = create(&place.config, &new_team("no-roster", false), Durability::Process).unwrap();
    assert_eq!(made.team.name(), "no-roster-2", "somebody may be about to write its roster");
    delete(&made.team).unwrap();
    assert!(dead.roster_path().exists() && halfway.join("x").exists() && hidden.join("x").exists());
    assert!(leftovers.iter().all(|left| !left.exists()));
}

#[test]
fn r050_a_team_whose_lead_is_gone_can_be_taken_over_or_deleted_by_name() {
    let place = Place::new();
    let made = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
    made.team.add_member(&member_named("w")).unwrap();
    let _ = made.team.send(&letter(LEAD, "while you were away")).unwrap();
    drop(made.lead);
    let team = place.open("t").unwrap();
    assert_eq!(team.leader().unwrap(), None);
    let lead = team.take_lead(&leader(8), &lead_member(), 9).unwrap();
    assert_eq!(team.leader().unwrap(), Some(Some(leader(8))));
    let roster = team.roster().unwrap();
    assert_eq!(roster.head().lead.as_ref().map(|l| (l.pid, l.started_at)), Some((8, 9)));
    assert_eq!(roster.names(), ["team-lead", "w"]);
    assert_eq!(team.mailbox(LEAD).unwrap().unread().unwrap().mail.len(), 1);
    drop(lead);
    delete(&place.open("t").unwrap()).unwrap();
    assert!(place.open("t").is_err());
}

#[test]
fn r049_a_second_lead_is_refused_and_told_who_leads() {
    let place = Place::new();
    let made = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
    let before = fs::read(made.team.roster_path()).unwrap();
    let error = made.team.take_lead(&leader(8), &lead_member(), 9).unwrap_err();
    assert_eq!(error.to_string(), "team \"t\" is led by process 7 (uds:/run/7.sock)");
    assert_eq!(fs::read(made.team.roster_path()).unwrap(), before);
    // A probe is no leader.
    for _ in 0..50 {
        assert!(made.team.leader().unwrap().is_some());
    }
    // Deleted by force: its lead still holds the name.
    delete(&made.team).unwrap();
    let next = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
    assert_eq!(next.team.name(), "t-2");
    drop(made.lead);
    assert_eq!(create(&place.config, &new_team("t", true), Durability::Process).unwrap().team.name(), "t");
}

#[test]
fn a_team_of_another_program_is_found_joined_and_written_without_damage() {
    let place = Place::new();
    place.foreign("obs-team-", FOREIGN);
    let team = place.open("obs team!").unwrap();
    assert_eq!((team.folder(), team.name().as_str()), ("obs-team-", "obs team!"));
    assert_eq!(place.open("OBS-TEAM-").unwrap().folder(), "obs-team-");
    for other in ["obs team?", "obs/team/", "研究員"] {
        let error = place.open(other).unwrap_err().to_string();
        assert!(error.ends_with("there is obs team!"), "r108: another name, {error}");
    }
    assert_eq!(team.add_member(&member_named("helper")).unwrap().name, "helper");
    assert_eq!(team.add_member(&member_named("my-worker")).unwrap().name, "my-worker-2", "its inbox is somebody's");
    let written = fs::read_to_string(team.roster_path()).unwrap();
    let theirs = FOREIGN.strip_suffix("\n  ]\n}").unwrap();
    assert!(written.starts_with(&format!("{theirs},\n    {{\n      \"agentId\": \"helper@obs team!\"")), "{written}");
    assert!(team.roster().unwrap().member("helper").unwrap().color.as_deref() == Some("green"));
    assert_eq!(team.send(&letter("my worker", "hello")).unwrap().to, "my worker");
    assert!(team.inboxes().join("my-worker.json").exists());
    // A card of theirs, and what they leave beside it.
    let card = "{\n  \"id\": \"3\",\n  \"subject\": \"s\",\n  \"description\": \"d\",\n  \"status\": \"pending\",\n  \"blocks\": [],\n  \"blockedBy\": [],\n  \"x\": 1\n}";
    fs::create_dir_all(team.board().path()).unwrap();
    fs::write(team.board().path().join("3.json"), card).unwrap();
    fs::write(team.board().path().join(".highwatermark"), "7").unwrap();
    let claimed = team.board().claim(Wanted::Next, "helper", super::super::testing::ALL_LIVE).unwrap();
    assert_eq!(claimed.card.owner(), Some("helper"));
    let wanted = card.replace("pending", "in_progress").replace("\"x\": 1", "\"x\": 1,\n  \"owner\": \"helper\"");
    assert_eq!(fs::read_to_string(team.board().path().join("3.json")).unwrap(), wanted);
    assert_eq!(team.board().create(&NewCard::default()).unwrap().id.unwrap().number(), 8);
    // Leaving it again, theirs is as it was.
    team.remove_member("helper").unwrap();
    team.remove_member("my-worker-2").unwrap();
    assert_eq!(fs::read_to_string(team.roster_path()).unwrap(), FOREIGN);
}

#[test]
fn r108_members_whose_mailboxes_would_be_one_file_get_no_mail() {
    let place = Place::new();
    let roster = json!({"name": "t", "members": [{"name": "研究員"}, {"name": "分析者"}, {"name": "ok"}]});
    let team = place.foreign("t", &roster.to_string());
    let error = team.send(&letter("研究員", "x")).unwrap_err().to_string();
    assert!(error.contains("研究員") && error.contains("another member"), "{error}");
    let _ = team.send(&letter("ok", "x")).unwrap();
    assert_eq!(file_names(&team.inboxes()).unwrap(), ["ok.json"]);
    assert!(team.remove_member("研究員").is_ok());
    let _ = team.send(&letter("分析者", "x")).unwrap();
}

#[test]
fn r044_a_member_gets_a_name_of_its_own_and_is_told_it() {
    let place = Place::new();
    let team = place.team("t", &["worker"]);
    assert_eq!(team.add_member(&member_named("Worker")).unwrap().name, "Worker-2");
    let _ = team.send(&letter("Worker-2", "unread")).unwrap();
    let (removed, unread) = team.remove_member("worker-2").unwrap();
    assert_eq!((removed.name.as_str(), unread), ("Worker-2", 1));
    assert_eq!(file_names(&team.inboxes()).unwrap(), [""; 0], "its mail is for nobody else");
    assert_eq!(team.add_member(&member_named("worker-2")).unwrap().name, "worker-2");
    // Mail of one that another program took out.
    fs::write(team.inboxes().join("gone.json"), "[]").unwrap();
    assert_eq!(team.add_member(&member_named("gone")).unwrap().name, "gone-2");
    assert!(matches!(team.remove_member("nobody"), Err(TeamError::NoMember { .. })));
}

#[test]
fn r048_many_who_change_the_roster_all_succeed() {
    let place = Place::new();
    let team = place.team("t", &[]);
    let mut names: Vec<String> = std::thread::scope(|s| {
        let adders: Vec<_> = (0..16).map(|_| s.spawn(|| team.add_member(&member_named("w")).unwrap().name)).collect();
        adders.into_iter().map(|a| a.join().unwrap()).collect()
    });
    let roster = team.roster().unwrap();
    let mut there: Vec<&str> = roster.names();
    there.sort_unstable();
    names.sort_unstable();
    assert_eq!((there.len(), names), (16, there.iter().map(|n| (*n).to_owned()).collect()));
    there.dedup();
    assert_eq!(there.len(), 16);
}

#[test]
fn r048_what_another_program_writes_without_a_lock_is_not_written_over() {
    let place = Place::new();
    let team = place.team("t", &["w"]);
    let mut rounds = 0;
    team.change_roster(|roster| {
        rounds += 1;
        if rounds == 1 {
            let theirs = fs::read_to_string(team.roster_path()).unwrap().replacen('{', "{\"theirs\": 1,", 1);
            fs::write(team.roster_path(), theirs).unwrap();
        }
        roster.edit_head(|head| head.description = Some("ours".into()));
        Ok(())
    })
    .unwrap();
    let roster: Value = serde_json::from_slice(&fs::read(team.roster_path()).unwrap()).unwrap();
    assert_eq!((rounds, &roster["theirs"], &roster["description"]), (2, &json!(1), &json!("ours")));
}

#[test]
fn r026_a_lead_that_comes_back_finds_the_mail_it_missed_and_not_what_it_had_read() {
    let place = Place::new();
    let made = create(&place.config, &new_team("t", true), Durability::Process).unwrap();
    made.team.add_member(&member_named("w")).unwrap();
    let from_w = |text: &str| crate::core::team::Letter { from: "w".into(), ..letter(LEAD, text) };
    let (handled, half_done, missed) = (from_w("handled"), from_w("half done"), from_w("missed"));
    let _ = made.team.send(&handled).unwrap();
    let _ = made.team.send(&half_done).unwrap();
    let mailbox = made.team.mailbox(LEAD).unwrap();
    mailbox.mark(&[&handled.msg_id]).unwrap();
    drop(made.lead);
    let team = place.open("t").unwrap();
    let _ = team.send(&missed).unwrap();
    let _lead = team.take_lead(&leader(9), &lead_member(), 9).unwrap();
    let found = team.mailbox(LEAD).unwrap().unread().unwrap();
    let ids: Vec<_> = found.mail.iter().map(|mail| mail.msg_id.as_deref().unwrap()).collect();
    assert_eq!(ids, [&half_done.msg_id, &missed.msg_id], "the first of them may be in its transcript, by this id");
    assert_eq!(team.roster().unwrap().names(), ["team-lead", "w"]);
}

#[test]
fn a_roster_that_cannot_be_read_is_not_written_over() {
    let place = Place::new();
    let team = place.team("t", &["w"]);
    fs::write(team.roster_path(), "{\"name\":").unwrap();
    let error = team.add_member(&member_named("x")).unwrap_err();
    assert!(matches!(&error, TeamError::Store(StoreError::Damaged { path, .. }) if *path == team.roster_path()));
    assert_eq!(fs::read_to_string(team.roster_path()).unwrap(), "{\"name\":");
    delete(&team).unwrap();
    assert!(!team.path().exists());
}
