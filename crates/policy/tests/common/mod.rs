//! Traces with known miss counts, where the files exist.

use std::collections::HashMap;
use std::path::Path;

/// Block numbers of an oracle trace in the order of its requests: 24-byte records of u32 time, u64 block, u32 size
/// and i64 next use. `None`, with a printed reason, when the file is not there.
pub fn load_raw(name: &str) -> Option<Vec<u64>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/oracles/policies");
    let path = folder.join(format!("{name}.oracleGeneral.bin.zst"));
    let Ok(file) = std::fs::File::open(&path) else {
        entresol_skip::skipped!("data", "there is no {}", path.display());
        return None;
    };
    let bytes = zstd::decode_all(file).expect("a zstd stream");
    let block = |record: &[u8]| u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
    Some(bytes.chunks_exact(24).map(block).collect())
}

/// The same trace with pages numbered in order of first appearance.
pub fn load(name: &str) -> Option<Vec<u32>> {
    let mut numbers = HashMap::new();
    let blocks = load_raw(name)?;
    Some(
        blocks
            .into_iter()
            .map(|block| {
                let next = numbers.len() as u32;
                *numbers.entry(block).or_insert(next)
            })
            .collect(),
    )
}
