//! Wall-clock values: milliseconds since the epoch inside, ISO 8601 with milliseconds in files.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
pub type Millis = u64;

/// The present wall-clock time. A clock before 1970 reads as 0.
pub fn now_ms() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).unwrap_or(0)
}

/// `2026-01-01T00:00:00.000Z`, the form transcripts use.
pub fn iso(ms: Millis) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(t) => format!("{t:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".to_owned(),
    }
}

/// Reads what [`iso`] writes (and any RFC 3339 time); `None` if it is not a time.
pub fn parse_iso(text: &str) -> Option<Millis> {
    let t: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(t.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_has_three_decimals_and_reads_back() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_767_225_600_120), "2026-01-01T00:00:00.120Z");
        assert_eq!(parse_iso("2026-01-01T00:00:00.120Z"), Some(1_767_225_600_120));
        assert_eq!(parse_iso("yesterday"), None);
    }
}
