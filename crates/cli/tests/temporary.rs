//! Temporary files of databases: past the cache by default, in it with `--bypass logs`, as rule 5 of HeuristicDB has it.

mod common;
#[path = "../../names/tests/support/mod.rs"]
mod servers;

use common::mounted::Mounted;
use common::{Scratch, Signal, signal, wait_for};
use entresol_core::Random;
use entresol_trace::{Trace, native};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: usize = 4096;
const TEMPORARY: &str = "base/pgsql_tmp/pgsql_tmp7.0";
/// Pages of the table and of the temporary file. The cache has fewer frames than both.
const TABLE: u64 = 300;
const SPILLED: u64 = 250;
const SEED: u64 = 5;

/// A recorder that has begun, and its output.
fn recorder(mut command: Command) -> (Child, BufReader<impl Read>) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert!(line.starts_with("recording "), "{line}");
    (child, said)
}

fn end((mut child, mut said): (Child, BufReader<impl Read>)) {
    signal(child.id(), Signal::INT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{rest}");
    assert!(rest.contains(", 0 left out"), "{rest}");
}

/// Reads and writes of temporary files in a recorded trace.
fn of_temporary_files(trace: &Trace) -> [u64; 2] {
    let mut counts = [0; 2];
    for request in (0..trace.len()).map(|at| trace.request(at)) {
        let object = &trace.objects[trace.address(request.page).object.index()];
        if object.name.contains("pgsql_tmp") {
            counts[usize::from(request.op.is_write())] += 1;
        }
    }
    counts
}

/// A query of the kind that spills: looks at a table, writes a temporary file, reads it from end to end.
fn query(above: &Path) {
    let mut random = Random::new(SEED);
    let table = File::open(above.join("base/7")).expect("a table");
    let mut bytes = [0; PAGE];
    let mut look = |table: &File, bytes: &mut [u8]| {
        let page = random.below(TABLE).min(random.below(TABLE));
        table.read_exact_at(bytes, page * PAGE as u64).expect("a page");
        assert!(bytes.iter().all(|&byte| byte == 7));
    };
    (0..800).for_each(|_| look(&table, &mut bytes));
    let spilled = File::create_new(above.join(TEMPORARY)).expect("a file");
    for page in 0..SPILLED {
        spilled.write_all_at(&[page as u8; PAGE], page * PAGE as u64).expect("a write");
    }
    let spilled = File::open(above.join(TEMPORARY)).expect("a file");
    for page in 0..SPILLED {
        spilled.read_exact_at(&mut bytes, page * PAGE as u64).expect("a page");
        assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page}");
        look(&table, &mut bytes);
    }
}

/// The query over a mount with these arguments: the cache's counts and the recorded requests.
fn counted(more: &[&str]) -> Option<(Mounted, Value, Trace)> {
    println!("seed {SEED}, {more:?}");
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("backing/base/pgsql_tmp")).expect("a data directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.file("backing/base/7", vec![7; TABLE as usize * PAGE]);
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    let mut mounted = Mounted::over(scratch, ["write-back", "heuristicdb"]);
    if !mounted.start_with(more) {
        return None;
    }
    let recording = recorder(mounted.scratch.command(&["record", "mount", "t.etr"]));
    query(&mounted.above());
    end(recording);
    let said = mounted.scratch.ok(&["stats", "--cache", "cache", "--json"]);
    let trace = native::open(&mounted.scratch.path("t.etr")).expect("a trace");
    Some((mounted, serde_json::from_str(&said).expect("figures"), trace))
}

#[test]
fn a_temporary_file_bypasses_the_cache_by_default() {
    let Some((mut mounted, now, trace)) = counted(&[]) else { return };
    assert_eq!(of_temporary_files(&trace), [0, 0]);
    assert_eq!(now["requests"]["writes"], 0);
    mounted.unmount();
}

/// Every page of the temporary file is admitted as it is written (rule 5), and the cache decides as the simulator does on
/// the recorded requests.
#[test]
fn with_logs_alone_past_the_cache_a_temporary_file_is_cached_as_simulated() {
    let Some((mut mounted, now, trace)) = counted(&["--bypass", "logs"]) else { return };
    assert_eq!(of_temporary_files(&trace), [SPILLED, SPILLED]);
    let count = |name: &str| now["requests"][name].as_u64().expect("a count");
    let space = now["tiers_pages"][0].as_u64().expect("pages");
    assert!(space < TABLE + SPILLED, "the cache of {space} pages had to make room");
    let size = format!("{space}p");
    mounted.scratch.ok(&["-q", "simulate", "t.etr", "--policy", "heuristicdb", "--size", &size, "--json", "r.json"]);
    let simulated: Value = serde_json::from_str(&mounted.scratch.read("r.json")).expect("results");
    let row = &simulated["results"][0];
    for name in ["reads", "writes", "read_hits", "write_hits", "fetches", "admissions", "write_backs", "bypasses"] {
        assert_eq!(row[name], now["requests"][name], "{name}: (simulated, live)");
    }
    // What bypassed the cache was read: no write did.
    assert!(count("bypasses") > 0, "some pages of the table were too cold");
    assert_eq!(count("admissions"), count("fetches") - count("bypasses") + SPILLED);
    mounted.unmount();
}

/// A log of the database stays where it is, and so do files shared by mapping.
#[test]
fn with_logs_alone_past_the_cache_logs_are_not_cached() {
    let Some((mut mounted, _, _)) = counted(&["--bypass", "logs"]) else { return };
    let above = mounted.above();
    fs::create_dir(above.join("pg_wal")).expect("a directory");
    let writes = |mounted: &Mounted| {
        let said = mounted.scratch.ok(&["stats", "--cache", "cache", "--json"]);
        serde_json::from_str::<Value>(&said).expect("figures")["requests"]["writes"].as_u64().expect("a count")
    };
    let before = writes(&mounted);
    for name in ["pg_wal/000000010000000000000001", "ib_logfile0", "x.db-wal", "x.db-shm", "x.db-journal"] {
        fs::write(above.join(name), [1; 2 * PAGE]).expect("a file");
    }
    assert_eq!(writes(&mounted), before);
    fs::write(above.join("ibtmp1"), [1; 2 * PAGE]).expect("a file");
    assert_eq!(writes(&mounted), before + 2);
    mounted.unmount();
}

/// A sort of PostgreSQL that does not fit its memory: its temporary files are written to the cache and read from it.
#[test]
fn a_sort_of_postgresql_spills_into_the_cache() {
    let Some(mut database) = servers::Postgres::start("") else { return };
    database.stop();
    let binary = database.scratch.path("entresol");
    fs::copy(env!("CARGO_BIN_EXE_entresol"), &binary).expect("room");
    let entresol = |words: &[&str]| {
        let mut command = servers::command(&binary);
        command.args(words).current_dir(database.scratch.path(""));
        command
    };
    let both = ["--backing", "data", "--cache", "cache"];
    let size = ["--mode=write-back", "--size", "64MiB", "--page-size", "8KiB"];
    servers::ok(&mut entresol(&[&["-q", "format"][..], &size, &both].concat()));
    let script = format!(
        "export PATH={}:$PATH PGHOST=\"$PWD\" PGUSER=me PGDATABASE=postgres
         end() {{ pg_ctl -D data -m fast -w stop >&2; }}
         trap end EXIT
         set -e
         pg_ctl -D data -w -l server.log start >&2
         touch ready
         while [ ! -e go ]; do sleep 0.05; done
         psql -XqtA -c \"set work_mem = '64kB'\" -c \"select count(*), max(m) from \
             (select md5(g::text) m from generate_series(1, 60000) g order by 1 offset 1) x\" >answer
         touch done
         while [ ! -e end ]; do sleep 0.05; done",
        database.programs.display()
    );
    let words = ["-q", "run", "--policy", "heuristicdb", "--bypass", "logs", "--page-cache", "off"];
    let words = [&words[..], &both, &["--", "sh", "-c", &script]].concat();
    let mut running = entresol(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    if wait_for(&database.scratch.path("ready"), &mut running) {
        let recording = recorder(entresol(&["record", "cache", "t.etr"]));
        fs::write(database.scratch.path("go"), "").expect("a file");
        assert!(wait_for(&database.scratch.path("done"), &mut running), "the query ended");
        end(recording);
        fs::write(database.scratch.path("end"), "").expect("a file");
    }
    let Some(_) = common::ended_well(running) else { return };
    let answer = fs::read_to_string(database.scratch.path("answer")).expect("an answer");
    assert!(answer.starts_with("59999|ffff"), "{answer}");
    let trace = native::open(&database.scratch.path("t.etr")).expect("a trace");
    let [reads, writes] = of_temporary_files(&trace);
    println!("{reads} reads and {writes} writes of pages of temporary files");
    assert!(reads > 100 && writes > 100, "{reads} reads, {writes} writes of temporary files");
    servers::ok(&mut entresol(&[&["check"], &both[..]].concat()));
}
