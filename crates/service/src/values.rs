//! Parsers for values of options and settings: sizes, times, counts, shares. This file depends on no other file of the
//! crate.

use entresol_core::Size;
use entresol_store::Layout;
use std::fmt;
use std::time::Duration;

/// Parses a page size: a power of two of bytes.
pub fn page_size(text: &str) -> Result<u32, String> {
    let size: Size = match text.parse() {
        Ok(Size::Pages(bytes)) | Ok(Size::Bytes(bytes)) => Size::Bytes(bytes),
        _ => return Err("a page size is a number of bytes, such as 4096 or 8KiB".to_owned()),
    };
    let bytes = size.pages(1, 0);
    let fits = bytes.is_power_of_two() && (64..=16 << 20).contains(&bytes);
    if fits { Ok(bytes as u32) } else { Err("a page size is a power of two from 64 B to 16 MiB".to_owned()) }
}

/// Parses the name of a cache layout.
pub fn layout(text: &str) -> Result<Layout, String> {
    let named = [Layout::Log, Layout::Slots, Layout::Segments].into_iter().find(|layout| layout.name() == text);
    named.ok_or_else(|| "it must be log, slots or segments".to_owned())
}

/// Parses a number of bytes: 4096, 64KiB, 10GB.
pub fn bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        Ok(Size::Pages(bytes)) if bytes > 0 && !text.contains('p') => Ok(bytes),
        _ => Err("it must be a number of bytes above 0, such as 4096, 64KiB or 10GB".to_owned()),
    }
}

/// Parses a number of bytes that may be 0.
pub fn bytes_or_none(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(0) | Size::Pages(0)) if !text.contains('p') => Ok(0),
        _ => bytes(text).map_err(|why| format!("{why}, or 0")),
    }
}

/// Parses a time: 90, 90s, 15m, 2h, 30d.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86_400.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * seconds).filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "it must be a time above 0, such as 90s, 15m or 2h".to_owned())
}

/// A time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}s", time.as_secs()),
            None => f.write_str("none"),
        }
    }
}

/// Parses `none`, or a time of at least a second in whole seconds.
pub fn seconds_or_none(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let whole = |time: &Duration| time.as_secs() > 0 && time.subsec_nanos() == 0;
    let time = duration(text).ok().filter(whole);
    time.map(|time| Limit(Some(time)))
        .ok_or_else(|| "it must be whole seconds, such as 90s, 15m or 2h, or none".to_owned())
}

/// Parses a count: 5000, 10k, 2Mi.
pub fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Pages(count)) if count > 0 && !text.contains('p') => Ok(count),
        _ => Err("it must be a count above 0, such as 5000, 10k or 2Mi".to_owned()),
    }
}

/// Parses a share: 0.05, 5%.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    let value = number.parse::<f64>().map_err(|error| error.to_string())? * scale;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("it must be at least 0 and below 1".to_owned()) }
}

/// Parses a percentage, with or without the sign, to a fraction.
pub fn percent(text: &str) -> Result<f64, String> {
    let share = text.strip_suffix('%').unwrap_or(text).parse::<f64>().map_err(|_| "it is no percentage".to_owned())?;
    if (0.0..=100.0).contains(&share) { Ok(share / 100.0) } else { Err("it is not between 0% and 100%".to_owned()) }
}
