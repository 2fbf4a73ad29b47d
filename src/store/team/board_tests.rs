use std::cell::RefCell;

use serde_json::json;

use super::super::testing::{ALL_LIVE, Place};
use super::*;
use crate::core::team::{Refusal, Status};

fn board() -> (Place, Board) {
    let place = Place::new();
    let board = Board::open(&place.config, "list", Durability::Process).unwrap();
    (place, board)
}

fn id(number: u64) -> CardId {
    CardId::new(number).unwrap()
}

fn ids(numbers: &[u64]) -> Vec<CardId> {
    numbers.iter().copied().map(id).collect()
}

fn make(board: &Board, blocked_by: &[u64]) -> u64 {
    let new =
        NewCard { subject: "s".into(), description: "d".into(), blocked_by: ids(blocked_by), ..NewCard::default() };
    board.create(&new).unwrap().id.unwrap().number()
}

fn update(board: &Board, number: u64, patch: &Patch) -> Updated {
    board.update(id(number), patch, Actor::Main, None).unwrap()
}

fn status(status: Status) -> Patch {
    Patch { status: Some(status), ..Patch::default() }
}

fn files(board: &Board) -> Vec<String> {
    let mut files = file_names(board.path()).unwrap();
    files.sort();
    files
}

/// A file that is not being written.
fn write_settled(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn cards_are_made_changed_listed_and_removed() {
    let (_place, board) = board();
    assert_eq!(board.list(ALL_LIVE).unwrap(), Listing::default());
    assert_eq!((make(&board, &[]), make(&board, &[1]), make(&board, &[])), (1, 2, 3));
    let card = fs::read_to_string(board.path().join("2.json")).unwrap();
    let wanted = "{\n  \"id\": \"2\",\n  \"subject\": \"s\",\n  \"description\": \"d\",\n  \"status\": \"pending\",\n  \"blocks\": [],\n  \"blockedBy\": [\n    \"1\"\n  ]\n}";
    assert_eq!(card, wanted);
    assert_eq!(board.get(id(1)).unwrap().blocks, ids(&[2]));
    let updated = update(&board, 3, &Patch { add_blocks: ids(&[2]), ..status(Status::Completed) });
    assert_eq!(updated.fields, ["status", "blocks"]);
    assert_eq!(board.get(id(2)).unwrap().blocked_by, ids(&[1, 3]));
    let listed = board.list(ALL_LIVE).unwrap();
    assert_eq!(listed.rows.iter().map(|r| r.blocked_by.clone()).collect::<Vec<_>>(), [vec![], ids(&[1]), vec![]]);
    board.delete(id(3)).unwrap();
    assert_eq!(board.get(id(2)).unwrap().blocked_by, ids(&[1]));
    assert_eq!(files(&board), [".highwatermark", ".lock", "1.json", "2.json"]);
    let error = board.get(id(3)).unwrap_err().to_string();
    assert_eq!(error, "there is no task #3; there are #1, #2");
    assert!(board.delete(id(3)).is_err());
    let nothing = update(&board, 1, &Patch::default());
    assert_eq!(nothing.fields, [""; 0]);
}

#[test]
fn a_reserved_number_is_nobody_elses_whether_or_not_it_is_used() {
    let (_place, board) = board();
    let new = NewCard { subject: "s".into(), ..NewCard::default() };
    let (first, second) = (board.reserve().unwrap(), board.reserve().unwrap());
    assert_eq!((first, second, files(&board).len()), (id(1), id(2), 2), "a mark and a lock, no card");
    assert_eq!(make(&board, &[]), 3);
    assert_eq!(board.create_reserved(first, &new).unwrap().id, Some(first));
    assert_eq!(make(&board, &[]), 4, "a lower number does not lower the mark");
    // A program that does not look at the mark.
    write_settled(&board.path().join("2.json"), r#"{"id":"2","subject":"theirs","status":"pending"}"#);
    assert_eq!(board.create_reserved(second, &new).unwrap().id, Some(id(5)));
    assert_eq!(board.get(id(2)).unwrap().subject, "theirs");
}

#[test]
fn r042_a_number_is_above_all_that_were_given() {
    let (_place, board) = board();
    let mark = board.path().join(MARK);
    for _ in 0..3 {
        make(&board, &[]);
    }
    board.delete(id(3)).unwrap();
    assert_eq!(fs::read_to_string(&mark).unwrap(), "3");
    assert_eq!(make(&board, &[]), 4, "ids are never used again");
    for damaged in ["", "x", "-1", "1", "99999999999999999999", "\u{feff}9", "9007199254740991", " 2\n"] {
        fs::write(&mark, damaged).unwrap();
        let next = make(&board, &[]);
        assert_eq!(fs::read_to_string(&mark).unwrap(), next.to_string(), "{damaged:?} is mended");
    }
    assert_eq!(make(&board, &[]), 13);
    fs::remove_file(&mark).unwrap();
    assert_eq!(make(&board, &[]), 14);
    fs::write(&mark, b"\xff").unwrap();
    fs::write(board.path().join("20.json"), "half").unwrap();
    assert_eq!(make(&board, &[]), 21, "one that can't be read counts");
    fs::write(&mark, "30\n").unwrap();
    assert_eq!(make(&board, &[]), 31);
    for no_card in ["040.json", "x.json", ".50.json", "60.json.tmp"] {
        fs::write(board.path().join(no_card), "{}").unwrap();
    }
    assert_eq!(make(&board, &[]), 32);
}

#[test]
fn a_refused_card_takes_no_file() {
    let (_place, board) = board();
    make(&board, &[]);
    let new = NewCard { blocked_by: ids(&[9]), ..NewCard::default() };
    assert!(matches!(board.create(&new), Err(TeamError::Refused(Refusal::Unknown { .. }))));
    let new = NewCard { description: "x".repeat(limits::CARD_BYTES), ..NewCard::default() };
    let error = board.create(&new).unwrap_err().to_string();
    assert!(error.starts_with("task #2 has") && error.contains("1048576"), "{error}");
    let patch = Patch { description: Some("x".repeat(limits::CARD_BYTES)), ..Patch::default() };
    assert!(board.update(id(1), &patch, Actor::Main, None).is_err());
    assert_eq!(files(&board), [".highwatermark", ".lock", "1.json"]);
    assert_eq!(board.get(id(1)).unwrap().description, "d");
}

#[test]
fn r045_whoever_lists_or_claims_frees_the_cards_of_the_dead() {
    let (_place, board) = board();
    for owner in ["dead", "script", "dead"] {
        let number = make(&board, &[]);
        update(&board, number, &Patch { owner: Some(owner.into()), ..status(Status::InProgress) });
    }
    let asked = RefCell::new(Vec::new());
    let life = |owner: &str| {
        asked.borrow_mut().push(owner.to_owned());
        if owner == "dead" { Life::Gone } else { Life::Alive }
    };
    let owners = Owners { life: &life, note: &|owner| format!("{owner} ended") };
    let listed = board.list(owners).unwrap();
    assert_eq!(listed.freed, ids(&[1, 3]));
    assert_eq!(listed.rows[0].note.as_deref(), Some("dead ended"));
    let card = board.get(id(1)).unwrap();
    assert_eq!((card.status.clone(), card.note(), card.owner.as_deref()), (Status::Pending, Some("dead ended"), None));
    assert!(!fs::read_to_string(board.path().join("1.json")).unwrap().contains("owner"));
    assert_eq!(board.get(id(2)).unwrap().owner(), Some("script"));
    assert_eq!(board.list(owners).unwrap().freed, []);
    update(&board, 3, &Patch { owner: Some("dead".into()), ..Patch::default() });
    // By a claim of another, even one that is refused.
    let refused = board.claim(Wanted::This(id(2)), "b", owners).unwrap_err();
    assert_eq!(refused.to_string(), "task #2 belongs to \"script\"");
    assert_eq!(board.get(id(3)).unwrap().owner(), None);
    update(&board, 3, &Patch { owner: Some("dead".into()), ..Patch::default() });
    let claimed = board.claim(Wanted::This(id(3)), "b", owners).unwrap();
    assert_eq!((claimed.card.owner(), claimed.freed), (Some("b"), ids(&[3])));
    assert_eq!(board.release("b", "b left").unwrap(), ids(&[3]));
    assert_eq!(board.get(id(3)).unwrap().note(), Some("b left"));
}

#[test]
fn r040_many_who_make_and_change_cards_all_succeed() {
    let (_place, board) = board();
    let first = make(&board, &[]);
    let mut numbers: Vec<u64> = std::thread::scope(|s| {
        let makers: Vec<_> = (0..8)
            .map(|n| {
                let board = &board;
                s.spawn(move || {
                    let made = make(board, &[]);
                    let metadata = json!({(n.to_string()): n}).as_object().cloned();
                    update(board, first, &Patch { metadata, add_blocks: ids(&[made]), ..Patch::default() });
                    made
                })
            })
            .collect();
        makers.into_iter().map(|m| m.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (2..=9).collect::<Vec<_>>());
    let card = board.get(id(first)).unwrap();
    assert_eq!((card.metadata.unwrap().len(), card.blocks.len()), (8, 8));
    assert!(numbers.iter().all(|n| board.get(id(*n)).unwrap().blocked_by == ids(&[first])));
}

#[test]
fn a_card_that_cannot_be_read_blocks_nobody_but_those_that_wait_for_it() {
    let (_place, board) = board();
    make(&board, &[]);
    make(&board, &[1]);
    make(&board, &[]);
    let path = board.path().join("1.json");
    write_settled(&path, "{\"id\":\"1\"");
    let listed = board.list(ALL_LIVE).unwrap();
    assert_eq!((listed.damaged.len(), listed.damaged[0].0), (1, id(1)));
    assert_eq!(listed.rows[0].status, Status::Other("damaged".into()));
    assert_eq!(listed.rows[1].blocked_by, ids(&[1]));
    let patch = Patch { add_blocked_by: ids(&[1]), ..Patch::default() };
    for patch in [status(Status::Completed), patch] {
        let number = if patch.status.is_some() { 1 } else { 3 };
        let error = board.update(id(number), &patch, Actor::Main, None).unwrap_err();
        assert!(matches!(&error, TeamError::Store(StoreError::Damaged { path: at, .. }) if *at == path), "{error:?}");
    }
    assert!(matches!(board.get(id(1)), Err(TeamError::Store(StoreError::Damaged { .. }))));
    assert_eq!(board.claim(Wanted::Next, "a", ALL_LIVE).unwrap().card.id, Some(id(3)));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"id\":\"1\"");
    board.delete(id(1)).unwrap();
    assert_eq!(board.claim(Wanted::Next, "a", ALL_LIVE).unwrap().card.id, Some(id(2)));
}

#[test]
fn a_card_that_another_program_is_writing_is_waited_for() {
    let (_place, board) = board();
    make(&board, &[]);
    let path = board.path().join("1.json");
    let whole = fs::read_to_string(&path).unwrap();
    for half in ["", &whole[..20]] {
        fs::write(&path, half).unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            let listing = s.spawn(|| {
                begun.send(()).unwrap();
                board.list(ALL_LIVE).unwrap()
            });
            has_begun.recv_timeout(super::super::testing::LONG).unwrap();
            fs::write(&path, &whole).unwrap();
            assert_eq!(listing.join().unwrap().damaged, []);
        });
    }
}

#[test]
fn a_card_that_another_program_changes_before_it_is_locked_is_read_again() {
    let (_place, board) = board();
    make(&board, &[]);
    let path = board.path().join("1.json");
    let rounds = std::cell::Cell::new(0);
    let freed = board.free(Owners { life: &|_| Life::Alive, note: &|_| String::new() });
    assert_eq!(freed.unwrap(), []);
    board
        .change(|cards| {
            rounds.set(rounds.get() + 1);
            if rounds.get() == 1 {
                let theirs = fs::read_to_string(&path).unwrap().replace("\"s\"", "\"theirs\"");
                fs::write(&path, theirs).unwrap();
            }
            let (changes, _) =
                crate::core::team::board::update(cards, id(1), &status(Status::Completed), Actor::Main, None)?;
            Ok((changes, Some(id(1)), ()))
        })
        .unwrap();
    let card = board.get(id(1)).unwrap();
    assert_eq!((rounds.get(), card.subject.as_str(), card.status), (2, "theirs", Status::Completed));
}

#[test]
fn a_list_by_a_name_is_the_folder_that_others_have_for_it() {
    let place = Place::new();
    let open = |list: &str| Board::open(&place.config, list, Durability::Process);
    assert!(open("my_list").unwrap().path().ends_with("tasks/my_list"));
    fs::create_dir_all(place.config.tasks().join("my-list")).unwrap();
    fs::write(place.config.tasks().join("my-list/.lock"), "").unwrap();
    assert!(open("my_list").unwrap().path().ends_with("tasks/my-list"));
    make(&open("my_list").unwrap(), &[]);
    assert!(open("my_list").unwrap().path().ends_with("tasks/my-list"));
    fs::create_dir_all(place.config.tasks().join("my_list")).unwrap();
    assert!(open("my_list").unwrap().path().ends_with("tasks/my_list"));
    assert!(open("11111111-1111-4111-8111-111111111111").is_ok());
    for (bad, suggestion) in [("a b", "a-b"), ("研究員", "list-1"), ("../x", "x"), ("", "list-1")] {
        let error = open(bad).unwrap_err().to_string();
        assert!(error.ends_with(&format!("try {suggestion:?}")), "{error}");
    }
}

#[test]
fn r108_lists_of_ours_are_of_one_name() {
    let place = Place::new();
    for list in ["a-b", "a_b"] {
        let board = Board::open(&place.config, list, Durability::Process).unwrap();
        assert_eq!(make(&board, &[]), 1, "{list}");
    }
}

#[test]
fn r024_the_list_of_a_team_that_is_gone_does_not_come_back() {
    let place = Place::new();
    let team = place.team("t", &[]);
    let board = team.board();
    make(&board, &[]);
    crate::store::team::delete(&team).unwrap();
    let error = board.create(&NewCard::default()).unwrap_err().to_string();
    assert_eq!(error, "team \"t\" is gone: it was deleted");
    assert!(board.delete(id(1)).is_err() && board.update(id(1), &Patch::default(), Actor::Main, None).is_err());
    assert!(!board.path().exists());
}
