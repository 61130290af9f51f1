//! Rows of a table from its files, as of the last checkpoint: pages, line pointers, tuple headers. Where a row does not
//! record the fate of the transactions that made and deleted it, the commit log tells. Source: PostgreSQL's
//! documentation, "Database Page Layout"; unchanged since version 8.3.

use crate::error::{at, damaged};
use crate::{Error, Result};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Bytes before the line pointers.
const PAGE_HEADER: usize = 24;
/// Bytes of a tuple's header before the map of nulls.
const TUPLE_HEADER: usize = 23;
const LINE_NORMAL: u32 = 1;

/// Bits of `t_infomask`.
const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_INVALID: u16 = 0x0200;
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_INVALID: u16 = 0x0800;
const XMAX_IS_MULTI: u16 = 0x1000;
const XMAX_LOCK_ONLY: u16 = 0x0080;

/// Transactions below this are the server's own, and committed.
const FIRST_XID: u32 = 3;
const COMMITTED: u8 = 1;
/// Bytes of a page of the commit log, pages of one of its files, transactions per byte.
const XACT_PAGE: usize = 8192;
const XACT_FILE_PAGES: usize = 32;
const XACTS_PER_BYTE: usize = 4;

/// A little-endian number of four bytes; `None` beyond the end.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Text in a field of 64 bytes.
pub(super) fn name_at(bytes: &[u8], at: usize) -> Option<String> {
    let field = bytes.get(at..at + 64)?;
    let len = field.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&field[..len]).into_owned())
}

/// The commit log.
pub(super) struct Xacts {
    directory: PathBuf,
    files: HashMap<usize, Vec<u8>>,
}

impl Xacts {
    /// The commit log of a data directory.
    pub fn new(data: &Path) -> Self {
        Xacts { directory: data.join("pg_xact"), files: HashMap::new() }
    }

    /// True if a transaction has committed, according to the log on disk.
    fn committed(&mut self, xid: u32) -> Result<bool> {
        if xid < FIRST_XID {
            return Ok(true);
        }
        let byte = xid as usize / XACTS_PER_BYTE;
        let (number, within) = (byte / (XACT_PAGE * XACT_FILE_PAGES), byte % (XACT_PAGE * XACT_FILE_PAGES));
        if !self.files.contains_key(&number) {
            let path = self.directory.join(format!("{number:04X}"));
            let bytes = match std::fs::read(&path) {
                // The end of the log is not on disk yet.
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                read => at(&path, read)?,
            };
            self.files.insert(number, bytes);
        }
        let status = self.files[&number].get(within).map(|byte| byte >> (2 * (xid as usize % XACTS_PER_BYTE)) & 3);
        Ok(status == Some(COMMITTED))
    }

    /// True if a row is visible to a new transaction.
    fn is_visible(&mut self, tuple: &[u8]) -> Result<bool> {
        let field = |at| u32_at(tuple, at).unwrap_or_default();
        let (xmin, xmax) = (field(0), field(4));
        let mask = u16_at(tuple, 20).unwrap_or_default();
        let made = match mask & (XMIN_COMMITTED | XMIN_INVALID) {
            0 => self.committed(xmin)?,
            // Both bits: frozen.
            bits => bits & XMIN_COMMITTED != 0,
        };
        // In a catalogue, several transactions together only lock a row.
        let kept = mask & (XMAX_INVALID | XMAX_LOCK_ONLY | XMAX_IS_MULTI) != 0 || xmax == 0;
        Ok(made && (kept || mask & XMAX_COMMITTED == 0 && !self.committed(xmax)?))
    }
}

/// Passes every visible row of a table, without its header, to `show`. `path` is the main fork's first segment.
pub(super) fn rows(path: &Path, xacts: &mut Xacts, mut show: impl FnMut(&[u8])) -> Result<()> {
    for segment in 0.. {
        let path = if segment == 0 { path.to_owned() } else { PathBuf::from(format!("{}.{segment}", path.display())) };
        let bytes = match std::fs::read(&path) {
            Err(error) if segment > 0 && error.kind() == ErrorKind::NotFound => break,
            read => at(&path, read)?,
        };
        segment_rows(&bytes, xacts, &mut show).map_err(|error| match error {
            Unsound::Page { byte, what } => Error::Damaged { path: path.clone(), byte, what },
            Unsound::Log(error) => error,
        })?;
        if bytes.is_empty() {
            break;
        }
    }
    Ok(())
}

enum Unsound {
    Page { byte: u64, what: &'static str },
    Log(Error),
}

fn segment_rows(bytes: &[u8], xacts: &mut Xacts, show: &mut impl FnMut(&[u8])) -> std::result::Result<(), Unsound> {
    let unsound = |byte: usize, what| Unsound::Page { byte: byte as u64, what };
    let mut start = 0;
    let mut page_bytes = XACT_PAGE;
    while start + PAGE_HEADER <= bytes.len() {
        let header = &bytes[start..start + PAGE_HEADER];
        if header.iter().all(|&byte| byte == 0) {
            // The page was added to the file and not used yet.
            start += page_bytes;
            continue;
        }
        let size = u16_at(header, 18).unwrap_or_default();
        page_bytes = usize::from(size & 0xFF00);
        if size & 0xFF != 4 || !page_bytes.is_power_of_two() {
            return Err(unsound(start + 18, "a page of layout version 4 was expected"));
        }
        let page = bytes.get(start..start + page_bytes).ok_or(unsound(start, "the last page is cut off"))?;
        let lower = usize::from(u16_at(page, 12).unwrap_or_default());
        let lines = page.get(PAGE_HEADER..lower).ok_or(unsound(start + 12, "line pointers beyond the page"))?;
        for line in lines.chunks_exact(4) {
            let line = u32_at(line, 0).unwrap_or_default();
            let (offset, flags, len) = (line as usize & 0x7FFF, line >> 15 & 3, line as usize >> 17);
            if flags != LINE_NORMAL {
                continue;
            }
            let tuple = page.get(offset..offset + len).filter(|tuple| tuple.len() >= TUPLE_HEADER);
            let tuple = tuple.ok_or(unsound(start, "a row beyond its page"))?;
            let data =
                tuple.get(usize::from(tuple[22])..).ok_or(unsound(start + offset, "a row shorter than its header"))?;
            if xacts.is_visible(tuple).map_err(Unsound::Log)? {
                show(data);
            }
        }
        start += page_bytes;
    }
    Ok(())
}

/// Relations whose files no row can name, because they hold the rows: `pg_filenode.map` of a directory.
pub(super) fn mapped(directory: &Path) -> Result<HashMap<u32, u32>> {
    const MAGIC: u32 = 0x0059_2717;
    let path = directory.join("pg_filenode.map");
    let bytes = at(&path, std::fs::read(&path))?;
    if u32_at(&bytes, 0) != Some(MAGIC) {
        return damaged(&path, 0, "a map of relations to files was expected");
    }
    // Versions differ only in the length: entries, checksum, and up to version 15 four more bytes.
    let checksum = match bytes.len() {
        512 => 504,
        524 => 520,
        _ => return damaged(&path, 4, "a map of 512 or 524 bytes was expected"),
    };
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..checksum]) as u32;
    if u32_at(&bytes, checksum) != Some(crc) {
        return damaged(&path, checksum as u64, "the checksum is wrong");
    }
    let entries = u32_at(&bytes, 4).unwrap_or_default() as usize;
    let map = bytes[8..checksum].chunks_exact(8).take(entries);
    Ok(map.filter_map(|entry| Some((u32_at(entry, 0)?, u32_at(entry, 4)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page with one row of four bytes.
    fn page(xmin: u32, xmax: u32, mask: u16) -> Vec<u8> {
        let mut page = vec![0; XACT_PAGE];
        page[12..14].copy_from_slice(&28_u16.to_le_bytes());
        page[18..20].copy_from_slice(&0x2004_u16.to_le_bytes());
        let line = 8000_u32 | LINE_NORMAL << 15 | 28 << 17;
        page[24..28].copy_from_slice(&line.to_le_bytes());
        page[8000..8004].copy_from_slice(&xmin.to_le_bytes());
        page[8004..8008].copy_from_slice(&xmax.to_le_bytes());
        page[8020..8022].copy_from_slice(&mask.to_le_bytes());
        page[8022] = 24;
        page[8024..8028].copy_from_slice(b"row!");
        page
    }

    #[test]
    fn a_row_is_seen_from_its_commit_to_its_deletion() {
        let data = tempfile::tempdir().expect("a scratch directory");
        std::fs::create_dir(data.path().join("pg_xact")).expect("a directory");
        // Transaction 4 committed, 5 aborted, 6 runs.
        std::fs::write(data.path().join("pg_xact/0000"), [0, 0b00_1001]).expect("a commit log");
        let cases = [
            (4, 0, 0, true),
            (5, 0, 0, false),
            (6, 0, 0, false),
            (6, 0, XMIN_COMMITTED, true),
            (4, 0, XMIN_INVALID, false),
            (5, 0, XMIN_COMMITTED | XMIN_INVALID, true),
            (2, 0, 0, true),
            (4, 4, 0, false),
            (4, 5, 0, true),
            (4, 6, 0, true),
            (4, 6, XMAX_COMMITTED, false),
            (4, 4, XMAX_INVALID, true),
            (4, 4, XMAX_LOCK_ONLY, true),
            // Far beyond the log on disk.
            (4_000_000_000, 0, 0, false),
        ];
        for (xmin, xmax, mask, wanted) in cases {
            let path = data.path().join("table");
            std::fs::write(&path, page(xmin, xmax, mask)).expect("a table");
            let mut seen = Vec::new();
            rows(&path, &mut Xacts::new(data.path()), |row| seen.push(row.to_vec())).expect("a sound table");
            assert_eq!(seen, vec![b"row!".to_vec(); wanted.into()], "{xmin} {xmax} {mask:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_an_error(noise in proptest::collection::vec(any::<u8>(), 0..300), at in 0..8192_usize) {
            let data = tempfile::tempdir().expect("a scratch directory");
            let mut bytes = page(2, 0, 0);
            let end = (at + noise.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&noise[..end - at]);
            let path = data.path().join("table");
            for bytes in [&bytes[..], &noise[..]] {
                std::fs::write(&path, bytes).expect("a table");
                let _ = rows(&path, &mut Xacts::new(data.path()), |_| ());
                std::fs::write(data.path().join("pg_filenode.map"), bytes).expect("a map");
                let _ = mapped(data.path());
            }
        }
    }
}
