//! What tests against recorded results share: the traces those results belong to.

use std::collections::HashMap;
use std::path::Path;

/// Loads a trace of the oracle set (`zipf200k`, `mixed200k`) as dense page ids in order of first appearance.
/// Where the data are absent the reason is printed and the test has nothing to compare.
pub fn load(name: &str) -> Option<Vec<u32>> {
    const RECORD_BYTES: usize = 24;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/oracles/policies");
    let path = folder.join(format!("{name}.oracleGeneral.bin.zst"));
    let packed = match std::fs::read(&path) {
        Ok(packed) => packed,
        Err(error) => {
            println!("skipped: {}: {error}", path.display());
            return None;
        }
    };
    let bytes = zstd::decode_all(&packed[..]).expect("a zstd stream");
    let mut dense = HashMap::new();
    let pages = bytes.chunks_exact(RECORD_BYTES).map(|record| {
        let id = u64::from_le_bytes(record[4..12].try_into().expect("8 bytes"));
        let next = dense.len() as u32;
        *dense.entry(id).or_insert(next)
    });
    Some(pages.collect())
}
