//! Statistics of the recorded database traces against those that the recorder computed by other code.
//!
//! Both count a page of an I/O as sequential when the same process last requested, in the same direction, the page
//! before it in the same object; shares there have three decimals.

use entresol_core::Op;
use entresol_trace::stat::Spread;
use entresol_trace::{Event, EventKind, PageReference, Stat, StatOptions, Trace, stat};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

fn directory() -> Option<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces/recorded");
    if !directory.is_dir() {
        entresol_skip::skipped!("data", "{} is not there", directory.display());
        return None;
    }
    Some(directory)
}

/// Rows of a recorded trace, split at the commas, without the header.
fn rows(path: PathBuf, mut row: impl FnMut(&[&str])) {
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = zstd::Decoder::new(file).expect("a zstd stream");
    decoder.window_log_max(27).expect("a window of 128 MiB");
    let mut lines = BufReader::with_capacity(1 << 20, decoder);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a header");
    loop {
        line.clear();
        if lines.read_line(&mut line).expect("text") == 0 {
            return;
        }
        let mut fields = [""; 6];
        let mut used = 0;
        for (slot, field) in fields.iter_mut().zip(line.trim_end().split(',')) {
            *slot = field;
            used += 1;
        }
        row(&fields[..used]);
    }
}

fn number(field: &str) -> u64 {
    field.parse().unwrap_or_else(|_| panic!("'{field}' is not a number"))
}

/// A trace of the requests that reach storage, without logs.
fn storage_trace(directory: &std::path::Path, name: &str, meta: &Value) -> Trace {
    let sectors_per_page = meta["page_size"].as_u64().expect("a page size") / 512;
    let names: HashMap<u64, &str> = meta["objects"]
        .as_object()
        .expect("objects")
        .iter()
        .map(|(object, name)| (number(object), name.as_str().expect("a name")))
        .collect();
    let mut objects: Vec<&str> = Vec::new();
    let mut number_of: HashMap<&str, u32> = HashMap::new();
    let mut references = Vec::new();
    let mut events = Vec::new();
    let mut queries = 0;
    let mut last: HashMap<(u64, u32, bool), u64> = HashMap::new();
    rows(directory.join(format!("{name}.csv.zst")), |fields| {
        let (op, process, object) = (fields[1], number(fields[2]), names[&number(fields[3])]);
        let at = references.len() as u64;
        match op {
            "B" => {
                let label = object.to_owned();
                let kind = EventKind::QueryBegin { query: queries, label, objects: vec![] };
                events.push(Event { at, kind });
                queries += 1;
            }
            // These traces run one query at a time.
            "N" => events.push(Event { at, kind: EventKind::QueryEnd { query: queries - 1 } }),
            "R" | "W" if !matches!(object, "WAL" | "REDO") => {
                let object = *number_of.entry(object).or_insert_with(|| {
                    objects.push(object);
                    objects.len() as u32 - 1
                });
                let (sector, sectors) = (number(fields[4]), number(fields[5]));
                // Block numbers are the recorder's: a few writes to spill files cross page boundaries, and each is one
                // page to the recorder.
                let block = sector / sectors_per_page;
                let blocks = block..block + (sectors / sectors_per_page).max(1);
                let op = if op == "R" { Op::Read } else { Op::Write };
                for (i, block) in blocks.enumerate() {
                    let previous = last.insert((process, object, op.is_write()), block + 1);
                    references.push(PageReference {
                        object,
                        block,
                        op,
                        sequential: previous == Some(block),
                        first: i == 0,
                    });
                }
            }
            _ => {}
        }
    });
    let page_bytes = sectors_per_page as u32 * 512;
    Trace { events, ..Trace::from_references(page_bytes, &objects, references) }
}

fn meta(directory: &std::path::Path, name: &str) -> Value {
    let path = directory.join(format!("{name}.meta.json"));
    serde_json::from_reader(File::open(path).expect("the meta file")).expect("JSON")
}

fn close(what: &str, ours: f64, theirs: &Value, decimals: i32) {
    let theirs = theirs.as_f64().unwrap_or_else(|| panic!("{what} is not recorded"));
    let tolerance = 0.5001 * 10f64.powi(-decimals);
    assert!((ours - theirs).abs() <= tolerance, "{what}: {ours}, recorded {theirs}");
}

fn check_skew(what: &str, spread: &Spread, recorded: &Value) {
    for (percent, share) in recorded.as_object().expect("shares by per cent") {
        let wanted: f64 = percent.trim_end_matches('%').parse().expect("a per cent");
        let point = spread.skew.iter().find(|point| point.percent == wanted).expect("a sampled per cent");
        close(&format!("{what} {percent}"), point.share, share, 3);
    }
}

fn check_storage_trace(directory: &std::path::Path, name: &str) -> Stat {
    let meta = meta(directory, name);
    let trace = storage_trace(directory, name, &meta);
    let stat = stat(&trace, &StatOptions::default());
    let recorded = &meta["stats"];
    assert_eq!(Some(stat.total.page_requests), recorded["page_requests"].as_u64(), "{name}");
    assert_eq!(Some(stat.total.unique_pages), recorded["unique_pages"].as_u64(), "{name}");
    assert_eq!(Some(stat.total.reads.page_requests), recorded["reads"].as_u64(), "{name}");
    assert_eq!(Some(stat.total.writes.page_requests), recorded["writes"].as_u64(), "{name}");
    close("footprint in MB", stat.total.unique_bytes as f64 / 1e6, &recorded["footprint_MB"], 1);
    close("read_seq", stat.total.reads.sequential_share, &recorded["read_seq"], 3);
    close("write_seq", stat.total.writes.sequential_share, &recorded["write_seq"], 3);
    close("read_repeat", stat.total.reads.repeat_access_rate, &recorded["read_repeat"], 2);
    check_skew("skew of all", &stat.spread.all, &recorded["skew_all"]);
    check_skew("skew of reads", &stat.spread.reads, &recorded["skew_reads"]);
    for (table, row) in recorded["tables"].as_object().expect("tables") {
        let object = stat.objects.iter().find(|object| object.name == *table).expect("a table of the trace");
        assert_eq!(Some(object.tally.reads.page_requests), row["R"].as_u64(), "{name} {table}");
        assert_eq!(Some(object.tally.writes.page_requests), row["W"].as_u64(), "{name} {table}");
        assert_eq!(Some(object.tally.unique_pages), row["uniq"].as_u64(), "{name} {table}");
        close(table, object.tally.reads.repeat_access_rate, &row["read_repeat"], 2);
        close(table, object.tally.reads.sequential_share, &row["read_seq"], 2);
    }
    stat
}

#[test]
fn transaction_traces_agree_with_the_recorder() {
    let Some(directory) = directory() else { return };
    // pg_auctionmark is left out: its recorded statistics are of the whole run, of which the file holds the beginning.
    for name in ["pg_voter_sb16m", "my_tpcc_w20_bp64m", "pg_tpcc_w20_sb32m"] {
        check_storage_trace(&directory, name);
    }
}

#[test]
fn query_traces_agree_with_the_recorder() {
    let Some(directory) = directory() else { return };
    for name in ["my_tpch_sf1_bp64m", "pg_tpch_sf1_sb64m"] {
        let stat = check_storage_trace(&directory, name);
        let recorded = &meta(&directory, name)["stats"]["queries"];
        for row in recorded.as_array().expect("queries") {
            let label = row["q"].as_str().expect("a label");
            let query = stat.queries.iter().find(|query| query.label == label).expect("a query of the trace");
            let spilled = query.objects.iter().find(|object| object.name == "TMP").map(|object| &object.tally);
            let (spill_reads, spill_unique) =
                spilled.map_or((0, 0), |tally| (tally.reads.ios, tally.reads.unique_pages));
            let reads = &query.tally.reads;
            // The recorder counted I/Os and their first pages here, and all pages everywhere else.
            let pages_beyond_first = reads.page_requests - reads.ios;
            assert_eq!(Some(reads.ios - spill_reads), row["reads"].as_u64(), "{name} {label}");
            let (unique, first_unique) = (reads.unique_pages - spill_unique, row["uniq"].as_u64().expect("a count"));
            assert!(
                (first_unique..=first_unique + pages_beyond_first).contains(&unique),
                "{name} {label}: {unique} pages, recorded {first_unique}"
            );
            assert_eq!(Some(spill_reads), row["tmp_reads"].as_u64(), "{name} {label}");
        }
    }
}

#[test]
fn the_stream_above_the_pool_agrees_with_the_recorder() {
    let Some(directory) = directory() else { return };
    let name = "pg_tpcc_w20_prebuf";
    let mut references = Vec::new();
    rows(directory.join(format!("{name}.csv.zst")), |fields| {
        if matches!(fields[0], "G" | "M" | "X") {
            let (object, block) = (number(fields[2]) as u32, number(fields[3]));
            references.push(PageReference { object, block, op: Op::Read, sequential: false, first: true });
        }
    });
    let highest = references.iter().map(|reference| reference.object).max().expect("references");
    let names: Vec<String> = (0..=highest).map(|object| object.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stat = stat(&Trace::from_references(8192, &names, references), &StatOptions::default());
    let recorded = &meta(&directory, name)["stats"];
    assert_eq!(Some(stat.total.page_requests), recorded["references"].as_u64());
    assert_eq!(Some(stat.total.unique_pages), recorded["unique_pages"].as_u64());
    check_skew("skew", &stat.spread.all, &recorded["skew"]);
}
