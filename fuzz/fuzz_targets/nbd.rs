//! The NBD door: the first byte chooses how much of a negotiation precedes the client's bytes.
//! `cargo +nightly fuzz run nbd -- -max_len=4096`
#![no_main]

use entresol_front::MemoryBlock;
use entresol_front::nbd::{Export, Limits, serve_stream};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let structured = b"IHAVEOPT\0\0\0\x08\0\0\0\0";
    let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    let mut input = Vec::new();
    for (bit, part) in [(1, &b"\0\0\0\x03"[..]), (2, structured), (4, go)] {
        if choice & bit != 0 {
            input.extend(part);
        }
    }
    input.extend(bytes);
    let block = Arc::new(MemoryBlock::new(1 << 16));
    let export = Export { block, name: "disk".into(), description: "fuzz".into(), read_only: choice & 8 != 0 };
    let limits = Limits { workers_max: 2, request_bytes_max: 4096, requests_max: 3, ..Limits::default() };
    let mut output = Vec::new();
    let _ = serve_stream(&*input, &mut output, &export, &limits);
    assert!(output.starts_with(b"NBDMAGIC"));
});
