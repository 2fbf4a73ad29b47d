//! The built-in playbook `survey-team`: a team looks at whatever folder it is given, reports what is
//! there and leaves nothing.

use std::fs;

use crate::support::{Done, World};

/// Runs it headless, as anybody would: no flags but the model.
fn survey(world: &World) -> Done {
    let done = world.lead(&["-p", "survey this", "--model", "playbook:survey-team"]).run();
    done.expect(0);
    for folder in ["teams", "tasks", "lead/agents"] {
        let left: Vec<_> = fs::read_dir(world.config().join(folder)).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    world.assert_nothing_left();
    assert!(!done.stdout.contains("{{"), "{done:#?}");
    for part in ["## Languages and sizes", "## Entry points", "## Tests", "## Open ends", "## Summary"] {
        assert_eq!(done.stdout.matches(part).count(), 1, "{part}: {done:#?}");
    }
    done
}

#[test]
fn a_team_reports_what_is_there_and_leaves_nothing() {
    let world = World::heavy();
    world.file("README.md", "# All about plums & <pears>\n");
    world.file("src/main.rs", "fn main() {}\n// TODO: jam & <jelly>\n");
    world.file("tests/smoke.rs", "// FIXME\n");
    world.file("data/large.csv", "1,2,3\n".repeat(100));
    let report = survey(&world).stdout;
    let wanted = [
        "files: 4\n",
        "      2 rs\n",
        "         600  data/large.csv\n",
        "# All about plums & <pears>",
        "src/main.rs:1:fn main() {}",
        "tests/smoke.rs\n",
        "marked lines: 2\n",
        "src/main.rs:2:// TODO: jam & <jelly>\n",
        "Open ends",
        "completed",
    ];
    for part in wanted {
        assert!(report.contains(part), "{part:?} is not in {report}");
    }
    let finders = ["ann", "bob", "cal"].map(|name| report.matches(&format!("(found by {name})")).count());
    assert_eq!(finders.iter().sum::<usize>(), 5, "{report}");
    let summary = report.find("## Summary");
    assert!(summary > report.find("## Open ends"), "the last card waits for the others: {report}");
}

#[test]
fn a_team_ends_by_itself_in_an_empty_folder_too() {
    let world = World::heavy();
    let report = survey(&world).stdout;
    assert!(report.contains("files: 0\n") && report.contains("marked lines: 0"), "{report}");
    assert_eq!(fs::read_dir(world.cwd()).unwrap().count(), 0);
}
