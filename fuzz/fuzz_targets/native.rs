//! The native format. What is accepted must be safe to drive.
//! `cargo +nightly fuzz run native -- -max_len=4096`
#![no_main]

use entresol_trace::native;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    if let Ok(trace) = native::from_bytes(Path::new("fuzz"), data) {
        for i in 0..trace.len() {
            assert!(trace.address(trace.request(i).page).object.index() < trace.objects.len());
        }
    }
});
