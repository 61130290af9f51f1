//! LIRS traces (Jiang and Zhang, SIGMETRICS 2002).
//!
//! One page number a line. A `*` asks the authors' simulator for a report; it is counted. No operation, no time: all are
//! reads.

use crate::parse::{Bad, uint};
use crate::record::{Record, Unit};
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// See the module.
pub struct Lirs;

impl LineFormat for Lirs {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        if line.trim_ascii() == b"*" {
            return Ok(Some(Record::Other("breakpoint")));
        }
        let offset = uint(line)?;
        let object = context.names.number(b"volume")?;
        Ok(Some(Record::Io { time_us: 0, op: Op::Read, stream: 0, object, offset, size: 1, next_use: None }))
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }

    fn has_time(&self) -> bool {
        false
    }
}
