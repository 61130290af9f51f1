//! The bound on the age of dirty pages, as figures of a running cache.

use entresol_cache::DirtyAge;
use entresol_render::NumberFormat;
use serde::{Deserialize, Serialize};

/// The bound on the age of dirty pages, and its effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgeFigures {
    /// Longest time in seconds for which a page may differ from the backing store.
    pub bound_s: f64,
    /// Age in seconds of the oldest dirty page, at most; 0 without dirty pages.
    pub oldest_s: f64,
    /// Pages written to the backing store because of their age.
    pub written_pages: u64,
    /// Pages written back later than the bound.
    pub late_pages: u64,
    /// Seconds by which the latest of those pages was late.
    pub late_by_s: f64,
    /// Writes that had to wait because the bound could not be kept.
    pub waits: u64,
    /// Pages a second that are written back because of their age; none before the first.
    pub pages_per_s: Option<u64>,
}

impl From<DirtyAge> for AgeFigures {
    fn from(age: DirtyAge) -> Self {
        let DirtyAge { bound, oldest, written, late, late_by, waits, rate } = age;
        AgeFigures {
            bound_s: bound.as_secs_f64(),
            oldest_s: oldest.map_or(0.0, |oldest| oldest.as_secs_f64()),
            written_pages: written,
            late_pages: late,
            late_by_s: late_by.as_secs_f64(),
            waits,
            pages_per_s: rate,
        }
    }
}

impl AgeFigures {
    /// Seconds by which the oldest dirty page exceeds the bound now.
    pub fn over_s(&self) -> f64 {
        (self.oldest_s - self.bound_s).max(0.0)
    }

    /// The figures in one line.
    pub fn line(&self) -> String {
        let seconds = |value: f64| NumberFormat::Seconds.short(value);
        let mut line = format!("oldest {} of {}", seconds(self.oldest_s), seconds(self.bound_s));
        if self.over_s() > 0.0 {
            line += &format!(", the bound is missed by {}", seconds(self.over_s()));
        }
        if self.late_pages > 0 {
            line += &format!("; {} pages were late, by {} at most", self.late_pages, seconds(self.late_by_s));
        }
        if self.waits > 0 {
            line += &format!("; {} writes waited", self.waits);
        }
        line + &format!("; {} pages written for it", self.written_pages)
    }
}
