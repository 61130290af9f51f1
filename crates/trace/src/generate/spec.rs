//! The textual specification of a generated trace: parsing and its errors. The grammar is in the module above.

use super::weights::{MILLION, RANKS_MAX};
use entresol_core::Size;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// Highest block or page count a part may have.
const BLOCKS_MAX: u64 = 1 << 40;
/// Longest gap between requests: an hour.
const GAP_US_MAX: u64 = 3_600_000_000;
const WAREHOUSES_MAX: u64 = 10_000;
const PAGE_BYTES: u32 = 4096;

/// A trace to generate, parsed from text: see the grammar of the [module](mod@crate::generate). Parsing with
/// [`FromStr`] takes pages of 4096 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSpec {
    pub(super) page_bytes: u32,
    pub(super) phases: Vec<Vec<Part>>,
    text: String,
}

/// Reason for which a text specifies no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{part}': {what}")]
pub struct SpecError {
    part: String,
    what: String,
}

/// One part of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub kind: Kind,
    pub n: u64,
    pub seed: u64,
    pub gap_us: u64,
    /// Settings that every kind but `tpcc` and `olap` has.
    pub plain: Plain,
}

/// Location of a part's pages, and shares of its requests that write.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Plain {
    pub object: String,
    pub base: u64,
    pub ids: Ids,
    pub write_percent: u64,
    pub update_percent: u64,
    pub write_seed: u64,
}

/// From rank to block.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(super) enum Ids {
    #[default]
    Plain,
    Scattered,
    Hashed,
}

/// Distribution from which pages are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Zipf { pages: u64, exponent_millionths: u64 },
    Pareto { pages: u64, hot: u64, to: u64 },
    HotCold { pages: u64, hot: u64, to: u64 },
    Uniform { pages: u64 },
    Loop { pages: u64 },
    Scan,
    Mixed { pages: u64 },
    Tpcc { warehouses: u64 },
    Olap { pages: u64, io: u64 },
}

impl GenerateSpec {
    /// Parses a specification for pages of this many bytes, 512 at least.
    ///
    /// # Errors
    /// [`SpecError`] naming the part and the key that is unknown, missing, repeated or out of range.
    pub fn parse(text: &str, page_bytes: u32) -> Result<Self, SpecError> {
        let refuse = |what: String| SpecError { part: text.trim().to_owned(), what };
        if page_bytes < 512 {
            return Err(refuse(format!("pages of {page_bytes} bytes; the least is 512")));
        }
        let phase = |mixture: &str| mixture.split('|').map(|part| parse_part(part, page_bytes)).collect();
        let phases: Vec<Vec<Part>> = text.split('+').map(phase).collect::<Result<_, SpecError>>()?;
        let spec = GenerateSpec { page_bytes, phases, text: text.split_whitespace().collect() };
        if spec.requests() >= u64::from(u32::MAX) {
            return Err(refuse(format!("{} requests; a trace holds fewer than 2^32 - 1", spec.requests())));
        }
        let mut ids_of = HashMap::new();
        for plain in spec.phases.iter().flatten().map(|part| &part.plain).filter(|plain| !plain.object.is_empty()) {
            let hashed = plain.ids == Ids::Hashed;
            if *ids_of.entry(&plain.object).or_insert(hashed) != hashed {
                return Err(refuse(format!("only some parts of object '{}' have ids=hashed", plain.object)));
            }
        }
        Ok(spec)
    }

    /// Page size in bytes.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Number of page requests of the trace.
    pub fn requests(&self) -> u64 {
        self.phases.iter().flatten().fold(0, |sum, part| sum.saturating_add(part.n))
    }
}

impl FromStr for GenerateSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text, PAGE_BYTES)
    }
}

impl fmt::Display for GenerateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The keys of one part that are not taken yet.
struct Keys<'a> {
    part: &'a str,
    page_bytes: u32,
    given: Vec<(&'a str, &'a str)>,
    asked: Vec<&'static str>,
}

impl<'a> Keys<'a> {
    fn refuse(&self, what: String) -> SpecError {
        SpecError { part: self.part.to_owned(), what }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        self.asked.push(key);
        let at = self.given.iter().position(|(name, _)| *name == key)?;
        Some(self.given.remove(at).1)
    }

    fn in_range(&self, key: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, SpecError> {
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.refuse(format!("{key}={value} is outside {}..={}", range.start(), range.end())))
    }

    fn count(
        &mut self,
        key: &'static str,
        default: Option<u64>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, SpecError> {
        let Some(text) = self.take(key) else {
            return default.ok_or_else(|| self.refuse(format!("the key '{key}' is missing")));
        };
        let size: Size = text.parse().map_err(|error| self.refuse(format!("{key}: {error}")))?;
        if let Size::Percent(_) = size {
            return Err(self.refuse(format!("{key}={text}: a share of what? Give a count")));
        }
        self.in_range(key, size.pages(self.page_bytes, 0), range)
    }

    fn number(&mut self, key: &'static str, default: u64, max: u64) -> Result<u64, SpecError> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let value = text.parse().map_err(|_| self.refuse(format!("{key}={text} is not a whole number")))?;
        self.in_range(key, value, 0..=max)
    }

    /// A decimal fraction in millionths.
    fn millionths(&mut self, key: &'static str, default: u64, max: u64) -> Result<u64, SpecError> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let bad = || self.refuse(format!("{key}={text} is not a decimal number with at most six places"));
        let (whole, places) = text.split_once('.').unwrap_or((text, ""));
        if places.len() > 6 || !places.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let fraction: u64 = format!("{places:0<6}").parse().map_err(|_| bad())?;
        self.in_range(key, whole.saturating_mul(MILLION).saturating_add(fraction), 1..=max)
    }

    fn finish(self, kind: &str) -> Result<(), SpecError> {
        match self.given.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(self.refuse(format!("unknown or repeated key '{key}'; {kind} has {}", self.asked.join(", "))))
            }
        }
    }
}

fn parse_part(text: &str, page_bytes: u32) -> Result<Part, SpecError> {
    let text = text.trim();
    let mut words = text.split(':').map(str::trim);
    let name = words.next().unwrap_or("");
    let mut keys = Keys { part: text, page_bytes, given: Vec::new(), asked: Vec::new() };
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => keys.given.push((key.trim(), value.trim())),
            None => return Err(keys.refuse(format!("'{word}' is not of the form key=value"))),
        }
    }
    let n = keys.count("n", None, 1..=u64::from(u32::MAX) - 1);
    let kind = parse_kind(name, &mut keys)?;
    let n = n?;
    if matches!(kind, Kind::Mixed { .. }) && n % 10 != 0 {
        return Err(keys.refuse(format!("n={n} does not divide into ten phases")));
    }
    let seed = keys.number("seed", 1, u64::MAX)?;
    let gap_us = keys.number("gap", 1, GAP_US_MAX)?;
    let plain = match kind {
        Kind::Tpcc { .. } | Kind::Olap { .. } => Plain::default(),
        _ => parse_plain(&mut keys)?,
    };
    keys.finish(name)?;
    Ok(Part { kind, n, seed, gap_us, plain })
}

fn parse_kind(name: &str, keys: &mut Keys) -> Result<Kind, SpecError> {
    let table = 1..=RANKS_MAX;
    let range = 1..=BLOCKS_MAX;
    Ok(match name {
        "zipf" => Kind::Zipf {
            pages: keys.count("pages", None, table)?,
            exponent_millionths: keys.millionths("exponent", MILLION, 10 * MILLION)?,
        },
        "pareto" => {
            let pages = keys.count("pages", None, table)?;
            let (hot, to) = hot_and_to(keys)?;
            Kind::Pareto { pages, hot, to }
        }
        "hotcold" => {
            let pages = keys.count("pages", None, 2..=BLOCKS_MAX)?;
            let (hot, to) = hot_and_to(keys)?;
            Kind::HotCold { pages, hot, to }
        }
        "uniform" => Kind::Uniform { pages: keys.count("pages", None, range)? },
        "loop" => Kind::Loop { pages: keys.count("pages", None, range)? },
        "scan" => Kind::Scan,
        "mixed" => Kind::Mixed { pages: keys.count("pages", None, 5..=RANKS_MAX)? },
        "tpcc" => Kind::Tpcc { warehouses: keys.count("warehouses", Some(10), 1..=WAREHOUSES_MAX)? },
        "olap" => Kind::Olap {
            pages: keys.count("pages", Some(20_000), 1000..=BLOCKS_MAX)?,
            io: keys.count("io", Some(16), 1..=1024)?,
        },
        _ => {
            let kinds = "zipf, pareto, hotcold, uniform, loop, scan, mixed, tpcc, olap";
            return Err(keys.refuse(format!("unknown kind '{name}'; there are {kinds}")));
        }
    })
}

fn hot_and_to(keys: &mut Keys) -> Result<(u64, u64), SpecError> {
    let hot = keys.number("hot", 20, 100)?;
    let to = keys.number("to", 80, 100)?;
    Ok((keys.in_range("hot", hot, 1..=99)?, keys.in_range("to", to, 1..=99)?))
}

fn parse_plain(keys: &mut Keys) -> Result<Plain, SpecError> {
    let object = keys.take("object").unwrap_or("pages").to_owned();
    if object.is_empty() {
        return Err(keys.refuse("object= names nothing".to_owned()));
    }
    let base = keys.count("base", Some(0), 0..=BLOCKS_MAX)?;
    let ids = match keys.take("ids") {
        None | Some("plain") => Ids::Plain,
        Some("scattered") => Ids::Scattered,
        Some("hashed") => Ids::Hashed,
        Some(other) => {
            return Err(keys.refuse(format!("ids={other} is none of plain, scattered, hashed")));
        }
    };
    Ok(Plain {
        object,
        base,
        ids,
        write_percent: keys.number("write", 0, 100)?,
        update_percent: keys.number("update", 0, 100)?,
        write_seed: keys.number("wseed", 777, u64::MAX)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_parse() {
        for (text, requests) in [
            ("zipf:n=10M:pages=1M:seed=42:write=30", 10_000_000),
            ("zipf:n=1k:pages=4MiB:exponent=0.85:ids=scattered", 1000),
            ("pareto:n=10:pages=10", 10),
            ("hotcold:n=10:pages=10:hot=10:to=90:update=50:write=100", 10),
            (" loop:n=2k:pages=1k + scan:n=1k:object=backup | uniform:n=64Ki:pages=7 ", 68_536),
            ("mixed:n=50k:pages=5k:seed=7:write=30", 50_000),
            ("tpcc:n=1M:warehouses=20 | olap:n=5:gap=0", 1_000_005),
        ] {
            let spec: GenerateSpec = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.requests(), requests, "{text}");
            assert_eq!(spec.to_string().parse::<GenerateSpec>().expect("its own text"), spec);
        }
    }

    #[test]
    fn bytes_are_divided_by_the_page_size() {
        let spec = GenerateSpec::parse("loop:n=1:pages=1MiB", 16384).expect("a spec");
        assert_eq!(spec.phases[0][0].kind, Kind::Loop { pages: 64 });
        assert_eq!(spec.page_bytes(), 16384);
        assert!(GenerateSpec::parse("scan:n=1", 511).is_err());
    }

    #[test]
    fn errors_name_the_part_and_the_key() {
        for (text, words) in [
            ("", "unknown kind ''"),
            ("zip:n=1", "unknown kind 'zip'"),
            ("zipf:n=1", "'pages' is missing"),
            ("scan", "'n' is missing"),
            ("scan:n=1:pages=3", "unknown or repeated key 'pages'; scan has n, seed"),
            ("scan:n=1:n=2", "key 'n'"),
            ("scan:n=0", "n=0 is outside"),
            ("scan:n=5%", "a share of what"),
            ("scan:n", "'n' is not of the form key=value"),
            ("scan:n=1:write=101", "write=101 is outside"),
            ("scan:n=1:ids=odd", "ids=odd"),
            ("zipf:n=1:pages=1G", "pages=1000000000 is outside"),
            ("zipf:n=1:pages=1:exponent=-1", "exponent=-1"),
            ("zipf:n=1:pages=1:exponent=1.1234567", "exponent=1.1234567"),
            ("zipf:n=1:pages=1:exponent=0", "exponent=0 is outside"),
            ("pareto:n=1:pages=9:hot=0", "hot=0"),
            ("tpcc:n=1:write=3", "unknown or repeated key 'write'"),
            ("mixed:n=11:pages=10", "ten phases"),
            ("scan:n=3G + scan:n=3G", "6000000000 requests"),
            ("scan:n=1 + scan:n=1:ids=hashed", "only some parts of object 'pages'"),
        ] {
            let error = text.parse::<GenerateSpec>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
