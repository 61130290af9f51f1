//! Wrong input of every kind: one clear line that names file and position, exit code 2, and no file left behind.

mod common;

use common::{Scratch, says};

/// A simulation that would write all its files.
const SIMULATE: [&str; 9] =
    ["simulate", "--size", "50%", "--json", "out.json", "--csv", "out.csv", "--html", "out.html"];

fn refuse_trace(scratch: &Scratch, name: &str, more: &[&str]) -> String {
    let arguments = [&SIMULATE[..], &[name], more].concat();
    let line = scratch.refused(&arguments);
    // Every command that reads a trace refuses it alike.
    assert_eq!(line, scratch.refused(&[&["trace", "stat", name, "--json", "out.json"], more].concat()));
    assert_eq!(line, scratch.refused(&[&["trace", "convert", name, "out.etr"], more].concat()));
    line
}

/// Lines of a trace in the MSR format.
fn msr(lines: u64) -> String {
    let line = |i: u64| {
        let (kind, offset) = (if i.is_multiple_of(3) { "Write" } else { "Read" }, i * 7919 % 1000 * 4096);
        format!("{},web,0,{kind},{offset},4096,100\n", 128_166_372_000_000_000 + i * 10_000)
    };
    (0..lines).map(line).collect()
}

#[test]
fn lines_that_do_not_parse_are_named() {
    let scratch = Scratch::new();
    let mut text = msr(100);
    text.insert_str(text.find(",web").expect("a line") - 18, "");
    let cut = text.len() - 20;
    scratch.file("cut.csv", &text[..cut]);
    says(&refuse_trace(&scratch, "cut.csv", &[]), &["cut.csv: line 100: "]);
    scratch.file("torn.csv", msr(50) + "128166372000500000,web,0,Reed,0,4096,1\n" + &msr(3));
    says(&refuse_trace(&scratch, "torn.csv", &[]), &["torn.csv: line 51: ", "Reed"]);
    scratch.file("long.csv", msr(5) + "128166372000500000,web,0,Read,18446744073709551610,4096,1\n");
    says(&refuse_trace(&scratch, "long.csv", &[]), &["long.csv: line 6: ", "18446744073709551610"]);
    scratch.file("zero.csv", msr(5) + "128166372000500000,web,0,Read,0,0,1\n");
    says(&refuse_trace(&scratch, "zero.csv", &[]), &["zero.csv: line 6: "]);
    scratch.file("column.csv", "op,offset,size,colour\nR,0,4096,red\n");
    says(&refuse_trace(&scratch, "column.csv", &["--format", "csv"]), &["column.csv: ", "line 1", "colour"]);
    // A time says its column and its limit.
    scratch.file("time.csv", "ts_s,op,offset,size\n0,R,0,4096\n9223372037,R,0,4096\n");
    let parts = ["time.csv: line 3: column `ts_s`: `9223372037` is out of range: at most 9223372036 is expected"];
    says(&refuse_trace(&scratch, "time.csv", &[]), &parts);
    scratch.file("word.csv", "ts_ns,op,offset,size\n0,R,0,4096\n1,R,here,4096\n");
    says(&refuse_trace(&scratch, "word.csv", &[]), &["word.csv: line 3: column `offset`: `here` is not "]);
    scratch.file("header.csv", "ts_us,op,offset,size\n");
    says(&refuse_trace(&scratch, "header.csv", &[]), &["header.csv: holds no request (format csv)"]);
    scratch.file("spc.txt", "0,20941264,8192,W,0.551706\n0,20939840,8192,W\n");
    says(&refuse_trace(&scratch, "spc.txt", &["--format", "spc"]), &["spc.txt: line 2: "]);
}

#[test]
fn streams_that_end_in_the_middle_are_named() {
    let scratch = Scratch::new();
    let packed = zstd::encode_all(msr(20_000).as_bytes(), 3).expect("it packs");
    scratch.file("whole.csv.zst", &packed);
    scratch.ok(&["-q", "trace", "stat", "whole.csv.zst"]);
    scratch.file("cut.csv.zst", &packed[..packed.len() / 2]);
    let line = refuse_trace(&scratch, "cut.csv.zst", &[]);
    says(&line, &["cut.csv.zst: byte ", "zstd stream is truncated or corrupt"]);
    // Bad lines may be skipped; a broken stream may not.
    refuse_trace(&scratch, "cut.csv.zst", &["--skip-bad", "1000000"]);
    scratch.file("records.oracleGeneral.bin", vec![1u8; 24 * 10 + 7]);
    let line = refuse_trace(&scratch, "records.oracleGeneral.bin", &["--format", "oracle-general"]);
    says(&line, &["records.oracleGeneral.bin: byte 240"]);
}

#[test]
fn a_native_trace_is_whole_or_refused() {
    let scratch = Scratch::with_trace();
    let bytes = scratch.bytes("t.etr");
    for length in [1, 16, 63, 200, bytes.len() / 2, bytes.len() - 1] {
        scratch.file("cut.etr", &bytes[..length]);
        says(&refuse_trace(&scratch, "cut.etr", &["--format", "native"]), &["cut.etr: "]);
    }
    // A flipped bit anywhere is found, except in the zeros between sections, which no checksum covers and no code
    // reads.
    let seed = 17u64;
    let mut found = 0;
    for i in 0..60 {
        let at = (seed + i * 104_729) as usize % bytes.len();
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (i % 8);
        if bytes[at] == 0 && scratch_opens(&scratch, &flipped) {
            continue;
        }
        scratch.file("flip.etr", &flipped);
        says(&scratch.refused(&["trace", "stat", "flip.etr"]), &["flip.etr: "]);
        found += 1;
    }
    assert!(found > 30, "seed {seed}: only {found} of 60 flipped bits fell on something");
}

fn scratch_opens(scratch: &Scratch, bytes: &[u8]) -> bool {
    scratch.file("flip.etr", bytes);
    scratch.run(&["trace", "stat", "flip.etr"]).status.success()
}

#[test]
fn what_is_no_trace_is_refused() {
    let scratch = Scratch::new();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    scratch.file("picture.png", png);
    says(&refuse_trace(&scratch, "picture.png", &[]), &["picture.png: no known trace format fits"]);
    scratch.file("empty", "");
    says(&refuse_trace(&scratch, "empty", &[]), &["empty: the file is empty"]);
    std::fs::create_dir(scratch.path("folder")).expect("a folder");
    says(&refuse_trace(&scratch, "folder", &[]), &["folder: is a directory, not a trace"]);
    says(&refuse_trace(&scratch, "/dev/null", &[]), &["/dev/null: the file is empty"]);
    says(&refuse_trace(&scratch, "absent.csv", &[]), &["absent.csv: No such file or directory"]);
    says(&refuse_trace(&scratch, "generate:zipf:n=10", &[]), &["'zipf:n=10': the key 'pages' is missing"]);
    says(&refuse_trace(&scratch, "generate:nope:n=10", &[]), &["nope"]);
    // Bytes of a file must not control the terminal, and a line stays a line.
    scratch.file("hostile", "\x1b]0;owned\x07\n\x1b[2J".repeat(20));
    assert!(!refuse_trace(&scratch, "hostile", &[]).chars().any(char::is_control));
    for name in ["picture.png", "empty", "folder", "absent.csv"] {
        says(&scratch.refused(&["trace", "head", name]), &[name]);
    }
}

#[test]
fn bad_lines_are_skipped_only_up_to_the_number_given() {
    let scratch = Scratch::new();
    scratch.file("bad.csv", msr(10) + "garbage\n" + &msr(10) + "more garbage\n" + &msr(10));
    says(&refuse_trace(&scratch, "bad.csv", &[]), &["bad.csv: line 11: "]);
    let line = refuse_trace(&scratch, "bad.csv", &["--skip-bad", "1"]);
    says(&line, &["bad.csv: line 22: ", "1 malformed lines were skipped before, which is the most allowed"]);
    let output = scratch.run(&["simulate", "bad.csv", "--skip-bad", "2", "--size", "50%", "--json", "out.json"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).expect("text");
    says(&said, &["bad.csv: left out or altered: 2 malformed lines or records"]);
    let json: serde_json::Value = serde_json::from_str(&scratch.read("out.json")).expect("json");
    assert_eq!(json["trace"]["requests"], 30);
    assert!(json["trace"]["left_out"][0].as_str().expect("a clause").starts_with("2 malformed"));
}

#[test]
fn sizes_and_policies_that_cannot_be_are_named() {
    let scratch = Scratch::with_trace();
    let cases: [(&[&str], &[&str]); 24] = [
        (&["--size", "0"], &["policy 'lru': size 0p is 0 pages of 4096 B"]),
        (&["--size", "5%,0%"], &["policy 'lru': size 0% is 0 pages"]),
        (&["--size", "100B"], &["size 100B is 0 pages of 4096 B"]),
        (&["--size", "0.1%"], &["size 0.1% is 0 pages", "footprint"]),
        (&["--size", "abc"], &["'abc'", "'--size", "not a size", "5%, 64MiB, 2000p"]),
        (&["--size", "-5%"], &["'-5%' is not a size: it does not start with a number"]),
        (&["--size", "-5p"], &["'-5p' is not a size: it does not start with a number"]),
        (&["--dram", "-5p"], &["'-5p' is not a size"]),
        (&["--size", "1e400"], &["1e400"]),
        (&["--size", "99999999TiB"], &["too large"]),
        (&["--policy", "cacheus", "--size", "1p"], &["policy 'cacheus' needs at least 2 pages of cache, not 1"]),
        (&["--policy", "hibachi", "--size", "1p"], &["'hibachi' needs at least 1 page of nvram, not 0", "size 1p"]),
        (&["--policy", "LRV"], &["there is no policy 'LRV'; nearest: lru"]),
        (&["--policy", "hibachy"], &["there is no policy 'hibachy'; nearest: hibachi"]),
        (&["--policy", "lru,face-gcs"], &["no policy 'face-gcs'; nearest: face-gsc"]),
        (&["--policy", "face:skan=3"], &["policy 'face' has no option 'skan'", "it has: "]),
        (&["--policy", "face-gsc:scan=many"], &["policy 'face-gsc', option 'scan': 'many' is not a number"]),
        (&["--policy", "face-gsc:pages=red"], &["option 'pages': 'red' is none of: "]),
        (&["--policy", ","], &["no policy was named"]),
        (&["--baseline", "lrv"], &["no policy 'lrv'; nearest: lru"]),
        (&["--baseline", "lru,arc"], &["the baseline is one policy, not 2"]),
        (&["--stack", "lru:10p,min:10p"], &["'min' needs the future and can only be the top layer of a stack"]),
        (&["--stack", "lru"], &["layer 'lru' needs one size"]),
        (&["--stack", "lru:10q"], &["layer 'lru:10q'", "the unit is unknown"]),
    ];
    for (arguments, expected) in cases {
        let outputs = ["simulate", "t.etr", "--json", "out.json", "--csv", "out.csv", "--html", "out.html"];
        says(&scratch.refused(&[&outputs[..], arguments].concat()), expected);
    }
}

#[test]
fn a_command_line_that_is_wrong_is_answered_in_one_line() {
    let scratch = Scratch::with_trace();
    let cases: [(&[&str], &[&str]); 19] = [
        (&["simulate"], &["required arguments were not provided", "<TRACE>"]),
        (&["simulate", "t.etr", "--sizes", "5%"], &["unexpected argument '--sizes'", "'--size'"]),
        (&["simulaet", "t.etr"], &["simulaet", "simulate"]),
        (&["simulate", "t.etr", "--warmup", "1.5"], &["--warmup", "below 1"]),
        (&["simulate", "t.etr", "--interval", "0"], &["--interval", "above 0"]),
        (&["simulate", "t.etr", "--threads", "0"], &["--threads"]),
        (&["simulate", "t.etr", "--sample", "0"], &["--sample", "above 0"]),
        (
            &["simulate", "t.etr", "--sample", "0.5"],
            &["t.etr: a sample of 0.5 has ", " pages, too few", "at least 300"],
        ),
        (&["simulate", "t.etr", "--sample", "0.1", "--dram", "5p"], &["--sample", "--dram", "cannot be used with"]),
        (&["simulate", "t.etr", "--sample", "0.1", "--parts"], &["--sample", "--parts", "cannot be used with"]),
        (&["simulate", "t.etr", "--samples", "3"], &["--sample "]),
        (&["simulate", "t.etr", "--format", "png"], &["--format", "unknown trace format `png`", "msr"]),
        (&["simulate", "t.etr", "--page-size", "1000"], &["power of two"]),
        (&["simulate", "t.etr", "--page-size", "8192"], &["t.etr: its page size, 4096 B, was fixed"]),
        (&["simulate", "t.etr", "--limit", "0"], &["--limit", "above 0"]),
        (&["policies", "arcc"], &["no policy 'arcc'; nearest: arc"]),
        (&["policies", "--family", "modem"], &["there is no family 'modem'", "modern"]),
        (&["simulate", "t.etr", "t.etr", "--svg", "x.svg"], &["--svg draws one trace, not 2"]),
        (&["completions", "tcsh"], &["tcsh", "bash"]),
    ];
    for (arguments, expected) in cases {
        says(&scratch.refused(arguments), expected);
    }
}

#[test]
fn an_output_that_cannot_be_written_is_known_before_the_work() {
    let scratch = Scratch::with_trace();
    std::fs::create_dir(scratch.path("folder")).expect("a folder");
    for (output, why) in
        [("absent/out", "No such file"), ("folder", "is a directory"), ("t.etr/out", "Not a directory")]
    {
        for option in ["--json", "--csv", "--html", "--svg"] {
            let line = scratch.refused(&["simulate", "t.etr", "--policy", "all", option, output]);
            says(&line, &[output, why]);
        }
        says(&scratch.refused(&["trace", "stat", "t.etr", "--html", output]), &[output, why]);
        says(&scratch.refused(&["trace", "convert", "t.etr", output]), &[output, why]);
        says(&scratch.refused(&["trace", "generate", "loop:n=10:pages=5", output]), &[output, why]);
    }
    says(&scratch.refused(&["trace", "convert", "t.etr", "/dev/null"]), &["/dev/null: is no regular file"]);
    says(&scratch.refused(&["man", "t.etr/pages"]), &["t.etr/pages: Not a directory"]);
    // A device receives text unchanged, and stays a device.
    scratch.ok(&["-q", "simulate", "t.etr", "--csv", "/dev/null"]);
}

#[test]
fn an_error_in_a_later_trace_leaves_nothing_of_the_first() {
    let scratch = Scratch::with_trace();
    scratch.file("bad.csv", msr(10) + "garbage\n");
    let outputs = ["--json", "out.json", "--csv", "out.csv", "--html", "out.html"];
    let line = scratch.refused(&[&["simulate", "t.etr", "bad.csv", "--size", "50%"], &outputs[..]].concat());
    says(&line, &["bad.csv: line 11: "]);
    // The remains of another, interrupted, sweep are not touched either.
    scratch.file("out.json.partial", "entresol of another day\n");
    scratch.refused(&[&["simulate", "bad.csv"], &outputs[..]].concat());
    assert_eq!(scratch.read("out.json.partial"), "entresol of another day\n");
}

/// Commands of earlier releases that another program now has: refused with any arguments.
#[test]
fn commands_that_have_moved_say_where() {
    let scratch = Scratch::new();
    for arguments in
        [&["bench", "tpcc", "--db", "sqlite"][..], &["bench", "--help"], &["demo"], &["demo", "--out", "d"]]
    {
        says(&scratch.refused(arguments), &[&format!("entresol-lab {}", arguments[0])]);
    }
}
