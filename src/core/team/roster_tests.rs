use serde_json::json;

use super::*;

/// A roster as other programs write it, with members of theirs and things nobody knows.
const FOREIGN: &str = r#"{
  "name": "obs team!",
  "createdAt": 1767225600000,
  "leadAgentId": "team-lead@obs team!",
  "leadSessionId": "11111111-1111-4111-8111-111111111111",
  "leadProcess": {
    "pid": 7,
    "procStart": "123"
  },
  "members": [
    {
      "agentId": "team-lead@obs team!",
      "name": "team-lead",
      "agentType": "team-lead",
      "joinedAt": 1767225600000,
      "tmuxPaneId": "leader",
      "cwd": "/x",
      "subscriptions": [],
      "backendType": "in-process"
    },
    {
      "name": "worker",
      "agentId": "worker@obs team!",
      "joinedAt": "yesterday",
      "future": {
        "b": [],
        "a": {}
      },
      "tmuxPaneId": "%1",
      "backendType": "iterm2",
      "isActive": true
    },
    "not a member",
    {
      "nameless": true
    }
  ],
  "zeta": "ünï\u0001"
}"#;

fn foreign() -> Roster {
    Roster::parse(FOREIGN.as_bytes()).unwrap()
}

fn text(roster: &Roster) -> String {
    String::from_utf8(roster.to_bytes()).unwrap()
}

#[test]
fn r048_a_roster_of_another_program_is_written_as_it_was() {
    assert_eq!(text(&foreign()), FOREIGN);
}

#[test]
fn members_of_other_programs_are_shown_as_they_are() {
    let roster = foreign();
    assert_eq!(roster.names(), ["team-lead", "worker"]);
    let worker = roster.member("Worker").unwrap();
    assert_eq!(worker.backend(), Backend::Other(Some("iterm2".into())));
    assert_eq!((worker.joined_at, worker.is_active, worker.cwd.as_deref()), (None, Some(true), None));
    assert!(roster.member("team-lead").unwrap().is_lead());
    assert_eq!(roster.head().lead, None);
    assert!(Roster::parse(b"[]").is_err());
    assert!(Roster::parse(br#"{"name":"x","members":{}}"#).is_err());
}

#[test]
fn r048_a_change_touches_one_field() {
    let mut roster = foreign();
    roster.edit_member("worker", |m| m.is_active = Some(false)).unwrap();
    assert_eq!(text(&roster), FOREIGN.replace("\"isActive\": true", "\"isActive\": false"));
    assert_eq!(roster.edit_member("Worker", |m| m.mode = Some("plan".into())), None, "exactly spelt");
    roster.edit_member("worker", |m| m.mode = Some("plan".into())).unwrap();
    assert!(text(&roster).contains("\"isActive\": false,\n      \"mode\": \"plan\"\n    }"));
    roster.edit_head(|h| h.lead_session_id = None);
    assert!(!text(&roster).contains("leadSessionId") && text(&roster).contains("\"zeta\": \"ünï\\u0001\""));
}

#[test]
fn a_new_roster_has_the_fields_that_others_read() {
    let mut roster = Roster::new(Head {
        name: "t".into(),
        created_at: Some(1),
        lead_agent_id: Some("team-lead@t".into()),
        lead_session_id: Some("s".into()),
        lead: Some(LeadProcess { pid: 5, socket: "uds:/x".into(), started_at: 2 }),
        ..Head::default()
    });
    let subscriptions = Some(Vec::new());
    roster.add(Member { name: LEAD.into(), subscriptions: subscriptions.clone(), ..Member::default() });
    roster.add(Member { name: "a".into(), backend_type: Some(HEADLESS.into()), subscriptions, ..Member::default() });
    let value: Value = serde_json::from_slice(&roster.to_bytes()).unwrap();
    let wanted = json!({
        "name": "t", "createdAt": 1, "leadAgentId": "team-lead@t", "leadSessionId": "s",
        "lead": {"pid": 5, "socket": "uds:/x", "startedAt": 2},
        "members": [
            {"agentId": "team-lead@t", "name": "team-lead", "subscriptions": []},
            {"agentId": "a@t", "name": "a", "color": "blue", "subscriptions": [], "backendType": "in-process"},
        ],
    });
    assert_eq!(value.to_string(), wanted.to_string(), "in this order");
    assert_eq!(Roster::parse(&roster.to_bytes()).unwrap().to_bytes(), roster.to_bytes());
}

#[test]
fn a_member_gets_a_name_nobody_has_and_the_next_colour() {
    let mut roster = foreign();
    let nobody = |_: &str| false;
    assert_eq!(roster.free_name("Worker", nobody), "Worker-2");
    assert_eq!(roster.free_name("worker", |stem| stem == "worker-2"), "worker-3");
    assert_eq!(roster.free_name("team-lead", nobody), "team-lead-2");
    for name in ["worker-2", "worker-3"] {
        roster.add(Member { name: name.into(), ..Member::default() });
    }
    assert_eq!(roster.member("worker-3").unwrap().color.as_deref(), Some("green"));
    assert_eq!(roster.remove("worker-2").map(|m| m.name).as_deref(), Some("worker-2"));
    assert_eq!(roster.remove("Worker-3"), None);
    assert_eq!(roster.names(), ["team-lead", "worker", "worker-3"]);
}

#[test]
fn the_lead_can_be_written_to_before_there_is_one() {
    let roster = Roster::new(Head { name: "t".into(), ..Head::default() });
    let directory = roster.directory();
    assert_eq!((directory.recipients(), directory.find("TEAM-lead")), (vec!["team-lead"], Some("team-lead")));
    assert_eq!(directory.inbox_stem("team-lead").as_deref(), Some("team-lead"));
    assert_eq!(foreign().directory().recipients(), ["team-lead", "worker"]);
}

#[test]
fn a_directory_is_what_the_roster_says_however_it_is_written() {
    let usual = r#"{"members":[{"name":"Worker","x":[1,{"name":"no"}]},{"name":"worker"}],"name":"t"}"#;
    for roster in [usual, FOREIGN, r#"{"name":"t"}"#, "\u{feff}{\"name\":\"t\",\"members\":[]}"] {
        let read = Directory::parse(roster.as_bytes()).unwrap();
        assert_eq!(read, Roster::parse(roster.as_bytes()).unwrap().directory());
    }
    let directory = Directory::parse(usual.as_bytes()).unwrap();
    assert_eq!((directory.find("worker"), directory.find("WORKER")), (Some("worker"), Some("Worker")));
    assert_eq!((directory.find("no"), directory.team.as_str()), (None, "t"));
    assert!(Directory::parse(b"{").is_err() && Directory::parse(b"[]").is_err());
}
