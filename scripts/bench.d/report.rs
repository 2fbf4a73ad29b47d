//! Samples, what is expected of them, and how both are printed.

use std::fmt;

use serde_json::{Value, json};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// KiB.
    Kib,
    /// Times a second.
    Hertz,
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Kib => "kib",
            Self::Hertz => "per_s",
        }
    }

    fn show(self, value: f64) -> String {
        let (value, unit) = match self {
            Self::Micros if value < 1e3 => (value, "us"),
            Self::Micros if value < 1e6 => (value / 1e3, "ms"),
            Self::Micros => (value / 1e6, "s"),
            Self::Kib if value < 1024.0 => (value, "KiB"),
            Self::Kib => (value / 1024.0, "MiB"),
            Self::Hertz if value < 1e3 => (value, "/s"),
            Self::Hertz if value < 1e6 => (value / 1e3, "k/s"),
            Self::Hertz => (value / 1e6, "M/s"),
        };
        let digits = if value == 0.0 || value >= 100.0 { 0 } else { 2 };
        format!("{value:.digits$} {unit}")
    }
}

/// Numbers of one kind, in the order they were measured.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Another number for each.
    pub fn map(&self, of: impl FnMut(f64) -> f64) -> Self {
        self.0.iter().copied().map(of).collect()
    }

    /// The value that `share` (0 to 1) of the samples do not exceed; NaN without samples.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// What one in a hundred exceeds; with fewer samples the largest.
    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// What is expected. `×` is of the median of the limit.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Median at most so many times the limit.
    Times(f64),
    /// Median and p99 at most so many times the limit.
    TimesAndTail(f64, f64),
    /// Median at most.
    AtMost(f64),
    /// Median and p99 at most.
    AtMostAndTail(f64, f64),
    /// Median at most so much above the limit.
    Above(f64),
    /// Median at least.
    AtLeast(f64),
    /// Nothing; shown for comparison.
    Open,
}

/// One line of the result.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// What the numbers count.
    pub unit: Unit,
    /// The limit, where there is one.
    pub limit: Option<Samples>,
    /// Ours.
    pub ours: Samples,
    /// What is expected.
    pub target: Target,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.limit.as_ref().map(|l| self.ours.median() / l.median()).filter(|r| r.is_finite())
    }

    /// By how much the target is missed: 1 or less is met.
    fn miss(&self) -> Option<f64> {
        let limit = self.limit.as_ref().map_or(f64::NAN, Samples::median);
        let (median, p99) = (self.ours.median(), self.ours.p99());
        let miss = match self.target {
            Target::Times(times) => median / limit / times,
            Target::TimesAndTail(times, tail) => (median / limit / times).max(p99 / limit / tail),
            // Zero is a target too.
            Target::AtMost(most) => {
                if median <= most {
                    0.0
                } else {
                    median / most
                }
            }
            Target::AtMostAndTail(most, tail) => (median / most).max(p99 / tail),
            Target::Above(more) => median / (limit + more),
            Target::AtLeast(least) => least / median,
            Target::Open => return None,
        };
        Some(miss)
    }

    fn target(&self) -> String {
        match self.target {
            Target::Times(times) => format!("<= {times} x"),
            Target::TimesAndTail(times, tail) => format!("<= {times} x, p99 <= {tail} x"),
            Target::AtMost(most) => format!("<= {}", self.unit.show(most)),
            Target::AtMostAndTail(most, tail) => {
                format!("<= {}, p99 <= {}", self.unit.show(most), self.unit.show(tail))
            }
            Target::Above(more) => format!("<= limit + {}", self.unit.show(more)),
            Target::AtLeast(least) => format!(">= {}", self.unit.show(least)),
            Target::Open => String::new(),
        }
    }

    /// The row for programs.
    pub fn to_json(&self) -> Value {
        let summary = |s: &Samples| json!({"median": s.median(), "p99": s.p99(), "samples": s.0.len()});
        json!({
            "name": self.name,
            "unit": self.unit.as_str(),
            "limit": self.limit.as_ref().map(summary),
            "ours": summary(&self.ours),
            "ratio": self.ratio(),
            "target": self.target(),
            "met": self.miss().map(|m| m <= 1.0),
        })
    }
}

/// The head of the table.
pub const HEAD: &str =
    "what                                limit p50   limit p99    lead p50    lead p99    ratio  target";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| self.unit.show(v));
        write!(
            f,
            "{:<33} {:>11} {:>11} {:>11} {:>11} {:>8}  {}",
            self.name,
            show(self.limit.as_ref().map(Samples::median)),
            show(self.limit.as_ref().map(Samples::p99)),
            show(Some(self.ours.median())),
            show(Some(self.ours.p99())),
            self.ratio().map_or_else(|| "-".to_owned(), |r| format!("{r:.2} x")),
            self.target(),
        )?;
        match self.miss() {
            Some(miss) if miss <= 1.0 => f.write_str("  met"),
            Some(miss) if miss.is_finite() => write!(f, "  MISSED by {miss:.2} x"),
            Some(_) => f.write_str("  MISSED"),
            None => Ok(()),
        }
    }
}
