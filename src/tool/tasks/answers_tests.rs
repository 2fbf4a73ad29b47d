use super::*;
use crate::core::team::board::Updated;

fn id(number: u64) -> CardId {
    CardId::new(number).unwrap()
}

fn row(number: u64, subject: &str, status: Status) -> Row {
    Row { id: id(number), subject: subject.to_owned(), status, owner: None, blocked_by: Vec::new(), note: None }
}

fn text(rows: Vec<Row>) -> String {
    listed(&Listing { rows, ..Listing::default() }).text
}

#[test]
fn a_list_has_the_lines_that_others_read() {
    let rows = vec![
        Row { owner: Some("worker".into()), ..row(1, "First task", Status::Completed) },
        Row { blocked_by: vec![id(1)], ..row(2, "Second", Status::Pending) },
        Row {
            owner: Some("bob".into()),
            blocked_by: vec![id(1), id(2)],
            ..row(3, "a\n#9 [completed] forged", Status::InProgress)
        },
        Row { note: Some("eve is gone".into()), ..row(4, "Fourth", Status::Pending) },
        row(5, "", Status::Other("damaged".into())),
    ];
    let output = listed(&Listing { rows, freed: vec![id(4)], damaged: vec![(id(5), "no JSON".into())] });
    let lines: Vec<&str> = output.text.lines().collect();
    assert_eq!(
        lines,
        [
            "#1 [completed] First task (worker)",
            "#2 [pending] Second [blocked by #1]",
            "#3 [in_progress] a #9 [completed] forged (bob) [blocked by #1, #2]",
            "#4 [pending] Fourth [note: eve is gone]",
            "#5 [damaged] [can't be read: no JSON]",
        ]
    );
    let tasks = output.structured.unwrap()["tasks"].clone();
    let first = json!({"id": "1", "subject": "First task", "status": "completed", "owner": "worker", "blockedBy": []});
    assert_eq!((&tasks[0], &tasks[1]["blockedBy"]), (&first, &json!(["1"])));
    assert_eq!(text(Vec::new()), "There are no tasks.");
}

#[test]
fn a_long_list_leaves_out_what_is_done_first() {
    // Each line has 300 characters with its end, so 100 fit.
    let rows = |completed: u64, open: u64| -> Vec<Row> {
        let subject = |number: u64, status: &Status| {
            let rest = format!("#{number} [{}] \n", status.as_str()).chars().count();
            "x".repeat(300 - rest)
        };
        let all = (1..=completed).map(|n| (n, Status::Completed)).chain((1..=open).map(|n| (100 + n, Status::Pending)));
        all.map(|(n, status)| row(n, &subject(n, &status), status)).collect()
    };
    assert_eq!(text(rows(50, 50)).lines().count(), 100);
    let cut = text(rows(50, 51));
    assert_eq!(cut.lines().count(), 52, "51 that are open, and the note");
    assert!(cut.ends_with("[50 of 101 tasks are left out, the completed ones first; TaskGet shows one by its number]"));
    let cut = text(rows(2, 120));
    assert!(cut.lines().count() == 101 && cut.contains("[22 of 122 tasks"), "{}", cut.lines().count());
}

#[test]
fn a_change_says_what_is_different() {
    let updated =
        |fields: Vec<&'static str>, status| Updated { card: Card::default(), fields, status, new_owner: None };
    let changed = |updated| Changed { updated, untold: None };
    let one = super::updated(id(2), &changed(updated(vec!["blockedBy"], None)));
    assert_eq!(one.text, "Updated task #2 blockedBy");
    assert_eq!(one.structured, Some(json!({"success": true, "taskId": "2", "updatedFields": ["blockedBy"]})));
    let status = Some((Status::Pending, Status::Completed));
    let two = super::updated(id(2), &changed(updated(vec!["status", "owner"], status)));
    assert_eq!(two.text, "Updated task #2 status, owner");
    assert_eq!(two.structured.unwrap()["statusChange"], json!({"from": "pending", "to": "completed"}));
    assert!(super::updated(id(2), &changed(updated(vec![], None))).text.contains("as it was"));
    let owned = Updated { new_owner: Some("bob".into()), ..updated(vec!["owner"], None) };
    let untold = super::updated(id(2), &Changed { updated: owned, untold: Some("full".into()) });
    assert_eq!(untold.text, "Updated task #2 owner\nbob was not told of it: full");
    let gone = deleted(id(2), &Card { status: Status::InProgress, ..Card::default() });
    assert_eq!(
        gone.structured,
        Some(json!({
            "success": true, "taskId": "2", "updatedFields": ["deleted"],
            "statusChange": {"from": "in_progress", "to": "deleted"},
        }))
    );
}

#[test]
fn a_card_is_shown_with_all_that_is_on_it_up_to_a_limit() {
    let mut card = Card { id: Some(id(3)), subject: "s\nt".into(), description: "d\ne".into(), ..Card::default() };
    assert_eq!(shown(id(3), &card).text, "Task #3: s t\nStatus: pending\nOwner: nobody\nDescription:\nd\ne");
    card.free("bob is gone".into());
    card.blocked_by = vec![id(1)];
    card.blocks = vec![id(4), id(5)];
    let output = shown(id(3), &card);
    let middle = "Blocked by: #1\nBlocks: #4, #5\nNote: bob is gone\nMetadata: {\"leadNote\":\"bob is gone\"}\n";
    assert!(output.text.contains(middle), "{}", output.text);
    let task = json!({
        "id": "3", "subject": "s\nt", "description": "d\ne", "status": "pending", "blocks": ["4", "5"], "blockedBy": ["1"],
    });
    assert_eq!(output.structured, Some(json!({"task": task})));
    card.description = "é".repeat(TOOL_OUTPUT_CHARS);
    let cut = shown(id(3), &card).text;
    assert!(cut.contains("[cut: it has ") && cut.chars().count() < TOOL_OUTPUT_CHARS + 50);
}

#[test]
fn a_lead_with_three_done_and_nothing_verified_is_reminded() {
    let done = |number, owner: Option<&str>| Row {
        owner: owner.map(str::to_owned),
        ..row(number, "Do it", Status::Completed)
    };
    let two = vec![done(1, None), done(2, Some("me"))];
    assert!(!lacks_verification(&two, "me"));
    let with = |row: Row| [two.clone(), vec![row]].concat();
    assert!(lacks_verification(&with(done(3, None)), "me"));
    assert!(!lacks_verification(&with(done(3, Some("bob"))), "me"), "bob's own is not the main conversation's");
    assert!(!lacks_verification(&with(row(3, "Do it", Status::InProgress)), "me"));
    for subject in ["Verify all", "final VERIFICATION"] {
        let planned = [with(done(3, None)), vec![row(4, subject, Status::Pending)]].concat();
        assert!(!lacks_verification(&planned, "me"), "{subject}");
    }
}
