//! DiskSim ascii traces (Bucy et al., "The DiskSim Simulation Environment", CMU-PDL-08-101, section 5). Also the ascii
//! traces of MQSim (Tavakkol et al., FAST 2018) and SSDSim, which look alike but count time in nanoseconds.
//!
//! `time device block count flags`, separated by blanks: sectors of 512 bytes. DiskSim: milliseconds with a fraction;
//! flags in hexadecimal, bit 0 = read. MQSim: integer nanoseconds; 1 = read, 0 = write, nothing else. The object is the
//! device.

use crate::parse::{Bad, decimal, excerpt, int, sectors, uint, words};
use crate::record::Record;
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// DiskSim, see the module.
pub struct DiskSim;

/// MQSim and SSDSim, see the module.
pub struct Mqsim;

impl LineFormat for DiskSim {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [time, device, block, count, flags] = words::<5>(line)?;
        let flags = std::str::from_utf8(flags).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
        let flags = flags.ok_or("the flags in the fifth column are no hexadecimal number")?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        io([device, block, count], decimal(time, 6)?, op, context)
    }
}

impl LineFormat for Mqsim {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [time, device, block, count, op] = words::<5>(line)?;
        let op = match op {
            b"0" => Op::Write,
            b"1" => Op::Read,
            other => return Err(format!("0 (write) or 1 (read) expected, found {}", excerpt(other)).into()),
        };
        io([device, block, count], int(time)?, op, context)
    }
}

fn io(columns: [&[u8]; 3], time_ns: i64, op: Op, context: &mut Context) -> Result<Option<Record>, Bad> {
    let [device, block, count] = columns;
    let (offset, size) = (sectors(uint(block)?)?, sectors(uint(count)?)?);
    uint(device)?;
    let object = context.names.number(device)?;
    let time_us = context.clock.us(time_ns, 1000);
    Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
}
