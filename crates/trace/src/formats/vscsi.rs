//! CloudPhysics vscsi traces (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015), both versions.
//!
//! Binary, little endian. Version 1, 32 bytes: serial u32, length u32, segments u32, command u16, version u16, block u64,
//! time u64. Version 2, 40 bytes: command u16, version u16, serial u32, length u32, segments u32, block u64, time u64,
//! response time u64. The high byte of the version field is 1 or 2. Length in bytes, block in sectors of 512 bytes, time
//! in microseconds. Commands are SCSI operation codes; those that neither read nor write are counted.

use crate::input::{Input, Records};
use crate::parse::{Bad, sectors};
use crate::record::{Record, Source, TraceError};
use crate::text::Clock;
use crate::trace::ObjectKind;
use entresol_core::Op;

/// Version of the record layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 32 bytes.
    One,
    /// 40 bytes.
    Two,
}

impl Version {
    fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// True when the version field of this record says so.
    fn marks(self, record: &[u8]) -> bool {
        match self {
            Version::One => record[15] == 1,
            Version::Two => record[3] == 2,
        }
    }

    /// The version that every complete record in these first bytes states.
    pub fn of(head: &[u8]) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let mut records = head.chunks_exact(version.record_bytes());
            records.len() > 0 && records.all(|record| version.marks(record))
        })
    }
}

/// See the module.
pub struct Vscsi {
    records: Records,
    version: Version,
    clock: Clock,
    declared: bool,
}

impl Vscsi {
    /// Reads an input of this version.
    pub fn new(input: Input, version: Version) -> Self {
        let records = Records::new(input, version.record_bytes());
        Vscsi { records, version, clock: Clock::default(), declared: false }
    }
}

fn le<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

/// READ and WRITE in their 6, 10, 12 and 16-byte forms, and WRITE AND VERIFY.
fn operation(command: u16) -> Option<Op> {
    match command & 0xFF {
        0x08 | 0x28 | 0xA8 | 0x88 => Some(Op::Read),
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Some(Op::Write),
        _ => None,
    }
}

fn parse(record: &[u8], version: Version, clock: &mut Clock) -> Result<Record, Bad> {
    if !version.marks(record) {
        return Err("the version field differs from that of the first record".into());
    }
    let (command, length) = match version {
        Version::One => (u16::from_le_bytes(le(record, 12)), u32::from_le_bytes(le(record, 4))),
        Version::Two => (u16::from_le_bytes(le(record, 0)), u32::from_le_bytes(le(record, 8))),
    };
    let (block, time) = (u64::from_le_bytes(le(record, 16)), u64::from_le_bytes(le(record, 24)));
    let Some(op) = operation(command) else { return Ok(Record::Other("command that is neither read nor write")) };
    let time = i64::try_from(time).map_err(|_| Bad::from("the time is out of range"))?;
    let (offset, size) = (sectors(block)?, u64::from(length));
    let time_us = clock.us(time, 1);
    Ok(Record::Io { time_us, op, stream: 0, object: 0, offset, size, next_use: None })
}

impl Source for Vscsi {
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if !self.declared {
            self.declared = true;
            let name = "disk".to_owned();
            return Ok(Some(Record::Object { object: 0, name, kind: ObjectKind::Data }));
        }
        let parsed = match self.records.next_record()? {
            None => return Ok(None),
            Some(record) => parse(record, self.version, &mut self.clock),
        };
        parsed.map(Some).map_err(|Bad(what)| TraceError::malformed(self.records.path(), self.place(), what))
    }

    fn clock_reversals(&self) -> u64 {
        self.clock.reversals()
    }

    fn place(&self) -> String {
        format!("byte {}", self.records.offset())
    }
}
