//! What variables and the roster switch on and off for a team.

use std::fs;

use serde_json::{Value, json};

use crate::support::{World, book, call, create_team, eventually, lead_rule, member_rule, no_team_left, of_member};
use crate::team_members::lead_as;

#[test]
fn a_session_whose_teams_are_turned_off_is_offered_none_and_takes_none_over() {
    let world = World::new();
    let joins = call("Agent", json!({"description": "d", "prompt": "p", "name": "ann", "team_name": "t"}));
    let creates = call("TeamCreate", json!({"team_name": "t"}));
    let book = book(&world, &[lead_rule(&[json!({"tools": [joins, creates]}), json!({"text": "over"})])]);
    let variable = "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS_DISABLED";
    let settings = json!({"env": {variable: "1"}}).to_string();
    let led = lead_as(&world, &book, &["--settings", &settings], "go");
    let last = eventually("both calls are answered", || {
        let last = book.of("lead").pop();
        last.filter(|request| request.results().len() == 2).ok_or(())
    });
    let tools = last.tools();
    assert!(tools.contains(&"Agent") && tools.contains(&"TaskCreate"), "{tools:?}");
    assert!(tools.iter().all(|tool| !tool.starts_with("Team")), "{tools:?}");
    let results = last.results();
    assert!(results.iter().all(|(_, is_error)| *is_error), "{results:?}");
    assert!(results[0].0.contains("leave team_name out"), "{results:?}");
    assert!(!results[0].0.contains("TeamCreate"), "nothing is named that is not there: {results:?}");

    world.lead(&["team", "create", "u"]).run().expect(0);
    world.lead(&["team", "adopt", "u", "--session", &led.session]).run().expect(3).says(&[variable]);
    let roster: Value = serde_json::from_slice(&fs::read(world.config().join("teams/u/config.json")).unwrap()).unwrap();
    assert!(roster.get("leadSessionId").is_none(), "{roster:#}");
    led.end().expect(0);
    world.lead(&["team", "delete", "u"]).run().expect(0);
    no_team_left(&world);
}

#[test]
fn folders_that_a_team_may_use_are_open_to_all_its_members() {
    let world = World::new();
    let file = |name: &str| world.root().join("home").join(name);
    let write = |name: &str| call("Write", json!({"file_path": file(name), "content": "x\n"}));
    let writes =
        |name: &str| member_rule(name, &[json!({"tools": [write(&format!("shared/deep/{name}")), write(name)]})]);
    let mut lead = lead_rule(&[]);
    lead["otherwise"] = json!({"text": "ok"});
    let book = book(&world, &[lead, writes("ann"), writes("bob")]);
    world.lead(&["team", "create", "t"]).run().expect(0);
    let path = world.config().join("teams/t/config.json");
    let mut roster: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    roster["teamAllowedPaths"] = json!([{"path": file("shared"), "toolName": "Write", "addedBy": "team-lead", "addedAt": 1_767_225_600_000_u64}]);
    fs::write(&path, serde_json::to_vec_pretty(&roster).unwrap()).unwrap();
    let led = lead_as(&world, &book, &["--permission-mode", "default"], "hello");
    world.lead(&["team", "adopt", "t", "--session", &led.session]).run().expect(0);
    for name in ["ann", "bob"] {
        world.lead(&["team", "add", "t", name, "begin"]).run().expect(0);
    }
    for name in ["ann", "bob"] {
        let results = eventually(&format!("{name} has tried"), || {
            let last = of_member(&book.requests(), name).pop().map(|request| request.results()).unwrap_or_default();
            if last.len() == 2 { Ok(last) } else { Err(last) }
        });
        assert!(!results[0].1 && results[1].1, "{results:?}");
        assert!(file(&format!("shared/deep/{name}")).exists() && !file(name).exists());
    }
    led.end().expect(0);
    no_team_left(&world);
}

#[test]
fn a_lead_that_completes_three_cards_is_reminded_to_verify_unless_the_settings_say_no() {
    for is_reminded in [true, false] {
        let world = World::new();
        let cards = (1..=3).map(|n| call("TaskCreate", json!({"subject": format!("part {n}"), "description": "d"})));
        let done = (1..=3).map(|n| call("TaskUpdate", json!({"taskId": n.to_string(), "status": "completed"})));
        let one_by_one = done.map(|call| json!({"tools": [call]}));
        let mut turns = vec![json!({"tools": [create_team("t")]}), json!({"tools": cards.collect::<Vec<_>>()})];
        turns.extend(one_by_one.chain([json!({"text": "over"})]));
        let book = book(&world, &[lead_rule(&turns)]);
        let settings = json!({"lead": {"verificationNudge": is_reminded}}).to_string();
        world.headless(&book.model(), "go").args(&["--settings", &settings]).run().expect(0);
        let results = book.last().results();
        let reminded: Vec<bool> =
            results[4..].iter().map(|(text, _)| text.contains("none is about verification")).collect();
        assert_eq!(reminded, [false, false, is_reminded], "{results:#?}");
        no_team_left(&world);
    }
}
