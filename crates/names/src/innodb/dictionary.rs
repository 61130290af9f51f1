//! InnoDB's own dictionary in `ibdata1`: the names of indexes by their numbers. `SYS_INDEXES` is a B+tree in the oldest
//! row format ("redundant"); page 7 has the number of its root.

use crate::Error;
use crate::error::{at, damaged};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The page with the roots of the dictionary's trees, and the offset of `SYS_INDEXES`'s root in it.
const HEADER_PAGE: u32 = 7;
const ROOT_OF_INDEXES: usize = 38 + 44;
/// Offset, in bytes, of the tablespace's flags in its first page.
const SPACE_FLAGS: usize = 54;
/// Fields of an index page: the next page, its level, the format of its rows.
const NEXT_PAGE: usize = 12;
const LEVEL: usize = 38 + 26;
const HEAP: usize = 38 + 4;
const COMPACT: u16 = 0x8000;
/// The two rows that every page has, in the old format: before the first and after the last.
const INFIMUM: usize = 101;
const SUPREMUM: usize = 116;
/// Bytes of a row's header.
const ROW_HEADER: usize = 6;
const DELETED: u8 = 0x20;
const NO_PAGE: u32 = u32::MAX;
/// More levels than any tree has, so that a cycle in a damaged file ends here.
const LEVELS_MAX: usize = 20;

/// Columns of `SYS_INDEXES`.
const ID: usize = 1;
const NAME: usize = 4;

/// Indexes by their numbers.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    indexes: HashMap<u64, String>,
}

impl Dictionary {
    /// Name of an index by its number; `None` if it is not in the dictionary.
    pub fn index(&self, id: u64) -> Option<&str> {
        self.indexes.get(&id).map(String::as_str)
    }
}

fn u16_at(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(page.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(page.get(at..at + 4)?.try_into().ok()?))
}

/// Bytes of a page, from the tablespace's flags: in the form of MariaDB since 10.4, or of older versions and of MySQL.
fn page_bytes(flags: u32) -> Option<usize> {
    let shift = if flags & 0x10 != 0 { flags & 0xF } else { flags >> 6 & 0xF };
    match shift {
        0 => Some(16384),
        3..=7 => Some(512 << shift),
        _ => None,
    }
}

/// A row in the old format, by its offset in the page.
struct Row<'a> {
    page: &'a [u8],
    at: usize,
}

impl<'a> Row<'a> {
    fn is_deleted(&self) -> Option<bool> {
        Some(self.page.get(self.at.checked_sub(ROW_HEADER)?)? & DELETED != 0)
    }

    fn next(&self) -> Option<usize> {
        Some(usize::from(u16_at(self.page, self.at.checked_sub(2)?)?))
    }

    /// End of a column, in bytes from the row's first, and whether the column is null.
    fn end(&self, column: usize) -> Option<(usize, bool)> {
        if self.page.get(self.at.checked_sub(3)?)? & 1 != 0 {
            let end = *self.page.get(self.at.checked_sub(ROW_HEADER + 1 + column)?)?;
            Some((usize::from(end & 0x7F), end & 0x80 != 0))
        } else {
            let end = u16_at(self.page, self.at.checked_sub(ROW_HEADER + 2 * (column + 1))?)?;
            Some((usize::from(end & 0x3FFF), end & 0x8000 != 0))
        }
    }

    fn columns(&self) -> Option<usize> {
        Some(usize::from(u16_at(self.page, self.at.checked_sub(4)?)? >> 1 & 0x3FF))
    }

    /// The bytes of a column; `None` if it is null or missing.
    fn column(&self, column: usize) -> Option<&'a [u8]> {
        if column >= self.columns()? {
            return None;
        }
        let start = if column == 0 { 0 } else { self.end(column - 1)?.0 };
        let (end, null) = self.end(column)?;
        if null { None } else { self.page.get(self.at + start..self.at + end) }
    }
}

/// The rows of a page in order; `None` if the page is malformed.
fn rows(page: &[u8]) -> Option<Vec<Row<'_>>> {
    if u16_at(page, HEAP)? & COMPACT != 0 {
        return None;
    }
    let mut found = Vec::new();
    let mut at = Row { page, at: INFIMUM }.next()?;
    while at != SUPREMUM {
        let row = Row { page, at };
        let next = row.next()?;
        // A row takes some bytes, so a page has fewer rows than bytes.
        if at <= SUPREMUM || found.len() > page.len() {
            return None;
        }
        found.push(row);
        at = next;
    }
    Some(found)
}

struct Space<'a> {
    path: &'a Path,
    file: File,
    page_bytes: usize,
}

impl Space<'_> {
    fn page(&self, number: u32) -> Result<Vec<u8>, Error> {
        let mut page = vec![0; self.page_bytes];
        at(self.path, self.file.read_exact_at(&mut page, u64::from(number) * self.page_bytes as u64))?;
        Ok(page)
    }

    fn unsound<T>(&self, number: u32) -> Result<T, Error> {
        damaged(self.path, u64::from(number) * self.page_bytes as u64, "a page of the dictionary was expected")
    }

    /// The first leaf under a root.
    fn first_leaf(&self, root: u32) -> Result<u32, Error> {
        let mut number = root;
        for _ in 0..LEVELS_MAX {
            let page = self.page(number)?;
            if u16_at(&page, LEVEL) == Some(0) {
                return Ok(number);
            }
            let rows = rows(&page);
            let first = rows.as_ref().and_then(|rows| rows.first());
            // The child page is the last column.
            let below = first.and_then(|row| u32_at(row.column(row.columns()?.checked_sub(1)?)?, 0));
            match below {
                Some(below) => number = below,
                None => return self.unsound(number),
            }
        }
        self.unsound(number)
    }
}

/// Reads the numbers and names of all indexes.
pub(super) fn read(path: &Path) -> Result<Dictionary, Error> {
    let file = at(path, File::open(path))?;
    let mut first = [0; 64];
    at(path, file.read_exact_at(&mut first, 0))?;
    let Some(page_bytes) = u32_at(&first, SPACE_FLAGS).and_then(page_bytes) else {
        return damaged(path, SPACE_FLAGS as u64, "flags of a tablespace were expected");
    };
    let space = Space { path, file, page_bytes };
    let mut dictionary = Dictionary::default();
    let root = u32_at(&space.page(HEADER_PAGE)?, ROOT_OF_INDEXES).unwrap_or_default();
    if root == 0 {
        // This server keeps its dictionary elsewhere.
        return Ok(dictionary);
    }
    let mut number = space.first_leaf(root)?;
    // A cycle in a damaged file ends when every page has been seen.
    let pages = at(path, space.file.metadata())?.len() / page_bytes as u64;
    for _ in 0..pages {
        let page = space.page(number)?;
        let Some(rows) = rows(&page) else { return space.unsound(number) };
        for row in rows.iter().filter(|row| row.is_deleted() == Some(false)) {
            let id = row.column(ID).and_then(|id| Some(u64::from_be_bytes(id.try_into().ok()?)));
            let name = row.column(NAME).map(|name| String::from_utf8_lossy(name).into_owned());
            dictionary.indexes.extend(id.zip(name));
        }
        match u32_at(&page, NEXT_PAGE) {
            Some(NO_PAGE) | None => return Ok(dictionary),
            Some(next) => number = next,
        }
    }
    space.unsound(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_dictionary_or_an_error(
            noise in proptest::collection::vec(any::<u8>(), 0..400), at in 0..16384_usize, root in 0..10_u32,
        ) {
            let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
            let mut bytes = vec![0; 16384 * 9];
            bytes[SPACE_FLAGS + 3] = 0x15;
            let header = 7 * 16384 + ROOT_OF_INDEXES;
            bytes[header..header + 4].copy_from_slice(&root.to_be_bytes());
            for page in 0..9 {
                let end = (at + noise.len()).min(16384);
                bytes[page * 16384 + at..page * 16384 + end].copy_from_slice(&noise[..end - at]);
            }
            std::fs::write(scratch.path(), &bytes).expect("a file");
            let _ = read(scratch.path());
        }
    }
}
