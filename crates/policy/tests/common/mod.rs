//! The oracle traces, for the tests that count misses.

use std::collections::HashMap;
use std::path::Path;

const RECORD_BYTES: usize = 24;

/// The pages of an oracle trace (`zipf200k`, `mixed200k`), numbered densely in the order of first appearance.
/// `None`, with the reason printed, where the shared data is absent.
pub fn load(name: &str) -> Option<Vec<u32>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/oracles/policies");
    let path = folder.join(format!("{name}.oracleGeneral.bin.zst"));
    let packed = match std::fs::read(&path) {
        Ok(packed) => packed,
        Err(error) => {
            println!("skipped: {}: {error}", path.display());
            return None;
        }
    };
    // A record is u32 time, u64 id, u32 size, i64 next use, little endian.
    let records = zstd::decode_all(&packed[..]).expect("a zstd file");
    let mut numbers = HashMap::new();
    let dense = |record: &[u8]| {
        let id = u64::from_le_bytes(record[4..12].try_into().expect("eight bytes"));
        let next = numbers.len() as u32;
        *numbers.entry(id).or_insert(next)
    };
    Some(records.chunks_exact(RECORD_BYTES).map(dense).collect())
}
