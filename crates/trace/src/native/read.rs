//! Reads the native format. This module checks everything once, so that later code may index without checks:
//! checksums, page ids, objects, operations, next uses, times, events.

use super::{ALIGNMENT, ENTRY_BYTES, HEADER_BYTES, Kind, MAGIC, Metadata, VERSION};
use crate::builder::REQUESTS_MAX;
use crate::page_map::PAGES_MAX;
use crate::parse::Bad;
use crate::record::TraceError;
use crate::trace::{Column, Event, EventKind, Mapped, OpByte, Owner, Trace};
use entresol_core::NEVER;
use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maps a native trace. The file must not be changed while the trace is in use; replacing it by rename, as
/// [`super::write`] does, is harmless.
///
/// # Errors
/// [`TraceError::Io`], or [`TraceError::Malformed`] with the offset of the first byte found wrong.
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(|e| TraceError::io(path, e))?;
    // SAFETY: the map is read-only and private to this process. Another process that changes the file in place could
    // change it under us: the documentation above forbids that, as for every mapped database file.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| TraceError::io(path, e))?;
    read(path, Arc::new(Backing::Map(map)))
}

/// Reads a native trace from memory, which is copied.
///
/// # Errors
/// As [`open`]; messages call the source `path`.
pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Trace, TraceError> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    read(path, Arc::new(Backing::Heap { words, len: bytes.len() }))
}

/// Owner of the file's bytes: aligned to 8, and unchanged until dropped.
enum Backing {
    Map(Mmap),
    Heap { words: Vec<u64>, len: usize },
}

impl Backing {
    fn bytes(&self) -> &[u8] {
        match self {
            Backing::Map(map) => map,
            Backing::Heap { words, len } => &words.as_bytes()[..*len],
        }
    }

    /// Gives the memory of a range of a mapped file back to the system, which reads it again when it is used.
    fn release(&self, range: Range<usize>) {
        let Backing::Map(map) = self else { return };
        // SAFETY: the map is of a file, read-only, and never written: pages that are dropped are read again with the
        // same bytes. That it cannot be done costs memory only.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
    }
}

/// Bytes of a mapped file that are checked at once; their memory is given back before the next are.
const CHECKED_AT_ONCE: usize = 64 << 20;

/// Gives the memory of a part of a column back to the system.
fn release(owner: &Owner, address: usize, bytes: usize) {
    let Some(backing) = owner.downcast_ref::<Backing>() else { return };
    let offset = address - backing.bytes().as_ptr().addr();
    backing.release(offset..offset + bytes);
}

/// Error in a file: the offset of the byte, and the reason.
struct Wrong(usize, Bad);

fn wrong<T>(at: usize, what: impl Into<Bad>) -> Result<T, Wrong> {
    Err(Wrong(at, what.into()))
}

fn read(path: &Path, backing: Arc<Backing>) -> Result<Trace, TraceError> {
    parse(&backing).map_err(|Wrong(at, Bad(what))| TraceError::malformed(path, format!("byte {at}"), what))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

struct Header {
    requests: usize,
    footprint: usize,
    page_bytes: u32,
    /// Byte range of each kind of section, by its code; `None` where the file has no such section.
    sections: [Option<Range<usize>>; 8],
}

fn parse(backing: &Arc<Backing>) -> Result<Trace, Wrong> {
    if cfg!(target_endian = "big") {
        return wrong(0, "the native format needs a little-endian machine");
    }
    let bytes = backing.bytes();
    let header = header(backing)?;
    let section = |kind: Kind| header.sections[kind as usize].clone();
    let need = |kind: Kind| match section(kind) {
        Some(range) => Ok(range),
        None => wrong(HEADER_BYTES, format!("the section of {} is missing", kind.name())),
    };
    let metadata_at = need(Kind::Metadata)?;
    let metadata: Metadata = serde_json::from_slice(&bytes[metadata_at.clone()])
        .map_err(|e| Wrong(metadata_at.start, format!("the metadata cannot be read: {e}").into()))?;
    let trace = Trace {
        page_bytes: header.page_bytes,
        pages: column(backing, need(Kind::Pages)?)?,
        ops: column(backing, need(Kind::Ops)?)?,
        times_us: section(Kind::Times).map(|range| column(backing, range)).transpose()?,
        next_use: section(Kind::NextUse).map(|range| column(backing, range)).transpose()?,
        page_object: column(backing, need(Kind::PageObject)?)?,
        page_block: column(backing, need(Kind::PageBlock)?)?,
        objects: metadata.objects,
        events: metadata.events,
        provenance: metadata.provenance,
    };
    let start = |kind: Kind| section(kind).map_or(0, |range| range.start);
    check_requests(&trace, start(Kind::Pages), start(Kind::Ops))?;
    check_pages(&trace, start(Kind::PageObject), start(Kind::PageBlock))?;
    if let Some(times) = &trace.times_us {
        check_times(&trace, times, start(Kind::Times))?;
    }
    if let Some(next_use) = &trace.next_use {
        check_next_use(&trace, next_use, start(Kind::NextUse))?;
    }
    check_events(&trace, metadata_at.start)?;
    Ok(trace)
}

fn header(backing: &Backing) -> Result<Header, Wrong> {
    let bytes = backing.bytes();
    if bytes.len() < HEADER_BYTES {
        return wrong(bytes.len(), format!("the file ends within the header of {HEADER_BYTES} bytes"));
    }
    if bytes[..8] != MAGIC {
        return wrong(0, "not a native trace: the magic number is missing");
    }
    if le32(bytes, 8) != VERSION {
        return wrong(
            8,
            format!("version {} of the native format; this program reads version {VERSION}", le32(bytes, 8)),
        );
    }
    let count = le32(bytes, 12) as usize;
    if count > Kind::ALL.len() {
        return wrong(12, format!("{count} sections; at most {} are known", Kind::ALL.len()));
    }
    if le64(bytes, 16) != bytes.len() as u64 {
        let what = format!("the header says {} bytes, the file has {}: truncated?", le64(bytes, 16), bytes.len());
        return wrong(16, what);
    }
    let table_end = HEADER_BYTES + count * ENTRY_BYTES;
    if table_end > bytes.len() {
        return wrong(bytes.len(), "the file ends within the table of sections");
    }
    let mut hasher = Xxh3::new();
    hasher.update(&bytes[..HEADER_BYTES - 8]);
    hasher.update(&bytes[HEADER_BYTES..table_end]);
    if hasher.digest() != le64(bytes, HEADER_BYTES - 8) {
        return wrong(HEADER_BYTES - 8, "the checksum of the header does not match");
    }
    let (requests, footprint, page_bytes) = (le64(bytes, 24), le64(bytes, 32), le32(bytes, 40));
    if requests == 0 || requests > REQUESTS_MAX {
        return wrong(24, format!("{requests} requests; 1 to {REQUESTS_MAX} are allowed"));
    }
    if footprint == 0 || footprint > requests.min(u64::from(PAGES_MAX)) {
        return wrong(32, format!("{footprint} pages in {requests} requests"));
    }
    if !page_bytes.is_power_of_two() {
        return wrong(40, format!("a page size of {page_bytes} B"));
    }
    let (requests, footprint) = (requests as usize, footprint as usize);
    let mut header = Header { requests, footprint, page_bytes, sections: Default::default() };
    let mut end = table_end;
    for i in 0..count {
        end = entry(backing, HEADER_BYTES + i * ENTRY_BYTES, end, &mut header)?;
    }
    Ok(header)
}

/// Reads the entry of the table at `at`; the section must lie beyond `after`. Returns its end.
fn entry(backing: &Backing, at: usize, after: usize, header: &mut Header) -> Result<usize, Wrong> {
    let bytes = backing.bytes();
    let code = le32(bytes, at);
    let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind as u32 == code) else {
        return wrong(at, format!("unknown kind of section, {code}"));
    };
    if header.sections[code as usize..].iter().any(Option::is_some) {
        return wrong(at, format!("the section of {} is out of order or comes twice", kind.name()));
    }
    if le32(bytes, at + 4) != kind.element_bytes() {
        return wrong(at + 4, format!("entries of {} with {} bytes", kind.name(), le32(bytes, at + 4)));
    }
    let (offset, length) = (le64(bytes, at + 8), le64(bytes, at + 16));
    let entries = match kind {
        Kind::Pages | Kind::Ops | Kind::Times | Kind::NextUse => Some(header.requests as u64),
        Kind::PageObject | Kind::PageBlock => Some(header.footprint as u64),
        Kind::Metadata => None,
    };
    if let Some(entries) = entries
        && length != entries * u64::from(kind.element_bytes())
    {
        return wrong(at + 16, format!("{length} bytes of {} do not hold {entries} entries", kind.name()));
    }
    let end = offset.checked_add(length);
    if offset % ALIGNMENT as u64 != 0 || offset < after as u64 || end.is_none_or(|end| end > bytes.len() as u64) {
        return wrong(at + 8, format!("the section of {} lies at {offset}, {length} bytes", kind.name()));
    }
    let range = offset as usize..(offset + length) as usize;
    let mut hasher = Xxh3::new();
    for from in range.clone().step_by(CHECKED_AT_ONCE) {
        let part = from..range.end.min(from + CHECKED_AT_ONCE);
        hasher.update(&bytes[part.clone()]);
        backing.release(part);
    }
    if hasher.digest() != le64(bytes, at + 24) {
        return wrong(range.start, format!("the checksum of the section of {} does not match", kind.name()));
    }
    let end = range.end;
    header.sections[code as usize] = Some(range);
    Ok(end)
}

fn column<T: FromBytes + Immutable + KnownLayout>(
    backing: &Arc<Backing>,
    range: Range<usize>,
) -> Result<Column<T>, Wrong> {
    let at = range.start;
    let Ok(slice) = <[T]>::ref_from_bytes(&backing.bytes()[range]) else {
        return wrong(at, "the section is not aligned");
    };
    let owner = Arc::clone(backing);
    // SAFETY: the slice lies in `backing`, whose bytes neither move nor change until it is dropped: it is never borrowed
    // mutably once it is in an Arc, a Vec's heap block and a map stay where they are, and the Arc is kept as the owner.
    Ok(Column::Mapped(unsafe { Mapped::new(slice, owner, release) }))
}

/// Pages are numbered in order of first appearance, each page appears, and the operation bytes are ones we write.
fn check_requests(trace: &Trace, pages_at: usize, ops_at: usize) -> Result<(), Wrong> {
    let mut seen = 0u32;
    for part in parts(trace.len()) {
        for i in part.clone() {
            let page = trace.pages[i];
            if page >= seen {
                if page > seen {
                    return wrong(pages_at + i * 4, format!("page {page} appears before page {seen}"));
                }
                seen += 1;
            }
        }
        trace.release(part);
    }
    if seen as usize != trace.footprint() {
        return wrong(pages_at, format!("{seen} pages appear, the header says {}", trace.footprint()));
    }
    for part in parts(trace.len()) {
        if let Some(i) = trace.ops[part.clone()].iter().position(|&byte| !OpByte(byte).is_valid()) {
            let at = part.start + i;
            return wrong(ops_at + at, format!("unknown operation {:#04x}", trace.ops[at]));
        }
        trace.release(part);
    }
    Ok(())
}

/// Ranges of requests that are checked at once.
fn parts(requests: usize) -> impl Iterator<Item = Range<usize>> {
    const AT_ONCE: usize = CHECKED_AT_ONCE / size_of::<u64>();
    (0..requests).step_by(AT_ONCE).map(move |from| from..requests.min(from + AT_ONCE))
}

fn check_times(trace: &Trace, times: &[u64], at: usize) -> Result<(), Wrong> {
    for part in parts(trace.len()) {
        let with_next = part.start..trace.len().min(part.end + 1);
        if let Some(i) = times[with_next].windows(2).position(|pair| pair[0] > pair[1]) {
            return wrong(at + (part.start + i + 1) * 8, "the time runs backwards");
        }
        trace.release(part);
    }
    Ok(())
}

fn check_pages(trace: &Trace, objects_at: usize, blocks_at: usize) -> Result<(), Wrong> {
    for (i, (&object, &block)) in trace.page_object.iter().zip(trace.page_block.iter()).enumerate() {
        let Some(object) = trace.objects.get(object as usize) else {
            return wrong(objects_at + i * 4, format!("page {i} belongs to object {object}, which does not exist"));
        };
        if block >= object.pages && object.pages != u64::MAX {
            return wrong(blocks_at + i * 8, format!("page {i} is block {block} of {}", object.pages));
        }
    }
    Ok(())
}

fn check_next_use(trace: &Trace, next_use: &[u32], at: usize) -> Result<(), Wrong> {
    for (i, &next) in next_use.iter().enumerate() {
        let ahead = next as usize > i && trace.pages.get(next as usize) == Some(&trace.pages[i]);
        if next != NEVER && !ahead {
            return wrong(at + i * 4, format!("request {i} is said to recur at {next}, which is not so"));
        }
    }
    Ok(())
}

fn check_events(trace: &Trace, at: usize) -> Result<(), Wrong> {
    let (mut last, mut begun) = (0, 0);
    for (i, Event { at: position, kind }) in trace.events.iter().enumerate() {
        if *position < last || *position > trace.len() as u64 {
            return wrong(at, format!("event {i} is out of order"));
        }
        last = *position;
        match kind {
            EventKind::QueryBegin { query, objects, .. } => {
                let known = objects.iter().all(|&object| (object as usize) < trace.objects.len());
                if *query != begun || !known || !objects.is_sorted() {
                    return wrong(at, format!("event {i}: query {query} is malformed"));
                }
                begun += 1;
            }
            EventKind::QueryEnd { query } if *query >= begun => {
                return wrong(at, format!("event {i} ends query {query}, which has not begun"));
            }
            EventKind::QueryEnd { .. } => {}
        }
    }
    Ok(())
}
