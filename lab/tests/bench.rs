//! `entresol-lab bench`, small: runs with and without a cache are sound, a kill loses nothing, answers are equal, and
//! nothing is left behind.

#[path = "../../crates/cli/tests/common/mod.rs"]
mod common;

use common::{Scratch, Signal, says, signal};
use entresol_trace::LoadOptions;
use std::process::{Output, Stdio};

const SMALL: [&str; 12] = [
    "bench",
    "tpcc",
    "--warehouses",
    "2",
    "--shrink",
    "100",
    "--clients",
    "4",
    "--warmup",
    "200ms",
    "--cache-size",
    "20%",
];

/// Runs a benchmark; none, with a message, where a program or the right to mount is missing.
fn run(scratch: &Scratch, more: &[&str]) -> Option<Output> {
    started(scratch, &[&SMALL[..], more].concat())
}

fn started(scratch: &Scratch, arguments: &[&str]) -> Option<Output> {
    let output = scratch.command(arguments).env("TMPDIR", "/tmp").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(at) = said.find(" is not installed here") {
        let program = said[..at].rsplit(char::is_whitespace).next().expect("a word");
        entresol_skip::skipped!(program, "{said}");
        return None;
    }
    if ["ermitted", "/dev/fuse", "fusermount3"].iter().any(|reason| said.contains(reason)) {
        entresol_skip::skipped!("/dev/fuse", "{said}");
        return None;
    }
    Some(output)
}

/// Checks that a run leaves no process, no mount and no file.
fn nothing_is_left(scratch: &Scratch) {
    let left: Vec<_> = std::fs::read_dir(scratch.path("scratch")).expect("the directory").collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let place = scratch.path("scratch").canonicalize().expect("a path").display().to_string();
    assert!(!mounts.contains(&place), "{mounts}");
}

fn open_to_all(scratch: &Scratch) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir(scratch.path("scratch")).expect("a directory");
    let all = std::fs::Permissions::from_mode(0o755);
    for path in [scratch.path("."), scratch.path("scratch")] {
        std::fs::set_permissions(path, all.clone()).expect("it is ours");
    }
}

fn compares(db: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    // A pool that holds all that four clients use would ask nothing of a cache in so short a time.
    let more =
        ["--db", db, "--duration", "1s", "--policy", "none,lru,face-gsc", "--scratch", "scratch", "--memory", "6MiB"];
    let files = ["--json", "b.json", "--html", "b.html"];
    let Some(output) = run(&scratch, &[&more[..], &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    says(
        &report,
        &["none", "lru", "face-gsc", "sound", "not audited", "pages of a cache: log: face-gsc; slots: lru\n"],
    );
    assert!(!report.contains("BROKEN"), "{report}");
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert!(run["new_orders_per_minute"].as_f64().expect("a rate") > 0.0, "{run}");
        let cached = run["cache"] != "none";
        assert_eq!(run["pages"]["reads"].as_u64().is_some_and(|reads| reads > 0), cached, "{run}");
    }
    assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains("TPC-C-like"));
    nothing_is_left(&scratch);
}

#[test]
fn sqlite_is_compared_with_and_without_a_cache() {
    compares("sqlite");
}

#[test]
fn postgresql_is_compared_with_and_without_a_cache() {
    compares("postgresql");
}

#[test]
fn mariadb_is_compared_with_and_without_a_cache() {
    compares("mariadb");
}

/// Page requests of a trace.
fn requests_of(scratch: &Scratch, trace: &str) -> usize {
    entresol_trace::load(&scratch.path(trace), &LoadOptions::default()).expect("a trace").trace.len()
}

/// Checks that the recorded requests of a database to its device are a trace like any other. The trace has at least as
/// many requests as were counted while measuring, because it includes those before.
fn records(db: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", db, "--duration", "3s", "--policy", "none", "--memory", "1MiB", "--scratch", "scratch"];
    let files = ["--backing-profile", "p4800x", "--record", "t.etr", "--json", "b.json"];
    let Some(output) = run(&scratch, &[&more[..], &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    says(&report, &["recorded: t.etr", "pages a second", "--below-pool --clients", "--work"]);
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let run = &json["runs"][0];
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let (asked, seconds) = (&run["asked"], number(&run["looked_s"]));
    assert!(number(&asked["writes"]) > 0.0 && number(&asked["writes"]) < number(&asked["requests"]), "{asked}");
    // Four clients and the server's own processes have only a few requests waiting at a time.
    let waiting = number(&asked["waited_s"]) / seconds;
    assert!(waiting > 0.0 && waiting < 12.0, "{waiting} at a time");
    let computing = number(&run["processor_s"]) / seconds;
    // A pool that all sessions share counts its requests, and this one is too small for all of them.
    let pool = &run["pool"];
    assert_eq!(pool.is_object(), db != "sqlite", "{pool}");
    if pool.is_object() {
        assert!(number(&pool["read"]) > 0.0 && number(&pool["read"]) < number(&pool["asked"]), "{pool}");
        says(&report, &[&format!(" of {} pages asked for", pool["asked"])]);
    }
    let processors = std::thread::available_parallelism().expect("some").get() as f64;
    assert!(computing > 0.0 && computing < processors * 1.1, "{computing} of {processors} processors");
    let requests = requests_of(&scratch, "t.etr");
    assert!(requests as f64 >= number(&asked["requests"]), "{requests} of {asked}");
    nothing_is_left(&scratch);
}

#[test]
fn what_sqlite_asks_is_recorded() {
    records("sqlite");
}

#[test]
fn what_postgresql_asks_is_recorded() {
    records("postgresql");
}

#[test]
fn what_mariadb_asks_is_recorded() {
    records("mariadb");
}

/// True, with a message, if the database has damaged itself: a checkpoint of its own certainly counted on pages that no
/// sync had covered, and the witness found no page that is older than a sync allows
/// (lab/results/innodb-checkpoints.md). A checkpoint that may have counted on such pages is no reason.
fn was_damaged_by_its_checkpoint(said: &str) -> bool {
    let its_own = said.contains("the database's own checkpoint")
        && said.contains(" counts on ")
        && !said.contains("a sync covered version");
    if its_own {
        entresol_skip::skipped!("database", "{said}");
    }
    its_own
}

/// Checks that the witness compared pages after kills.
fn has_compared(text: &str) {
    let counts = text.split("witness: ").skip(1).filter_map(|after| after.split(' ').next()?.parse::<u64>().ok());
    assert!(counts.sum::<u64>() > 10, "{text}");
}

fn survives(db: &str, victim: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", db, "--kill", victim, "--rounds", "2", "--policy", "face-gsc", "--scratch", "scratch"];
    // A larger pool would write next to nothing in so short a time.
    let Some(output) = run(&scratch, &[&more[..], &["--witness", "--memory", "6MiB"]].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    if !output.status.success() && was_damaged_by_its_checkpoint(&said) {
        return;
    }
    assert!(output.status.success(), "{said}{report}");
    says(&report, &["2 of 2 rounds sound"]);
    has_compared(&report);
    nothing_is_left(&scratch);
}

#[test]
fn sqlite_survives_kills_of_its_cache() {
    survives("sqlite", "daemon");
}

#[test]
fn postgresql_survives_kills_of_both() {
    survives("postgresql", "both");
}

#[test]
fn mariadb_survives_kills_of_both() {
    survives("mariadb", "both");
}

/// Two restarts of each of three variants on emulated devices.
fn restarts(db: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", db, "--restart", "400ms,1s", "--duration", "1200ms", "--policy", "none,face-gsc", "--ssd-only"];
    let devices = ["--backing-profile", "face-raid0x16", "--cache-profile", "840-pro", "--waf", "curve"];
    let files = ["--scratch", "scratch", "--json", "b.json", "--html", "b.html", "--witness"];
    let Some(output) = run(&scratch, &[&more[..], &devices, &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    if !output.status.success() && was_damaged_by_its_checkpoint(&said) {
        return;
    }
    assert!(output.status.success(), "{said}{report}");
    says(&report, &["none", "face-gsc", "ssd-only", "sound", "SIGKILL", "not audited"]);
    assert!(!report.contains("BROKEN"), "{report}");
    has_compared(&said);
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        let restarts = run["restarts"].as_array().expect("restarts");
        assert_eq!(restarts.len(), 2, "{run}");
        for its in restarts {
            let number = |name: &str| its[name].as_f64().unwrap_or_else(|| panic!("{name}: {its}"));
            assert!(number("killed_after_s") >= number("checkpoint_s").max(number("interval_s") / 2.0), "{its}");
            assert!(0.0 < number("mounted_s") && number("mounted_s") < number("answered_s"), "{its}");
            assert!(number("answered_s") <= number("at_work_s"), "{its}");
            assert!(number("log_bytes") > 0.0 && number("read_bytes") > 0.0, "{its}");
            assert!(number("new_orders_per_minute_after") > 0.0, "{its}");
            // Orders are counted when they are acknowledged, second by second.
            let seconds = its["since_restart"].as_array().expect("points");
            assert_eq!(seconds.len(), 3, "{its}");
            let cached = run["cache"] == "face-gsc";
            assert_eq!(its["read_from_cache"].is_number(), cached, "{its}");
            assert_eq!(its["opened"]["pages"].as_u64().is_some_and(|pages| pages > 0), cached, "{its}");
            let device = if cached { "cache_device" } else { "backing_device" };
            assert!(its["recovery"][device]["reads"].as_u64().is_some_and(|reads| reads > 0), "{its}");
        }
    }
    assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains("seconds since the restart began"));
    nothing_is_left(&scratch);
}

#[test]
fn sqlite_restarts_with_and_without_a_cache() {
    restarts("sqlite");
}

#[test]
fn postgresql_restarts_with_and_without_a_cache() {
    restarts("postgresql");
}

#[test]
fn mariadb_restarts_with_and_without_a_cache() {
    restarts("mariadb");
}

/// Loads from the pool and in order, in a directory and on two mounts.
fn costs(db: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let times = ["--warmup", "300ms", "--duration", "500ms", "--repeat", "2", "--scratch", "scratch"];
    // MariaDB's pool has 6 MiB at least.
    for (load, memory, shrink) in [("reads,updates", "256MiB", "20"), ("scan", "6MiB", "5")] {
        let small = ["bench", "overhead", "--db", db, "--shrink", shrink, "--load", load, "--memory", memory];
        let files = ["--json", "b.json", "--html", "b.html"];
        let Some(output) = started(&scratch, &[&small[..], &times, &files].concat()) else { return };
        let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{said}");
        says(&report, &["directory", "none", "face-gsc", "against directory"]);
        let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
        let runs = json["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 6);
        for (run, timed) in
            runs.iter().flat_map(|run| run["loads"].as_array().expect("loads").iter().map(move |t| (run, t)))
        {
            assert!(
                timed["operations"].as_u64().expect("a number") > 0 && timed["seconds"].as_f64() >= Some(0.5),
                "{timed}"
            );
            let spent = |who: &str| timed["processor_s"][who].as_f64().expect("a time");
            assert_eq!(db == "sqlite", spent("server") == 0.0, "{timed}");
            assert!(run["on"] != "directory" || spent("mount") == 0.0, "{timed}");
            let cached = run["on"] == "face-gsc";
            assert_eq!(timed["pages"].is_object(), cached, "{timed}");
            let reads =
                timed["pages"]["reads"].as_f64().unwrap_or_default() / timed["operations"].as_f64().expect("a number");
            // Pages of the pool are not requested of the cache, and scanned pages do not fit the pool.
            assert!(!cached || (load == "scan") == (reads > 10.0), "{timed}");
        }
        let against = json["against_first"].as_array().expect("factors");
        for its in against.iter().filter(|its| its["on"] == "directory") {
            assert_eq!((its["throughput"].as_f64(), its["processor"].as_f64()), (Some(1.0), Some(1.0)), "{its}");
        }
        assert!(against.iter().all(|its| its["throughput"].as_f64().is_some_and(|factor| factor > 0.0)), "{against:?}");
        assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains("Processor time of an operation"));
        nothing_is_left(&scratch);
    }
}

#[test]
fn sqlite_is_measured_where_a_cache_cannot_help() {
    costs("sqlite");
}

#[test]
fn postgresql_is_measured_where_a_cache_cannot_help() {
    costs("postgresql");
}

#[test]
fn mariadb_is_measured_where_a_cache_cannot_help() {
    costs("mariadb");
}

const QUERIES: [&str; 6] = ["bench", "tpch", "--scale", "0.01", "--scratch", "scratch"];

/// One query twice, with other parameters, without a cache and with two.
fn answers(db: &str, tables: &[&str]) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", db, "--queries", "3,3", "--policy", "none,lru,heuristicdb", "--cache-size", "20%,50%"];
    let files = ["--memory", "6MiB", "--json", "b.json", "--html", "b.html"];
    let Some(output) = started(&scratch, &[&QUERIES[..], &more, &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    says(&report, &["none", "lru 20%", "heuristicdb 50%", "Q3_1", "Q3_2", "right", "not audited"]);
    assert!(!report.contains("WRONG"), "{report}");
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 5);
    for run in runs {
        let cached = run["cache"] != "none";
        let migrated = run["migrated_bytes"].as_f64();
        assert_eq!(migrated.is_some_and(|bytes| bytes > 0.0), cached, "{run}");
        for (at, query) in run["queries"].as_array().expect("queries").iter().enumerate() {
            assert_eq!(query["answer"], json["queries"][at]["answer_without_mount"], "{query}");
            assert!(query["seconds"].as_f64().expect("a time") > 0.0, "{query}");
            let objects = query["objects"].as_array().expect("objects");
            let read = |table: &&str| objects.iter().any(|object| object["name"] == **table);
            assert_eq!(tables.iter().all(read), cached, "{query}");
            let judged = objects.iter().any(|object| object["verdict"].is_string());
            assert_eq!(judged, run["cache"] == "heuristicdb", "{query}");
        }
    }
    assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains("Queries of TPC-H"));
    nothing_is_left(&scratch);
}

#[test]
fn all_queries_of_tpch_are_asked_in_their_order() {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", "sqlite", "--queries", "all", "--policy", "none,lru", "--memory", "6MiB", "--json", "b.json"];
    let Some(output) = started(&scratch, &[&QUERIES[..], &more].concat()) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let expected: Vec<String> = (1..=22).map(|number| format!("Q{number}_1")).collect();
    for of in [&json, &json["runs"][0], &json["runs"][1]] {
        let queries = of["queries"].as_array().expect("queries");
        let names: Vec<&str> = queries.iter().filter_map(|query| query["name"].as_str()).collect();
        assert_eq!(names, expected);
    }
    // The fraction is that of the scale factor.
    assert_eq!(json["queries"][10]["parameters"]["fraction"], "0.01", "{}", json["queries"][10]);
    nothing_is_left(&scratch);
}

#[test]
fn sqlite_answers_the_same_with_and_without_a_cache() {
    answers("sqlite", &["bench.db"]);
}

#[test]
fn postgresql_answers_the_same_with_and_without_a_cache() {
    answers("postgresql", &["customer", "orders", "lineitem"]);
}

#[test]
fn mariadb_answers_the_same_with_and_without_a_cache() {
    answers("mariadb", &["customer", "orders", "lineitem"]);
}

/// Clients and analysts at the same time, without a cache and with two: both make progress.
fn mixes(db: &str) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let small =
        ["bench", "ch", "--warehouses", "1", "--shrink", "50", "--clients", "2", "--analysts", "2", "--duration", "3s"];
    let more = [
        "--db",
        db,
        "--warmup",
        "200ms",
        "--queries",
        "1,7,13",
        "--policy",
        "none,lru,heuristicdb",
        "--cache-size",
        "30%",
    ];
    let files = ["--scratch", "scratch", "--json", "b.json", "--html", "b.html"];
    let Some(output) = started(&scratch, &[&small[..], &more, &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    says(&report, &["none", "lru", "heuristicdb", "queries/h", "CH13", "sound", "not audited"]);
    assert!(!report.contains("BROKEN"), "{report}");
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    says(&json["queries"][0]["sql"].to_string(), &["order_line"]);
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert!(run["new_orders_per_minute"].as_f64().expect("a rate") > 0.0, "{run}");
        assert!(run["queries_per_hour"].as_f64().expect("a rate") > 0.0, "{run}");
        let queries = run["queries"].as_array().expect("queries");
        let has = |name: &str, value: u64| queries.iter().any(|query| query[name] == value);
        assert!([1, 7, 13].iter().all(|&number| has("number", number)), "{run}");
        assert!(has("session", 1) && has("session", 2), "{run}");
        assert!(queries.iter().all(|query| query["rows"].as_u64().is_some_and(|rows| rows > 0)), "{run}");
    }
    assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains("queries per hour"));
    nothing_is_left(&scratch);
}

#[test]
fn sqlite_carries_both_loads() {
    mixes("sqlite");
}

#[test]
fn postgresql_carries_both_loads() {
    mixes("postgresql");
}

#[test]
fn mariadb_carries_both_loads() {
    mixes("mariadb");
}

/// An installed load generator, without a cache and with one.
fn drives(program: &str, db: &str, more: &[&str]) {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    drives_in(&scratch, program, db, more);
}

fn drives_in(scratch: &Scratch, program: &str, db: &str, more: &[&str]) {
    let small =
        ["bench", program, "--db", db, "--clients", "2", "--warmup", "1s", "--duration", "2s", "--policy", "none,lru"];
    let files = ["--scratch", "scratch", "--json", "b.json", "--html", "b.html"];
    let Some(output) = started(scratch, &[&small[..], more, &files].concat()) else { return };
    let (said, report) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    says(&report, &[program, "none", "lru", "transactions/s", "sound"]);
    assert!(!report.contains("BROKEN"), "{report}");
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let (rate, transactions) = (&run["transactions_per_second"], &run["transactions"]);
        let (rate, transactions) = (rate.as_f64().expect("a rate"), transactions.as_u64().expect("a count"));
        // The run takes two seconds, or longer where the last transaction is held up, but within the observed time.
        let (took, looked) = (transactions as f64 / rate, run["looked_s"].as_f64().expect("a time"));
        assert!(rate > 0.0 && took > 1.6 && took < looked, "{run}");
        assert!(run["latency_ms"]["mean"].as_f64().expect("a time") > 0.0, "{run}");
        assert!(!run["per_second"].as_array().expect("seconds").is_empty(), "{run}");
    }
    assert!(String::from_utf8_lossy(&scratch.bytes("b.html")).contains(program));
    nothing_is_left(scratch);
}

#[test]
fn pgbench_drives_postgresql() {
    drives("pgbench", "postgresql", &["--scale", "1"]);
}

/// The user's own tables, scripts and checks, which see the effects of pgbench; and a recording of the requests that
/// passed the pool.
#[test]
fn pgbench_runs_scripts_of_ones_own() {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    // The table is larger than the pool of 16 MiB.
    let init = "CREATE TABLE item (id integer PRIMARY KEY, n bigint, pad char(1000));\n\
        INSERT INTO item SELECT id, 0, '' FROM generate_series(1, 20000) AS id;\n\\set only_psql_knows 1\n";
    scratch.file("init.sql", init);
    let count = "\\set id random(1, 20000)\nUPDATE item SET n = n + 1 WHERE id = :id;\n";
    scratch.file("count.sql", count);
    scratch.file("look.sql", "SELECT sum(n) FROM item WHERE id < 100;\n");
    let check = |of: &str| format!("-- updates and looks that are lost\nSELECT greatest({of}, 0)\nFROM item;\n");
    // Of ten scripts nine count, and hardly fewer than half will be.
    scratch.file("check.sql", check(":transactions / 2 - sum(n)"));
    scratch.file("wrong.sql", check(":transactions + 1 - 0 * sum(n)"));
    let with = |check| ["--init", "init.sql", "--script", "count.sql@9,look.sql", "--check", check];
    let recorded = ["--backing-profile", "p4800x", "--record", "r.etr"];
    drives_in(&scratch, "pgbench", "postgresql", &[&with("check.sql")[..], &recorded].concat());
    if !scratch.path("b.json").exists() {
        return;
    }
    let json: serde_json::Value = serde_json::from_slice(&scratch.bytes("b.json")).expect("JSON");
    says(
        json["setting"]["recorded"].as_str().expect("what was recorded"),
        &["r.etr", "for a transaction", "--below-pool"],
    );
    let (pool, asked) = (&json["runs"][0]["pool"], &json["runs"][0]["asked"]);
    assert!(pool["asked"].as_u64() > pool["read"].as_u64() && asked["requests"].as_u64() > Some(0), "{pool} {asked}");
    assert!(json["runs"][1]["pool"].is_null() && json["runs"][1]["asked"].is_null());
    assert!(requests_of(&scratch, "r.etr") > 0);
    let small = ["bench", "pgbench", "--clients", "1", "--warmup", "1s", "--duration", "1s", "--policy", "none"];
    let run = |with: [&str; 6]| started(&scratch, &[&small[..], &with, &["--scratch", "scratch"]].concat());
    let Some(output) = run(with("wrong.sql")) else { return };
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["not what it should be", "updates and looks that are lost"]);
    scratch.file("init.sql", "CREATE TABLE item (id integer);\nSELECT nonsense;\nDROP TABLE item;\n");
    let Some(output) = run(with("check.sql")) else { return };
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["psql failed", "nonsense"]);
    nothing_is_left(&scratch);
}

#[test]
fn sysbench_drives_mariadb() {
    drives("sysbench", "mariadb", &["--tables", "2", "--rows", "5000"]);
}

#[test]
fn sysbench_drives_postgresql() {
    drives("sysbench", "postgresql", &["--tables", "2", "--rows", "5000", "--test", "oltp_write_only"]);
}

#[test]
fn an_interruption_leaves_nothing_behind() {
    let scratch = Scratch::new();
    open_to_all(&scratch);
    let more = ["--db", "postgresql", "--duration", "60s", "--policy", "lru", "--scratch", "scratch"];
    let mut command = scratch.command(&[&SMALL[..], &more].concat());
    let mut child =
        command.env("TMPDIR", "/tmp").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let started = std::time::Instant::now();
    let mount = scratch.path("scratch").canonicalize().expect("a path").display().to_string();
    let mounted = || std::fs::read_to_string("/proc/self/mounts").expect("mounts").contains(&mount);
    while !mounted() {
        if child.try_wait().expect("it can be asked").is_some() || started.elapsed().as_secs() > 60 {
            entresol_skip::skipped!("/dev/fuse", "it never mounted: {:?}", child.wait_with_output());
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["interrupted"]);
    nothing_is_left(&scratch);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    says(&scratch.refused(&[&SMALL[..], &["--policy", "nonsense"]].concat()), &["nonsense"]);
    says(&scratch.refused(&[&SMALL[..], &["--kill", "server"]].concat()), &["SQLite has no server"]);
    says(&scratch.refused(&[&SMALL[..], &["--backing-profile", "nonsense"]].concat()), &["nonsense"]);
    says(&scratch.refused(&[&SMALL[..], &["--duration", "1y"]].concat()), &["--duration", "90s"]);
    says(&scratch.refused(&[&SMALL[..], &["--ssd-only"]].concat()), &["--cache-profile"]);
    says(&scratch.refused(&[&SMALL[..], &["--restart", "10s", "--kill", "both"]].concat()), &["--restart", "--kill"]);
    says(&scratch.refused(&[&SMALL[..], &["--restart", "10s,soon"]].concat()), &["--restart", "90s"]);
    let pool = ["bench", "overhead", "--shrink", "100", "--load", "reads", "--memory", "64KiB", "--cache-size", "80%"];
    says(&scratch.refused(&pool), &["--memory", "room for all"]);
    says(&scratch.refused(&[&QUERIES[..], &["--queries", "3,23"]].concat()), &["--queries", "all", "1 to 22"]);
    says(&scratch.refused(&["bench", "tpch", "--scale", "0.001"]), &["--scale", "0.01"]);
    says(&scratch.refused(&["bench", "tpch", "--policy", "nonsense"]), &["nonsense"]);
    says(&scratch.refused(&["bench", "pgbench", "--db", "mariadb"]), &["pgbench drives PostgreSQL alone"]);
    says(&scratch.refused(&["bench", "pgbench", "--script", "tpcb"]), &["--script", "tpcb-like"]);
    scratch.file("own.sql", "SELECT 1;");
    let own = ["bench", "pgbench", "--script", "own.sql"];
    says(&scratch.refused(&own), &["--check", "what must hold"]);
    says(&scratch.refused(&[&own[..], &["--check", "own.sql"]].concat()), &["own.sql", "no comment"]);
    says(&scratch.refused(&[&own[..], &["--check", "absent.sql"]].concat()), &["absent.sql"]);
    says(&scratch.refused(&["bench", "pgbench", "--script", "own.sql@2,absent.sql"]), &["--script", "absent.sql"]);
    says(&scratch.refused(&["bench", "pgbench", "--init", "own.sql"]), &["--init", "scripts in files"]);
    says(&scratch.refused(&["bench", "sysbench", "--db", "sqlite"]), &["SQLite has no server"]);
    says(&scratch.refused(&["bench", "sysbench", "--test", "fileio"]), &["--test", "oltp_read_write"]);
    let record = ["--record", "t.etr", "--backing-profile", "p4800x"];
    says(&scratch.refused(&[&["bench", "ch", "--policy", "lru"], &record[..]].concat()), &["--policy must have none"]);
    says(&scratch.refused(&["bench", "ch", "--queries", "1,23"]), &["--queries", "1 to 22"]);
    says(&scratch.refused(&["bench", "ch", "--warehouses", "20001"]), &["--warehouses", "20000"]);
}
