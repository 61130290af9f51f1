//! FIU traces (Koller and Rangaswami, FAST 2010, and the SRCMap set; SNIA IOTTA sets 390 and 391).
//!
//! `ts pid process lba size op major minor [md5]`, separated by blanks: nanoseconds, process id and name, sectors of 512
//! bytes, `R` or `W`, device numbers, and the MD5 of the contents, which is ignored and which some of the sets lack. The
//! object is the device `major:minor`, the stream the process.

use crate::parse::{Bad, excerpt, int, joined, read_or_write, sectors, split_words, uint, uint32};
use crate::record::Record;
use crate::text::{Context, LineFormat};

/// See the module.
pub struct Fiu;

const FIELDS_MAX: usize = 16;

impl LineFormat for Fiu {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let mut fields = [&line[..0]; FIELDS_MAX];
        let mut count = 0;
        for word in split_words(line) {
            *fields.get_mut(count).ok_or("more than 16 fields")? = word;
            count += 1;
        }
        // The name of a process may hold blanks, so the operation is found from the end.
        let is_op = |at: usize| matches!(fields[at], b"R" | b"W" | b"r" | b"w");
        let op_at = match count {
            9.. if is_op(count - 4) => count - 4,
            8.. if is_op(count - 3) => count - 3,
            _ => {
                let what = "`ts pid process lba size op major minor [md5]` expected";
                return Err(format!("{what}, found {}", excerpt(line)).into());
            }
        };
        let op = read_or_write(fields[op_at])?;
        let (time, stream) = (int(fields[0])?, uint32(fields[1])?);
        let (offset, size) = (sectors(uint(fields[op_at - 2])?)?, sectors(uint(fields[op_at - 1])?)?);
        let (major, minor) = (fields[op_at + 1], fields[op_at + 2]);
        uint(major)?;
        uint(minor)?;
        let object = context.names.number_as(joined(line, major, minor), |key| {
            let numbers: Vec<_> = split_words(key).map(String::from_utf8_lossy).collect();
            (numbers.join(":"), crate::trace::ObjectKind::Data)
        })?;
        let time_us = context.clock.us(time, 1000);
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size, next_use: None }))
    }
}
