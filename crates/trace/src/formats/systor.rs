//! SYSTOR '17 traces (Lee et al., "Understanding storage traffic characteristics on enterprise virtual desktop
//! infrastructure", SYSTOR 2017; SNIA IOTTA set 4964).
//!
//! Header `Timestamp,Response,IOType,LUN,Offset,Size`; seconds with nanoseconds, `R` or `W`, bytes. The response time is
//! ignored. An empty type is a command that is neither read nor write; it is counted. The object is the LUN. Lines are
//! slightly out of order in time.

use crate::parse::{Bad, commas, decimal, read_or_write, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};

/// The first line of every file.
pub const HEADER: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";

/// See the module.
pub struct Systor;

impl LineFormat for Systor {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [time, _, op, lun, offset, size] = commas::<6>(line)?;
        if op.is_empty() {
            return Ok(Some(Record::Other("command that is neither read nor write")));
        }
        let op = read_or_write(op)?;
        let (time, offset, size) = (decimal(time, 9)?, uint(offset)?, uint(size)?);
        uint(lun)?;
        let object = context.names.number(lun)?;
        let time_us = context.clock.us(time, 1000);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
