//! The bytes of a database against a plain vector: writes and reads anywhere, the end moved both ways, several runs.

use super::*;
use entresol_cache::Learning;
use entresol_core::Random;

/// An offset in the first 60 pages, often shortly before the end of the database.
fn somewhere(random: &mut Random, len: u64) -> u64 {
    if random.chance(0.3) { len.saturating_sub(random.below(3000)) } else { random.below(60 * 1024) }
}

fn live(shared: &Shared, truth: &mut Vec<u8>, random: &mut Random) {
    for step in 0..400 {
        let at = somewhere(random, truth.len() as u64) as usize;
        match random.below(10) {
            0..=3 => {
                let bytes = vec![1 + random.below(255) as u8; 1 + random.below(4000) as usize];
                shared.write(at as u64, &bytes).expect("a write");
                truth.resize(truth.len().max(at + bytes.len()), 0);
                truth[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            4..=7 => {
                let mut bytes = vec![7; 1 + random.below(9000) as usize];
                let whole = shared.read(at as u64, &mut bytes).expect("a read");
                assert_eq!(whole, at + bytes.len() <= truth.len(), "step {step}: a short read is told");
                let expected = (at..at + bytes.len()).map(|i| truth.get(i).copied().unwrap_or(0));
                assert!(bytes.iter().copied().eq(expected), "step {step}: {} bytes at {at}", bytes.len());
            }
            8 => {
                shared.truncate(at as u64).expect("another size");
                truth.resize(at, 0);
            }
            _ => shared.sync().expect("a sync"),
        }
        assert_eq!(shared.len(), truth.len() as u64, "step {step}");
    }
}

#[test]
fn bytes_are_those_of_a_plain_file_across_changes_of_size_and_restarts() {
    for (seed, policy) in ["lru", "face-gsc", "arc", "lc"].into_iter().enumerate() {
        println!("seed {seed}, {policy}");
        let scratch = tempfile::tempdir().expect("a directory");
        let database = scratch.path().join("db");
        std::fs::write(&database, b"").expect("a file");
        let options = Options {
            cache: Some(scratch.path().join("cache")),
            policy: Some(policy.to_owned()),
            mode: Mode::WriteBack,
            size_bytes: 160 << 10,
            page_bytes: 1024,
            ..Options::default()
        };
        let mut random = Random::new(seed as u64);
        let mut truth = Vec::new();
        for run in 0..12 {
            let shared = Shared::open(&database, &options, true).expect("a cache");
            live(&shared, &mut truth, &mut random);
            shared.sync().expect("a sync");
            if run % 3 == 1 {
                // As after a crash between the move of the file's end and anything else.
                truth.truncate(truth.len() / 2);
                shared.file.resize(truth.len() as u64).expect("another size");
            }
            if run % 3 == 0 {
                shared.close().expect("a close");
            }
        }
    }
}

#[test]
fn the_policy_goes_on_with_what_it_had_learned_when_the_database_was_closed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let database = scratch.path().join("db");
    std::fs::write(&database, vec![1; 4 << 20]).expect("a file");
    let cache = scratch.path().join("cache");
    let options = Options { cache: Some(cache.clone()), size_bytes: 1 << 20, ..Options::default() };
    let use_it = |requests: u64| {
        let shared = Shared::open(&database, &options, true).expect("a cache");
        let begun = shared.cache().expect("there is one").learning();
        (0..requests).for_each(|at| _ = shared.read(at * 37 % 1000 * 4096, &mut [0; 4096]).expect("a read"));
        assert!(shared.close().expect("a close").is_none());
        begun
    };
    let kept = scratch.path().join("cache.learned");
    assert_eq!(use_it(0), Learning::Anew);
    assert!(!kept.exists(), "nothing was learned");
    assert_eq!(use_it(3000), Learning::Anew);
    let bytes = std::fs::read(&kept).expect("a state");
    assert!(bytes.len() <= 3000 * 512, "{} bytes", bytes.len());
    assert_eq!(use_it(1), Learning::GoesOn);
    assert_eq!(std::fs::read(&kept).expect("a state"), bytes);

    // One that can be read alone goes on with it too, and keeps nothing.
    let shared = Shared::open(&database, &options, false).expect("a cache");
    assert_eq!(shared.cache().expect("there is one").learning(), Learning::GoesOn);
    (0..3000).for_each(|at| _ = shared.read(at % 1000 * 4096, &mut [0; 4096]).expect("a read"));
    assert!(shared.close().expect("a close").is_none());
    drop(shared);
    assert_eq!(std::fs::read(&kept).expect("a state"), bytes);

    // A directory that cannot be written to costs what was learned since, and is said.
    std::fs::create_dir(scratch.path().join("cache.learned.new")).expect("a directory in the way");
    let shared = Shared::open(&database, &options, true).expect("a cache");
    (0..3000).for_each(|at| _ = shared.read(at % 1000 * 4096, &mut [0; 4096]).expect("a read"));
    assert!(shared.close().expect("a close").is_some());
}

/// True if the database has every byte, by its record.
fn is_complete(database: &Path) -> bool {
    let file = Arc::new(File::open(database).expect("the database"));
    let place = FileRecord::over(database, file, identity(database).expect("its identity")).expect("a place");
    read_record(&place).expect("a record").expect("there is one").complete
}

#[test]
fn a_drain_says_that_the_database_is_complete_and_the_next_write_takes_that_back_first() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let scratch = tempfile::tempdir().expect("a directory");
        let database = scratch.path().join("db");
        std::fs::write(&database, b"").expect("a file");
        let cache = scratch.path().join("cache");
        let options = Options { cache: Some(cache.clone()), size_bytes: 1 << 20, mode, ..Options::default() };
        let shared = Shared::open(&database, &options, true).expect("a cache");
        let through = mode == Mode::WriteThrough;
        for round in 1..5_u8 {
            shared.write(0, &[round; 20_000]).and_then(|()| shared.sync()).expect("a write");
            assert_eq!(is_complete(&database), through, "{mode:?}, round {round}: it is in the cache alone");
            shared.drain().expect("a drain");
            assert!(is_complete(&database), "{mode:?}, round {round}");
            let mut bytes = [0; 20_000];
            shared.read(0, &mut bytes).expect("a read");
            assert!(bytes == [round; 20_000] && is_complete(&database), "a read changes nothing of that");
        }
        // Killed now, its cache may be lost: another is made.
        drop(shared);
        std::fs::remove_file(&cache).expect("a cache");
        let shared = Shared::open(&database, &options, true).expect("another cache");
        let mut bytes = [0; 20_000];
        shared.read(0, &mut bytes).expect("a read");
        assert!(bytes == [4; 20_000]);
        shared.write(0, &[5; 100]).and_then(|()| shared.sync()).expect("a write");
        drop(shared);
        std::fs::remove_file(&cache).expect("a cache");
        let lost = Shared::open(&database, &options, true);
        assert_eq!(lost.is_err(), !through, "{mode:?}: what the cache alone had is missed");
    }
}
