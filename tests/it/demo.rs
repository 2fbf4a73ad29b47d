//! `lead demo`: a survey by real workers of whatever folder it is given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Done, Session, World, eventually, long};

/// Files that a survey names: readme, manifest, sources, tests, marked lines.
fn make_tree(world: &World, name: &str, words: &[&str]) -> PathBuf {
    let tree = world.root().join(name);
    let write = |path: String, content: String| {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("README.md".to_owned(), format!("# {name}\n"));
    for (at, word) in words.iter().enumerate() {
        write(format!("src/{word}.rs"), format!("fn main() {{}}\n// TODO: {word} later\n{}", "x\n".repeat(at * 40)));
        write(format!("tests/test_{word}.py"), "def main(): pass\n".to_owned());
        write(format!("data/{word}.csv"), "1,2,3\n".repeat(100 + at));
    }
    tree
}

fn files(tree: &Path) -> BTreeSet<String> {
    let out = Command::new("find").arg(tree).args(["-type", "f", "-printf", "%P\n"]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

fn demo(world: &World, tree: &Path) -> Done {
    let done = world.lead(&["demo", tree.to_str().unwrap()]).run();
    done.expect(0);
    done
}

fn named<'a>(report: &str, files: impl IntoIterator<Item = &'a String>) -> usize {
    files.into_iter().filter(|f| report.contains(f.as_str())).count()
}

/// The session of the only demo in this world.
fn session(world: &World) -> Session {
    let ids: Vec<String> = sessions(&world.config());
    assert_eq!(ids.len(), 1, "{ids:?}");
    world.session(&ids[0])
}

fn sessions(config: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(config.join("projects")).into_iter().flatten().flatten();
    let names = folders.flat_map(|f| std::fs::read_dir(f.path()).unwrap().flatten());
    names.filter_map(|f| f.file_name().to_str()?.strip_suffix(".jsonl").map(str::to_owned)).collect()
}

#[test]
fn two_trees_give_two_reports_each_of_its_own_files() {
    let world = World::heavy();
    let apples = make_tree(&world, "apples", &["boskop", "elstar", "gala", "jonagold", "topaz"]);
    let rivers = make_tree(&world, "rivers", &["danube", "elbe", "rhine", "oder", "weser"]);
    let (of_apples, of_rivers) = (files(&apples), files(&rivers));
    let report = demo(&world, &apples).stdout;
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    assert!(named(&report, &of_apples) >= 10, "{report}");
    assert_eq!(named(&report, &only(&of_rivers, &of_apples)), 0, "{report}");
    assert!(report.contains(&of_apples.len().to_string()), "{} files: {report}", of_apples.len());
    let workers = session(&world).agents();
    assert!(workers.len() >= 3, "{workers:#?}");
    for worker in &workers {
        assert!(worker.results() >= 2, "{} has {} results", worker.id, worker.results());
        assert_eq!(worker.outcome()["status"], "completed");
        assert_eq!(worker.outcome()["permissionDenials"].as_array().map(Vec::len), Some(0));
    }
    let other = demo(&world, &rivers).stdout;
    assert!(named(&other, &of_rivers) >= 10, "{other}");
    assert_eq!(named(&other, &only(&of_apples, &of_rivers)), 0, "{other}");
    assert!(other.contains(&of_rivers.len().to_string()), "{other}");
    assert_eq!(files(&apples), of_apples, "a demo changes nothing");
    world.assert_nothing_left();
}

#[test]
fn a_file_added_between_two_runs_is_in_the_second_report() {
    let world = World::heavy();
    let tree = make_tree(&world, "apples", &["boskop", "elstar"]);
    assert!(!demo(&world, &tree).stdout.contains("quince"));
    std::fs::write(tree.join("src/quince.rs"), "fn main() {}\n").unwrap();
    let second = demo(&world, &tree).stdout;
    assert!(second.contains("src/quince.rs"), "{second}");
    world.assert_nothing_left();
}

#[test]
fn an_empty_folder_is_surveyed_too() {
    let world = World::heavy();
    let tree = world.root().join("empty");
    std::fs::create_dir(&tree).unwrap();
    let report = demo(&world, &tree).stdout;
    assert!(report.contains("## ") && report.contains('0'), "{report}");
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 0);
    world.assert_nothing_left();
}

#[test]
fn many_files_are_all_counted() {
    let world = World::heavy();
    let tree = world.root().join("many");
    let count = if long() { 100_000 } else { 3_000 };
    for n in 0..count {
        let folder = tree.join(format!("d{}", n / 500));
        if n % 500 == 0 {
            std::fs::create_dir_all(&folder).unwrap();
        }
        std::fs::write(folder.join(format!("f{n}.txt")), "").unwrap();
    }
    let report = demo(&world, &tree).stdout;
    assert!(report.contains(&count.to_string()), "{count}: {report}");
    assert!(report.len() < 100_000, "{} bytes", report.len());
    world.assert_nothing_left();
}

#[test]
fn while_it_runs_three_workers_are_seen_as_processes() {
    let world = World::heavy();
    let tree = make_tree(&world, "apples", &["boskop", "elstar"]);
    let run = world.lead(&["demo", tree.to_str().unwrap()]).start();
    let rows: Vec<Value> = eventually("three workers at once", || {
        let rows = world.workers();
        if rows.len() >= 3 { Ok(rows) } else { Err(rows) }
    });
    let pids: BTreeSet<i64> = rows.iter().filter_map(|r| r["pid"].as_i64()).collect();
    assert_eq!(pids.len(), rows.len(), "{rows:#?}");
    assert!(!pids.contains(&i64::from(run.pid())));
    run.wait().expect(0);
    world.assert_nothing_left();
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let world = World::new();
    let done = world.lead(&["demo", "/no/such/folder"]).run();
    assert!(done.code.is_some_and(|c| c != 0), "{done:#?}");
    done.says(&["/no/such/folder"]);
    world.assert_nothing_left();
}
