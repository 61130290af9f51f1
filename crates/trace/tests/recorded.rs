//! The recorded traces: every count in their meta files, the detection of every trace in the shared data.

mod common;

use entresol_core::Op;
use entresol_trace::{EventKind, Format, LoadOptions, Loaded, OpByte, Split, TraceError, load};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn recorded(name: &str) -> Option<(Loaded, Value)> {
    let folder = common::data("traces/recorded")?;
    let loaded = load(&folder.join(format!("{name}.csv.zst")), &LoadOptions::default()).expect("loads");
    let meta = std::fs::read(folder.join(format!("{name}.meta.json"))).expect("a meta file");
    Some((loaded, serde_json::from_slice(&meta).expect("JSON")))
}

/// Reads and writes, pages, and per object reads, writes and distinct pages, against the meta file.
///
/// The meta files count ceil(length / page) pages for an I/O; `straddling` is the number of reads, all of them of
/// unaligned blocks of a spill file, that touch one page more.
fn storage_level(name: &str, straddling: u64) {
    let Some((Loaded { trace, report }, meta)) = recorded(name) else { return };
    let stats = &meta["stats"];
    let counts = &report.counts;
    assert_eq!(report.format, Format::Recorded);
    assert_eq!(u64::from(trace.page_bytes), meta["page_size"]);
    let more = |value: &Value| value.as_u64().expect("a count") + straddling;
    assert_eq!(trace.len() as u64, more(&stats["page_requests"]), "requests");
    assert_eq!(counts.reads, more(&stats["reads"]), "reads");
    assert_eq!(counts.writes, stats["writes"], "writes");
    assert_eq!(trace.footprint() as u64, stats["unique_pages"], "distinct pages");
    assert_eq!(counts.log_ios, stats["log_writes"], "I/Os to logs");
    let fsyncs = counts.others.get("fsync").copied().unwrap_or(0);
    assert_eq!(fsyncs, stats["fsyncs"], "fsyncs");
    let bytes = counts.log_size as f64 / 1e6;
    assert!((bytes - stats["log_MB"].as_f64().expect("a number")).abs() <= 0.051, "log MB {bytes}");

    let mut tables = vec![[0u64; 3]; trace.objects.len()];
    for i in 0..trace.len() {
        let request = trace.request(i);
        tables[trace.address(request.page).object.index()][usize::from(request.op.is_write())] += 1;
    }
    trace.page_object.iter().for_each(|&object| tables[object as usize][2] += 1);
    for (object, [reads, writes, pages]) in trace.objects.iter().zip(tables) {
        let table = &stats["tables"][&object.name];
        if object.name == "TMP" {
            assert_eq!(reads, more(&table["R"]), "all reads that straddle pages are of the spill file");
        } else if !table.is_null() {
            assert_eq!([&table["R"], &table["W"], &table["uniq"]], [reads, writes, pages], "{}", object.name);
        }
    }
    let listed = stats["tables"].as_object().expect("tables").len();
    let found = trace.objects.iter().filter(|object| !stats["tables"][&object.name].is_null()).count();
    assert_eq!(found, listed, "every table of the meta file is in the trace");
}

#[test]
fn counts_of_postgres_tpcc() {
    storage_level("pg_tpcc_w20_sb32m", 0);
}

#[test]
fn counts_of_postgres_tpch() {
    storage_level("pg_tpch_sf1_sb64m", 8);
    let Some((Loaded { trace, .. }, meta)) = recorded("pg_tpch_sf1_sb64m") else { return };
    let begins = trace.events.iter().filter(|e| matches!(e.kind, EventKind::QueryBegin { .. })).count();
    assert_eq!((begins, trace.events.len()), (20, 40));
    // The queries run one after the other, so the last objects of each are those referenced until its end.
    let mut objects_seen = 0;
    for pair in trace.events.chunks(2) {
        let [begin, end] = pair else { panic!("events come in pairs") };
        let EventKind::QueryBegin { objects, label, query } = &begin.kind else { panic!("begin expected") };
        assert_eq!(end.kind, EventKind::QueryEnd { query: *query });
        let mut expected: Vec<u32> =
            (begin.at..end.at).map(|i| trace.page_object[trace.pages[i as usize] as usize]).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(*objects, expected, "{label}");
        assert!(label.starts_with('q') && !label.contains("rows="), "{label}");
        objects_seen += objects.len();
    }
    assert!(objects_seen > 20);
    assert_eq!(meta["page_size"], trace.page_bytes);
}

#[test]
fn counts_of_mariadb_tpcc() {
    storage_level("my_tpcc_w20_bp64m", 0);
}

#[test]
fn counts_of_mariadb_tpch() {
    storage_level("my_tpch_sf1_bp64m", 0);
    let Some((Loaded { report, .. }, _)) = recorded("my_tpch_sf1_bp64m") else { return };
    // Its last query was cut off by the end of the recording.
    assert_eq!(report.counts.queries_unended, 1);
}

#[test]
fn counts_of_postgres_voter() {
    storage_level("pg_voter_sb16m", 0);
}

#[test]
fn auctionmark_is_the_first_part_of_what_its_meta_file_counts() {
    let Some((Loaded { trace, report }, meta)) = recorded("pg_auctionmark_sb16m_first1.2M") else { return };
    // The statistics are of the whole capture, so only bounds can be checked; counts of rows were taken with awk.
    let stats = &meta["stats"];
    assert_eq!(report.counts.ios + report.counts.log_ios, 1_188_633 + 7_090);
    assert_eq!(report.counts.others["fsync"], 730);
    assert_eq!(report.counts.others["write-back hint"], 3_547);
    assert!((trace.footprint() as u64) < stats["unique_pages"].as_u64().expect("a number"));
}

#[test]
fn filebench_counts() {
    let Some(folder) = common::data("traces/recorded") else { return };
    let Loaded { trace, report } =
        load(&folder.join("filebench_fileserver.csv.zst"), &LoadOptions::default()).expect("loads");
    let meta = std::fs::read(folder.join("filebench_fileserver.meta.json")).expect("a meta file");
    let meta: Value = serde_json::from_slice(&meta).expect("JSON");
    assert_eq!(report.format, Format::Filebench);
    // The meta file counts ceil(length / 4096) pages from the first one on. By that rule, which is `fan`'s but for the cut
    // at 256 KiB, the counts are equal; 48,407 unaligned writes touch one page more than that, 16,180 of them new ones.
    let more = |value: &Value, by: u64| value.as_u64().expect("a count") + by;
    assert_eq!(trace.len() as u64, more(&meta["page_requests_4k"], 48_407));
    assert_eq!(trace.footprint() as u64, more(&meta["unique_4k"], 16_180));
    assert_eq!(report.counts.reads, meta["reads"]);
    assert_eq!(report.counts.writes, more(&meta["writes"], 48_407));
    let path = folder.join("filebench_fileserver.csv.zst");
    let fan = load(&path, &LoadOptions { split: Split::Fan, ..LoadOptions::default() }).expect("loads");
    assert_eq!(fan.trace.len() as u64 + fan.report.counts.pages_cut, meta["page_requests_4k"]);
    assert_eq!(trace.objects.len() as u64, meta["files"]);
    assert_eq!(report.counts.others["unlink"], meta["ops"]["U"]);
    assert_eq!(report.counts.ios, meta["ops"]["R"].as_u64().expect("R") + meta["ops"]["W"].as_u64().expect("W"));
    let times = trace.times_us.as_ref().expect("times");
    let span_s = meta["span_s"].as_f64().expect("a span");
    assert!((*times.last().expect("a request") as f64 / 1e6 - span_s).abs() < 0.1, "span");
}

/// References, distinct pages, marks and per-object counts of a trace before the pool.
fn before_the_pool(name: &str) {
    let Some((Loaded { trace, report }, meta)) = recorded(name) else { return };
    let stats = &meta["stats"];
    let ops = |op: &str| stats["ops"][op].as_u64().unwrap_or(0);
    let counts = &report.counts;
    assert_eq!(report.format, Format::Prebuf);
    assert_eq!(trace.len() as u64, stats["references"]);
    assert_eq!(trace.footprint() as u64, stats["unique_pages"]);
    assert_eq!((counts.reads, counts.writes), (ops("G") + ops("M"), ops("X")));
    assert_eq!(counts.marks + counts.marks_unmatched, ops("D") + ops("H"));
    assert_eq!(counts.others.get("commit").copied().unwrap_or(0), ops("C"));
    assert_eq!(counts.others.get("page written back by the database").copied().unwrap_or(0), ops("E"));
    println!("{name}: {} of {} dirty marks unmatched", counts.marks_unmatched, ops("D") + ops("H"));
    assert!(counts.marks_unmatched * 100 <= ops("D") + ops("H"), "{}", counts.marks_unmatched);
    let updates = trace.ops.iter().filter(|&&byte| OpByte(byte).op() == Op::Update).count() as u64;
    assert!(updates <= counts.marks && (updates > 0 || counts.marks == 0));

    let mut tables = vec![[0u64; 2]; trace.objects.len()];
    trace.pages.iter().for_each(|&page| tables[trace.page_object[page as usize] as usize][0] += 1);
    trace.page_object.iter().for_each(|&object| tables[object as usize][1] += 1);
    for (name, table) in stats["tables"].as_object().expect("tables") {
        let at = trace.objects.iter().position(|object| object.name == *name).expect("the table is in the trace");
        assert_eq!([&table["refs"], &table["uniq"]], [tables[at][0], tables[at][1]], "{name}");
    }
}

#[test]
fn counts_before_the_pool_tpcc() {
    before_the_pool("pg_tpcc_w20_prebuf");
}

#[test]
fn counts_before_the_pool_tpch() {
    before_the_pool("pg_tpch_sf0.1_prebuf");
}

#[test]
fn logs_are_kept_when_asked_for() {
    let Some(folder) = common::data("traces/recorded") else { return };
    let path = folder.join("pg_voter_sb16m.csv.zst");
    let without = load(&path, &LoadOptions::default()).expect("loads");
    let with = load(&path, &LoadOptions { keep_logs: true, ..LoadOptions::default() }).expect("loads");
    assert_eq!(with.report.counts.log_ios, 0);
    assert_eq!(with.report.counts.ios, without.report.counts.ios + without.report.counts.log_ios);
    assert!(with.trace.objects.iter().any(|object| object.name == "WAL"));
    assert!(without.trace.objects.iter().all(|object| object.name != "WAL"));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// The format of a file of the shared data by its path; `None` for a file that is no trace.
fn format_of(path: &Path) -> Option<Format> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new("")).file_name().unwrap_or_default().to_string_lossy();
    let not_a_trace = ["README", "meta.json", "pages.csv", "indexes.csv"];
    if not_a_trace.iter().any(|word| name.contains(word)) {
        return None;
    }
    Some(match &*folder {
        "recorded" if name.contains("prebuf") => Format::Prebuf,
        "recorded" if name.contains("filebench") => Format::Filebench,
        "recorded" => Format::Recorded,
        "lirs" => Format::Lirs,
        "public" if name.contains(".lis") => Format::Arc,
        "public" => Format::Csv,
        "policies" => Format::OracleGeneral,
        _ if name.contains("msr") => Format::Msr,
        _ if name.contains("systor") => Format::Systor,
        _ if name.contains("postmark") => Format::DiskSim,
        _ => Format::Mqsim,
    })
}

#[test]
fn every_trace_of_the_shared_data_is_recognised() {
    let Some(traces) = common::data("traces") else { return };
    let Some(policies) = common::data("oracles/policies") else { return };
    let oracles = files_below(&policies).into_iter().filter(|path| path.extension().is_some_and(|e| e == "zst"));
    let mut recognised = 0;
    for path in files_below(&traces).into_iter().chain(oracles) {
        let options = LoadOptions { limit: Some(1000), ..LoadOptions::default() };
        match (load(&path, &options), format_of(&path)) {
            (Ok(loaded), Some(format)) => {
                assert_eq!(loaded.report.format, format, "{}", path.display());
                assert!(!loaded.trace.is_empty());
                recognised += 1;
            }
            (Err(TraceError::Refused { .. }), None) => {}
            (Ok(loaded), None) => panic!("{} is no trace but was read as {}", path.display(), loaded.report.format),
            (Err(error), _) => panic!("{error}"),
        }
    }
    println!("{recognised} traces recognised");
    assert!(recognised >= 40, "{recognised}");
}
