//! libCacheSim's oracleGeneral binary traces (Yang et al., libCacheSim).
//!
//! Records of 24 bytes, little endian, packed: time in seconds (u32), object id (u64), size (u32), and the number of the
//! next request to the same object (i64, the first request being number 1; -1 or `i64::MAX` when there is none). Every
//! object is one page whatever its size, and its id the page number. All are reads.

use crate::input::{Input, Records};
use crate::record::{PageReads, Record, Source, TraceError, Unit};
use crate::text::Clock;
use crate::trace::ObjectKind;
use entresol_core::{NEVER, Op};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;

/// The four fields of a record, read from exactly 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    time_s: u32,
    id: u64,
    size: u32,
    next: i64,
}

impl Fields {
    fn read(bytes: &[u8; RECORD_BYTES]) -> Self {
        let [a, b, c, d, ..] = *bytes;
        let mut id = [0; 8];
        id.copy_from_slice(&bytes[4..12]);
        let mut size = [0; 4];
        size.copy_from_slice(&bytes[12..16]);
        let mut next = [0; 8];
        next.copy_from_slice(&bytes[16..24]);
        Fields {
            time_s: u32::from_le_bytes([a, b, c, d]),
            id: u64::from_le_bytes(id),
            size: u32::from_le_bytes(size),
            next: i64::from_le_bytes(next),
        }
    }
}

/// See the module.
pub struct OracleGeneral {
    records: Records,
    clock: Clock,
    declared: bool,
    requests_expected: Option<u64>,
}

impl OracleGeneral {
    /// Reads an input.
    pub fn new(input: Input) -> Self {
        OracleGeneral {
            requests_expected: input.bytes_expected().map(|bytes| bytes / RECORD_BYTES as u64),
            records: Records::new(input, RECORD_BYTES),
            clock: Clock::default(),
            declared: false,
        }
    }

    #[inline]
    fn time_us(clock: &mut Clock, fields: Fields) -> u64 {
        clock.us(i64::from(fields.time_s) * 1_000_000, 1)
    }
}

/// Largest plausible request number: no trace has as many requests.
const REQUESTS_MAX: i64 = 1 << 40;

/// True when these first bytes hold records whose times ascend, whose sizes are not 0 and whose next requests lie ahead,
/// but not absurdly far.
pub fn looks_like(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_BYTES>();
    if records.is_empty() {
        return false;
    }
    let mut time_s = 0;
    records.iter().map(Fields::read).zip(0i64..).all(|(fields, i)| {
        let ascending = fields.time_s >= time_s;
        time_s = fields.time_s;
        let next = match fields.next {
            -1 | i64::MAX => true,
            next => next > i && next < REQUESTS_MAX,
        };
        ascending && fields.size > 0 && next
    })
}

impl Source for OracleGeneral {
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if !self.declared {
            self.declared = true;
            let name = "objects".to_owned();
            return Ok(Some(Record::Object { object: 0, name, kind: ObjectKind::Data }));
        }
        let Some(bytes) = self.records.next_record()? else { return Ok(None) };
        let mut record = [0; RECORD_BYTES];
        record.copy_from_slice(bytes);
        let fields = Fields::read(&record);
        let time_us = Self::time_us(&mut self.clock, fields);
        let next_use = fields.next.checked_sub(1).and_then(|index| u32::try_from(index).ok()).unwrap_or(NEVER);
        Ok(Some(Record::Io {
            time_us,
            op: Op::Read,
            stream: 0,
            object: 0,
            offset: fields.id,
            size: 1,
            next_use: Some(next_use),
        }))
    }

    fn buffered_reads(&mut self, most: usize, reads: &mut PageReads) {
        let (records, _) = self.records.buffered(most).as_chunks::<RECORD_BYTES>();
        reads.pages.clear();
        reads.pages.extend(records.iter().map(|record| Fields::read(record).id));
        reads.times_us.clear();
        reads.times_us.extend(records.iter().map(|record| Self::time_us(&mut self.clock, Fields::read(record))));
    }

    fn requests_expected(&self) -> Option<u64> {
        self.requests_expected
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }

    fn clock_reversals(&self) -> u64 {
        self.clock.reversals()
    }

    fn place(&self) -> String {
        format!("byte {}", self.records.offset())
    }
}
