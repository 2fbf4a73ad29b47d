//! Bounds on what others send to a process (spec 2.3): so many messages may wait, and so many a
//! second may come from one sender. What is over is refused with the number, never dropped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::core::limits::deadlines;

/// Messages from outside that may wait.
const WAITING: usize = 256;
/// Senders that are remembered; more are forgotten when their second is over.
const SENDERS: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// What came lately, by sender.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Since when is counted, and how many came.
    senders: HashMap<String, (Instant, u32)>,
}

impl Arrivals {
    /// Counts a message of `sender` while `waiting` others have not been seen yet; the refusal in
    /// words if it is one too many.
    pub fn admit(&mut self, sender: &str, waiting: usize, now: Instant) -> Result<(), String> {
        if waiting >= WAITING {
            return Err(format!("{waiting} messages wait already, and at most {WAITING} may"));
        }
        if self.senders.len() >= SENDERS {
            self.senders.retain(|_, (since, _)| now.saturating_duration_since(*since) < SECOND);
        }
        let most = per_second();
        let (since, count) = self.senders.entry(sender.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= SECOND {
            (*since, *count) = (now, 0);
        }
        if *count >= most {
            return Err(format!("{sender} sent {most} messages within a second, which is the limit; wait a second"));
        }
        *count += 1;
        Ok(())
    }
}

/// Messages a second of one sender.
fn per_second() -> u32 {
    let interval = deadlines().message_interval.max(Duration::from_nanos(1));
    u32::try_from(SECOND.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sender_has_twenty_a_second() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        for _ in 0..20 {
            assert_eq!(arrivals.admit("a", 0, now), Ok(()));
        }
        let refusal = arrivals.admit("a", 0, now + Duration::from_millis(999)).unwrap_err();
        assert!(refusal.contains("20 messages"), "{refusal}");
        assert_eq!(arrivals.admit("b", 0, now), Ok(()), "another sender is not held up");
        assert_eq!(arrivals.admit("a", 0, now + SECOND), Ok(()));
    }

    #[test]
    fn so_many_may_wait() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        assert_eq!(arrivals.admit("a", WAITING - 1, now), Ok(()));
        assert!(arrivals.admit("a", WAITING, now).is_err_and(|e| e.contains("256")));
    }

    #[test]
    fn old_senders_are_forgotten() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        for n in 0..SENDERS {
            assert_eq!(arrivals.admit(&n.to_string(), 0, now), Ok(()));
        }
        assert_eq!(arrivals.admit("new", 0, now + SECOND), Ok(()));
        assert_eq!(arrivals.senders.len(), 1);
    }
}
