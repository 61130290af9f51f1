//! Page size of the database server whose files a cache is to serve.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A server's data directory, recognized by its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPages {
    /// Name of the server, or of its storage engine.
    pub server: &'static str,
    /// Bytes of its pages.
    pub page_bytes: u32,
}

/// The server whose data directory this is or contains; none if no file tells.
pub fn find(backing: &Path) -> Option<ServerPages> {
    let below = std::fs::read_dir(backing).ok()?.flatten().map(|entry| entry.path());
    std::iter::once(backing.to_owned()).chain(below).find_map(|directory| {
        let postgresql = || head(&directory.join("global/pg_control")).and_then(|head| block_of_postgresql(&head));
        let innodb = || head(&directory.join("ibdata1")).and_then(|head| page_of_innodb(&head));
        let of = |server| move |page_bytes| ServerPages { server, page_bytes };
        postgresql().map(of("PostgreSQL")).or_else(|| innodb().map(of("InnoDB")))
    })
}

/// The first sector of a file.
fn head(path: &Path) -> Option<[u8; 512]> {
    let mut head = [0; 512];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    Some(head)
}

/// Block size in PostgreSQL's control file. The block size follows the constant that shows the format of floating-point
/// numbers (`floatFormat`, `blcksz` in `catalog/pg_control.h`), at an offset that differs among versions.
fn block_of_postgresql(head: &[u8]) -> Option<u32> {
    const FLOAT_FORMAT: f64 = 1_234_567.0;
    let fields = head.chunks_exact(8);
    let block = fields.skip_while(|field| **field != FLOAT_FORMAT.to_le_bytes()).nth(1)?;
    is_page(u32::from_le_bytes([block[0], block[1], block[2], block[3]]))
}

/// Page size in the header of InnoDB's system tablespace (`FSP_SPACE_FLAGS`, byte 16 of a header at byte 38). The
/// format with a checksum over the whole page (MariaDB, bit 4) has the size in bits 0 to 3, others in bits 6 to 9, as the
/// power of two above 512; 0 stands for 16 KiB.
fn page_of_innodb(head: &[u8]) -> Option<u32> {
    let at = 38 + 16;
    let flags = u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let power = if flags & 1 << 4 == 0 { flags >> 6 & 15 } else { flags & 15 };
    if power == 0 { Some(16384) } else { is_page(512 << power) }
}

/// The size, if a cache can have pages of it.
fn is_page(bytes: u32) -> Option<u32> {
    (bytes.is_power_of_two() && (4096..=65536).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_size_follows_the_float_format_of_a_control_file() {
        for (at, bytes) in [(208, 8192), (216, 16384)] {
            let mut control = [0; 512];
            control[at..at + 8].copy_from_slice(&1_234_567.0_f64.to_le_bytes());
            control[at + 8..at + 12].copy_from_slice(&u32::to_le_bytes(bytes));
            assert_eq!(block_of_postgresql(&control), Some(bytes));
            control[at + 9] = 3;
            assert_eq!(block_of_postgresql(&control), None, "no power of two");
        }
        assert_eq!(block_of_postgresql(&[0; 512]), None, "no control file");
    }

    #[test]
    fn the_page_size_of_innodb_is_in_its_flags() {
        for (flags, bytes) in [(0, 16384), (0x15, 16384), (4 << 6, 8192), (0x13, 4096), (7 << 6, 65536)] {
            let mut header = [0; 512];
            header[54..58].copy_from_slice(&u32::to_be_bytes(flags));
            assert_eq!(page_of_innodb(&header), Some(bytes), "flags {flags:#x}");
        }
    }
}
