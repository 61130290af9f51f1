//! fio I/O logs, versions 2 and 3 (fio documentation, "Trace file format v2", "v3").
//!
//! First line `fio version 2 iolog` or `fio version 3 iolog`. Then `file action` with the actions add, open, close, or
//! `file action offset length` with read, write, sync, datasync, trim, wait; bytes. Version 3 puts a time in
//! microseconds before each line and has no wait. In version 2 time passes only in wait lines, whose offset is read, as
//! the documentation says, as microseconds since the previous wait. The object is the file, whose name may not hold a
//! blank.

use crate::parse::{Bad, excerpt, int, split_words, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// The first line of version 2.
pub const HEADER_2: &[u8] = b"fio version 2 iolog";
/// The first line of version 3.
pub const HEADER_3: &[u8] = b"fio version 3 iolog";

/// See the module.
pub struct Fio {
    timed: bool,
    waited_us: i64,
}

impl Fio {
    /// A reader of version 3 when `timed`, else 2.
    pub fn new(timed: bool) -> Self {
        Fio { timed, waited_us: 0 }
    }
}

impl LineFormat for Fio {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let mut words = split_words(line);
        let time = if self.timed { int(words.next().unwrap_or_default())? } else { self.waited_us };
        let time_us = context.clock.us(time, 1);
        let (Some(file), Some(action)) = (words.next(), words.next()) else {
            return Err(format!("`file action` expected, found {}", excerpt(line)).into());
        };
        let range = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some(offset), Some(length), None) => Some((uint(offset)?, uint(length)?)),
            _ => return Err(format!("`file action [offset length]` expected, found {}", excerpt(line)).into()),
        };
        let op = match (action, range) {
            (b"add" | b"open" | b"close" | b"unlink", None) => return Ok(None),
            (b"read", Some(_)) => Op::Read,
            (b"write", Some(_)) => Op::Write,
            (b"sync" | b"datasync" | b"sync_file_range" | b"syncfs", _) => return Ok(Some(Record::Other("sync"))),
            (b"trim", Some(_)) => return Ok(Some(Record::Other("trim"))),
            (b"wait", Some((delay, _))) if !self.timed => {
                let delay = i64::try_from(delay).map_err(|_| Bad::from("the wait is out of range"))?;
                self.waited_us = self.waited_us.checked_add(delay).ok_or("the wait is out of range")?;
                return Ok(None);
            }
            _ => return Err(format!("unknown action, or one that lacks its range: {}", excerpt(line)).into()),
        };
        let (offset, size) = range.unwrap_or_default();
        let object = context.names.number(file)?;
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
