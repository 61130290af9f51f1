//! Every reader against damaged samples and arbitrary bytes: an error or a trace, never a panic, and never more memory
//! than the limit allows.

use entresol_trace::{
    Compression, Format, Input, LoadOptions, LoadReport, Meta, REQUESTS_MAX, Unit, build, detect, source,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::io::Cursor;
use std::path::Path;

/// Formats without a sample: the house's own has tests of its own.
const WITHOUT_SAMPLE: &[Format] = &[Format::Native];

/// A valid sample of every foreign format.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let vscsi = |version: u8| {
        let mut bytes = Vec::new();
        for i in 0..6u8 {
            let mut record = vec![0u8; if version == 1 { 32 } else { 40 }];
            let (command, mark, length) = if version == 1 { (12, 15, 4) } else { (0, 3, 8) };
            (record[command], record[mark], record[length + 1], record[16], record[24]) = (0x28, version, 16, i, i);
            bytes.extend(record);
        }
        bytes
    };
    let oracle = (0..6u8).flat_map(|i| {
        let mut record = [0u8; 24];
        (record[0], record[4], record[12]) = (i, i % 3, 1);
        record[16..].fill(0xFF);
        record
    });
    vec![
        (Format::Msr, text("128166385295514663,hm,0,Write,8192,2048,2833\n128166385295514878,hm,1,Read,9,512,2617\n")),
        (Format::Fiu, text("89966104454 4253 nfsd 508816920 8 W 6 0 0f8a\n89966104999 12 my p 16 8 R 6 0 aa\n")),
        (
            Format::Blkparse,
            text("  8,0    1  2  0.000001829   697  Q   W 223490 + 8 [kj]\n 8,0 1 5 0.1 698 Q FWS [c]\n"),
        ),
        (Format::Spc, text("0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\n")),
        (Format::Vscsi, vscsi(1)),
        (Format::Vscsi, vscsi(2)),
        (Format::Fio, text("fio version 2 iolog\n/d add\n/d read 0 4096\n/d wait 150 0\n/d write 8192 512\n")),
        (Format::Fio, text("fio version 3 iolog\n5 f add\n9 f write 0 16384\n19 f read 4096 4096\n")),
        (Format::DiskSim, text("7961.833 0 20228336 8 0\n8346.206 1 6397360 496 3\n")),
        (Format::Mqsim, text("938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n")),
        (
            Format::Systor,
            text("Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076,0.0,R,0,899056122368,131072\n"),
        ),
        (Format::Tencent, text("1538323200,4247200,128,1,1058\n1538323201,8,16,0,1063\n")),
        (Format::Alibaba, text("419,W,8792731648,16384,1577808000000046\n725,R,59110326272,360448,1577808000000308\n")),
        (Format::Arc, text("230027 8 0 0\n1842745 1 0 1\n")),
        (Format::Lirs, text("0\n1\n*\n1\n\n2528\n")),
        (Format::OracleGeneral, oracle.collect()),
        (Format::LibCacheSimCsv, text("time,id,size\n1,18446744073709551615,100\n2,5,0\n")),
        (
            Format::Recorded,
            text("dt,op,p,obj,sec,n\n0,B,0,2,0,0\n5,R,3,0,16,16\n1,W,3,1,0,16\n0,N,0,2,0,0\n0,F,0,1,0,0\n"),
        ),
        (Format::Prebuf, text("op,p,obj,block\nT,0,0,3\nM,1,0,5\nD,1,0,5\nX,1,0,9\nB,0,2,0\n")),
        (Format::Filebench, text("dt,op,p,file,off,len\n0,R,0,0,0,832\n2,W,1,3,184975240,1048576\n1,U,0,3,0,0\n")),
        (Format::Csv, text("ts_us,op,dev,offset,size\n10,W,src1_0,4096,512\n11.9,R,b,0,4096\n")),
    ]
}

fn meta() -> Meta {
    let names = ["stock", "WAL", "q1#0:a"].map(str::to_owned);
    Meta::new(8192, (0..).zip(names))
}

/// Reads to the end, or to a limit of requests that bounds the memory, skipping malformed records.
fn read(format: Format, bytes: Vec<u8>) -> Result<usize, String> {
    let path = Path::new("hostile");
    let input = Input::new(path, Box::new(Cursor::new(bytes))).map_err(|e| e.to_string())?;
    let mut source = source(format, input, meta()).map_err(|e| e.to_string())?;
    let options = LoadOptions { limit: Some(100_000), skip_bad: u64::MAX, next_use: true, ..LoadOptions::default() };
    let mut report = LoadReport::new(format, Compression::Plain);
    let mut trace = build(path, &mut *source, &options, &mut report).map_err(|e| e.to_string())?;
    assert!(trace.len() <= 100_000 && (trace.len() as u64) < REQUESTS_MAX);
    assert!(trace.pages.iter().all(|&page| (page as usize) < trace.footprint()));
    assert!(trace.page_object.iter().all(|&object| (object as usize) < trace.objects.len()));
    trace.compute_next_use();
    Ok(trace.len())
}

#[test]
fn samples_are_recognised_and_read() {
    for (format, bytes) in samples() {
        let detected = detect(&bytes, true, "x");
        assert_eq!(detected, entresol_trace::Detection::Format(format));
        assert!(read(format, bytes).expect("a valid sample") > 0, "{format}");
    }
}

/// A variant that the list lacks could not be named on a command line.
#[test]
fn every_format_is_in_the_list_and_has_a_sample() {
    let source = include_str!("../src/formats/mod.rs");
    let (_, variants) = source.split_once("pub enum Format {").expect("the formats");
    let (variants, _) = variants.split_once("\n}").expect("their end");
    let variants: Vec<&str> = variants.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let listed: Vec<String> = Format::ALL.iter().map(|format| format!("{format:?}")).collect();
    assert_eq!(listed, variants);
    let sampled: Vec<Format> = samples().into_iter().map(|(format, _)| format).collect();
    let without: Vec<&Format> = Format::ALL.iter().filter(|format| !sampled.contains(format)).collect();
    assert_eq!(without, WITHOUT_SAMPLE.iter().collect::<Vec<_>>());
}

#[test]
fn every_format_reads_every_sample_of_the_others() {
    for (_, bytes) in samples() {
        for format in Format::ALL {
            let _ = read(format, bytes.clone());
        }
    }
}

/// One way to damage a text or a record.
#[derive(Clone, Debug)]
enum Damage {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Repeat(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop::sample::select(vec![
        &b"18446744073709551615"[..],
        b"99999999999999999999999",
        b"-1",
        b",",
        b"\n",
        b"\0",
        b" ",
        b"0",
        b".",
        b"1e9",
        b"\xFF\xFE",
        b"4294967296",
    ]);
    prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<prop::sample::Index>(), word).prop_map(|(at, word)| Damage::Insert(at, word.to_vec())),
        (any::<prop::sample::Index>(), 1usize..20).prop_map(|(at, count)| Damage::Remove(at, count)),
        (2usize..5).prop_map(Damage::Repeat),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: Vec<Damage>) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Damage::Insert(at, word) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, word);
            }
            Damage::Remove(at, count) => {
                let at = at.index(bytes.len());
                let end = (at + count).min(bytes.len());
                bytes.drain(at..end);
            }
            Damage::Repeat(count) => bytes = bytes.repeat(count),
        }
    }
    bytes
}

/// The same cases on every run.
const SEED: RngSeed = RngSeed::Fixed(30);

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, rng_seed: SEED, ..ProptestConfig::default() })]

    #[test]
    fn damaged_samples(which in any::<prop::sample::Index>(), damages in prop::collection::vec(damage(), 1..8)) {
        let all = samples();
        let (format, bytes) = all[which.index(all.len())].clone();
        let bytes = damaged(bytes, damages);
        let _ = detect(&bytes, true, "x");
        let _ = detect(&bytes, false, "x");
        let _ = read(format, bytes);
    }

    #[test]
    fn arbitrary_bytes(format in prop::sample::select(Format::ALL.to_vec()),
                       bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = detect(&bytes, true, "x");
        let _ = read(format, bytes);
    }

    #[test]
    fn damaged_compression(which in 0usize..3, damages in prop::collection::vec(damage(), 1..4)) {
        use std::io::Write;
        let text = b"1\n2\n3\n".repeat(50);
        let bytes = match which {
            0 => zstd::encode_all(&text[..], 1).expect("zstd"),
            1 => {
                let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gz.write_all(&text).expect("gzip");
                gz.finish().expect("gzip")
            }
            _ => {
                let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
                xz.write_all(&text).expect("xz");
                xz.finish().expect("xz")
            }
        };
        let _ = read(Format::Lirs, damaged(bytes, damages));
    }
}

#[test]
fn a_source_says_what_it_counts() {
    for (format, bytes) in samples() {
        let input = Input::new(Path::new("x"), Box::new(Cursor::new(bytes))).expect("opens");
        let source = source(format, input, meta()).expect("opens");
        let pages = [Format::Arc, Format::Lirs, Format::OracleGeneral, Format::LibCacheSimCsv, Format::Prebuf];
        assert_eq!(source.unit() == Unit::Pages, pages.contains(&format), "{format}");
    }
}
