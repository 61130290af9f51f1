//! Files as objects: the cache of a directory, driven file by file, counts as the simulator does on a trace with as
//! many objects. Totals and the counts of each object agree. The history of pages that a policy does not hold is
//! bounded live, and reported.

use entresol_cache::{CacheConfig, ObjectCounts, REST};
use entresol_core::{Op, Random, Size};
use entresol_disk::{Caching, FileDisk};
use entresol_files::{AtOnce, Backing, CachedFiles, FileData, FileId, FileLayer};
use entresol_policy::{Info, Options, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_store::{Geometry, Layout};
use entresol_trace::{Column, Object, ObjectKind, OpByte, Trace};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
/// Sizes of the files in pages.
const FILES: [u64; 5] = [300, 40, 8, 500, 120];
const SEED: u64 = 9;

/// Requests of five tables: one looked up at random, small ones over and over, one scanned, one written to. A request
/// is marked as sequential where the files will report it so: the page after the last one of the file, reads and
/// writes apart. Objects have the numbers that the cache will give: 0 is the rest, the files follow in the order of
/// their first requests.
fn trace(requests: usize, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut numbers: HashMap<(usize, u64), u32> = HashMap::new();
    let (mut pages, mut ops, mut page_object, mut page_block) = (vec![], vec![], vec![], vec![]);
    let mut expected = [[u64::MAX; 2]; FILES.len()];
    let mut objects = vec![Object { name: "rest".to_owned(), kind: ObjectKind::Data, pages: 0, asked_bytes: None }];
    let mut object_of = [None; FILES.len()];
    let mut scan = 0;
    for _ in 0..requests {
        let file = [0, 1, 1, 2, 3, 3, 3, 4][random.below(8) as usize];
        let block = match file {
            3 => {
                scan = (scan + 1) % FILES[3];
                scan
            }
            0 => random.below(FILES[0]).min(random.below(FILES[0])),
            _ => random.below(FILES[file]),
        };
        let op = match (file, random.below(10)) {
            (3, _) | (_, 0..=5) => Op::Read,
            (_, 6..=7) => Op::Update,
            _ => Op::Write,
        };
        let kind = usize::from(op.is_write());
        let sequential = std::mem::replace(&mut expected[file][kind], block + 1) == block;
        let object = *object_of[file].get_or_insert_with(|| {
            objects.push(Object {
                name: format!("t{file}"),
                kind: ObjectKind::Data,
                pages: FILES[file],
                asked_bytes: None,
            });
            objects.len() as u32 - 1
        });
        let number = *numbers.entry((file, block)).or_insert_with(|| {
            page_object.push(object);
            page_block.push(block);
            page_object.len() as u32 - 1
        });
        pages.push(number);
        ops.push(OpByte::new(op, sequential, true).0);
    }
    Trace {
        page_bytes: PAGE as u32,
        pages: Column::Owned(pages),
        ops: Column::Owned(ops),
        times_us: None,
        next_use: None,
        page_object: Column::Owned(page_object),
        page_block: Column::Owned(page_block),
        objects,
        events: vec![],
        provenance: String::new(),
    }
}

/// Counts that engine and simulator both keep.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    read_hits: u64,
    write_hits: u64,
    fetches: u64,
    admissions: u64,
    write_backs: u64,
    bypasses: u64,
}

fn simulated(addresses: &Addresses, spec: &PolicySpec, tiers: &[usize]) -> Counted {
    let sizes = tiers.iter().map(|&pages| Size::Pages(pages as u64)).collect();
    let options = CellOptions { seed: SEED, ..CellOptions::default() };
    let row =
        run_cell(addresses, &[LayerSpec { policy: spec.clone(), sizes }], String::new(), &options).expect("a cell");
    Counted {
        read_hits: row.read_hits,
        write_hits: row.write_hits,
        fetches: row.fetches,
        admissions: row.admissions,
        write_backs: row.write_backs,
        bypasses: row.bypasses,
    }
}

fn spec(info: &'static Info, options: &[&str]) -> PolicySpec {
    PolicySpec { info, options: Options::parse(info, options.iter().copied()).expect("options") }
}

/// Index of the file that an object is.
fn file_of(trace: &Trace, object: u32) -> usize {
    let number = trace.objects[object as usize].name.strip_prefix('t').expect("a file");
    number.parse().expect("a number")
}

/// The files of a scratch directory over a cache.
struct Live {
    files: Arc<CachedFiles>,
    open: Vec<Arc<dyn FileData>>,
    _scratch: tempfile::TempDir,
}

fn open_file(layer: &CachedFiles, path: &Path) -> Arc<dyn FileData> {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let found = file.metadata().expect("attributes");
    layer.open(FileId { device: found.dev(), inode: found.ino() }, file, true).expect("it opens")
}

/// Makes a directory in memory, where a sync takes no time, if files there keep their time of creation; else a scratch
/// directory on disk.
fn in_memory() -> tempfile::TempDir {
    let made = tempfile::tempdir_in("/dev/shm").ok();
    let tells = |made: &tempfile::TempDir| made.path().metadata().and_then(|found| found.created()).is_ok();
    made.filter(tells).unwrap_or_else(|| tempfile::tempdir().expect("a scratch directory"))
}

fn live(config: &CacheConfig) -> Live {
    let scratch = in_memory();
    let backing = scratch.path().join("backing");
    std::fs::create_dir(&backing).expect("a directory");
    for (file, pages) in FILES.iter().enumerate() {
        let made = File::create(backing.join(format!("t{file}"))).expect("a file");
        made.set_len(pages * PAGE as u64).expect("a size");
    }
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 32, layout: Layout::Log };
    let cache = scratch.path().join("cache");
    let cache = FileDisk::create(&cache, geometry.size_bytes(), Caching::Buffered).expect("a cache");
    Backing::format(&backing, &cache, geometry, [1; 16], [2; 16]).expect("room");
    let held = Backing::open(&backing).expect("a directory");
    let (files, _) = CachedFiles::open(held, cache, config, vec![]).expect("files");
    let files = Arc::new(files);
    let open: Vec<_> = (0..FILES.len()).map(|file| open_file(&files, &backing.join(format!("t{file}")))).collect();
    Live { files, open, _scratch: scratch }
}

impl Live {
    /// Drives the trace through the files, comparing every read with the bytes written.
    fn drive(&self, trace: &Trace) {
        let mut truth: HashMap<u32, [u8; 2]> = HashMap::new();
        for at in 0..trace.len() {
            let request = trace.request(at);
            let address = trace.address(request.page);
            let file = &self.open[file_of(trace, address.object.0)];
            let (offset, payload) = (address.block * PAGE as u64, (at % 251) as u8 + 1);
            let halves = truth.entry(trace.pages[at]).or_default();
            match request.op {
                Op::Read => {
                    let mut bytes = [0; PAGE];
                    let read = match file.read_now(offset, &mut bytes).expect("a read") {
                        AtOnce::All(read) => read,
                        AtOnce::First(done) => {
                            done + file.read(offset + done as u64, &mut bytes[done..]).expect("a read")
                        }
                    };
                    assert_eq!(read, PAGE);
                    assert!(bytes[..PAGE / 2].iter().all(|&b| b == halves[0]), "request {at}");
                    assert!(bytes[PAGE / 2..].iter().all(|&b| b == halves[1]), "request {at}");
                }
                Op::Write => {
                    *halves = [payload; 2];
                    file.write(offset, &[payload; PAGE]).expect("a write");
                }
                Op::Update => {
                    halves[1] = payload;
                    file.write(offset + PAGE as u64 / 2, &[payload; PAGE / 2]).expect("an update");
                }
            }
        }
    }

    fn counted(&self) -> Counted {
        let stats = self.files.cache().stats().expect("counts");
        assert_eq!(stats.counts.directory_full + stats.counts.admissions_failed + stats.write_back.pages_lost, 0);
        let counts = stats.counts;
        Counted {
            read_hits: counts.read_hits,
            write_hits: counts.write_hits,
            fetches: counts.fetches,
            admissions: counts.admissions,
            write_backs: counts.write_backs,
            bypasses: counts.bypasses,
        }
    }

    /// Checks that the counts of files add up to the total, and are those of the requests.
    fn check_accounts(&self, trace: &Trace) {
        let accounts = self.files.counts().expect("accounts");
        let mut sum = ObjectCounts::default();
        for account in &accounts {
            let path = account.path.as_ref().expect("no file is gone").to_str().expect("text");
            let file: usize = path.strip_prefix('t').and_then(|number| number.parse().ok()).expect("its name");
            let of_file = |at: &usize| file_of(trace, trace.page_object[trace.pages[*at] as usize]) == file;
            let writes = |at: &usize| OpByte(trace.ops[*at]).op().is_write();
            let requests = (0..trace.len()).filter(of_file);
            let (all, written) = (requests.clone().count() as u64, requests.filter(writes).count() as u64);
            let counts = account.counts;
            assert_eq!((counts.reads, counts.writes), (all - written, written), "{path}");
            assert_eq!(account.size_bytes, FILES[file] * PAGE as u64);
            assert!(counts.resident.memory + counts.resident.device <= 2 * FILES[file], "{path}");
            assert!(counts.absorbed <= counts.write_hits.memory + counts.write_hits.device, "{path}");
            sum.write_backs += counts.write_backs;
            sum.reads += counts.read_hits.memory + counts.read_hits.device;
            sum.writes += counts.write_hits.memory + counts.write_hits.device;
            sum.resident.memory += counts.resident.memory;
            sum.resident.device += counts.resident.device;
        }
        assert!(accounts.iter().all(|account| account.object != REST));
        let dirty = self.files.cache().dirty_by_object().expect("counts");
        assert!(
            accounts
                .iter()
                .all(|account| dirty.get(&account.object).is_none_or(|&dirty| dirty <= account.counts.writes))
        );
        // The maintenance threads go on for a while: the two are read one after the other.
        let agree = |_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let dirty = self.files.cache().dirty_by_object().expect("counts").values().sum::<u64>();
            dirty == self.files.cache().stats().expect("counts").dirty_pages
        };
        assert!((0..5000).any(agree), "dirty pages by object are as many as dirty pages");
        let (counts, tiers) = (self.counted(), self.files.cache().config().tiers);
        assert_eq!((sum.reads, sum.writes, sum.write_backs), (counts.read_hits, counts.write_hits, counts.write_backs));
        let device = *tiers.last().expect("a tier") as u64;
        let memory = if tiers.len() > 1 { tiers[0] as u64 } else { 0 };
        assert!(sum.resident.memory <= memory && sum.resident.device <= device, "{sum:?} of {tiers:?}");
        assert!(sum.resident.memory + sum.resident.device >= (memory + device) / 2, "{sum:?} of {tiers:?}");
    }
}

/// Policies that run live without notice of queries. MQ has its own test, which gives it the trace's peak distance.
fn policies() -> impl Iterator<Item = &'static Info> {
    let apart = ["mq", "table-placement"];
    catalogue::ALL.iter().copied().filter(move |info| !info.future && !apart.contains(&info.name))
}

fn sizes(info: &Info) -> Vec<usize> {
    let tiers: &[usize] = if info.tiers.len() == 1 { &[100] } else { &[30, 120] };
    tiers.iter().zip(info.min_pages).map(|(&tier, &min)| tier.max(min)).collect()
}

#[test]
fn files_count_as_the_simulator_counts_objects() {
    let trace = trace(5000, 3);
    let addresses = Addresses::new(&trace);
    for info in policies() {
        let tiers = sizes(info);
        println!("{} {tiers:?}", info.name);
        // So many handles that nothing is forgotten, as in the simulator.
        let handles = trace.footprint() + tiers.iter().sum::<usize>() + 1;
        let config = CacheConfig { handles, seed: SEED, ..CacheConfig::new(info, &tiers) };
        let live = live(&config);
        live.drive(&trace);
        let simulated = simulated(&addresses, &spec(info, &[]), &tiers);
        assert_eq!(live.counted(), simulated, "{}: (live, simulated)", info.name);
        live.check_accounts(&trace);
        live.files.close().expect("a close");
    }
}

/// With the default number of handles no policy runs out of them. Policies with unbounded history in the simulator
/// count alike there under the live bound.
#[test]
fn what_is_remembered_is_bounded_and_enough() {
    let trace = trace(12_000, 4);
    let addresses = Addresses::new(&trace);
    for info in policies().chain(catalogue::info("mq")) {
        let tiers =
            if info.tiers.len() == 1 { vec![60] } else { vec![20.max(info.min_pages[0]), 40.max(info.min_pages[1])] };
        let live = live(&CacheConfig { seed: SEED, ..CacheConfig::new(info, &tiers) });
        live.drive(&trace);
        let told = match info.name {
            "heuristicdb" => vec![format!("counted={}", 2 * tiers[0] + 15)],
            "mq" => vec![format!("lifetime={}", 4 * tiers[0])],
            _ => vec![],
        };
        let options: Vec<&str> = told.iter().map(String::as_str).collect();
        let as_live = simulated(&addresses, &spec(info, &options), &tiers);
        assert_eq!(live.counted(), as_live, "{} with {told:?}: (live, simulated)", info.name);
        if !told.is_empty() {
            let free = simulated(&addresses, &spec(info, &[]), &tiers);
            let ratio =
                |counted: &Counted| 100.0 * (counted.read_hits + counted.write_hits) as f64 / trace.len() as f64;
            println!("{}: {:.2} % live, {:.2} % where nothing bounds it", info.name, ratio(&as_live), ratio(&free));
        }
    }
}

#[test]
fn accounts_follow_files_that_come_grow_and_go() {
    let info = catalogue::info("lru").expect("a policy");
    let live = live(&CacheConfig::new(info, &[100]));
    let root = live._scratch.path().join("backing");
    live.open[1].write(0, &[1; 10 * PAGE]).expect("a write");
    live.open[1].write(0, &[2; PAGE]).expect("a write");
    File::create(root.join("new")).expect("a file");
    let new = open_file(&live.files, &root.join("new"));
    new.write(0, &[3; 3 * PAGE]).expect("it grows");
    let account = |name: &str| {
        let accounts = live.files.counts().expect("accounts");
        let of = accounts.into_iter().find(|account| account.path.as_deref() == Some(Path::new(name)));
        of.map(|account| (account.size_bytes, account.counts))
    };
    let (_, t1) = account("t1").expect("an account");
    assert_eq!((t1.writes, t1.absorbed, t1.resident.device), (11, 1, 10));
    let dirty = || {
        let mut dirty: Vec<u64> = live.files.cache().dirty_by_object().expect("counts").into_values().collect();
        dirty.sort_unstable();
        dirty
    };
    assert_eq!(dirty(), [3, 10]);
    live.files.cache().drain().expect("a drain");
    assert!(dirty().is_empty());
    let (size, counts) = account("new").expect("an account");
    assert_eq!((size, counts.writes, counts.resident.device), (3 * PAGE as u64, 3, 3));
    let pages = |name: &str| {
        let accounts = live.files.counts().expect("accounts");
        let object =
            accounts.iter().find(|account| account.path.as_deref() == Some(Path::new(name))).expect("it").object;
        live.files.cache().with_objects(|objects| objects.pages(object)).expect("pages")
    };
    assert_eq!(pages("new"), 3);
    new.truncate(PAGE as u64 + 1).expect("a cut");
    assert_eq!(pages("new"), 2);
    std::fs::rename(root.join("new"), root.join("moved")).expect("another name");
    assert!(account("new").is_none() && account("moved").is_some());
    let found = std::fs::metadata(root.join("moved")).expect("attributes");
    std::fs::remove_file(root.join("moved")).expect("it goes");
    drop(new);
    live.files.removed(FileId { device: found.dev(), inode: found.ino() });
    let rest = || {
        let accounts = live.files.counts().expect("accounts");
        accounts.into_iter().find(|account| account.object == REST).map(|account| account.counts.writes)
    };
    while rest().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Three pages, and the zeroes beyond the cut.
    assert_eq!(rest(), Some(4), "what was done with it is counted on");
    assert!(account("moved").is_none());
}
