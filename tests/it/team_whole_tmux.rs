//! The same whole team with its members in panes of the tmux that the lead runs in.

use std::fs;

use super::team_whole::{check_five, five};
use crate::support::{Tmux, World, calls, eventually, path_of, recorded, wait_question};

#[test]
fn a_team_of_five_works_in_panes_and_closes_them() {
    let world = World::heavy();
    if recorded(&world).is_none() {
        return;
    }
    let book = five(&world);
    let out = world.root().join("out");
    let script = format!(
        "cd '{cwd}' && PATH='{path}' LEAD_LOG=debug '{lead}' -p go --model '{model}' --output-format json \
         --permission-prompt-tool desk > '{out}/lead.json' 2> '{out}/lead.err'; echo over >> '{out}/lead.json'; exec cat",
        cwd = world.cwd().display(),
        path = path_of(&world),
        lead = env!("CARGO_BIN_EXE_lead"),
        model = book.model(),
        out = out.display(),
    );
    let tmux = Tmux::at(&world, "s", "", 200, 50, &["sh", "-c", &script]);
    let id = wait_question(&world, "Bash");
    // dan waits for the answer; its pane shows who it is, what it was told and what it does.
    let marks = tmux.panes("#{@lead_agent}");
    assert_eq!(marks.iter().filter(|mark| mark.ends_with("@crew")).count(), 5, "{marks:?}");
    let panes = tmux.panes("#{pane_id} #{@lead_agent}");
    let pane = panes.iter().find_map(|line| line.strip_suffix(" dan@crew")).unwrap();
    let seen = eventually("dan's pane shows its work", || {
        let seen = tmux.call(&["capture-pane", "-p", "-t", pane]);
        if seen.contains("dan") && seen.contains("touch granted") { Ok(seen) } else { Err(seen) }
    });
    println!("{seen}");
    assert_eq!(tmux.tell(pane, "#{pane_title}"), "dan");
    let roster = fs::read_to_string(world.config().join("teams/crew/config.json")).unwrap();
    assert!(roster.contains(pane) && roster.contains(r#""backendType": "tmux""#), "{roster}");
    world.lead(&["permissions", "allow", &id]).run().expect(0);
    let said = eventually("the lead ends", || {
        let said = fs::read_to_string(out.join("lead.json")).unwrap_or_default();
        if said.ends_with("over\n") { Ok(said) } else { Err(said) }
    });
    assert!(said.contains(r#""result":"over""#), "{said}\n{}", fs::read_to_string(out.join("lead.err")).unwrap());
    assert_eq!(tmux.panes("#{pane_id}"), std::slice::from_ref(&tmux.seat));
    let (calls, scripts) = calls(&world);
    assert!(calls.iter().all(|call| !call.contains("send-keys")) && !scripts.contains("send-keys"));
    drop(tmux);
    world.wait_quiet();
    check_five(&world, &book);
}
