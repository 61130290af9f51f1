//! Every foreign format: the first byte chooses the format, the rest is the file.
//! `cargo +nightly fuzz run readers -- -max_len=4096`
#![no_main]

use entresol_trace::{Compression, Format, Input, LoadOptions, LoadReport, Meta, build, detect, source};
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let path = Path::new("fuzz");
    let _ = detect(bytes, choice & 0x80 == 0, "fuzz");
    let format = Format::ALL[usize::from(choice & 0x7F) % Format::ALL.len()];
    let Ok(input) = Input::new(path, Box::new(Cursor::new(bytes.to_vec()))) else { return };
    let meta = Meta::new(8192, (0..).zip(["stock", "WAL", "q1#0:a"].map(str::to_owned)));
    let Ok(mut source) = source(format, input, meta) else { return };
    let options = LoadOptions { limit: Some(100_000), skip_bad: u64::MAX, ..LoadOptions::default() };
    let mut report = LoadReport::new(format, Compression::Plain);
    if let Ok(mut trace) = build(path, &mut *source, &options, &mut report) {
        assert!(trace.len() <= 100_000);
        trace.compute_next_use();
    }
});
