//! Sends plain mail between members of a team, for whichever side carries out `SendMessage` (spec 2.3): the
//! lead's main loop and a teammate's. The answers have the shapes that other programs read (formats B.5).

use serde_json::{Value, json};

use super::ToolOutput;
use super::tasks::AliveTest;
use crate::core::clock::now_ms;
use crate::core::ids::random_uuid;
use crate::core::team::claim::Life;
use crate::core::team::name::{LEAD, same};
use crate::core::team::protocol::Content;
use crate::core::team::{Letter, Roster};
use crate::core::text::{one_line, with_causes};
use crate::store::team::mailbox::Sent;
use crate::store::team::{Team, TeamError};

/// A member who writes.
#[derive(Clone)]
pub struct MailDesk {
    /// Its team.
    pub team: Team,
    /// Its exact name.
    pub me: String,
    /// Its colour; none for the lead.
    pub colour: Option<String>,
    /// Whether anybody reads what arrives.
    pub is_alive: AliveTest,
}

/// A plain message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainMail {
    /// A member's name, or `*` for all others.
    pub to: String,
    /// What it says.
    pub text: String,
    /// The same in a few words.
    pub summary: String,
}

/// Puts a message into the mailbox of a member, or of all others. When this answers, it lies there; what can't
/// be done is an error output with the reason, and makes no file.
pub async fn send_mail(desk: &MailDesk, mail: PlainMail) -> ToolOutput {
    let desk = desk.clone();
    let sent =
        tokio::task::spawn_blocking(move || if mail.to == "*" { desk.to_all(&mail) } else { desk.to_one(&mail) });
    match sent.await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => ToolOutput::error(in_words(&error)),
        Err(error) => ToolOutput::error(format!("the message was not sent: {error}")),
    }
}

impl MailDesk {
    fn to_one(&self, mail: &PlainMail) -> Result<ToolOutput, TeamError> {
        if let Some(refusal) = refusal(&mail.text) {
            return Ok(ToolOutput::error(refusal));
        }
        if same(&mail.to, &self.me) {
            return Ok(ToolOutput::error("that is yourself; a message is for somebody else"));
        }
        let Sent { to, rescue } = self.team.send(&self.letter(mail, mail.to.clone()))?;
        if let Some(rescue) = rescue {
            let (aside, reason) = (rescue.moved_to.display(), rescue.reason);
            tracing::warn!("a broken mailbox was put aside as {aside} ({reason}); {} messages were kept", rescue.kept);
        }
        let mut text = format!("delivered to inbox of {}", one_line(&to, 80));
        if self.team.life(&to, &|member| (self.is_alive)(member)) == Life::Gone {
            let why = if same(&to, LEAD) { "the team has no lead" } else { "its process is gone" };
            text.push_str(&format!(", but nobody reads it now: {why}. The message is kept"));
        }
        let colour = self.team.roster().ok().and_then(|roster| roster.member(&to)?.color.clone());
        let said = format!("Message sent to {to}'s inbox");
        let mut routing = self.routing(mail, &format!("@{to}"));
        if let Some(colour) = colour {
            routing["targetColor"] = json!(colour);
        }
        Ok(ToolOutput::ok(text).with(json!({"success": true, "message": said, "routing": routing})))
    }

    fn to_all(&self, mail: &PlainMail) -> Result<ToolOutput, TeamError> {
        if let Some(refusal) = refusal(&mail.text) {
            return Ok(ToolOutput::error(refusal));
        }
        let roster = self.team.roster()?;
        let (mut delivered, mut failed, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for name in roster.others(&self.me) {
            match self.team.send(&self.letter(mail, name.to_owned())) {
                Ok(sent) => {
                    if self.team.life(name, &|member| (self.is_alive)(member)) == Life::Gone {
                        unread.push(sent.to.clone());
                    }
                    delivered.push(sent.to);
                }
                // It left just now.
                Err(TeamError::NoMember { .. }) => {}
                Err(error) => failed.push((name.to_owned(), with_causes(&error))),
            }
        }
        let count = delivered.len() + failed.len();
        if count == 0 {
            return Ok(ToolOutput::error("nobody else is in the team"));
        }
        let outcome = format!("delivered to {} of {count} members", delivered.len());
        let mut text = outcome.clone();
        for (name, why) in &failed {
            text.push_str(&format!("\nnot to {}: {why}", one_line(name, 80)));
        }
        if !unread.is_empty() {
            text.push_str(&format!(
                "\nnobody reads it now, but it is kept, for: {}",
                one_line(&unread.join(", "), 1000)
            ));
        }
        let failures: Vec<Value> = failed.iter().map(|(name, error)| json!({"name": name, "error": error})).collect();
        let mut routing = self.routing(mail, &format!("@{}", team_name(&roster)));
        routing["recipients"] = json!(delivered);
        let output = if delivered.is_empty() { ToolOutput::error(text) } else { ToolOutput::ok(text) };
        let success = failed.is_empty();
        Ok(output.with(json!({"success": success, "message": outcome, "failed": failures, "routing": routing})))
    }

    fn letter(&self, mail: &PlainMail, to: String) -> Letter {
        Letter {
            to,
            from: self.me.clone(),
            text: mail.text.clone(),
            summary: Some(mail.summary.clone()),
            color: self.colour.clone(),
            sent_ms: now_ms(),
            msg_id: random_uuid(),
        }
    }

    fn routing(&self, mail: &PlainMail, target: &str) -> Value {
        let mut routing = json!({"sender": self.me});
        if let Some(colour) = &self.colour {
            routing["senderColor"] = json!(colour);
        }
        routing["target"] = json!(target);
        routing["summary"] = json!(mail.summary);
        routing["content"] = json!(mail.text);
        routing
    }
}

fn team_name(roster: &Roster) -> &str {
    &roster.head().name
}

/// What runtimes say to each other is theirs to say: as a text it would be taken for that.
fn refusal(text: &str) -> Option<String> {
    let kind = match Content::of(text) {
        Content::Plain | Content::Unknown(_) => return None,
        Content::Protocol(protocol) => protocol.kind().to_owned(),
        Content::Broken { kind, .. } => kind,
    };
    Some(format!(
        "the text is a message between runtimes ({kind}), which can't be sent as text; answer a request with `message` \
as an object of type shutdown_response or plan_approval_response"
    ))
}

fn in_words(error: &TeamError) -> String {
    let words = with_causes(error);
    match error {
        TeamError::MailTooLong { .. } => format!("{words}; write it to a file and send the file's path"),
        _ => words,
    }
}

#[cfg(test)]
#[path = "team_mail_tests.rs"]
mod tests;
