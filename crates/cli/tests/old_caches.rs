//! Caches that an earlier release made are checked, drained, served and rewritten in the newer format: both layouts,
//! closed in good order and killed, in front of files, directories, block devices and SQLite databases.
//! `fixtures/README.md` describes their contents.

mod common;

use common::image::Loop;
use common::mounted::Mounted;
use common::served::client::{Client, FLUSH};
use common::served::{PAGE, reached, terminate};
use common::{Scratch, Signal, says};
use entresol_sqlite::{Api, Options, register};
use rusqlite::{Connection, Error, ErrorCode};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Once;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Bytes of a header or record of a file map.
const BLOCK: usize = 64;
/// Bytes of a superblock, the last four its CRC.
const SUPERBLOCK: usize = 512;
const SUPERBLOCKS: [usize; 2] = [0, 4096];
const OF_FILE: [&str; 4] = ["--cache", "cache", "--backing", "disk"];
const OF_DIRECTORY: [&str; 4] = ["--cache", "cache", "--backing", "backing"];
const OF_DATABASE: [&str; 4] = ["--cache", "cache", "--backing", "database"];
/// Identity of the devices.
const UUID: &str = "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a10";
/// Page of the table that the test writes over an old cache, in a version that no fixture has.
const NEW_PAGE: u32 = 40;
const NEW_VERSION: u8 = 9;

/// State in which a cache was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Drained, and closed.
    Clean,
    /// Closed with dirty pages.
    Dirty,
    /// Killed after a flush.
    Killed,
    /// Killed while a removed file was open: its pages are in the cache, and the map does not record the removal.
    StillOpen,
}

/// A cache of the earlier release.
struct Fixture {
    name: String,
    left: Left,
}

/// All fixtures in front of a `file`, a `directory`, a `device` or a `database`. The VFS of that release made logs
/// alone.
fn fixtures(backing: &str) -> Vec<Fixture> {
    let states = [("clean", Left::Clean), ("dirty", Left::Dirty), ("killed", Left::Killed)];
    let of = |layout: &&str| states.map(|(state, left)| Fixture { name: format!("{backing}-{layout}-{state}"), left });
    let layouts: &[&str] = if backing == "database" { &["log"] } else { &["log", "slots"] };
    layouts.iter().flat_map(of).collect()
}

fn page(number: u32, version: u8) -> Vec<u8> {
    format!("page {number:06} v{version:02}\n").repeat(PAGE / 16).into_bytes()
}

/// The pages of a file, with the version that `version` gives each.
fn pages(count: u32, version: impl Fn(u32) -> u8) -> Vec<u8> {
    (0..count).flat_map(|number| page(number, version(number))).collect()
}

/// The bytes of the bare file, and of the file `table` of a directory, as they are with their cache.
fn table() -> Vec<u8> {
    pages(64, |number| match number {
        4..8 => 2,
        0..16 => 1,
        _ => 0,
    })
}

/// The same bytes after this test's writes.
fn new_table() -> Vec<u8> {
    let mut table = table();
    table[NEW_PAGE as usize * PAGE..][..PAGE].copy_from_slice(&page(NEW_PAGE, NEW_VERSION));
    table
}

/// The files of a directory as they are with their cache.
fn files(table: Vec<u8>) -> [(&'static str, Vec<u8>); 3] {
    let mut short = pages(8, |_| 1);
    short.truncate(9000);
    [("table", table), ("short", short), ("sub/made", pages(8, |_| 3))]
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    (crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
}

/// True if a block ends with the CRC of the bytes before.
fn is_whole(block: &[u8]) -> bool {
    let (said, crc_said) = block.split_at(block.len() - 4);
    crc(said) == crc_said
}

/// Replaces numbers of a block, and its CRC.
fn rewrite(block: &mut [u8], at: usize, numbers: &[u64]) {
    assert!(is_whole(block), "a fixture is damaged");
    for (i, number) in numbers.iter().enumerate() {
        block[at + i * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    let end = block.len() - 4;
    let sum = crc(&block[..end]);
    block[end..].copy_from_slice(&sum);
}

/// Inode and time of creation, which identify a file.
fn key(path: &Path) -> [u64; 2] {
    let found = fs::metadata(path).expect("attributes");
    let made = found.created().expect("this file system tells when a file was made");
    [found.ino(), made.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64]
}

/// Size and times of change of bytes and attributes, by which a map detects later writes.
fn stamp(path: &Path) -> [u64; 3] {
    let found = fs::metadata(path).expect("attributes");
    let nanoseconds = |seconds: i64, rest: i64| (seconds * 1_000_000_000 + rest) as u64;
    [found.len(), nanoseconds(found.mtime(), found.mtime_nsec()), nanoseconds(found.ctime(), found.ctime_nsec())]
}

/// The superblock of a cache that counts: the one that was written last.
fn superblock(bytes: &[u8]) -> &[u8] {
    let copies = SUPERBLOCKS.map(|at| &bytes[at..at + SUPERBLOCK]);
    copies.into_iter().filter(|copy| is_whole(copy)).max_by_key(|copy| number(copy, 16)).expect("a whole superblock")
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v2").join(&self.name).join(name)
    }

    fn is_killed(&self) -> bool {
        matches!(self.left, Left::Killed | Left::StillOpen)
    }

    fn unpack(&self, name: &str) -> Vec<u8> {
        let packed = File::open(self.path(&format!("{name}.zst"))).expect("a fixture");
        zstd::decode_all(packed).expect("a packed file")
    }

    /// The cache as it was made, in the old format.
    fn cache(&self) -> Vec<u8> {
        let cache = self.unpack("cache");
        let state = u32::from(!self.is_killed());
        let newest = superblock(&cache);
        assert_eq!((number32(newest, 8), number32(newest, 12)), (2, state), "{}: version and state", self.name);
        cache
    }

    /// Restores the file or database and its cache, with its new inode in the cache.
    fn restore_file(&self, name: &str) -> Scratch {
        let scratch = Scratch::new();
        scratch.file(name, self.unpack(name));
        let mut cache = self.cache();
        let key = key(&scratch.path(name));
        SUPERBLOCKS.iter().for_each(|&at| rewrite(&mut cache[at..at + SUPERBLOCK], 40, &key));
        self.put_cache(&scratch, cache);
        scratch
    }

    fn put_cache(&self, scratch: &Scratch, cache: Vec<u8>) {
        scratch.file("cache", cache);
        fs::set_permissions(scratch.path("cache"), PermissionsExt::from_mode(0o644)).expect("a mode");
    }

    /// Restores the cache and its device, which the cache identifies by UUID; none where there are no such devices.
    fn restore_device(&self) -> Option<(Scratch, Loop)> {
        let scratch = Scratch::new();
        scratch.file("disk", self.unpack("disk"));
        self.put_cache(&scratch, self.cache());
        match Loop::new(&scratch.path("disk")) {
            Ok(device) => Some((scratch, device)),
            Err(why) => {
                entresol_skip::skipped!("losetup", "no loop devices here: {why}");
                None
            }
        }
    }

    /// Restores the database and its cache, and the log of the killed one.
    fn restore_database(&self) -> Scratch {
        let scratch = self.restore_file("database");
        if self.is_killed() {
            scratch.file("database-wal", self.unpack("database-wal"));
        }
        scratch
    }

    /// Restores the directory, its map and its cache, with the files' new inodes in the map.
    fn restore_directory(&self) -> Scratch {
        let scratch = Scratch::new();
        ["mount", "backing/sub", "backing/.entresol"]
            .iter()
            .for_each(|name| fs::create_dir_all(scratch.path(name)).expect("a directory"));
        let backing = scratch.path("backing");
        let mut restored = HashMap::new();
        for line in fs::read_to_string(self.path("files")).expect("a list of files").lines() {
            let [inode, made, name] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let then = [inode, made].map(|number| number.parse::<u64>().expect("a number"));
            if name != "." {
                fs::write(backing.join(name), self.unpack(name.trim_start_matches("sub/"))).expect("a file");
            }
            assert!(restored.insert(then, backing.join(name)).is_none());
        }
        let mut map = self.unpack("map");
        self.rewrite_map(&mut map, &restored);
        scratch.file("backing/.entresol/map", map);
        self.put_cache(&scratch, self.cache());
        scratch
    }

    /// Updates a map to the files' new inodes and present state.
    fn rewrite_map(&self, map: &mut [u8], restored: &HashMap<[u64; 2], PathBuf>) {
        let state = match self.left {
            Left::Killed | Left::StillOpen => 0,
            Left::Clean => 1,
            Left::Dirty => 2,
        };
        assert_eq!([number32(map, 8), number32(map, 12)], [1, state], "{}: version and state of the map", self.name);
        let (header, records) = map.split_at_mut(BLOCK);
        let directory = &restored[&[number(header, 32), number(header, 40)]];
        rewrite(header, 32, &key(directory));
        let mut counts = [0; 5];
        for record in records.chunks_exact_mut(BLOCK).take_while(|record| is_whole(record)) {
            let kind = number(record, 0) as usize;
            counts[kind] += 1;
            // A dropped region's record names no file.
            let Some(at) = [None, Some(16), None, Some(8), Some(8)][kind] else { continue };
            // An absent file was removed, and the map must know it by an inode that no file has any more.
            let Some(path) = restored.get(&[number(record, at), number(record, at + 8)]) else { continue };
            rewrite(record, at, &key(path));
            if kind == 3 {
                rewrite(record, at + 16, &stamp(path));
            }
        }
        println!("{}: records of the map by kind {:?}", self.name, &counts[1..]);
        assert!(counts[1] >= 3, "a region for each file");
        assert_eq!(counts[3] > 0, !self.is_killed(), "a map in use has no stamps");
    }

    /// Checks that a cache is in the old format, or in the new one with the old tables, and only accessible by its
    /// owner.
    fn check_format(&self, scratch: &Scratch, is_new: bool) {
        let cache = scratch.bytes("cache");
        let newest = superblock(&cache);
        let expected = if is_new { (3, 2) } else { (2, 0) };
        assert_eq!((number32(newest, 8), number32(newest, 116)), expected, "{}: version and tables", self.name);
        let mode = fs::metadata(scratch.path("cache")).expect("a cache").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}: an old cache is its owner's alone once it was open", self.name);
    }
}

fn check_and_drain(scratch: &Scratch, both: &[&str]) {
    scratch.ok(&[&["check"], both].concat());
    scratch.ok(&[&["drain"], both].concat());
    scratch.ok(&[&["check"], both].concat());
}

fn check_files(fixture: &Fixture, directory: &Path, table: Vec<u8>) {
    for (name, expected) in files(table) {
        let found = fs::read(directory.join(name)).expect("a file");
        assert!(found == expected, "{}: {name} is not what it was", fixture.name);
    }
    ["removed", "held"].iter().for_each(|name| assert!(!directory.join(name).exists(), "{}: {name}", fixture.name));
}

#[test]
fn an_old_cache_of_a_file_is_checked_and_drained() {
    for fixture in fixtures("file") {
        let scratch = fixture.restore_file("disk");
        let is_complete = scratch.bytes("disk") == table();
        assert_eq!(is_complete, fixture.left == Left::Clean, "{}: it holds dirty pages", fixture.name);
        check_and_drain(&scratch, &OF_FILE);
        assert!(scratch.bytes("disk") == table(), "{}: other bytes", fixture.name);
    }
}

#[test]
fn an_old_cache_of_a_directory_is_checked_and_drained() {
    for fixture in fixtures("directory") {
        let scratch = fixture.restore_directory();
        let is_complete = scratch.bytes("backing/table") == table();
        assert_eq!(is_complete, fixture.left == Left::Clean, "{}: it holds dirty pages", fixture.name);
        check_and_drain(&scratch, &OF_DIRECTORY);
        check_files(&fixture, &scratch.path("backing"), table());
    }
}

/// A map of version 1 cannot record that a file is about to be removed. So its pages are not dropped silently.
#[test]
fn an_old_cache_with_pages_of_a_file_that_was_removed_while_open_asks_before_it_drops_them() {
    for layout in ["log", "slots"] {
        let fixture = Fixture { name: format!("directory-{layout}-held"), left: Left::StillOpen };
        let scratch = fixture.restore_directory();
        for command in ["check", "drain"] {
            let line = scratch.refused(&[&[command], &OF_DIRECTORY[..]].concat());
            says(&line, &["8 pages of 1 file are in the cache alone", "--drop-gone"]);
        }
        scratch.ok(&[&["drain", "--drop-gone"], &OF_DIRECTORY[..]].concat());
        scratch.ok(&[&["check"], &OF_DIRECTORY[..]].concat());
        check_files(&fixture, &scratch.path("backing"), table());
    }
}

/// Serves a cache, reads all of the file or device, writes a page and closes the cache.
fn serve(fixture: &Fixture, scratch: &Scratch, both: &[&str], expected: &[u8]) {
    let serve = ["serve", "nbd", "--socket", "s", "--policy", "lru", "--mode", "write-back"];
    let mut command = scratch.command(&[&serve, both].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut client: Client = reached(scratch, &mut child);
    assert!(client.read(0, expected.len() as u32) == expected, "{}: other bytes", fixture.name);
    client.write(u64::from(NEW_PAGE) * PAGE as u64, &page(NEW_PAGE, NEW_VERSION), 0);
    assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).expect("an answer").errno, 0);
    drop(client);
    terminate(child);
}

/// A killed cache stays in the old format until it was closed in good order: the old release can still recover it.
#[test]
fn an_old_cache_of_a_file_is_served_and_rewritten_after_a_good_end() {
    for fixture in fixtures("file") {
        let scratch = fixture.restore_file("disk");
        let has_record =
            || rustix::fs::getxattr(scratch.path("disk"), "user.entresol", &mut [0; 4096][..]).is_ok_and(|n| n > 0);
        assert!(!has_record());
        serve(&fixture, &scratch, &OF_FILE, &table());
        fixture.check_format(&scratch, !fixture.is_killed());
        // As long as the old release can recover the cache no generation is raised.
        assert_eq!(has_record(), !fixture.is_killed(), "{}", fixture.name);
        serve(&fixture, &scratch, &OF_FILE, &new_table());
        fixture.check_format(&scratch, true);
        assert!(has_record(), "{}", fixture.name);
        check_and_drain(&scratch, &OF_FILE);
        assert!(scratch.bytes("disk") == new_table(), "{}: other bytes", fixture.name);
    }
}

/// Mounts, reads all files, writes a page of one and unmounts; true if that is possible here.
fn mount(fixture: &Fixture, mounted: &mut Mounted, expected: Vec<u8>) -> bool {
    if !mounted.start() {
        return false;
    }
    check_files(fixture, &mounted.above(), expected);
    let table = File::options().write(true).open(mounted.above().join("table")).expect("a file");
    let at = u64::from(NEW_PAGE) * PAGE as u64;
    std::os::unix::fs::FileExt::write_all_at(&table, &page(NEW_PAGE, NEW_VERSION), at).expect("a write");
    table.sync_all().expect("a sync");
    drop(table);
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{}: {said}", fixture.name);
    true
}

#[test]
fn an_old_cache_of_a_directory_is_mounted_and_rewritten_after_a_good_end() {
    for fixture in fixtures("directory") {
        let mut mounted = Mounted::over(fixture.restore_directory(), ["write-back", "lru"]);
        if !mount(&fixture, &mut mounted, table()) {
            return;
        }
        let of_map = |mounted: &Mounted| number32(&mounted.scratch.bytes("backing/.entresol/map"), 8);
        fixture.check_format(&mounted.scratch, !fixture.is_killed());
        // Cache and map are both in the old format, or neither.
        assert_eq!(of_map(&mounted), if fixture.is_killed() { 1 } else { 2 }, "{}: version of the map", fixture.name);
        assert!(mount(&fixture, &mut mounted, new_table()));
        fixture.check_format(&mounted.scratch, true);
        assert_eq!(of_map(&mounted), 2, "{}: version of the map", fixture.name);
        check_and_drain(&mounted.scratch, &OF_DIRECTORY);
        check_files(&fixture, &mounted.below(), new_table());
    }
}

#[test]
fn an_old_cache_of_a_device_is_checked_drained_and_rewritten_after_a_good_end() {
    for fixture in fixtures("device") {
        let Some((scratch, device)) = fixture.restore_device() else { return };
        let both = ["--cache", "cache", "--backing", &device.0, "--identity", UUID];
        let is_complete = fs::read(&device.0).expect("a device") == table();
        assert_eq!(is_complete, fixture.left == Left::Clean, "{}: it holds dirty pages", fixture.name);
        check_and_drain(&scratch, &both);
        assert!(fs::read(&device.0).expect("a device") == table(), "{}: other bytes", fixture.name);
    }
    for fixture in fixtures("device") {
        let Some((scratch, device)) = fixture.restore_device() else { return };
        let both = ["--cache", "cache", "--backing", &device.0, "--identity", UUID];
        serve(&fixture, &scratch, &both, &table());
        fixture.check_format(&scratch, !fixture.is_killed());
        serve(&fixture, &scratch, &both, &new_table());
        fixture.check_format(&scratch, true);
        check_and_drain(&scratch, &both);
        assert!(fs::read(&device.0).expect("a device") == new_table(), "{}: other bytes", fixture.name);
    }
}

/// Rows of a database, each with its text.
fn rows(connection: &Connection) -> Vec<(u32, String)> {
    let whole: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(whole, "ok");
    let mut select = connection.prepare("select k, v from t order by k").expect("a table");
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// The rows of a fixture; `new` is a row that this test has changed.
fn expected_rows(new: Option<u32>) -> Vec<(u32, String)> {
    let version = |k: u32| match k {
        _ if Some(k) == new => NEW_VERSION,
        11..=20 => 2,
        _ => 1,
    };
    (1..=60).map(|k| (k, format!("row {k:06} v{:02};", version(k)).repeat(200))).collect()
}

/// A database opened without the VFS.
fn plain(scratch: &Scratch) -> Connection {
    Connection::open(scratch.path("database")).expect("a database")
}

#[test]
fn an_old_cache_of_a_database_is_checked_and_drained() {
    for fixture in fixtures("database") {
        let scratch = fixture.restore_database();
        check_and_drain(&scratch, &OF_DATABASE);
        assert!(rows(&plain(&scratch)) == expected_rows(None), "{}: other rows", fixture.name);
    }
}

/// The same database through the VFS.
fn cached(scratch: &Scratch) -> Connection {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register(Api::linked(), "entresol", Options::default(), false).expect("the name is free"));
    let (database, cache) = (scratch.path("database"), scratch.path("cache"));
    let parameters = "cache_mode=write-back&cache_policy=lru";
    let uri = format!("file:{}?vfs=entresol&cache_file={}&{parameters}", database.display(), cache.display());
    let start = Instant::now();
    let connection = loop {
        match Connection::open(&uri) {
            // A child that another test has forked has all our files until it runs its program, and with them a lock
            // that we released.
            Err(Error::SqliteFailure(failure, _))
                if failure.code == ErrorCode::DatabaseBusy && start.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => break opened.expect("a database through its cache"),
        }
    };
    connection.execute_batch("pragma synchronous=full").expect("a setting");
    connection
}

#[test]
fn an_old_cache_of_a_database_is_opened_by_the_vfs_and_rewritten_after_a_good_end() {
    for fixture in fixtures("database") {
        let scratch = fixture.restore_database();
        let connection = cached(&scratch);
        assert!(rows(&connection) == expected_rows(None), "{}: other rows", fixture.name);
        let text = &expected_rows(Some(NEW_PAGE))[NEW_PAGE as usize - 1].1;
        connection.execute("update t set v = ? where k = ?", (text, NEW_PAGE)).expect("an update");
        drop(connection);
        fixture.check_format(&scratch, !fixture.is_killed());
        assert!(rows(&cached(&scratch)) == expected_rows(Some(NEW_PAGE)), "{}: other rows", fixture.name);
        fixture.check_format(&scratch, true);
        check_and_drain(&scratch, &OF_DATABASE);
        assert!(rows(&plain(&scratch)) == expected_rows(Some(NEW_PAGE)), "{}: other rows", fixture.name);
    }
}
