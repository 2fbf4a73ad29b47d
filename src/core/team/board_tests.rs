use proptest::prelude::*;
use serde_json::json;

use super::super::claim::{Life, Wanted, claim, free, life_of};
use super::super::links::Links;
use super::super::list::{ListSource, list_id, rows};
use super::super::roster::Roster;
use super::*;

fn id(number: u64) -> CardId {
    CardId::new(number).unwrap()
}

fn ids(numbers: &[u64]) -> Vec<CardId> {
    numbers.iter().copied().map(id).collect()
}

/// Cards 1 to `count`, with links blocker → blocked.
fn board(count: u64, links: &[(u64, u64)]) -> Cards {
    let mut cards = Cards::new();
    for number in 1..=count {
        let new = NewCard { subject: format!("card {number}"), ..NewCard::default() };
        let made = create(&cards, id(number), &new).unwrap();
        cards.extend(made.write);
    }
    for (blocker, blocked) in links {
        let patch = Patch { add_blocks: ids(&[*blocked]), ..Patch::default() };
        change(&mut cards, *blocker, &patch);
    }
    cards
}

fn apply(cards: &mut Cards, changes: Changes) {
    cards.extend(changes.write);
    if let Some(gone) = changes.remove {
        cards.remove(&gone);
    }
}

fn change(cards: &mut Cards, number: u64, patch: &Patch) -> Updated {
    let (changes, updated) = update(cards, id(number), patch, Actor::Main, None).unwrap();
    apply(cards, changes);
    updated
}

fn status(status: Status) -> Patch {
    Patch { status: Some(status), ..Patch::default() }
}

fn owner(owner: &str) -> Patch {
    Patch { owner: Some(owner.into()), ..Patch::default() }
}

#[test]
fn links_stand_on_both_cards_and_completed_blockers_are_hidden() {
    let mut cards = board(3, &[(1, 2)]);
    let new = NewCard { blocked_by: ids(&[2, 3]), ..NewCard::default() };
    let made = create(&cards, id(4), &new).unwrap();
    apply(&mut cards, made);
    assert_eq!((&cards[&id(1)].blocks, &cards[&id(2)].blocked_by), (&ids(&[2]), &ids(&[1])));
    assert_eq!((&cards[&id(4)].blocked_by, &cards[&id(3)].blocks), (&ids(&[2, 3]), &ids(&[4])));
    change(&mut cards, 3, &status(Status::Completed));
    let shown: Vec<_> = rows(&cards).into_iter().map(|r| r.blocked_by).collect();
    assert_eq!(shown, [ids(&[]), ids(&[1]), ids(&[]), ids(&[2])]);
    assert_eq!(cards[&id(4)].blocked_by, ids(&[2, 3]), "the link stays");
}

#[test]
fn a_link_that_only_one_card_knows_counts() {
    let mut cards = board(3, &[]);
    cards.get_mut(&id(1)).unwrap().edit(|c| c.blocks = ids(&[2, 9, 1]));
    cards.get_mut(&id(3)).unwrap().edit(|c| c.blocked_by = ids(&[2, 8]));
    let shown: Vec<_> = rows(&cards).into_iter().map(|r| r.blocked_by).collect();
    assert_eq!(shown, [ids(&[]), ids(&[1]), ids(&[2])]);
    let patch = Patch { add_blocks: ids(&[1]), ..Patch::default() };
    assert!(matches!(update(&cards, id(3), &patch, Actor::Main, None), Err(Refusal::Circle { .. })));
}

#[test]
fn r043_circles_oneself_and_unknown_cards_are_refused() {
    let cards = board(4, &[(1, 2), (2, 3)]);
    let refused = |number: u64, patch: &Patch| update(&cards, id(number), patch, Actor::Main, None).unwrap_err();
    let blocks = |numbers: &[u64]| Patch { add_blocks: ids(numbers), ..Patch::default() };
    let blocked_by = |numbers: &[u64]| Patch { add_blocked_by: ids(numbers), ..Patch::default() };
    assert_eq!(refused(3, &blocks(&[1])), Refusal::Circle { path: ids(&[1, 3, 2, 1]) });
    assert_eq!(refused(1, &blocked_by(&[2])), Refusal::Circle { path: ids(&[1, 2, 1]) });
    assert_eq!(refused(4, &blocks(&[4])), Refusal::Itself(id(4)));
    assert_eq!(refused(4, &blocked_by(&[4])), Refusal::Itself(id(4)));
    let both = Patch { add_blocks: ids(&[1]), add_blocked_by: ids(&[3]), ..Patch::default() };
    assert!(matches!(refused(4, &both), Refusal::Circle { .. }), "by two links of one request");
    for patch in [blocks(&[1, 7]), blocked_by(&[7])] {
        let refusal = refused(4, &patch);
        assert_eq!(refusal.to_string(), "there is no task #7; there are #1, #2, #3, #4");
    }
    let new = NewCard { blocked_by: ids(&[5]), ..NewCard::default() };
    assert_eq!(create(&cards, id(5), &new).unwrap_err(), Refusal::Itself(id(5)));
    let again = update(&cards, id(1), &blocks(&[2]), Actor::Main, None).unwrap();
    assert_eq!((again.0, again.1.fields), (Changes::default(), vec![]), "a link that is there");
    let circle = refused(3, &blocks(&[1])).to_string();
    assert!(circle.ends_with("#1 → #3 → #2 → #1"), "{circle}");
}

#[test]
fn an_update_says_what_it_changed() {
    let mut cards = board(2, &[]);
    let metadata = json!({"a": 1, "b": {"c": null}, "d": null}).as_object().cloned();
    let patch = Patch {
        subject: Some("card 1".into()),
        description: Some("d".into()),
        active_form: Some("doing".into()),
        status: Some(Status::InProgress),
        owner: Some("w".into()),
        add_blocks: ids(&[2]),
        metadata,
        ..Patch::default()
    };
    let updated = change(&mut cards, 1, &patch);
    assert_eq!(updated.fields, ["description", "activeForm", "status", "owner", "blocks", "metadata"]);
    assert_eq!(updated.status, Some((Status::Pending, Status::InProgress)));
    assert_eq!(updated.new_owner.as_deref(), Some("w"));
    let wanted = json!({"a": 1, "b": {"c": null}}).to_string();
    assert_eq!(serde_json::to_string(&updated.card.metadata).unwrap(), wanted);
    let metadata = json!({"a": null}).as_object().cloned();
    let updated = change(&mut cards, 1, &Patch { metadata, owner: Some(String::new()), ..Patch::default() });
    assert_eq!((updated.fields, updated.card.owner(), updated.new_owner), (vec!["owner", "metadata"], None, None));
    assert_eq!(updated.card.active_form.as_deref(), Some("doing"));
    let updated = change(&mut cards, 1, &patch);
    assert_eq!(updated.fields, ["owner", "metadata"]);
}

#[test]
fn r044_an_owner_is_a_member_exactly_spelt() {
    let cards = board(1, &[]);
    let members = Some(&["team-lead", "worker", "worker-2"][..]);
    for wrong in ["Worker", "worker-3", "worker@t", " worker"] {
        let refusal = update(&cards, id(1), &owner(wrong), Actor::Main, members).unwrap_err();
        let wanted = format!("{wrong:?} is not a member of the team; the members are team-lead, worker, worker-2");
        assert_eq!(refusal.to_string(), wanted);
    }
    let (changes, updated) = update(&cards, id(1), &owner("worker-2"), Actor::Main, members).unwrap();
    assert_eq!(updated.new_owner.as_deref(), Some("worker-2"));
    assert_eq!(changes.write[&id(1)].status, Status::Pending);
    assert!(update(&cards, id(1), &owner(""), Actor::Main, members).is_ok());
    assert!(update(&cards, id(1), &owner("anybody"), Actor::Main, None).is_ok(), "there is no team");
}

#[test]
fn r041_a_member_that_sets_in_progress_claims_or_is_refused() {
    let mut cards = board(3, &[(1, 2)]);
    let begin = status(Status::InProgress);
    let by = |cards: &Cards, number: u64, who| update(cards, id(number), &begin, Actor::Member(who), None);
    let (changes, updated) = by(&cards, 1, "a").unwrap();
    assert_eq!((updated.new_owner.as_deref(), updated.fields), (Some("a"), vec!["status", "owner"]));
    apply(&mut cards, changes);
    assert_eq!(by(&cards, 1, "b").unwrap_err(), Refusal::Owned { id: id(1), owner: "a".into() });
    assert!(by(&cards, 1, "a").is_ok(), "once more");
    assert_eq!(by(&cards, 2, "b").unwrap_err(), Refusal::Blocked { id: id(2), by: ids(&[1]) });
    let (changes, _) = update(&cards, id(3), &begin, Actor::Main, None).unwrap();
    assert_eq!(changes.write[&id(3)].owner(), None, "a session owns nothing by that");
    apply(&mut cards, changes);
    assert_eq!(by(&cards, 3, "b").unwrap().1.new_owner.as_deref(), Some("b"), "in progress and nobody's");
}

#[test]
fn r041_a_claim_is_given_once_and_the_others_are_told_who_has_it() {
    let mut cards = board(4, &[(1, 2)]);
    change(&mut cards, 4, &owner("b"));
    let take = |cards: &mut Cards, wanted, me: &str| {
        let (changes, id) = claim(cards, wanted, me)?;
        apply(cards, changes);
        Ok::<_, Refusal>(id)
    };
    assert_eq!(take(&mut cards, Wanted::This(id(1)), "a"), Ok(id(1)));
    assert_eq!((cards[&id(1)].owner(), &cards[&id(1)].status), (Some("a"), &Status::InProgress));
    let refusal = take(&mut cards, Wanted::This(id(1)), "b").unwrap_err();
    assert_eq!(refusal.to_string(), "task #1 belongs to \"a\"");
    let refusal = take(&mut cards, Wanted::This(id(2)), "b").unwrap_err();
    assert_eq!(refusal.to_string(), "task #2 is blocked by #1");
    assert_eq!(
        take(&mut cards, Wanted::This(id(1)), "a").unwrap_err().to_string(),
        "task #1 is in_progress, not pending"
    );
    assert!(take(&mut cards, Wanted::This(id(9)), "a").unwrap_err().to_string().starts_with("there is no task #9"));
    assert_eq!(take(&mut cards, Wanted::Next, "b"), Ok(id(4)), "its own before nobody's");
    assert_eq!(take(&mut cards, Wanted::Next, "b"), Ok(id(3)));
    let refusal = take(&mut cards, Wanted::Next, "b").unwrap_err();
    assert_eq!(refusal.to_string(), "no task can be claimed: 1 blocked, 3 in progress, 0 completed");
    change(&mut cards, 1, &status(Status::Completed));
    assert_eq!(take(&mut cards, Wanted::Next, "c"), Ok(id(2)));
    change(&mut cards, 2, &status(Status::Other("on_hold".into())));
    assert!(matches!(take(&mut cards, Wanted::This(id(2)), "c"), Err(Refusal::NotPending { .. })));
}

#[test]
fn r045_cards_of_those_who_are_gone_are_free_with_a_note() {
    let mut cards = board(5, &[]);
    for (number, who, now) in [
        (1, "a", Status::InProgress),
        (2, "a", Status::Completed),
        (3, "b", Status::InProgress),
        (4, "a", Status::Pending),
        (5, "a", Status::Other("on_hold".into())),
    ] {
        change(&mut cards, number, &Patch { owner: Some(who.into()), ..status(now) });
    }
    let asked = std::cell::RefCell::new(Vec::new());
    let life = |who: &str| {
        asked.borrow_mut().push(who.to_owned());
        if who == "a" { Life::Gone } else { Life::Alive }
    };
    let changes = free(&cards, &life, &|who| format!("{who} ended"));
    assert_eq!(changes.touched().collect::<Vec<_>>(), ids(&[1, 4]));
    assert_eq!(asked.into_inner(), ["a", "b"], "each once");
    apply(&mut cards, changes);
    let row = &rows(&cards)[0];
    assert_eq!((&row.status, &row.owner, row.note.as_deref()), (&Status::Pending, &None, Some("a ended")));
    assert_eq!((cards[&id(2)].owner(), cards[&id(3)].owner()), (Some("a"), Some("b")));
    let (changes, _) = claim(&cards, Wanted::Next, "c").unwrap();
    apply(&mut cards, changes);
    assert_eq!((rows(&cards)[0].note.as_deref(), cards[&id(1)].note()), (None, Some("a ended")));
}

#[test]
fn r045_who_is_not_in_the_team_is_gone_and_scripts_never_are() {
    let roster = r#"{"name":"t","members":[{"name":"a"},{"name":"s","backendType":"external"},{"name":"b"}]}"#;
    let roster = Roster::parse(roster.as_bytes()).unwrap();
    let life = |owner: &str| life_of(owner, Some(&roster), &|member| member.name == "a");
    let lives = ["a", "s", "b", "A", "left"].map(life);
    assert_eq!(lives, [Life::Alive, Life::Alive, Life::Gone, Life::Gone, Life::Gone]);
    assert_eq!(life_of("anybody", None, &|_| false), Life::Alive);
}

#[test]
fn a_deleted_card_is_in_nobodys_links() {
    let mut cards = board(3, &[(1, 2), (2, 3)]);
    let changes = delete(&cards, id(2)).unwrap();
    assert_eq!(changes.touched().collect::<Vec<_>>(), ids(&[1, 3, 2]));
    apply(&mut cards, changes);
    assert!(cards.values().all(|c| c.blocks.is_empty() && c.blocked_by.is_empty()));
    assert!(matches!(delete(&cards, id(2)), Err(Refusal::Unknown { .. })));
}

#[test]
fn the_list_is_the_first_of_variable_team_lead_and_session() {
    assert_eq!(list_id(Some("v"), Some("m"), Some("l"), "s"), ("v", ListSource::Variable));
    assert_eq!(list_id(Some(""), Some("m"), Some("l"), "s"), ("m", ListSource::Member));
    assert_eq!(list_id(None, None, Some("l"), "s"), ("l", ListSource::Lead));
    assert_eq!(list_id(None, None, None, "s"), ("s", ListSource::Session));
}

#[test]
fn long_lists_are_not_told_in_full() {
    let cards = board(21, &[]);
    let refusal = delete(&cards, id(99)).unwrap_err().to_string();
    assert_eq!(refusal, "there is no task #99; there are 20 of them, from #1 to #21".replace("20", "21"));
    assert!(delete(&Cards::new(), id(1)).unwrap_err().to_string().ends_with("the list is empty"));
}

proptest! {
    /// Whatever is asked for, links stay symmetric and nothing waits for itself.
    #[test]
    fn r043_no_order_of_requests_makes_a_circle(
        requests in prop::collection::vec((1..6_u64, 1..6_u64, 0..3_u8), 1..40),
    ) {
        let mut cards = board(5, &[]);
        for (a, b, what) in requests {
            let patch = match what {
                0 => Patch { add_blocks: ids(&[b]), ..Patch::default() },
                _ => Patch { add_blocked_by: ids(&[b]), ..Patch::default() },
            };
            let done = match what {
                2 => delete(&cards, id(a)),
                _ => update(&cards, id(a), &patch, Actor::Main, None).map(|(changes, _)| changes),
            };
            if let Ok(changes) = done {
                apply(&mut cards, changes);
            }
            let links = Links::of(&cards);
            for (id, card) in &cards {
                prop_assert!(card.blocks.iter().all(|other| cards[other].blocked_by.contains(id)));
                prop_assert!(card.blocked_by.iter().all(|other| cards[other].blocks.contains(id)));
                prop_assert!(links.blockers(*id).all(|blocker| links.path(blocker, *id).is_none()));
            }
        }
    }
}
