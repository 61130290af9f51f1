//! Events of a cache in use: one line per event on standard error, for people or for programs.

use super::keyword::{Entry, Keyword};
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// Format of events on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// JSON objects.
    Json,
}

impl Keyword for LogFormat {
    const ALL: &'static [Entry<Self>] = &[
        Entry::new(LogFormat::Text, "text", "A line for people"),
        Entry::new(
            LogFormat::Json,
            "json",
            "A JSON object per line: time, level, cache, event, message, and fields of the event",
        ),
    ];
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A normal event; omitted by a quiet command.
    Info,
    /// An event that needs attention.
    Warning,
}

/// Writer of a cache's events to standard error.
#[derive(Clone, Debug)]
pub struct Log {
    cache: String,
    format: LogFormat,
    quiet: bool,
}

impl Log {
    /// For the cache of this name; control characters in the name become blanks.
    pub(crate) fn new(cache: String, format: LogFormat, quiet: bool) -> Self {
        Log { cache: printable(&cache), format, quiet }
    }

    /// Writes an event; `more` has fields for programs besides the message.
    pub fn event(&self, level: Level, event: &str, message: &str, more: Value) {
        if level != Level::Info || !self.quiet {
            say!("{}", self.line(SystemTime::now(), level, event, message, more));
        }
    }

    fn line(&self, now: SystemTime, level: Level, event: &str, message: &str, more: Value) -> String {
        // An event stays on one line, whatever the message of a device contains.
        let message = printable(message);
        if self.format == LogFormat::Text {
            return format!("{}: {message}", self.cache);
        }
        let level = if level == Level::Info { "info" } else { "warning" };
        let mut object = Map::new();
        let fields = [("time", time(now)), ("level", level.to_owned()), ("cache", self.cache.clone())];
        object.extend(fields.map(|(name, value)| (name.to_owned(), value.into())));
        object.extend([("event".to_owned(), event.into()), ("message".to_owned(), message.into())]);
        if let Value::Object(more) = more {
            object.extend(more);
        }
        Value::Object(object).to_string()
    }
}

/// Replaces control characters by blanks.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A time in the format of RFC 3339, in UTC, with milliseconds.
fn time(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The date this many days after 1970-01-01. Years are counted from March, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    // Days since 0000-03-01, within four centuries.
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1460 + day / 36_524 - day / (CYCLE - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next, month, day - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(ms)
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS --iso-8601=seconds` has them.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(time(at(seconds, 7)), expected);
        }
        // Days follow one another.
        let mut before = date(0);
        for days in 1..200_000 {
            let (year, month, day) = date(days);
            let follows = (year, month, day - 1) == before
                || (day == 1 && (year, month - 1) == (before.0, before.1) && before.2 >= 28)
                || ((month, day) == (1, 1) && before == (year - 1, 12, 31));
            assert!(follows, "{before:?}, then {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    #[test]
    fn a_line_is_one_line_in_both_formats() {
        let more = || serde_json::json!({ "pages": 5 });
        let line = |format| {
            let log = Log::new("fast\ncache".to_owned(), format, false);
            log.line(at(0, 1), Level::Warning, "device-errors", "a\nb\u{1b}[2J\"", more())
        };
        assert_eq!(line(LogFormat::Text), "fast cache: a b [2J\"");
        let json: Value = serde_json::from_str(&line(LogFormat::Json)).expect("JSON");
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.001Z", "level": "warning", "cache": "fast cache", "event": "device-errors",
            "message": "a b [2J\"", "pages": 5
        });
        assert_eq!(json, expected);
        assert!(!line(LogFormat::Json).contains('\n'));
    }
}
