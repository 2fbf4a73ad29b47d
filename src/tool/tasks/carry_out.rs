//! Carries out a call of a tool of the task board.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::answers;
use super::desk::{TaskDesk, TaskError};
use super::input::{Order, parse};
use super::specs::TaskTool;
use crate::core::team::board::Patch;
use crate::core::team::{CardId, Status};
use crate::core::text::with_causes;
use crate::tool::ToolOutput;

/// Carries out `tool` (`TaskCreate`, `TaskGet`, `TaskList` or `TaskUpdate`) with `input` at `desk`. What can't
/// be done is an error output with the reason; `cancel` ends the wait for hooks, and then nothing is done.
pub async fn carry_out(desk: &TaskDesk, tool: &str, input: &Value, cancel: &CancellationToken) -> ToolOutput {
    let Some(named) = TaskTool::named(tool) else {
        let names = TaskTool::ALL.map(TaskTool::as_str).join(", ");
        return ToolOutput::error(format!("{tool:?} is no tool of the task board; those are {names}"));
    };
    let order = match parse(named, input) {
        Ok(order) => order,
        Err(why) => return ToolOutput::error(why),
    };
    let done = match order {
        Order::Create(new) => desk.create(new, cancel).await.map(|card| answers::created(&card)),
        Order::Get(id) => desk.get(id).await.map(|card| answers::shown(id, &card)),
        Order::List => desk.list().await.map(|listing| answers::listed(&listing)),
        Order::Update(id, patch) => update(desk, id, *patch, cancel).await,
        Order::Delete(id) => desk.delete(id).await.map(|card| answers::deleted(id, &card)),
    };
    done.unwrap_or_else(|error| ToolOutput::error(with_causes(&error)))
}

async fn update(
    desk: &TaskDesk,
    id: CardId,
    patch: Patch,
    cancel: &CancellationToken,
) -> Result<ToolOutput, TaskError> {
    let changed = desk.update(id, patch, cancel).await?;
    let mut output = answers::updated(id, &changed);
    if changed.updated.status.as_ref().is_some_and(|(_, now)| *now == Status::Completed) {
        if !desk.is_lead {
            output.text.push_str(answers::LOOK_FURTHER);
        } else if desk.nudge && answers::lacks_verification(&desk.list().await?.rows, &desk.me) {
            output.text.push_str(answers::NUDGE);
        }
    }
    Ok(output)
}
