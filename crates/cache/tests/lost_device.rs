//! A cache device lost together with the power, and the contents of the backing store alone. In every mode but
//! write-back these are all flushed writes. The rule holds from the end of a change out of write-back, of a drain, or
//! of a start in another mode. The state "complete" in a backing store's record rests on this.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance, Mode};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

const PAGE: u64 = 1024;
const BACKING_BYTES: u64 = 60 * PAGE + 512;
const ID: [u8; 16] = [3; 16];
const SEEDS: u64 = 400;

/// Plain bytes, each with the values it may have: the last durable one, and all since.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn new() -> Self {
        Model(vec![vec![0]; BACKING_BYTES as usize])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..].iter_mut().zip(bytes).for_each(|(may, &byte)| may.push(byte));
    }

    /// Notes that all writes are durable.
    fn flushed(&mut self) {
        self.0.iter_mut().for_each(|may| drop(may.drain(..may.len() - 1)));
    }

    /// Describes the first byte with a value that it may not have.
    fn wrong(&self, found: &[u8]) -> Option<String> {
        let wrong = |&(_, (may, byte)): &(usize, (&Vec<u8>, &u8))| !may.contains(byte);
        let first = self.0.iter().zip(found).enumerate().find(wrong);
        first.map(|(at, (may, byte))| format!("byte {at} is {byte}, and may be one of {may:?}"))
    }
}

fn config(policy: &str, mode: Mode) -> CacheConfig {
    let info = catalogue::info(policy).expect("a policy");
    let tiers: &[usize] = if info.tiers.len() == 1 { &[30] } else { &[6, 30] };
    CacheConfig { mode, maintenance: Maintenance::Requests, ..CacheConfig::new(info, tiers) }
}

fn work(cache: &BlockCache, model: &mut Model, random: &mut Random, requests: u64) {
    for _ in 0..requests {
        let offset = random.below(BACKING_BYTES);
        let longest = [8, 600, 3000][random.below(3) as usize];
        let length = (1 + random.below(longest)).min(BACKING_BYTES - offset);
        match random.below(12) {
            0 => {
                cache.flush().expect("a flush");
                model.flushed();
            }
            1..4 => cache.read(offset, &mut vec![0; length as usize]).expect("a read"),
            _ => {
                let value = random.next_u64() as u8;
                let bytes: Vec<u8> = (0..length).map(|at| value.wrapping_add(at as u8)).collect();
                model.write(offset, &bytes);
                cache.write(offset, &bytes, false).expect("a write");
            }
        }
    }
}

/// Reason why the backing store is complete.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// The mode all along.
    Mode(Mode),
    /// A change out of write-back.
    Changed(Mode),
    /// A start in this mode after one in write-back.
    Started(Mode),
    /// A drain in write-back, and nothing after it.
    Drained,
}

#[test]
fn the_backing_store_alone_has_what_was_flushed_in_any_mode_but_write_back() {
    let all = [
        Made::Mode(Mode::WriteThrough),
        Made::Mode(Mode::WriteAround),
        Made::Changed(Mode::WriteThrough),
        Made::Changed(Mode::WriteAround),
        Made::Changed(Mode::ReadOnly),
        Made::Started(Mode::WriteThrough),
        Made::Started(Mode::ReadOnly),
        Made::Drained,
    ];
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let made = all[random.below(all.len() as u64) as usize];
        let layout = [Layout::Log, Layout::Slots][random.below(2) as usize];
        let policy = ["lru", "face-gsc", "arc", "hibachi"][random.below(4) as usize];
        let what = format!("seed {seed}, {made:?}, {layout:?}, {policy}");
        assert_eq!(lose(&what, made, layout, policy, &mut random), None, "{what}");
    }
    println!("{SEEDS} seeds");
}

/// The control: by the same check write-back loses flushed writes.
#[test]
fn in_write_back_the_backing_store_alone_lacks_what_was_flushed() {
    let lost = |seed: &u64| {
        let what = format!("seed {seed}");
        lose(&what, Made::Mode(Mode::WriteBack), Layout::Log, "lru", &mut Random::new(*seed)).is_some()
    };
    let lost = (0..40).filter(lost).count();
    println!("{lost} of 40 seeds");
    assert!(lost > 20, "{lost} of 40 seeds");
}

/// Works, then loses the power and the cache device. Describes the first wrong byte of the backing store, if any.
fn lose(what: &str, made: Made, layout: Layout, policy: &str, random: &mut Random) -> Option<String> {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 16, layout };
    let power = Power::steady();
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(BACKING_BYTES, &power)];
    BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
    let open = |mode| {
        let opened = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config(policy, mode));
        opened.unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    let mut model = Model::new();
    let requests = 20 + random.below(200);
    let first = if let Made::Mode(mode) = made { mode } else { Mode::WriteBack };
    let cache = open(first);
    work(&cache, &mut model, random, requests);
    let cache = match made {
        Made::Mode(_) => cache,
        Made::Changed(mode) => {
            cache.set_mode(mode).expect("another mode");
            // The change made all dirty pages durable below.
            model.flushed();
            cache
        }
        Made::Started(mode) => {
            cache.flush().expect("a flush");
            model.flushed();
            drop(cache);
            open(mode)
        }
        Made::Drained => {
            cache.drain().expect("a drain");
            model.flushed();
            cache
        }
    };
    // Work goes on for a while, unless writes would be in the cache alone or are refused.
    let goes_on = matches!(made, Made::Mode(_))
        || matches!(made, Made::Changed(mode) | Made::Started(mode) if mode != Mode::ReadOnly);
    if goes_on {
        let more = random.below(60);
        work(&cache, &mut model, random, more);
    }
    disks.iter().for_each(|disk| disk.crash(random.next_u64()));
    drop(cache);
    let mut found = vec![0; BACKING_BYTES as usize];
    disks[1].read_at(0, &mut found).expect("what is below");
    model.wrong(&found)
}
