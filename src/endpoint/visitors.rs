//! The process's own socket: greets whoever connects and hands their requests to the main loop.
//! What needs no state is answered here, so that a busy loop still answers a `Ping`.

use tokio::sync::mpsc;

use crate::core::agent::RegistryEntry;
use crate::core::frame::{Frame, PROTOCOL};
use crate::core::limits::deadlines;
use crate::wire::{Connection, Inbox, Link, Listener, PeerStream};

/// A request of somebody who connected.
pub struct Visit {
    /// Their connection.
    pub link: Link,
    /// Frames they still send; the loop takes it when it makes the connection its owner link.
    pub inbox: Option<Inbox>,
    /// Number to answer.
    pub seq: u64,
    /// What they want.
    pub frame: Frame,
}

/// Accepts connections until the receiver of `visits` is gone.
pub async fn receive_visitors(listener: Listener, entry: RegistryEntry, visits: mpsc::Sender<Visit>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = visits.closed() => return,
        };
        match accepted {
            Ok(stream) => {
                tokio::spawn(serve(stream, entry.clone(), visits.clone()));
            }
            Err(error) => {
                // Out of descriptors, or a peer of another user: the socket itself is still good.
                tracing::warn!(%error, "a connection was not accepted");
                let _ = tokio::time::timeout(deadlines().state_write, visits.closed()).await;
            }
        }
    }
}

async fn serve(stream: PeerStream, entry: RegistryEntry, visits: mpsc::Sender<Visit>) {
    let (link, mut inbox) = Connection::start(stream);
    let Ok(Some(first)) = tokio::time::timeout(deadlines().handshake, inbox.recv()).await else {
        link.close();
        return;
    };
    let Frame::Hello(hello) = first.frame else {
        let _ = link.reply(first.seq, Frame::Refused { reason: "the first frame must be a hello".to_owned() });
        return;
    };
    if hello.protocol != PROTOCOL {
        let reason = format!(
            "this process speaks protocol {PROTOCOL}, you speak {}: use the programs of one build",
            hello.protocol
        );
        let _ = link.reply(first.seq, Frame::Refused { reason });
        return;
    }
    // A member that was started in a pane greets its parent. Whether it is one is for the loop to say.
    if hello.role == "teammate" {
        let visit = Visit { link: link.clone(), inbox: Some(inbox), seq: first.seq, frame: Frame::Hello(hello) };
        let _ = visits.send(visit).await;
        return;
    }
    if link.reply(first.seq, Frame::HelloOk { entry: Box::new(entry) }).is_err() {
        return;
    }
    while let Some(incoming) = inbox.recv().await {
        let visit = match incoming.frame {
            Frame::Ping => {
                let _ = link.reply(incoming.seq, Frame::Pong);
                continue;
            }
            Frame::Unknown => {
                let message = "this build does not know that request".to_owned();
                let _ = link.reply(incoming.seq, Frame::Error { code: "unsupported".to_owned(), message });
                continue;
            }
            // The loop may make this connection its owner link, so it gets the whole of it.
            frame @ Frame::Adopt { .. } => {
                let visit = Visit { link: link.clone(), inbox: Some(inbox), seq: incoming.seq, frame };
                let _ = visits.send(visit).await;
                return;
            }
            frame => Visit { link: link.clone(), inbox: None, seq: incoming.seq, frame },
        };
        if visits.send(visit).await.is_err() {
            return;
        }
    }
}
