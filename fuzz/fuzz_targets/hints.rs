//! What databases tell of queries: datagrams and lines of an audit log, through to whom they are told. The first byte chooses.
//! `cargo +nightly fuzz run hints -- -max_len=9000`
#![no_main]

use entresol_files::{Advised, FileId};
use entresol_front::hints::{Hints, Served, parse_audit_line};
use libfuzzer_sys::fuzz_target;

struct Nobody;

impl Advised for Nobody {
    fn query_begins(&self, _query: u32, files: &[FileId]) -> usize {
        files.len()
    }

    fn query_ends(&self, _query: u32) {}
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    if choice & 1 == 1 {
        let _ = parse_audit_line(&String::from_utf8_lossy(bytes));
        return;
    }
    let served = Served::new("/srv".into(), "/nonexistent".into());
    let hints = Hints::new(served, Box::new(Nobody), Box::new(|_| ()));
    let prefix: &[u8] = if choice & 2 == 2 { b"entresol-hint 1\nbegin 1 1\nd /srv\n" } else { b"" };
    for message in bytes.split(|&byte| byte == 0) {
        hints.datagram(&[prefix, message].concat());
    }
    let counts = hints.counts();
    assert!(counts.begins <= counts.ends + counts.forgotten + hints.running() as u64);
});
