//! A source whose reads are taken many at once, against the same source whose records are taken one by one.

use entresol_core::Random;
use entresol_trace::{
    Compression, Format, Input, LoadOptions, LoadReport, Meta, Record, Source, TraceError, Unit, build, source,
};
use std::io::{Cursor, Read};
use std::path::Path;

/// A source without `buffered_reads`, so that its records are taken one by one.
struct OneByOne(Box<dyn Source>);

impl Source for OneByOne {
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        self.0.next()
    }
    fn unit(&self) -> Unit {
        self.0.unit()
    }
    fn has_time(&self) -> bool {
        self.0.has_time()
    }
    fn clock_reversals(&self) -> u64 {
        self.0.clock_reversals()
    }
    fn place(&self) -> String {
        self.0.place()
    }
}

/// Hands out its bytes in pieces of changing length.
struct Pieces(Cursor<Vec<u8>>, Random);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(1 + self.1.below(70_000) as usize);
        self.0.read(&mut buffer[..most])
    }
}

/// Records of oracleGeneral: runs, repeats, ids of full width, times that run backwards now and then.
fn records(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::new();
    let (mut id, mut time_s) = (u64::MAX - 3, 1000u32);
    for _ in 0..count {
        id = match random.below(4) {
            0 => Random::mix(random.below(2_000)),
            1 => random.below(2_000),
            _ => id.wrapping_add(1),
        };
        time_s = (time_s + random.below(3) as u32).saturating_sub(u32::from(random.below(50) == 0));
        bytes.extend(time_s.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend((random.below(9) as u32).to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
    }
    bytes
}

/// The complete outcome of loading, as text.
fn outcome(bytes: &[u8], at_once: bool, options: &LoadOptions) -> String {
    let path = Path::new("x");
    let pieces = Pieces(Cursor::new(bytes.to_vec()), Random::new(bytes.len() as u64));
    let input = Input::new(path, Box::new(pieces)).expect("opens");
    let mut opened = source(Format::OracleGeneral, input, Meta::default()).expect("opens");
    if !at_once {
        opened = Box::new(OneByOne(opened));
    }
    let mut report = LoadReport::new(Format::OracleGeneral, Compression::Plain);
    match build(path, &mut *opened, options, &mut report) {
        Ok(trace) => {
            let times = trace.times_us.as_deref().expect("times");
            let pages = (&trace.page_object[..], &trace.page_block[..], &trace.objects);
            format!("{:?} {:?} {times:?} {pages:?} {report:?}", &trace.pages[..], &trace.ops[..])
        }
        Err(error) => format!("{error} {report:?}"),
    }
}

#[test]
fn reads_at_once_come_to_what_they_come_to_one_by_one() {
    let whole = records(31, 30_000);
    println!("seed 31");
    for cut in [0, 1, 24, 25, 24 * 17 + 5, whole.len() - 7, whole.len()] {
        for limit in [None, Some(1), Some(2), Some(17), Some(1_025), Some(12_000), Some(30_000)] {
            for skip_bad in [0, 1] {
                let options = LoadOptions { limit, skip_bad, ..LoadOptions::default() };
                let (at_once, one_by_one) =
                    (outcome(&whole[..cut], true, &options), outcome(&whole[..cut], false, &options));
                // Not `assert_eq`: the texts are long.
                assert!(at_once == one_by_one, "cut at byte {cut}, limit {limit:?}, skip_bad {skip_bad}");
            }
        }
    }
    assert!(outcome(&whole, true, &LoadOptions::default()).contains("reads: 30000"));
    let cut = outcome(&whole[..whole.len() - 7], true, &LoadOptions::default());
    assert!(cut.starts_with("x: byte 719976: the file ends within a record: 17 of 24 bytes"), "{}", &cut[..80]);
}
