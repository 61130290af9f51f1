//! The live cache by the real command: its refusals, and that no kill costs a durable write.

mod common;

use common::served::client::{Client, FLUSH, FUA, READ, WRITE};
use common::served::{BACKING, Kept, PAGE, ended, formatted, formatted_log, reached, start, terminate};
use common::{crash, says};
use entresol_core::Random;
use std::cell::RefCell;
use std::time::Duration;

/// Offset of the first segment in a cache, in bytes.
const BASE: usize = 16384;
const PAGES: u64 = BACKING.div_ceil(PAGE) as u64;

fn page_len(page: u64) -> usize {
    PAGE.min(BACKING - page as usize * PAGE)
}

#[test]
fn what_is_there_is_named_and_stays() {
    let scratch = formatted();
    let format = ["format", "--cache", "cache", "--backing", "disk"];
    says(&scratch.refused(&format), &["cache: holds an Entresol cache", "0 of them dirty", "--force"]);
    scratch.ok(&[&format[..], &["--force", "-q"]].concat());
    scratch.file("data", [vec![0; 1024], vec![7; 2 << 20]].concat());
    let line = scratch.refused(&["format", "--cache", "data", "--backing", "disk"]);
    says(&line, &["data: holds 2098176 bytes of something else", "byte 1024", "--force"]);
    scratch.file("zeros", vec![0; 2 << 20]);
    scratch.format(&["--cache", "zeros", "--backing", "disk"]);
    let new = |more: &[&str]| scratch.refused(&[&["format", "--cache", "new", "--backing", "disk"], more].concat());
    says(&new(&[]), &["new: is not there", "--size"]);
    says(&new(&["--size", "10KiB"]), &["new: ", "fewer than 8 segments"]);
    says(&new(&["--size", "2MiB", "--page-size", "1000"]), &["power of two from 512 to 65536"]);
    says(&new(&["--size", "2MiB", "--segment-size", "5000"]), &["5000", "no multiple of the page size 4096"]);
    says(&new(&["--size", "5%"]), &["--size"]);
    let absent = scratch.refused(&["format", "--cache", "new", "--backing", "absent", "--size", "2MiB"]);
    says(&absent, &["absent: No such file"]);
    let same = scratch.refused(&["format", "--cache", "disk", "--backing", "disk", "--force"]);
    says(&same, &["disk: is given as the cache and as the backing store"]);
}

#[test]
fn what_is_no_cache_of_this_backing_is_refused_by_every_command() {
    let scratch = formatted();
    scratch.file("other", vec![0; BACKING]);
    scratch.file("noise", vec![9; 2 << 20]);
    std::fs::create_dir(scratch.path("folder")).expect("a directory");
    let commands: [&[&str]; 3] = [&["check"], &["drain"], &["serve", "nbd", "--socket", "s"]];
    for command in commands {
        let refused = |cache, backing| scratch.refused(&[command, &["--cache", cache, "--backing", backing]].concat());
        says(&refused("cache", "other"), &["cache: this is the cache of another backing store than other"]);
        says(&refused("noise", "disk"), &["noise: not an Entresol cache"]);
        let absent =
            if command[0] == "check" { "absent: No such file" } else { "absent: is not there; it was at another path" };
        says(&refused("absent", "disk"), &[absent]);
        says(&refused("cache", "absent"), &["absent: No such file"]);
        says(&refused("cache", "folder"), &["folder: "]);
    }
    says(&scratch.refused(&["stats", "--cache", "noise"]), &["noise: not an Entresol cache"]);
    let serve = ["serve", "nbd", "--socket", "s", "--cache", "cache", "--backing", "disk"];
    let refused = |more: &[&str]| scratch.refused(&[&serve[..], more].concat());
    says(&refused(&["--policy", "face-gcs"]), &["face-gcs", "face-gsc"]);
    says(&refused(&["--policy", "min"]), &["min", "future"]);
    says(&refused(&["--policy", "lru,arc"]), &["names 2 policies"]);
    says(&refused(&["--policy", "lru", "--cache-size", "2GiB"]), &["--cache-size: 524288 pages", "room for 374"]);
    says(&refused(&["--read-only"]), &["--read-only"]);
    says(&refused(&["--file", "disk"]), &["--file"]);
    says(&scratch.refused(&["serve", "nbd", "--socket", "s", "--cache", "cache"]), &["--backing"]);
    says(&scratch.refused(&["serve", "nbd", "--socket", "s", "--file", "disk", "--mode", "read-only"]), &["--cache"]);
    let disk = std::fs::OpenOptions::new().write(true).open(scratch.path("disk")).expect("the backing store");
    disk.set_len(BACKING as u64 - 8192).expect("it shrinks");
    // No process may have it open for writing.
    drop(disk);
    for command in commands {
        let line = scratch.refused(&[command, &["--cache", "cache", "--backing", "disk"]].concat());
        says(&line, &["disk: has 4186624 bytes, fewer than the 4194816 that it had"]);
    }
}

#[test]
fn a_cache_in_use_is_left_alone_and_a_termination_closes_it() {
    let scratch = formatted();
    let mut child = start(&scratch, "face-gsc", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(4096, &[5; 8192], FUA);
    let both = ["--cache", "cache", "--backing", "disk"];
    for command in [&["check"][..], &["drain"], &["serve", "nbd", "--socket", "t"], &["format", "--force"]] {
        says(&scratch.refused(&[command, &both].concat()), &["in use by another process"]);
    }
    says(&scratch.ok(&["stats", "--cache", "cache"]), &["policy         face-gsc\n", "dirty          2 pages"]);
    drop(client);
    let said = terminate(child);
    says(
        &said,
        &["closed in good order: 0 pages, 0 of them dirty", "bytes read", "the cache is closed", "2 pages dirty"],
    );
    says(
        &scratch.ok(&["stats", "--cache", "cache"]),
        &["closed in good order", "pages          2\n", "dirty          2\n"],
    );
    assert_eq!(scratch.bytes("disk"), vec![0; BACKING]);
    let mut child = start(&scratch, "lru", "read-only");
    let mut client = reached(&scratch, &mut child);
    assert_eq!(client.read(4096, 8192), vec![5; 8192]);
    assert_ne!(client.call(WRITE, 0, 0, 1, &[1]).expect("an answer").errno, 0);
    drop(client);
    says(&terminate(child), &["closed in good order: 2 pages, 2 of them dirty", "0 pages dirty"]);
    assert_eq!(scratch.bytes("disk")[4096..12288], [5; 8192]);
}

#[test]
fn damage_is_found_and_told_where() {
    let scratch = formatted_log();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 3 * PAGE], FUA);
    drop(client);
    terminate(child);
    let both = ["check", "--cache", "cache", "--backing", "disk"];
    says(&scratch.ok(&both), &["2 of 2 superblocks", "3 pages: 3 dirty, 0 clean, 0 lost"]);
    let good = scratch.bytes("cache");
    let damaged = |at: usize, parts: &[&str]| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        scratch.file("cache", &bytes);
        let output = scratch.run(&both);
        assert_eq!(output.status.code(), Some(1), "a flipped bit at {at}");
        says(&String::from_utf8(output.stderr).expect("text"), parts);
        assert!(scratch.bytes("cache") == bytes, "a check changes nothing");
    };
    // The table of the only batch is the first block after the commit records, and the pages follow it.
    damaged(BASE + 4096 + 100, &["page 0: its bytes at byte 20480", "the only copy"]);
    damaged(BASE + 3 * 4096, &["page 2: its bytes at byte 28672"]);
    let mut bytes = good.clone();
    bytes[BASE + 200] ^= 1;
    scratch.file("cache", &bytes);
    says(&scratch.ok(&both), &["3 pages: 3 dirty", "the table at byte 16384 is damaged; a copy of it says the same"]);
    [8192 + 520, 12288 + 520].into_iter().for_each(|record| bytes[record] ^= 1);
    scratch.file("cache", &bytes);
    let output = scratch.run(&both);
    assert_eq!(output.status.code(), Some(1), "the table and its copies");
    says(&String::from_utf8(output.stderr).expect("text"), &["byte 16384: ", "durable is not there"]);
    damaged(100, &["one superblock is damaged"]);
    scratch.file("cache", &good);
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
    says(&scratch.ok(&both), &["0 dirty, 3 clean"]);
    let mut disk = scratch.bytes("disk");
    assert_eq!(disk[..3 * PAGE], [5; 3 * PAGE]);
    disk[PAGE] = 6;
    let file = std::fs::OpenOptions::new().write(true).open(scratch.path("disk")).expect("the backing store");
    std::os::unix::fs::FileExt::write_all_at(&file, &disk, 0).expect("a write past the cache");
    let output = scratch.run(&both);
    assert_eq!(output.status.code(), Some(1));
    says(&String::from_utf8(output.stderr).expect("text"), &["page 1: the clean copy", "without the cache"]);
}

#[test]
fn what_can_be_repaired_is_and_the_rest_is_said() {
    let scratch = formatted_log();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 3 * PAGE], FUA);
    drop(client);
    terminate(child);
    let both = ["--cache", "cache", "--backing", "disk"];
    let repair = [&["check", "--repair"], &both[..]].concat();
    let (sound, kept) = (scratch.bytes("cache"), RefCell::new(Kept::of(&scratch)));
    says(&scratch.ok(&repair), &["3 pages: 3 dirty"]);
    assert!(scratch.bytes("cache") == sound, "nothing to repair, nothing changed");
    let run = |at: usize, code: i32, of: &[u8]| {
        let mut bytes = of.to_vec();
        bytes[at] ^= 1;
        scratch.file("cache", &bytes);
        kept.borrow().put_back(&scratch);
        let output = scratch.run(&repair);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
        assert_eq!(output.status.code(), Some(code), "a flipped bit at {at}: {said}");
        said
    };
    for superblock in [100, 4096 + 100] {
        says(&run(superblock, 0, &sound), &["one superblock is damaged", "written again", "2 of 2 superblocks"]);
        scratch.ok(&[&["check"], &both[..]].concat());
    }
    // The table of the only batch is the first block after the commit records, and the pages follow it.
    says(&run(BASE + 2 * 4096, 1, &sound), &["repaired: page 1: its last write is lost", "2 dirty, 0 clean, 1 lost"]);
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    assert_eq!(client.read(0, PAGE as u32), vec![5; PAGE]);
    assert_ne!(client.call(READ, 0, PAGE as u64, PAGE as u32, b"").expect("an answer").errno, 0);
    client.write(PAGE as u64, &[6; PAGE], FUA);
    assert_eq!(client.read(PAGE as u64, PAGE as u32), vec![6; PAGE]);
    drop(client);
    terminate(child);
    says(&scratch.ok(&[&["check"], &both[..]].concat()), &["3 dirty, 0 clean, 0 lost"]);
    for table in [BASE + 20, BASE + 200] {
        says(&run(table, 0, &sound), &["3 dirty, 0 clean, 0 lost", "a copy of it says the same"]);
        let mut bytes = sound.clone();
        [8192 + 520, 12288 + 520].into_iter().for_each(|record| bytes[record] ^= 1);
        says(
            &run(table, 1, &bytes),
            &["a table that was durable is not there", "`--doubtful keep` saves the readable pages"],
        );
    }
    let mut bytes = sound.clone();
    bytes[100] ^= 1;
    says(&run(4096 + 100, 1, &bytes), &["both superblocks are damaged", "cannot be repaired"]);
    scratch.file("cache", &sound);
    scratch.ok(&[&["-q", "drain"], &both[..]].concat());
    let clean = scratch.bytes("cache");
    kept.replace(Kept::of(&scratch));
    says(
        &run(BASE + 3 * 4096, 0, &clean),
        &["page 2: its bytes", "repaired: page 2: its damaged clean copy", "2 clean"],
    );
    scratch.ok(&[&["check"], &both[..]].concat());
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    assert_eq!(client.read(0, 3 * PAGE as u32), vec![5; 3 * PAGE]);
    drop(client);
    terminate(child);
}

/// Versions that each page may have: the last durable version first, then every later one that was sent.
struct Model(Vec<Vec<Vec<u8>>>);

impl Model {
    fn new() -> Self {
        Model((0..PAGES).map(|page| vec![vec![0; page_len(page)]]).collect())
    }

    fn newest(&self, page: u64) -> &Vec<u8> {
        self.0[page as usize].last().expect("never empty")
    }

    fn settle(&mut self, page: u64) {
        let versions = &mut self.0[page as usize];
        versions.drain(..versions.len() - 1);
    }

    /// Checks after a restart that every page reads as an allowed version, which is the only one from then on.
    fn verify(&mut self, client: &mut Client, what: &str) {
        for page in 0..PAGES {
            let bytes = client.read(page * PAGE as u64, page_len(page) as u32);
            let versions = &mut self.0[page as usize];
            let Some(at) = versions.iter().rposition(|version| *version == bytes) else {
                panic!("{what}: page {page} begins {:?}, none of {} allowed versions", &bytes[..8], versions.len());
            };
            *versions = vec![versions.swap_remove(at)];
        }
    }
}

/// Sends requests, up to eight at a time to different pages, until the server is gone; returns the number answered.
fn load(client: &mut Client, model: &mut Model, random: &mut Random) -> u64 {
    let mut answered = 0;
    loop {
        let mut sent = Vec::new();
        let mut busy = Vec::new();
        for _ in 0..1 + random.below(8) {
            let page = if random.chance(0.7) { random.below(200) } else { random.below(PAGES) };
            if busy.contains(&page) {
                continue;
            }
            busy.push(page);
            let from = if random.chance(0.6) { 0 } else { random.below(page_len(page) as u64) as usize };
            let len =
                if from == 0 { page_len(page) } else { 1 + random.below((page_len(page) - from) as u64) as usize };
            let offset = page * PAGE as u64 + from as u64;
            if random.chance(0.25) {
                let Ok(cookie) = client.send(READ, 0, offset, len as u32, b"") else { return answered };
                let newest = model.newest(page)[from..from + len].to_vec();
                sent.push((cookie, page, false, Some(newest)));
                continue;
            }
            let mut version = model.newest(page).clone();
            version[from..from + len].fill_with(|| random.next_u64() as u8);
            let payload = version[from..from + len].to_vec();
            model.0[page as usize].push(version);
            let fua = random.chance(0.1);
            let flags = if fua { FUA } else { 0 };
            let Ok(cookie) = client.send(WRITE, flags, offset, len as u32, &payload) else { return answered };
            sent.push((cookie, page, fua, None));
        }
        for _ in 0..sent.len() {
            let Ok((cookie, answer)) = client.receive() else { return answered };
            let &(_, page, fua, ref read) = sent.iter().find(|sent| sent.0 == cookie).expect("a request that was sent");
            assert_eq!(answer.errno, 0);
            if let Some(read) = read {
                assert!(answer.data == *read, "page {page} does not read as it was written");
            }
            if fua {
                model.settle(page);
            }
            answered += 1;
        }
        if random.chance(0.15) {
            match client.call(FLUSH, 0, 0, 0, b"") {
                Ok(answer) => assert_eq!(answer.errno, 0),
                Err(_) => return answered,
            }
            (0..PAGES).for_each(|page| model.settle(page));
        }
    }
}

#[test]
fn a_store_of_slots_is_checked_and_repaired_too() {
    const JOURNAL: usize = 52;
    let scratch = formatted();
    let both = ["--cache", "cache", "--backing", "disk"];
    says(
        &scratch.refused(&[&["format", "--layout", "rows"], &both[..]].concat()),
        &["--layout", "log, slots or segments"],
    );
    scratch.format(&[&["--force", "--layout", "slots"], &both[..]].concat());
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 3 * PAGE], FUA);
    drop(client);
    terminate(child);
    let layout = format!("layout         slots: {} slots, a journal of {JOURNAL} blocks", 31 * 16 - JOURNAL);
    says(&scratch.ok(&["stats", "--cache", "cache"]), &[&layout]);
    says(&scratch.ok(&[&["check"], &both[..]].concat()), &["3 pages: 3 dirty, 0 clean, 0 lost"]);
    let (sound, kept) = (scratch.bytes("cache"), Kept::of(&scratch));
    let repair = |at: usize, code: i32| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        scratch.file("cache", &bytes);
        kept.put_back(&scratch);
        let output = scratch.run(&[&["check", "--repair"], &both[..]].concat());
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
        assert_eq!(output.status.code(), Some(code), "a flipped bit at {at}: {said}");
        said
    };
    // The journal begins after the commit records, and slot 0 after it.
    says(
        &repair(BASE + (JOURNAL + 1) * 4096, 1),
        &["repaired: page 1: its last write is lost", "2 dirty, 0 clean, 1 lost"],
    );
    let mut child = start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut child));
    says(
        &ended(child, 2),
        &["the cache is closed", "cache: lost until they are written again: 1 pages, first: page 1"],
    );
    says(&repair(BASE + 100, 0), &["3 dirty, 0 clean, 0 lost", "a copy of it says the same"]);
    says(&repair(100, 0), &["one superblock is damaged", "written again", "3 dirty"]);
    scratch.ok(&[&["-q", "drain"], &both[..]].concat());
    assert_eq!(scratch.bytes("disk")[..3 * PAGE], [5; 3 * PAGE]);
}

fn kill_rounds(rounds: u64, seed: u64, layout: &str) {
    println!("seed {seed} (what is sent; when the kill comes is the clock's)");
    let scratch = formatted();
    let both = ["--cache", "cache", "--backing", "disk"];
    scratch.format(&[&["--force", "--layout", layout], &both[..]].concat());
    let (mut model, mut random, mut answered) = (Model::new(), Random::new(seed), 0);
    for round in 0..rounds {
        let policy = ["face-gsc", "lru", "arc", "lc", "h-arc", "sieve"][random.below(6) as usize];
        let mode = ["write-back", "write-back", "write-through", "write-around"][random.below(4) as usize];
        let what = format!("round {round}, {policy}, {mode}");
        if random.chance(0.3) {
            // The kill comes at any point of the recovery.
            let mut child = start(&scratch, policy, mode);
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            crash(child.id());
            child.wait().expect("an end");
        }
        let mut child = start(&scratch, policy, mode);
        let mut client = reached(&scratch, &mut child);
        model.verify(&mut client, &what);
        let life = Duration::from_millis(5 + random.below(150));
        let id = child.id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(life);
            crash(id);
        });
        answered += load(&mut client, &mut model, &mut random);
        killer.join().expect("the kill");
        assert_eq!(child.wait().expect("an end").code(), None, "{what}: it was killed");
        let output = scratch.run(&[&["check"], &both[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{what}: {said}");
    }
    println!("{answered} requests answered in {rounds} rounds");
    assert!(answered > rounds, "the server was hardly alive");
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    model.verify(&mut client, "the end");
    drop(client);
    terminate(child);
    scratch.ok(&[&["-q", "drain"], &both[..]].concat());
    let truth: Vec<u8> = (0..PAGES).flat_map(|page| model.newest(page).clone()).collect();
    assert!(scratch.bytes("disk") == truth, "after a drain the backing store is complete");
    says(&scratch.ok(&["stats", "--cache", "cache"]), &["dirty          0\n", "lost           0\n"]);
}

#[test]
fn no_durable_write_is_lost_by_a_kill() {
    kill_rounds(10, 1, "log");
}

#[test]
fn no_durable_write_is_lost_by_a_kill_over_slots() {
    kill_rounds(10, 3, "slots");
}

#[test]
fn no_durable_write_is_lost_by_a_kill_over_segments() {
    kill_rounds(10, 5, "segments");
}

#[test]
#[ignore = "a hundred rounds take a minute: `make test-long` runs it"]
fn no_durable_write_is_lost_by_a_hundred_kills() {
    kill_rounds(100, 2, "log");
    kill_rounds(100, 4, "slots");
    kill_rounds(100, 6, "segments");
}
