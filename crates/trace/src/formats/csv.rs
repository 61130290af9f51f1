//! Plain csv with named columns in any order, including the normalised form `ts_us,op,dev,offset,size`.
//!
//! - time, optional: `ts_us`, `ts`, `time` in microseconds, `ts_ns` (whole ones), `ts_ms`, `ts_s`; fractions of the others and
//!   negative times are allowed.
//! - operation, optional, all reads without it: `op`, `rw` or `type` with `R`, `W`, `read`, `write`, or `U`, `update` for
//!   a write that changes part of what it covers.
//! - place: `offset` in bytes, `lba` or `sector` in sectors of 512 bytes, `page` or `block` in pages.
//! - length: `size` or `len` in bytes, `count` in the unit of the place; pages may do without and then are single.
//! - object, optional: `object`, `obj`, `dev` or `file`, any text without a comma.

use crate::parse::{Bad, decimal, excerpt, read_or_write, sectors, uint};
use crate::record::{Record, Unit};
use crate::text::{Context, LineFormat};
use entresol_core::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// A time, with the number of decimal digits that make it nanoseconds.
    Time(u32),
    Op,
    Offset(Scale),
    /// A length in bytes.
    Size,
    /// A length in the unit of the place.
    Count,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Bytes,
    Sectors,
    Pages,
}

impl Column {
    fn named(name: &[u8]) -> Option<Column> {
        Some(match name.trim_ascii() {
            b"ts_us" | b"ts" | b"time" => Column::Time(3),
            b"ts_ns" => Column::Time(0),
            b"ts_ms" => Column::Time(6),
            b"ts_s" => Column::Time(9),
            b"op" | b"rw" | b"type" => Column::Op,
            b"offset" => Column::Offset(Scale::Bytes),
            b"lba" | b"sector" => Column::Offset(Scale::Sectors),
            b"page" | b"block" => Column::Offset(Scale::Pages),
            b"size" | b"len" => Column::Size,
            b"count" => Column::Count,
            b"object" | b"obj" | b"dev" | b"file" => Column::Object,
            _ => return None,
        })
    }

    /// Quantity that the column gives, to find two columns that give the same one.
    fn role(self) -> &'static str {
        match self {
            Column::Time(_) => "time",
            Column::Op => "operation",
            Column::Offset(_) => "place",
            Column::Size | Column::Count => "length",
            Column::Object => "object",
        }
    }
}

/// See the module.
pub struct Csv {
    columns: Vec<Column>,
    /// Names of the columns, for messages.
    names: Vec<String>,
    place: Scale,
    has_time: bool,
}

impl Csv {
    /// Reads the header line.
    pub fn from_header(header: &[u8]) -> Result<Self, Bad> {
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for name in header.split(|&byte| byte == b',') {
            let column = Column::named(name).ok_or_else(|| {
                let known = "ts_us, ts, time, ts_ns, ts_ms, ts_s; op, rw, type; offset, lba, sector, page, block; size, len, \
                             count; object, obj, dev, file";
                Bad::from(format!("unknown column {} (known are {known})", excerpt(name)))
            })?;
            if columns.iter().any(|c: &Column| c.role() == column.role()) {
                return Err(format!("column {} is the second that gives the {}", excerpt(name), column.role()).into());
            }
            columns.push(column);
            names.push(excerpt(name.trim_ascii()));
        }
        let place = columns.iter().find_map(|c| if let Column::Offset(scale) = c { Some(*scale) } else { None });
        let place = place.ok_or("no column gives the place (offset, lba, sector, page or block)")?;
        match place {
            Scale::Pages if columns.contains(&Column::Size) => {
                return Err("the place is in pages, so the length must be `count`, in pages".into());
            }
            Scale::Bytes | Scale::Sectors if !columns.iter().any(|c| c.role() == "length") => {
                return Err("no column gives the length (size, len or count)".into());
            }
            _ => {}
        }
        let has_time = columns.iter().any(|c| c.role() == "time");
        Ok(Csv { columns, names, place, has_time })
    }
}

impl LineFormat for Csv {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let (mut time_ns, mut op, mut place, mut count, mut bytes) = (0, Op::Read, 0, 1, None);
        let mut name = &b"volume"[..];
        let mut fields = 0;
        let mut from = 0;
        for at in memchr::memchr_iter(b',', line).chain([line.len()]) {
            let field = &line[from..at];
            from = at + 1;
            let parsed = match self.columns.get(fields) {
                Some(Column::Time(digits)) => decimal(field, *digits).map(|found| time_ns = found),
                Some(Column::Op) => operation(field).map(|found| op = found),
                Some(Column::Offset(_)) => uint(field).map(|found| place = found),
                Some(Column::Size) => uint(field).map(|found| bytes = Some(found)),
                Some(Column::Count) => uint(field).map(|found| count = found),
                Some(Column::Object) => {
                    name = field;
                    Ok(())
                }
                None => Ok(()),
            };
            parsed.map_err(|Bad(what)| Bad::from(format!("column {}: {what}", self.names[fields])))?;
            fields += 1;
        }
        if fields != self.columns.len() {
            let what = format!("{} fields expected as in the header, found {fields}", self.columns.len());
            return Err(format!("{what}: {}", excerpt(line)).into());
        }
        let (offset, counted) = match self.place {
            Scale::Sectors => (sectors(place)?, sectors(count)?),
            Scale::Bytes | Scale::Pages => (place, count),
        };
        let object = context.names.number(name)?;
        let time_us = context.clock.us(time_ns, 1000);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size: bytes.unwrap_or(counted), next_use: None }))
    }

    fn unit(&self) -> Unit {
        if self.place == Scale::Pages { Unit::Pages } else { Unit::Bytes }
    }

    fn has_time(&self) -> bool {
        self.has_time
    }
}

fn operation(field: &[u8]) -> Result<Op, Bad> {
    match field.trim_ascii() {
        b"U" | b"u" => Ok(Op::Update),
        word if word.eq_ignore_ascii_case(b"update") => Ok(Op::Update),
        word => read_or_write(word),
    }
}
