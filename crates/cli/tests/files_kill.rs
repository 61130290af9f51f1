//! Kills of the server of cached files: all synced writes are found afterwards, and no bytes but written versions.

mod common;

use common::Signal;
use common::mounted::Mounted;
use entresol_core::Random;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 300;
/// The last page is short.
const SIZE: usize = (PAGES - 1) * PAGE + 777;
const FILES: usize = 4;

fn page_len(page: usize) -> usize {
    PAGE.min(SIZE - page * PAGE)
}

fn open(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Versions that each page of a file may have: the last durable version first, then every later one that was tried.
struct Model(Vec<Vec<Vec<u8>>>);

impl Model {
    fn new() -> Self {
        Model((0..PAGES).map(|page| vec![vec![0; page_len(page)]]).collect())
    }

    fn push(&mut self, page: usize, from: usize, bytes: &[u8]) {
        let mut version = self.0[page].last().expect("never empty").clone();
        version[from..from + bytes.len()].copy_from_slice(bytes);
        self.0[page].push(version);
    }

    /// Zeroes a page from a byte on. A kill may leave the zeroes over any version: the backing file has them at once,
    /// while the newest version may not be durable.
    fn clear(&mut self, page: usize, from: usize) {
        let mut cleared = self.0[page].clone();
        cleared.iter_mut().for_each(|version| version[from..].fill(0));
        self.0[page].append(&mut cleared);
    }

    /// Zeroes a file from a byte on.
    fn cut(&mut self, at: usize) {
        (at / PAGE..PAGES).for_each(|page| self.clear(page, at.saturating_sub(page * PAGE).min(page_len(page))));
    }

    fn settle(&mut self) {
        self.0.iter_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    /// Checks after a restart that each page reads as an allowed version. The version read is the only allowed one
    /// from then on.
    fn verify(&mut self, file: &File, what: &str) {
        // The kill may have come between the two halves of a cut.
        file.set_len(SIZE as u64).expect("its size again");
        for page in 0..PAGES {
            let mut bytes = vec![0; page_len(page)];
            file.read_exact_at(&mut bytes, (page * PAGE) as u64).unwrap_or_else(|error| panic!("{what}: {error}"));
            let versions = &mut self.0[page];
            let Some(at) = versions.iter().rposition(|version| *version == bytes) else {
                panic!("{what}: page {page} begins {:?}, none of {} allowed versions", &bytes[..8], versions.len());
            };
            *versions = vec![versions.swap_remove(at)];
        }
    }
}

/// One operation on one file, recorded before it is tried.
fn step(file: &File, model: &mut Model, random: &mut Random) -> io::Result<()> {
    let page = if random.chance(0.7) { random.below(40) } else { random.below(PAGES as u64) } as usize;
    let from = if random.chance(0.6) { 0 } else { random.below(page_len(page) as u64) as usize };
    match random.below(100) {
        0..70 => {
            let mut bytes = vec![0; page_len(page) - from];
            bytes.fill_with(|| random.next_u64() as u8);
            model.push(page, from, &bytes);
            file.write_all_at(&bytes, (page * PAGE + from) as u64)
        }
        70..85 => {
            let mut bytes = vec![0; page_len(page)];
            file.read_exact_at(&mut bytes, (page * PAGE) as u64)?;
            assert!(Some(&bytes) == model.0[page].last(), "page {page} does not read as it was written");
            Ok(())
        }
        85..87 => {
            model.cut(page * PAGE + from);
            file.set_len((page * PAGE + from) as u64)?;
            file.set_len(SIZE as u64)
        }
        87..89 => {
            let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            model.clear(page, from);
            Ok(rustix::fs::fallocate(file, how, (page * PAGE + from) as u64, (page_len(page) - from) as u64)?)
        }
        kind => {
            if kind < 95 {
                file.sync_data()?
            } else {
                file.sync_all()?
            }
            model.settle();
            Ok(())
        }
    }
}

fn load(mounted: &Mounted, models: &mut [Model], random: &mut Random) -> u64 {
    let mut done = 0;
    let files: Vec<File> = (0..FILES).filter_map(|n| open(mounted.above().join(n.to_string())).ok()).collect();
    if files.len() < FILES {
        return 0;
    }
    loop {
        let n = random.below(FILES as u64) as usize;
        if step(&files[n], &mut models[n], random).is_err() {
            return done;
        }
        done += 1;
    }
}

fn verify(mounted: &Mounted, models: &mut [Model], what: &str) {
    for (n, model) in models.iter_mut().enumerate() {
        let file = open(mounted.above().join(n.to_string())).unwrap_or_else(|error| panic!("{what}: {error}"));
        model.verify(&file, &format!("{what}, file {n}"));
        file.sync_all().expect("a sync");
    }
}

fn kill_rounds(rounds: u64, seed: u64) {
    println!("seed {seed} (what is done; when the kill comes is the clock's)");
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let (mut random, mut done) = (Random::new(seed), 0);
    let mut models: Vec<Model> = (0..FILES).map(|_| Model::new()).collect();
    for round in 0..rounds {
        verify(&mounted, &mut models, &format!("round {round}"));
        let life = Duration::from_millis(5 + random.below(150));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(life);
                mounted.signal(Signal::KILL);
            });
            done += load(&mounted, &mut models, &mut random);
        });
        assert_eq!(mounted.end().0, None, "it was killed");
        let checked = mounted.scratch.run(&["check", "--cache", "cache", "--backing", "backing"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(0), "round {round}: {said}");
        let policy = ["face-gsc", "lru", "arc", "lc", "h-arc", "sieve"][random.below(6) as usize];
        mounted.change(["write-back", "write-back", "write-through", "write-around"][random.below(4) as usize], policy);
        assert!(mounted.start());
    }
    println!("{done} operations in {rounds} rounds");
    assert!(done > 10 * rounds, "the server was hardly alive");
    verify(&mounted, &mut models, "the end");
    mounted.unmount();
    for (n, model) in models.iter().enumerate() {
        let truth: Vec<u8> = model.0.iter().flat_map(|versions| versions[0].clone()).collect();
        assert!(fs::read(mounted.below().join(n.to_string())).unwrap() == truth, "file {n} is complete after a drain");
    }
}

#[test]
fn no_synced_write_to_a_file_is_lost_by_a_kill() {
    kill_rounds(10, 1);
}

#[test]
#[ignore = "a hundred rounds take a minute: `make test-long` runs it"]
fn no_synced_write_to_a_file_is_lost_by_a_hundred_kills() {
    kill_rounds(100, 2);
}

/// Committed rows are found after a kill, and the database passes its check. With an exclusive lock SQLite maps no
/// file: a mapping whose server is killed would kill this test.
#[test]
fn sqlite_keeps_what_was_committed_before_a_kill() {
    for mode in ["wal", "delete"] {
        let Some(mut mounted) = Mounted::with(Some(["write-back", "face-gsc"])) else { return };
        let path = mounted.above().join("t.db");
        let setup = format!(
            "PRAGMA locking_mode = exclusive; PRAGMA journal_mode = {mode}; PRAGMA synchronous = full; \
             PRAGMA wal_autocheckpoint = 20; CREATE TABLE IF NOT EXISTS t (i INTEGER PRIMARY KEY, s TEXT)"
        );
        let mut committed = 0_i64;
        for round in 0..6_u64 {
            let database = rusqlite::Connection::open(&path).unwrap();
            database.execute_batch(&setup).unwrap();
            let checked: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(checked, "ok", "{mode}, round {round}");
            let count: i64 = database.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
            // The last commit may have been durable and its answer lost.
            assert!(count == committed || count == committed + 1, "{mode}, round {round}: {count} of {committed}");
            committed = count;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(60 + 40 * round));
                    mounted.signal(Signal::KILL);
                });
                while database.execute("INSERT INTO t (s) VALUES (?)", ["x".repeat(3000)]).is_ok() {
                    committed += 1;
                }
            });
            drop(database);
            mounted.end();
            assert!(mounted.start());
        }
        println!("{mode}: {committed} rows");
        assert!(committed > 10, "{mode}: {committed} rows");
        mounted.unmount();
        let below = rusqlite::Connection::open(mounted.below().join("t.db")).unwrap();
        let checked: String = below.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(checked, "ok", "{mode}: without the cache");
    }
}

/// Bytes that fio wrote and synced before a kill are found again, whatever fio was writing at the kill.
#[test]
fn fio_finds_what_it_synced_before_a_kill() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let fio = |mounted: &Mounted, name: &str, more: &[&str]| {
        let file = mounted.above().join(name);
        let mut command = Command::new("fio");
        command.args(["--name=f", "--size=3m", "--bs=4k", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1"]);
        command.args(["--rw=randwrite", "--end_fsync=1", "--randrepeat=1", "--verify_state_save=0"]);
        command.arg(format!("--filename={}", file.display())).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(mounted.scratch.path(".")).spawn()
    };
    for round in 0..4_u64 {
        let seed = format!("--randseed={}", round + 1);
        let Ok(first) = fio(&mounted, "a", &[&seed, "--do_verify=0"]) else {
            entresol_skip::skipped!("fio", "there is no fio here");
            return mounted.unmount();
        };
        let output = first.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let mut second = fio(&mounted, "b", &["--do_verify=0", "--loops=100"]).unwrap();
        std::thread::sleep(Duration::from_millis(100 + 50 * round));
        mounted.signal(Signal::KILL);
        mounted.end();
        second.wait().unwrap();
        assert!(mounted.start());
        let output = fio(&mounted, "a", &[&seed, "--verify_only=1"]).unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stdout));
    }
    mounted.unmount();
}
