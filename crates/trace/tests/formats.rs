//! Every format: small samples written here, and files in their original format against their normalised twins.

mod common;

use common::Folder;
use entresol_core::Op;
use entresol_trace::{Detection, Format, LoadOptions, Loaded, OpByte, Record, TraceError, Unit, detect, head, load};
use std::io::Write;

/// The first records of a sample, its format detected.
fn records(name: &str, bytes: impl AsRef<[u8]>) -> (Format, Unit, Vec<Record>) {
    let folder = Folder::new();
    let path = folder.file(name, bytes);
    head(&path, None, 1000).expect("the sample is read")
}

/// Time, operation, stream, object, offset and size of each I/O.
fn ios(records: &[Record]) -> Vec<(u64, Op, u32, u32, u64, u64)> {
    let io = |record: &Record| match *record {
        Record::Io { time_us, op, stream, object, offset, size, .. } => {
            Some((time_us, op, stream, object, offset, size))
        }
        _ => None,
    };
    records.iter().filter_map(io).collect()
}

fn names(records: &[Record]) -> Vec<String> {
    let name = |record: &Record| match record {
        Record::Object { name, .. } => Some(name.clone()),
        _ => None,
    };
    records.iter().filter_map(name).collect()
}

fn others(records: &[Record]) -> Vec<&str> {
    records.iter().filter_map(|record| if let Record::Other(what) = record { Some(*what) } else { None }).collect()
}

#[test]
fn msr() {
    let (format, unit, records) = records(
        "x",
        "128166385295514663,hm,0,Write,8192,2048,2833\n128166385295514878,hm,1,Read,11855351808,512,2617\n",
    );
    assert_eq!((format, unit), (Format::Msr, Unit::Bytes));
    assert_eq!(names(&records), ["hm_0", "hm_1"]);
    assert_eq!(ios(&records), [(0, Op::Write, 0, 0, 8192, 2048), (21, Op::Read, 0, 1, 11855351808, 512)]);
}

#[test]
fn fiu() {
    let text = "89966104454 4253 nfsd 508816920 8 W 6 0 0f8ae1\n89966104999 12 my proc 16 8 R 6 0 aa\n\
                89966105454 4253 nfsd 24 8 R 6 1\n";
    let (format, _, records) = records("x", text);
    assert_eq!(format, Format::Fiu);
    assert_eq!(names(&records), ["6:0", "6:1"]);
    let expected = [
        (0, Op::Write, 4253, 0, 508816920 * 512, 4096),
        (0, Op::Read, 12, 0, 8192, 4096),
        (1, Op::Read, 4253, 1, 12288, 4096),
    ];
    assert_eq!(ios(&records), expected);
}

#[test]
fn blkparse() {
    let text = "  8,0    1        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427\n\
                  8,0    1        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n\
                  8,0    1        3     0.000005000   697  D   W 223490 + 8 [kjournald]\n\
                  8,0    1        4     0.001005000   698  Q  RA 16 + 16 [cat]\n\
                  8,0    1        5     0.001006000   698  Q FWS [cat]\n\
                  8,0    1        6     0.001007000   698  Q   D 64 + 64 [fstrim]\n\
                  8,0    1        7     0.001008000     0  m   N cfq697 insert_request\n\
                CPU1 (8,0):\n Reads Queued:           1,        8KiB\n";
    let (format, _, records) = records("x", text);
    assert_eq!(format, Format::Blkparse);
    assert_eq!(names(&records), ["8:0"]);
    assert_eq!(ios(&records), [(0, Op::Write, 697, 0, 223490 * 512, 4096), (1003, Op::Read, 698, 0, 8192, 8192)]);
    let counted = ["other stage of an I/O", "other stage of an I/O", "flush", "discard", "blktrace message"];
    assert_eq!(others(&records), counted);
}

#[test]
fn spc() {
    let (format, _, records) = records("x", "0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\n");
    assert_eq!(format, Format::Spc);
    assert_eq!(ios(&records), [(0, Op::Write, 0, 0, 155426304, 3584), (26214, Op::Read, 0, 1, 28462080, 3072)]);
}

fn vscsi_record(version: u8, command: u16, length: u32, block: u64, time: u64) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let command = u32::from(command) | u32::from(version) << 24;
    let mut bytes = match version {
        1 => words(&[7, length, 1, command]),
        _ => words(&[command, 7, length, 1]),
    };
    bytes.extend([block, time].iter().flat_map(|word| word.to_le_bytes()));
    if version == 2 {
        bytes.extend(99u64.to_le_bytes());
    }
    bytes
}

#[test]
fn vscsi_both_versions() {
    for version in [1, 2] {
        let mut bytes = vscsi_record(version, 0x2A, 512, 42932745, 33_898_000_000);
        bytes.extend(vscsi_record(version, 0x00, 0, 0, 33_898_000_001));
        bytes.extend(vscsi_record(version, 0x88, 4096, 1 << 40, 33_898_000_700));
        let (format, _, first) = records("x", &bytes);
        assert_eq!(format, Format::Vscsi);
        let expected = [(0, Op::Write, 0, 0, 42932745 * 512, 512), (700, Op::Read, 0, 0, 1 << 49, 4096)];
        assert_eq!(ios(&first), expected);
        assert_eq!(others(&first), ["command that is neither read nor write"]);

        let folder = Folder::new();
        let torn = folder.file("torn.vscsi", &bytes[..bytes.len() - 3]);
        let error = load(&torn, &LoadOptions::default()).err().expect("a torn record").to_string();
        let at = bytes.len() / 3 * 2;
        assert!(error.contains(&format!("torn.vscsi: byte {at}: the file ends within a record")), "{error}");
    }
}

#[test]
fn fio_both_versions() {
    let two = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 0 4096\n/dev/a wait 150 0\n\
               /dev/b write 8192 512\n/dev/a sync 0 0\n/dev/a trim 0 4096\n/dev/a close\n";
    let (format, _, first) = records("x", two);
    assert_eq!(format, Format::Fio);
    assert_eq!(names(&first), ["/dev/a", "/dev/b"]);
    assert_eq!(ios(&first), [(0, Op::Read, 0, 0, 0, 4096), (150, Op::Write, 0, 1, 8192, 512)]);
    assert_eq!(others(&first), ["sync", "trim"]);

    let three = "fio version 3 iolog\n5 f add\n7 f open\n9 f write 0 16384\n19 f read 4096 4096\n25 f close\n";
    let (format, _, records) = records("x", three);
    assert_eq!(format, Format::Fio);
    assert_eq!(ios(&records), [(4, Op::Write, 0, 0, 0, 16384), (14, Op::Read, 0, 0, 4096, 4096)]);
}

#[test]
fn disksim_and_mqsim_are_told_apart_by_the_fraction() {
    let (format, _, first) = records("x", "7961.833 0 20228336 8 0\n8346.206 1 6397360 496 3\n");
    assert_eq!(format, Format::DiskSim);
    let expected = [(0, Op::Write, 0, 0, 20228336 * 512, 4096), (384_373, Op::Read, 0, 1, 6397360 * 512, 496 * 512)];
    assert_eq!(ios(&first), expected);
    let (format, _, records) = records("x", "938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n");
    assert_eq!(format, Format::Mqsim);
    let expected = [(0, Op::Write, 0, 0, 264719034 * 512, 8192), (315, Op::Read, 0, 1, 197570570 * 512, 8192)];
    assert_eq!(ios(&records), expected);
}

#[test]
fn systor() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
                1456095145.126285000,,W,6,4096,512\n1456095145.2,0.1,,6,0,0\n";
    let (format, _, records) = records("x", text);
    assert_eq!(format, Format::Systor);
    assert_eq!(names(&records), ["0", "6"]);
    // The second request is older than the first: its time is raised, its order kept.
    assert_eq!(ios(&records), [(0, Op::Read, 0, 0, 899056122368, 131072), (0, Op::Write, 0, 1, 4096, 512)]);
    assert_eq!(others(&records), ["command that is neither read nor write"]);
}

#[test]
fn tencent() {
    let (format, _, records) = records("x", "1538323200,4247200,128,1,1058\n1538323201,8,16,0,1063\n");
    assert_eq!(format, Format::Tencent);
    assert_eq!(names(&records), ["1058", "1063"]);
    assert_eq!(ios(&records), [(0, Op::Write, 0, 0, 2174566400, 65536), (1_000_000, Op::Read, 0, 1, 4096, 8192)]);
}

#[test]
fn alibaba() {
    for header in ["", "device_id,opcode,offset,length,timestamp\n"] {
        let text =
            format!("{header}419,W,8792731648,16384,1577808000000046\n725,R,59110326272,360448,1577808000000308\n");
        let (format, _, records) = records("x", text);
        assert_eq!(format, Format::Alibaba);
        assert_eq!(names(&records), ["419", "725"]);
        let expected = [(0, Op::Write, 0, 0, 8792731648, 16384), (262, Op::Read, 0, 1, 59110326272, 360448)];
        assert_eq!(ios(&records), expected);
    }
}

#[test]
fn arc_counts_pages() {
    let folder = Folder::new();
    let path = folder.file("x.lis", "230027 8 0 0\n1842745 1 0 1\n230027 2 0 2\n");
    let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
    assert_eq!(report.format, Format::Arc);
    assert_eq!(&trace.pages[..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1]);
    assert_eq!(trace.page_block[8], 1842745);
    assert!(trace.times_us.is_none());
}

#[test]
fn lirs_with_breakpoints_and_carriage_returns() {
    let folder = Folder::new();
    let path = folder.file("x", "0\r\n1\r\n*\r\n1\r\n\r\n2528\r\n");
    let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
    assert_eq!(report.format, Format::Lirs);
    assert_eq!(&trace.pages[..], [0, 1, 1, 2]);
    assert_eq!(report.counts.others["breakpoint"], 1);
}

#[test]
fn libcachesim_csv_ignores_sizes() {
    for header in ["", "time,id,size\n", "# time, object, size\n"] {
        let folder = Folder::new();
        let path =
            folder.file("x.csv", format!("{header}1,18446744073709551615,100000\n2,5,0\n3,18446744073709551615,7\n"));
        let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
        assert_eq!(report.format, Format::LibCacheSimCsv);
        assert_eq!(&trace.pages[..], [0, 1, 0]);
        assert_eq!(&trace.times_us.expect("times")[..], [0, 1_000_000, 2_000_000]);
    }
}

#[test]
fn oracle_general_states_the_next_use_that_we_compute() {
    let Some(folder) = common::data("oracles/policies") else { return };
    for (name, requests) in [("zipf200k", 200_000), ("mixed200k", 200_000)] {
        let path = folder.join(format!("{name}.oracleGeneral.bin.zst"));
        let options = LoadOptions { next_use: true, ..LoadOptions::default() };
        let Loaded { trace, report } = load(&path, &options).expect("loads");
        assert_eq!(report.format, Format::OracleGeneral);
        assert_eq!(trace.len(), requests);
        let (_, _, first) = head(&path, None, requests + 1).expect("records");
        let stated: Vec<u32> = first
            .iter()
            .filter_map(|record| if let Record::Io { next_use, .. } = record { *next_use } else { None })
            .collect();
        assert_eq!(stated.len(), requests);
        let computed = trace.next_use.expect("next use");
        let differs = computed.iter().zip(&stated).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}: the first request whose next use differs");
    }
}

#[test]
fn recorded_with_names_logs_and_queries() {
    let folder = Folder::new();
    let meta = r#"{"page_size": 8192, "objects": {"0": "stock", "1": "WAL", "2": "q9#4:slate", "3": "q9#4:slate:rows=1",
                   "4": "TMP"}}"#;
    folder.file("t.meta.json", meta);
    let text = "dt,op,p,obj,sec,n\n0,B,0,2,0,0\n5,R,3,0,16,16\n1,W,3,1,0,16\n1,R,3,0,32,32\n0,F,3,1,0,0\n2,W,4,4,3,10\n\
                0,N,0,3,0,0\n0,N,0,3,0,0\n0,W,3,0,0,48\n";
    let path = folder.file("t.csv", text);
    let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
    assert_eq!(report.format, Format::Recorded);
    assert_eq!(trace.page_bytes, 8192);
    assert_eq!(trace.page_block.to_vec(), [1, 2, 3, 0, 0]);
    assert_eq!(trace.pages.to_vec(), [0, 1, 2, 3, 4, 0, 1]);
    let sequential: Vec<_> = trace.ops.iter().map(|&byte| OpByte(byte).sequential()).collect();
    assert_eq!(sequential, [false, true, true, false, false, true, true]);
    let ops: Vec<_> = trace.ops.iter().map(|&byte| OpByte(byte).op()).collect();
    assert_eq!(ops, [Op::Read, Op::Read, Op::Read, Op::Update, Op::Write, Op::Write, Op::Write]);
    assert_eq!(trace.times_us.as_ref().expect("times").to_vec(), [500, 700, 700, 900, 900, 900, 900]);
    assert_eq!(
        trace.objects.iter().map(|o| (o.name.as_str(), o.pages)).collect::<Vec<_>>(),
        [("stock", 4), ("TMP", 1)]
    );
    assert_eq!((report.counts.log_ios, report.counts.query_ends_unmatched), (1, 1));
    let events = serde_json::to_string(&trace.events).expect("JSON");
    let begin = r#"{"at":0,"kind":{"query-begin":{"query":0,"label":"q9#4:slate","objects":[0,1]}}}"#;
    assert_eq!(events, format!(r#"[{begin},{{"at":4,"kind":{{"query-end":{{"query":0}}}}}}]"#));

    std::fs::remove_file(folder.path("t.meta.json")).expect("removed");
    let error = load(&path, &LoadOptions::default()).err().expect("no meta file").to_string();
    assert!(error.contains("needs ") && error.contains("t.meta.json"), "{error}");
}

#[test]
fn prebuf_marks_turn_reads_into_updates() {
    let folder = Folder::new();
    folder.file("t.meta.json", r#"{"page_size": 8192, "objects": {"7": "stock"}}"#);
    let text =
        "op,p,obj,block\nT,0,0,3\nD,1,7,5\nM,1,7,5\nG,2,7,5\nG,1,7,6\nD,1,7,5\nX,1,7,9\nH,1,7,9\nE,0,7,5\nC,1,0,0\n";
    let path = folder.file("t.csv", text);
    let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
    assert_eq!(report.format, Format::Prebuf);
    let ops: Vec<_> = trace.ops.iter().map(|&byte| OpByte(byte).op()).collect();
    // The mark of process 1 goes to its own reference of block 5, not to the later one of process 2.
    assert_eq!(ops, [Op::Update, Op::Read, Op::Read, Op::Write]);
    assert_eq!((report.counts.marks, report.counts.marks_unmatched), (2, 1));
    assert_eq!(trace.page_block.to_vec(), [5, 6, 9]);
    assert_eq!(trace.times_us.as_ref().expect("times")[0], 3000);
}

#[test]
fn filebench() {
    let text = "dt,op,p,file,off,len\n0,R,0,0,0,832\n2,W,1,3,184975240,1048576\n1,U,0,3,0,0\n";
    let (format, _, records) = records("x", text);
    assert_eq!(format, Format::Filebench);
    assert_eq!(ios(&records), [(0, Op::Read, 0, 0, 0, 832), (200, Op::Write, 1, 1, 184975240, 1048576)]);
    assert_eq!(others(&records), ["unlink"]);
}

#[test]
fn csv_columns_in_any_order_and_unit() {
    let bytes = "ts_us,op,dev,offset,size\n10,W,src1_0,4096,512\n11.9,R,b,0,4096\n5,U,b,0,1\n";
    let (format, unit, first) = records("x", bytes);
    assert_eq!((format, unit), (Format::Csv, Unit::Bytes));
    assert_eq!(names(&first), ["src1_0", "b"]);
    let expected = [(0, Op::Write, 0, 0, 4096, 512), (1, Op::Read, 0, 1, 0, 4096), (1, Op::Update, 0, 1, 0, 1)];
    assert_eq!(ios(&first), expected);
    let (_, unit, first) = records("x", "count,rw,sector,ts_s\n8,read,16,0.5\n1,write,3,0.75\n");
    assert_eq!(unit, Unit::Bytes);
    assert_eq!(ios(&first), [(0, Op::Read, 0, 0, 8192, 4096), (250_000, Op::Write, 0, 0, 1536, 512)]);
    let (_, unit, first) = records("x", "file,page\na,7\nb,18446744073709551615\n");
    assert_eq!(unit, Unit::Pages);
    assert_eq!(ios(&first), [(0, Op::Read, 0, 0, 7, 1), (0, Op::Read, 0, 1, u64::MAX, 1)]);
}

#[test]
fn csv_headers_that_are_refused_name_the_column() {
    let folder = Folder::new();
    let cases = [
        ("ts,op,offset,size,latency\n1,R,0,512,3\n", "unknown column `latency`"),
        ("ts,op,offset,size,lba\n1,R,0,512,3\n", "column `lba` is the second that gives the place"),
        ("ts,op,size\n1,R,512\n", "no column gives the place"),
        ("ts,op,offset\n1,R,512\n", "no column gives the length"),
        ("page,size\n1,512\n", "the length must be `count`"),
    ];
    for (text, expected) in cases {
        let path = folder.file("x.csv", text);
        let error = load(&path, &LoadOptions::default()).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
        let options = LoadOptions { format: Some(Format::Csv), skip_bad: 9, ..LoadOptions::default() };
        let error = load(&path, &options).err().expect("refused whatever may be skipped").to_string();
        assert!(error.contains("line 1") && error.contains(expected), "{error}");
    }
}

#[test]
fn detection_refuses_with_a_reason() {
    let cases: [(&[u8], &str); 4] = [
        (b"", "the file is empty"),
        (b"hello world, this is prose\nand more of it\n", "no known trace format fits; it begins with `hello world"),
        (b"\x00\x01\x02\x03nonsense", "no known trace format fits"),
        (b"{\n\"name\": \"x\"\n}\n", "no known trace format fits"),
    ];
    for (bytes, expected) in cases {
        let Detection::Unclear(what) = detect(bytes, true, "x") else { panic!("{expected}") };
        assert!(what.contains(expected), "{what}");
    }
    // Records that are both: the name decides, and without a telling name the candidates are listed.
    let mut both = vec![0u8; 480];
    for record in both.chunks_exact_mut(24) {
        record[12] = 1;
        record[16..].fill(0xFF);
    }
    for record in both.chunks_exact_mut(40) {
        record[3] = 2;
    }
    if let Detection::Unclear(what) = detect(&both, true, "x.bin") {
        assert!(what.contains("no known") || what.contains("vscsi, oracle-general"), "{what}");
    }
}

#[test]
fn format_names_round_trip() {
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>(), Ok(format));
        assert_eq!(format.to_string(), format.name());
    }
    assert!("msrc".parse::<Format>().unwrap_err().contains("known are native, msr"));
}

fn compressed(bytes: &[u8]) -> [Vec<u8>; 4] {
    let zst = zstd::encode_all(bytes, 3).expect("zstd");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(bytes).expect("gzip");
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 3);
    xz.write_all(bytes).expect("xz");
    [bytes.to_vec(), zst, gz.finish().expect("gzip"), xz.finish().expect("xz")]
}

#[test]
fn compression_is_recognised_by_its_bytes_and_truncation_is_an_error() {
    let folder = Folder::new();
    let text: String = (0..40_000u64).map(|i| format!("{}\n", i * i * 7919 % 100_003)).collect();
    for (i, bytes) in compressed(text.as_bytes()).iter().enumerate() {
        let path = folder.file("trace.zst", bytes);
        let Loaded { trace, report } = load(&path, &LoadOptions::default()).expect("loads");
        assert_eq!(trace.len(), 40_000);
        assert_eq!(report.compression.name(), ["plain", "zstd", "gzip", "xz"][i]);
        if i == 0 {
            continue;
        }
        // Concatenated streams are one file.
        let twice = folder.file("twice", [&bytes[..], &bytes[..]].concat());
        assert_eq!(load(&twice, &LoadOptions::default()).expect("loads").trace.len(), 80_000);
        for cut in [9, bytes.len() / 2, bytes.len() - 3] {
            let torn = folder.file("torn", &bytes[..cut]);
            let options = LoadOptions { skip_bad: 1000, ..LoadOptions::default() };
            let error = load(&torn, &options).err().expect("truncated").to_string();
            assert!(error.contains("torn: byte ") && error.contains("truncated or corrupt"), "{cut}: {error}");
        }
    }
}

#[test]
fn bad_lines_are_counted_up_to_the_allowance() {
    let folder = Folder::new();
    let text = "1,0,512,r,0.1\n1,zero,512,r,0.2\n1,8,0,r,0.3\n1,8,512,r,0.4\n1,36028797018963967,513,w,0.5\n1,8,512\n";
    let path = folder.file("x.spc", text);
    let error = load(&path, &LoadOptions::default()).err().expect("line 2 is bad").to_string();
    assert!(error.contains("x.spc: line 2: `zero` is not an unsigned"), "{error}");
    let options = LoadOptions { skip_bad: 3, ..LoadOptions::default() };
    let error = load(&path, &options).err().expect("four bad lines").to_string();
    assert!(error.contains("line 6") && error.contains("3 malformed lines were skipped"), "{error}");
    let options = LoadOptions { skip_bad: 4, ..LoadOptions::default() };
    let Loaded { trace, report } = load(&path, &options).expect("four may be skipped");
    assert_eq!((trace.len(), report.bad), (2, 4));
    assert!(report.first_bad.expect("the first").contains("line 2"));
    assert!(trace.provenance.contains("4 malformed"), "{}", trace.provenance);

    let lines = [("1,8,0,r,0.3", "the length is 0"), ("1,36028797018963967,513,w,0", "beyond 2^64")];
    for (line, expected) in lines {
        let path = folder.file("y.spc", format!("1,0,512,r,0\n{line}\n"));
        let error = load(&path, &LoadOptions::default()).err().expect(expected).to_string();
        assert!(error.contains("line 2") && error.contains(expected), "{error}");
    }
}

#[test]
fn unusable_files_are_refused() {
    let folder = Folder::new();
    let refused = |path: &std::path::Path, expected: &str| {
        let error = load(path, &LoadOptions::default()).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&folder.path("none"), "No such file");
    refused(&folder.path(""), "is a directory");
    refused(&folder.file("empty", ""), "the file is empty");
    refused(&folder.file("header", "ts,op,offset,size\n"), "holds no request (format csv)");
    refused(&folder.file("words", "red,green,blue\n"), "no known trace format fits");
    refused(&folder.file("other", "*\n*\n"), "holds no request");
    let long = folder.file("long", format!("1\n2\n{}\n3\n", "9".repeat(100_000)));
    refused(&long, "long: line 3: a line of more than 65536 bytes");
    let options = LoadOptions { skip_bad: 1, ..LoadOptions::default() };
    assert_eq!(load(&long, &options).expect("one line is skipped").trace.len(), 3);
    let path = folder.file("pages", "1\n");
    for page_bytes in [0, 1, 3000, 1 << 30] {
        let options = LoadOptions { page_bytes: Some(page_bytes), ..LoadOptions::default() };
        let error = load(&path, &options).err().expect("a page size").to_string();
        assert!(error.contains("the page size must be a power of two"), "{error}");
    }
}

#[test]
fn times_of_csv_are_in_the_unit_of_their_column() {
    let folder = Folder::new();
    for (column, times) in [("ts_ns", ["5000", "9000"]), ("ts_us", ["5", "9"]), ("ts_ms", ["0.005", "0.009"])] {
        let text = format!("{column},op,page\n{},R,0\n{},R,1\n", times[0], times[1]);
        let trace = load(&folder.file(column, text), &LoadOptions::default()).expect(column).trace;
        assert_eq!(trace.times_us.as_deref(), Some(&[0, 4][..]), "{column}");
    }
}

/// Requests of two files, one in its original format and one normalised, as (time, address, operation).
fn same_requests(original: &str, normalised: &str, slack_us: u64) {
    let (Some(original), Some(normalised)) = (common::data(original), common::data(normalised)) else { return };
    let a = load(&original, &LoadOptions::default()).expect("the original loads").trace;
    let options = LoadOptions { limit: Some(a.len() as u64), ..LoadOptions::default() };
    let b = load(&normalised, &options).expect("the twin loads").trace;
    assert_eq!(a.len(), b.len(), "{}", original.display());
    assert!(a.pages[..] == b.pages[..], "pages");
    assert!(a.ops[..] == b.ops[..], "ops");
    assert!(a.page_block[..] == b.page_block[..], "page_block");
    assert!(a.page_object[..] == b.page_object[..], "page_object");
    assert_eq!(a.objects.len(), b.objects.len());
    let (a, b) = (a.times_us.expect("times"), b.times_us.expect("times"));
    for (i, (a, b)) in a.iter().zip(b.iter()).enumerate() {
        assert!(a.abs_diff(*b) <= slack_us, "request {i}: {a} and {b} us");
    }
}

#[test]
fn originals_equal_their_normalised_twins() {
    // The twins cut binary fractions where we cut decimal ones: one microsecond apart at times.
    same_requests("traces/formats/msr_hm_0.sample1000.csv", "traces/public/msr_hm_0_sample1000.csv.zst", 1);
    same_requests("traces/formats/ssdmodel-postmark.first2000.trace", "traces/public/ssdmodel_postmark.csv.zst", 1);
    same_requests(
        "traces/formats/financial1.first10k.ssdsim.ascii",
        "traces/public/spc_financial1_first10k.csv.zst",
        1,
    );
    same_requests("traces/formats/tpcc-small.mqsim.trace", "traces/public/tpcc_small.csv.zst", 1);
}

#[test]
fn systor_samples_load_whole() {
    for name in ["systor17-traces-sample.csv.gz", "systor17-additional-sample.csv.gz"] {
        let Some(path) = common::data(&format!("traces/formats/{name}")) else { return };
        let Loaded { report, .. } = load(&path, &LoadOptions::default()).expect("loads");
        assert_eq!(report.format, Format::Systor);
        assert_eq!(report.counts.ios, 999, "{name}");
        assert!(report.clock_reversals > 0);
    }
}

#[test]
fn arc_traces_have_the_published_numbers_of_requests() {
    // Megiddo and Modha 2003, the table of traces: requests and distinct pages.
    for (name, requests, distinct) in
        [("OLTP", 914_145, 186_880), ("P3", 3_912_296, 762_543), ("P6", 12_672_123, 773_770)]
    {
        let Some(path) = common::data(&format!("traces/public/{name}.lis.zst")) else { return };
        let Loaded { trace, .. } = load(&path, &LoadOptions::default()).expect("loads");
        println!("{name}: {} requests, {} distinct", trace.len(), trace.footprint());
        assert_eq!(trace.len(), requests, "{name}");
        assert_eq!(trace.footprint(), distinct, "{name}");
    }
}

#[test]
fn a_torn_line_names_its_file_and_line() {
    let folder = Folder::new();
    let path = folder.file("torn.csv", "128166385295514663,hm,0,Write,8192,2048,2833\n128166385295514878,hm,0,Re");
    match load(&path, &LoadOptions::default()) {
        Err(TraceError::Malformed { place, what, .. }) => {
            assert_eq!(place, "line 2");
            assert!(what.contains("7 fields separated by commas expected, found 4"), "{what}");
        }
        _ => panic!("a torn line must be malformed"),
    }
}
