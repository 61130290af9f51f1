//! Recognises a format by the first bytes of a trace.
//!
//! A text is recognised by its header where the format has one. Otherwise each format's own line parser is tried on
//! the first lines, and the formats that accept the most of them, at least half, are candidates. Formats that no line
//! can distinguish are resolved by differences over several lines, then by the file's name. A remaining ambiguity is
//! refused with its candidates.

use super::{Format, Meta, alibaba, fio, first_line, oracle_general, recorded, systor, text_format, vscsi};
use crate::input::without_cr;
use crate::native;
use crate::parse::{Bad, excerpt, split_words};
use crate::text::accepted;

/// Most lines that are tried.
const LINES_MAX: usize = 64;

/// Result of detecting a format by the first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    /// The format.
    Format(Format),
    /// No format fits, or more than one does; the sentence gives the reason and the candidates.
    Unclear(String),
}

/// Recognises a format by the first bytes of a (decompressed) file and its name; `head_is_all` when the file has no
/// more bytes than these.
pub fn detect(head: &[u8], head_is_all: bool, file_name: &str) -> Detection {
    if head.is_empty() {
        return Detection::Unclear("the file is empty".to_owned());
    }
    let candidates = if native::is_native(head) {
        vec![Format::Native]
    } else if head.contains(&0) {
        binary(head)
    } else {
        match text(head, head_is_all) {
            Ok(candidates) => candidates,
            Err(Bad(what)) => return Detection::Unclear(what.into_owned()),
        }
    };
    match resolve(&candidates, file_name)[..] {
        [format] => Detection::Format(format),
        [] => Detection::Unclear(format!(
            "no known trace format fits; it begins with {}; name one with --format if it is one of {}",
            excerpt(&head[..head.len().min(40)]),
            list(&Format::ALL)
        )),
        ref several => {
            Detection::Unclear(format!("more than one format fits: {}; choose one with --format", list(several)))
        }
    }
}

fn list(formats: &[Format]) -> String {
    formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}

fn binary(head: &[u8]) -> Vec<Format> {
    let mut candidates = Vec::new();
    if vscsi::Version::of(head).is_some() {
        candidates.push(Format::Vscsi);
    }
    if oracle_general::looks_like(head) {
        candidates.push(Format::OracleGeneral);
    }
    candidates
}

/// Lets the name decide between candidates that the bytes cannot tell apart.
fn resolve(candidates: &[Format], file_name: &str) -> Vec<Format> {
    if candidates.len() > 1 {
        let name = file_name.to_ascii_lowercase();
        let hints = [("oraclegeneral", Format::OracleGeneral), ("vscsi", Format::Vscsi)];
        if let Some((_, format)) =
            hints.iter().find(|(word, format)| name.contains(word) && candidates.contains(format))
        {
            return vec![*format];
        }
    }
    candidates.to_vec()
}

fn text(head: &[u8], head_is_all: bool) -> Result<Vec<Format>, Bad> {
    let first = first_line(head);
    let by_header = [
        (systor::HEADER, Format::Systor),
        (alibaba::HEADER, Format::Alibaba),
        (recorded::HEADER, Format::Recorded),
        (recorded::HEADER_PREBUF, Format::Prebuf),
        (recorded::HEADER_FILEBENCH, Format::Filebench),
        (fio::HEADER_2, Format::Fio),
        (fio::HEADER_3, Format::Fio),
    ];
    if let Some((_, format)) = by_header.iter().find(|(header, _)| *header == first) {
        return Ok(vec![*format]);
    }
    let lines = sample(head, head_is_all);
    // Names in the first line and numbers below: a csv with a header.
    let named = first.first().is_some_and(u8::is_ascii_alphabetic) && first.contains(&b',');
    let numbers = lines.get(1).is_some_and(|line| line.iter().any(u8::is_ascii_digit));
    // A header without lines is a csv too, if all of its names are known.
    if named && head_is_all && lines.len() == 1 && text_format(Format::Csv, head, Meta::default()).is_ok() {
        return Ok(vec![Format::Csv]);
    }
    if named && numbers {
        if first.split(|&b| b == b',').any(|name| matches!(name.trim_ascii(), b"id" | b"obj_id")) {
            return Ok(vec![Format::LibCacheSimCsv]);
        }
        if all_names(first) {
            text_format(Format::Csv, head, Meta::default())?;
            return Ok(vec![Format::Csv]);
        }
    }
    let headless = [
        Format::Msr,
        Format::Fiu,
        Format::Blkparse,
        Format::Spc,
        Format::DiskSim,
        Format::Mqsim,
        Format::Tencent,
        Format::Alibaba,
        Format::Arc,
        Format::Lirs,
        Format::LibCacheSimCsv,
    ];
    let mut scores = Vec::new();
    for format in headless {
        if let Some((parser, _)) = text_format(format, head, Meta::default())? {
            scores.push((format, accepted(parser, &lines)));
        }
    }
    let best = scores.iter().map(|&(_, score)| score).max().unwrap_or(0);
    let enough = best > 0 && best * 2 >= lines.len();
    let mut candidates: Vec<Format> =
        scores.into_iter().filter(|&(_, score)| enough && score == best).map(|(format, _)| format).collect();
    // Both of these accept integer times with flags 0 and 1. DiskSim's milliseconds have a fraction somewhere, and a time
    // with a fraction cannot be MQSim's nanoseconds.
    if candidates.contains(&Format::DiskSim) && candidates.contains(&Format::Mqsim) {
        let fraction = |line: &&[u8]| split_words(line).next().is_some_and(|time| time.contains(&b'.'));
        let other = if lines.iter().any(fraction) { Format::Mqsim } else { Format::DiskSim };
        candidates.retain(|format| *format != other);
    }
    Ok(candidates)
}

/// True when every field could be the name of a column.
fn all_names(header: &[u8]) -> bool {
    header.split(|&b| b == b',').map(<[u8]>::trim_ascii).all(|name| {
        name.first().is_some_and(u8::is_ascii_alphabetic)
            && name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_' || b == b' ')
    })
}

/// The first lines that are complete and not blank.
fn sample(head: &[u8], head_is_all: bool) -> Vec<&[u8]> {
    let mut lines: Vec<_> = head.split(|&b| b == b'\n').collect();
    if !head_is_all && lines.len() > 1 {
        lines.pop();
    }
    let lines = lines.into_iter().map(without_cr).filter(|line| !line.trim_ascii().is_empty());
    lines.take(LINES_MAX).collect()
}
