//! Reads what a model sends to the tools of the task board. Numbers of cards may be numbers, `"7"` or `"#7"`.

use serde_json::Value;

use super::specs::TaskTool;
use crate::core::team::board::{NewCard, Patch};
use crate::core::team::{CardId, Status};
use crate::core::text::one_line;
use crate::tool::arguments::Arguments;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    Create(NewCard),
    Get(CardId),
    List,
    Update(CardId, Box<Patch>),
    Delete(CardId),
}

/// Reads the input; the error says what is wrong in words for the model.
pub(super) fn parse(tool: TaskTool, input: &Value) -> Result<Order, String> {
    let read = match tool {
        TaskTool::Create => create(input),
        TaskTool::Get => Arguments::new(input, &["taskId"]).and_then(|a| Ok(Order::Get(task_id(&a)?))),
        TaskTool::List => Arguments::new(input, &[]).map(|_| Order::List),
        TaskTool::Update => update(input),
    };
    read.map_err(|why| format!("the input of {} can't be used: {why}", tool.as_str()))
}

fn create(input: &Value) -> Result<Order, String> {
    let arguments = Arguments::new(input, &["subject", "description", "activeForm", "metadata"])?;
    Ok(Order::Create(NewCard {
        subject: subject(arguments.required("subject")?)?,
        description: arguments.given("description")?.to_owned(),
        active_form: words(&arguments, "activeForm")?,
        blocked_by: Vec::new(),
        metadata: arguments.object("metadata")?,
    }))
}

fn update(input: &Value) -> Result<Order, String> {
    let known =
        ["taskId", "subject", "description", "activeForm", "status", "addBlocks", "addBlockedBy", "owner", "metadata"];
    let arguments = Arguments::new(input, &known)?;
    let id = task_id(&arguments)?;
    let status = match arguments.text("status")? {
        Some("deleted") => return Ok(Order::Delete(id)),
        Some(word @ ("pending" | "in_progress" | "completed")) => Some(Status::from(word.to_owned())),
        Some(other) => {
            let shown = one_line(other, 40);
            return Err(format!("`status` is {shown:?}; one of pending, in_progress, completed, deleted is expected"));
        }
        None => None,
    };
    let patch = Patch {
        subject: arguments.text("subject")?.map(subject).transpose()?,
        description: arguments.text("description")?.map(str::to_owned),
        active_form: words(&arguments, "activeForm")?,
        status,
        owner: arguments.text("owner")?.map(|owner| owner.trim().to_owned()),
        add_blocks: ids(&arguments, "addBlocks")?,
        add_blocked_by: ids(&arguments, "addBlockedBy")?,
        metadata: arguments.object("metadata")?,
    };
    if patch == Patch::default() {
        return Err(format!("it does not say what is to become of #{id}: give status, owner or another field"));
    }
    Ok(Order::Update(id, Box::new(patch)))
}

fn subject(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("`subject` is empty: say what is to be done in a few words".to_owned()),
        text => Ok(text.to_owned()),
    }
}

fn words(arguments: &Arguments<'_>, key: &str) -> Result<Option<String>, String> {
    Ok(arguments.text(key)?.filter(|text| !text.trim().is_empty()).map(str::to_owned))
}

fn task_id(arguments: &Arguments<'_>) -> Result<CardId, String> {
    let value = arguments.value("taskId").ok_or("`taskId` is missing: give the number of a card, such as \"7\"")?;
    card_id("taskId", value)
}

fn ids(arguments: &Arguments<'_>, key: &str) -> Result<Vec<CardId>, String> {
    if arguments.value(key).is_none() {
        return Ok(Vec::new());
    }
    arguments.list(key)?.iter().map(|value| card_id(key, value)).collect()
}

fn card_id(key: &str, value: &Value) -> Result<CardId, String> {
    let id = match value {
        Value::String(text) => CardId::parse(text),
        value => value.as_u64().and_then(CardId::new),
    };
    id.ok_or_else(|| {
        format!("`{key}`: {} is not the number of a card, such as \"7\"", one_line(&value.to_string(), 80))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(number: u64) -> CardId {
        CardId::new(number).unwrap()
    }

    #[test]
    fn numbers_are_taken_however_they_are_written() {
        for value in [json!("7"), json!("#7"), json!(7)] {
            assert_eq!(parse(TaskTool::Get, &json!({"taskId": value})), Ok(Order::Get(id(7))));
        }
        let input =
            json!({"taskId": "1", "addBlocks": [2, "#3"], "addBlockedBy": "[\"4\"]", "metadata": "{\"a\": null}"});
        let patch = Patch {
            add_blocks: vec![id(2), id(3)],
            add_blocked_by: vec![id(4)],
            metadata: Some([("a".to_owned(), Value::Null)].into_iter().collect()),
            ..Patch::default()
        };
        assert_eq!(parse(TaskTool::Update, &input), Ok(Order::Update(id(1), Box::new(patch))));
    }

    #[test]
    fn a_card_is_made_of_words_and_an_empty_owner_is_nobody() {
        let input = json!({"subject": " s ", "description": "", "activeForm": "", "metadata": {"k": [1]}});
        let Ok(Order::Create(new)) = parse(TaskTool::Create, &input) else { panic!() };
        assert_eq!((new.subject.as_str(), new.description.as_str(), new.active_form), ("s", "", None));
        assert_eq!(new.metadata.unwrap()["k"], json!([1]));
        let Ok(Order::Update(_, patch)) = parse(TaskTool::Update, &json!({"taskId": "1", "owner": ""})) else {
            panic!()
        };
        assert_eq!(patch.owner.as_deref(), Some(""));
        assert_eq!(parse(TaskTool::Update, &json!({"taskId": 2, "status": "deleted"})), Ok(Order::Delete(id(2))));
        assert_eq!(parse(TaskTool::List, &json!({})), Ok(Order::List));
    }

    #[test]
    fn what_cant_be_used_is_said() {
        for (tool, input, said) in [
            (TaskTool::Create, json!({"description": "d"}), "`subject` is missing"),
            (TaskTool::Create, json!({"subject": "\n ", "description": "d"}), "`subject` is empty"),
            (TaskTool::Create, json!({"subject": "s"}), "`description` is missing"),
            (TaskTool::Create, json!({"subject": "s", "description": "d", "owner": "x"}), "no parameter `owner`"),
            (TaskTool::Create, json!({"subject": "s", "description": "d", "metadata": [1]}), "`metadata` is no object"),
            (TaskTool::Get, json!({}), "`taskId` is missing"),
            (TaskTool::Get, json!({"taskId": "x"}), "\"x\" is not the number of a card"),
            (TaskTool::Get, json!({"taskId": 0}), "0 is not the number of a card"),
            (TaskTool::List, json!({"x": 1}), "no parameter `x`"),
            (TaskTool::Update, json!({"taskId": "1"}), "what is to become of #1"),
            (TaskTool::Update, json!({"taskId": "1", "status": "done"}), "\"done\"; one of pending"),
            (TaskTool::Update, json!({"taskId": "1", "addBlocks": ["a"]}), "`addBlocks`: \"a\""),
            (TaskTool::Update, json!({"taskId": "1", "addBlocks": 3}), "`addBlocks` is no list"),
            (TaskTool::Update, json!({"taskId": "1", "subject": ""}), "`subject` is empty"),
            (TaskTool::Update, json!([]), "must be an object"),
        ] {
            let why = parse(tool, &input).unwrap_err();
            assert!(why.contains(said) && why.starts_with(&format!("the input of {}", tool.as_str())), "{why}");
        }
    }
}
