//! Traces recorded below and in the buffer pool of PostgreSQL and MariaDB, and below Filebench (columns in the README
//! beside them).
//!
//! - storage level: `dt,op,p,obj,sec,n`: time since the previous row in 0.1 ms; `R`, `W`, `F` fsync, `S` write-back hint,
//!   `B`/`N` query begin and end; process; object; offset and length in sectors of 512 bytes.
//! - before the pool: `op,p,obj,block`: `G` hit and `M` miss are reads, `X` extends the object by a page that is written
//!   whole; `D` dirtied and `H` hint-dirtied mark the page that this process last referenced; `E` page written back, `C`
//!   commit, `T` clock (`block` = milliseconds) are counted. The unit is pages.
//! - Filebench: `dt,op,p,file,off,len`: bytes; `U` unlink is counted (a file created anew has a new number).
//!
//! `NAME.meta.json` beside the first two gives the page size and the names of objects and queries. `WAL` and `REDO` are
//! logs, `TMP` and `ibtmp*` temporary; the commit log `CLOG` is paged like a table and counts as data.

use crate::parse::{Bad, commas, excerpt, sectors, uint, uint32};
use crate::record::{Record, TraceError, Unit};
use crate::text::{Context, LineFormat};
use crate::trace::ObjectKind;
use entresol_core::Op;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The first line of a storage-level trace.
pub const HEADER: &[u8] = b"dt,op,p,obj,sec,n";
/// The first line of a trace before the pool.
pub const HEADER_PREBUF: &[u8] = b"op,p,obj,block";
/// The first line of a Filebench trace.
pub const HEADER_FILEBENCH: &[u8] = b"dt,op,p,file,off,len";

/// Microseconds in the 0.1 ms that `dt` counts.
const US_PER_DT: u64 = 100;

/// Contents of `NAME.meta.json`: the page size and the names of objects and query labels.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    page_bytes: u32,
    names: HashMap<u32, String>,
}

#[derive(serde::Deserialize)]
struct MetaFile {
    page_size: u32,
    objects: HashMap<u32, String>,
}

impl Meta {
    /// Names for tests and fuzzing.
    pub fn new(page_bytes: u32, names: impl IntoIterator<Item = (u32, String)>) -> Self {
        Meta { page_bytes, names: names.into_iter().collect() }
    }

    /// `dir/NAME.meta.json` for `dir/NAME.csv`, `dir/NAME.csv.zst` and the like.
    fn path_beside(trace: &Path) -> PathBuf {
        let name = trace.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.split(".csv").next().unwrap_or_default();
        trace.with_file_name(format!("{stem}.meta.json"))
    }

    /// Reads the file beside a trace.
    pub fn beside(trace: &Path) -> Result<Self, TraceError> {
        let path = Meta::path_beside(trace);
        let text = std::fs::read(&path).map_err(|e| {
            let what = format!("needs {} for its page size and object names: {e}", path.display());
            TraceError::refused(trace, what)
        })?;
        let file: MetaFile = serde_json::from_slice(&text)
            .map_err(|e| TraceError::malformed(&path, format!("line {}", e.line()), e.to_string()))?;
        Ok(Meta { page_bytes: file.page_size, names: file.objects })
    }

    /// The number, in this run, of the object with this number in the file.
    #[inline]
    fn object(&self, field: &[u8], context: &mut Context) -> Result<u32, Bad> {
        uint32(field)?;
        context.names.number_as(field, |key| {
            let name = uint32(key).ok().and_then(|number| self.names.get(&number)).cloned();
            let name = name.unwrap_or_else(|| format!("object {}", String::from_utf8_lossy(key)));
            let kind = kind(&name);
            (name, kind)
        })
    }

    fn label(&self, field: &[u8]) -> Result<String, Bad> {
        let number = uint32(field)?;
        let name = self.names.get(&number).cloned();
        name.ok_or_else(|| format!("query label {number} is not among the names in the meta file").into())
    }
}

fn kind(name: &str) -> ObjectKind {
    match name {
        "WAL" | "REDO" => ObjectKind::Log,
        "TMP" => ObjectKind::Temporary,
        _ if name.starts_with("ibtmp") => ObjectKind::Temporary,
        _ => ObjectKind::Data,
    }
}

/// Adds a row's `dt` to the time and returns it.
fn advance(time_us: &mut u64, dt: &[u8]) -> Result<u64, Bad> {
    let step = uint(dt)?.checked_mul(US_PER_DT).ok_or("the time is out of range")?;
    *time_us = time_us.checked_add(step).ok_or("the time is out of range")?;
    Ok(*time_us)
}

fn unknown(op: &[u8]) -> Bad {
    format!("unknown operation {}", excerpt(op)).into()
}

/// Storage level, see the module.
pub struct Recorded {
    meta: Meta,
    time_us: u64,
}

impl Recorded {
    /// A reader with the names of its objects.
    pub fn new(meta: Meta) -> Self {
        Recorded { meta, time_us: 0 }
    }
}

impl LineFormat for Recorded {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [dt, op, process, object, sector, count] = commas::<6>(line)?;
        let stream = uint32(process)?;
        let (offset, size) = (sectors(uint(sector)?)?, sectors(uint(count)?)?);
        let time_us = advance(&mut self.time_us, dt)?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"F" => return Ok(Some(Record::Other("fsync"))),
            b"S" => return Ok(Some(Record::Other("write-back hint"))),
            b"B" => return Ok(Some(Record::QueryBegin { time_us, label: self.meta.label(object)? })),
            b"N" => return Ok(Some(Record::QueryEnd { time_us, label: self.meta.label(object)? })),
            other => return Err(unknown(other)),
        };
        let object = self.meta.object(object, context)?;
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size, next_use: None }))
    }

    fn page_bytes(&self) -> Option<u32> {
        Some(self.meta.page_bytes)
    }
}

/// Before the pool, see the module.
pub struct Prebuf {
    meta: Meta,
    time_us: u64,
}

impl Prebuf {
    /// A reader with the names of its objects.
    pub fn new(meta: Meta) -> Self {
        Prebuf { meta, time_us: 0 }
    }
}

impl LineFormat for Prebuf {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [op, process, object, block] = commas::<4>(line)?;
        let (stream, offset, time_us) = (uint32(process)?, uint(block)?, self.time_us);
        let op = match op {
            b"G" | b"M" => Op::Read,
            b"X" => Op::Write,
            b"D" | b"H" => {
                let object = self.meta.object(object, context)?;
                return Ok(Some(Record::MarkDirty { stream, object, offset }));
            }
            b"E" => return Ok(Some(Record::Other("page written back by the database"))),
            b"C" => return Ok(Some(Record::Other("commit"))),
            b"T" => {
                let us = offset.checked_mul(1000).ok_or("the time is out of range")?;
                if us < self.time_us {
                    return Err("the clock runs backwards".into());
                }
                self.time_us = us;
                return Ok(Some(Record::Other("clock tick")));
            }
            b"B" => return Ok(Some(Record::QueryBegin { time_us, label: self.meta.label(object)? })),
            b"N" => return Ok(Some(Record::QueryEnd { time_us, label: self.meta.label(object)? })),
            other => return Err(unknown(other)),
        };
        let object = self.meta.object(object, context)?;
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size: 1, next_use: None }))
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }

    fn page_bytes(&self) -> Option<u32> {
        Some(self.meta.page_bytes)
    }

    fn has_marks(&self) -> bool {
        true
    }
}

/// Filebench, see the module.
#[derive(Default)]
pub struct Filebench {
    time_us: u64,
}

impl LineFormat for Filebench {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [dt, op, process, file, offset, length] = commas::<6>(line)?;
        let (stream, offset, size) = (uint32(process)?, uint(offset)?, uint(length)?);
        uint32(file)?;
        let time_us = advance(&mut self.time_us, dt)?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"U" => return Ok(Some(Record::Other("unlink"))),
            other => return Err(unknown(other)),
        };
        let object = context.names.number(file)?;
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size, next_use: None }))
    }
}
