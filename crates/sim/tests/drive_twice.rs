//! One decision, two drivers: the same policy objects are driven by the simulator and by a minimal engine. The engine
//! moves real bytes between a pool in memory, a cache file and a backing file. Counts must be equal and every byte
//! right.
//!
//! The engine recycles handles from its own directory, so a policy that leaves state under a forgotten handle is
//! caught. The engine also refuses evictions. Refusals have no simulated counterpart, so only bytes and capacities are
//! checked then.

use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Outcome, Page, Random, Request, Tier, Verb};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Driver, Info, Options, Policy};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_trace::{EventKind, Trace, generate};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 64;

/// Pages in memory or in a file, by frame number.
enum Store {
    Memory(Vec<u8>),
    File(File),
}

impl Store {
    fn read(&self, frame: u64) -> [u8; PAGE] {
        let mut bytes = [0; PAGE];
        let at = frame as usize * PAGE;
        match self {
            Store::Memory(memory) => bytes.copy_from_slice(&memory[at..at + PAGE]),
            Store::File(file) => file.read_exact_at(&mut bytes, at as u64).expect("a frame that was written"),
        }
        bytes
    }

    fn write(&mut self, frame: u64, bytes: &[u8; PAGE]) {
        let at = frame as usize * PAGE;
        match self {
            Store::Memory(memory) => memory[at..at + PAGE].copy_from_slice(bytes),
            Store::File(file) => file.write_all_at(bytes, at as u64).expect("room for a frame"),
        }
    }
}

/// One tier: its frames, the page in each, and the frames with superseded versions.
struct EngineTier {
    store: Store,
    free: Vec<u64>,
    frame_of: HashMap<Page, u64>,
    superseded: HashMap<Page, VecDeque<u64>>,
}

/// Counts that the simulator keeps too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EngineCounts {
    read_hits: u64,
    write_hits: u64,
    fetches: u64,
    write_backs: u64,
    write_back_ios: u64,
    bypasses: u64,
}

struct Engine<'t> {
    trace: &'t Trace,
    next_use: &'t [u32],
    tiers: Vec<EngineTier>,
    backing: Store,
    /// Block in the backing file of each handle's page, which is the page's id in the trace.
    slots: Vec<Option<u32>>,
    handle_of: HashMap<u32, Page>,
    at: usize,
    request: Option<Request>,
    /// Byte that the current request writes, and the page that it read.
    payload: u8,
    read: Option<[u8; PAGE]>,
    /// The newest bytes of the current page at the start of the request, if a tier held it.
    newest: Option<[u8; PAGE]>,
    refuse_percent: u64,
    counts: EngineCounts,
}

impl<'t> Engine<'t> {
    fn new(addresses: &'t Addresses, capacities: &[usize], handles: usize, refuse_percent: u64) -> Self {
        let trace = addresses.trace;
        let last = capacities.len() - 1;
        let tier = |t: usize, &capacity: &usize| {
            // The top tier of two is the pool; a single tier, and the second of two, is the cache file.
            let memory = t < last;
            EngineTier {
                store: if memory { Store::Memory(vec![0; capacity * PAGE]) } else { Store::File(scratch()) },
                free: (0..capacity as u64).rev().collect(),
                frame_of: HashMap::new(),
                superseded: HashMap::new(),
            }
        };
        let mut backing = Store::File(scratch());
        (0..trace.footprint() as u64).for_each(|block| backing.write(block, &initial(block)));
        Engine {
            trace,
            next_use: addresses.next_use(),
            tiers: capacities.iter().enumerate().map(|(t, c)| tier(t, c)).collect(),
            backing,
            slots: vec![None; handles],
            handle_of: HashMap::new(),
            at: 0,
            request: None,
            payload: 0,
            read: None,
            newest: None,
            refuse_percent,
            counts: EngineCounts::default(),
        }
    }

    /// The handle of a page: a new one, or one of a page that the policy does not know any more.
    fn handle<P: Policy>(&mut self, policy: &P, block: u32) -> Page {
        if let Some(&handle) = self.handle_of.get(&block) {
            return handle;
        }
        // A policy that knows the future never runs live. It ranks pages without a next use by handle, so its choices,
        // though not its misses, depend on the numbering.
        let recycled = !P::INFO.future;
        let forgotten = |slot: &Option<u32>, i: usize| slot.is_none() || !policy.state(Page(i as u32)).known;
        let found = self.slots.iter().enumerate().position(|(i, slot)| forgotten(slot, i));
        let found = if recycled { found.expect("the directory is large enough") as u32 } else { block };
        let handle = Page(found);
        if let Some(previous) = self.slots[handle.index()].replace(block) {
            self.handle_of.remove(&previous);
        }
        self.handle_of.insert(block, handle);
        handle
    }

    fn block(&self, page: Page) -> u32 {
        self.slots[page.index()].expect("a handle in use")
    }

    fn take_frame(&mut self, page: Page, to: Tier, bytes: &[u8; PAGE]) {
        let tier = &mut self.tiers[to.index()];
        let free = &mut tier.free;
        let frame = *tier.frame_of.entry(page).or_insert_with(|| free.pop().expect("a free frame"));
        tier.store.write(frame, bytes);
    }

    fn copy(&self, page: Page, from: Tier) -> [u8; PAGE] {
        let tier = &self.tiers[from.index()];
        tier.store.read(tier.frame_of[&page])
    }

    fn access<P: Policy>(&mut self, policy: &mut P, at: usize, payload: u8) -> [u8; PAGE] {
        let handle = self.handle(policy, self.trace.pages[at]);
        let request = Request { page: handle, ..self.trace.request(at) };
        self.at = at;
        self.request = Some(request);
        self.payload = payload;
        self.read = None;
        let fastest = self.tiers.iter().find_map(|tier| tier.frame_of.get(&handle).map(|&f| tier.store.read(f)));
        self.newest = fastest;
        let outcome = policy.access(request, self);
        match outcome {
            Outcome::Hit(tier) if request.op == Op::Read => {
                self.counts.read_hits += 1;
                // A hit may have moved the page; before that, its bytes were those of the fastest copy.
                assert!(self.newest.is_some(), "a hit in {tier:?} without a copy");
                self.newest.expect("just checked")
            }
            Outcome::Hit(_) => {
                self.counts.write_hits += 1;
                [0; PAGE]
            }
            Outcome::Miss { .. } => {
                self.counts.fetches += u64::from(request.op == Op::Update);
                self.read.unwrap_or([0; PAGE])
            }
        }
    }

    /// Bytes of the page after the current write.
    fn written(&self, page: Page) -> [u8; PAGE] {
        let op = self.request.expect("a request").op;
        let mut bytes = match op {
            Op::Update => self.newest.unwrap_or_else(|| self.backing.read(u64::from(self.block(page)))),
            _ => [0; PAGE],
        };
        modify(&mut bytes, op, self.payload);
        bytes
    }

    fn apply(&mut self, page: Page, verb: Verb) {
        match verb {
            Verb::Fetch { to } => {
                let bytes = self.backing.read(u64::from(self.block(page)));
                self.counts.fetches += 1;
                self.read = Some(bytes);
                self.take_frame(page, to, &bytes);
            }
            Verb::Install { to } => {
                let bytes = self.written(page);
                self.take_frame(page, to, &bytes);
            }
            Verb::Copy { from, to } => {
                let bytes = self.copy(page, from);
                self.take_frame(page, to, &bytes);
            }
            Verb::WriteBack { from } => {
                let bytes = self.copy(page, from);
                self.backing.write(u64::from(self.block(page)), &bytes);
                self.counts.write_backs += 1;
            }
            Verb::Drop { from } => {
                let tier = &mut self.tiers[from.index()];
                tier.free.push(tier.frame_of.remove(&page).expect("a frame to drop"));
            }
            Verb::Supersede { tier } => {
                let tier = &mut self.tiers[tier.index()];
                let frame = tier.frame_of.remove(&page).expect("a frame to supersede");
                tier.superseded.entry(page).or_default().push_back(frame);
            }
            Verb::Reclaim { tier } => {
                let tier = &mut self.tiers[tier.index()];
                let frame = tier.superseded.get_mut(&page).and_then(VecDeque::pop_front);
                tier.free.push(frame.expect("a superseded frame"));
            }
            Verb::Requeue { tier } => assert!(self.tiers[tier.index()].frame_of.contains_key(&page)),
            Verb::Bypass if self.request.is_some_and(|request| request.op.is_write()) => {
                let bytes = self.written(page);
                self.backing.write(u64::from(self.block(page)), &bytes);
                self.counts.bypasses += 1;
            }
            Verb::Bypass => {
                self.read = Some(self.backing.read(u64::from(self.block(page))));
                self.counts.fetches += 1;
                self.counts.bypasses += 1;
            }
            Verb::FetchObject { .. } | Verb::DropObject { .. } => unreachable!("no object moves without queries"),
        }
    }
}

impl Driver for Engine<'_> {
    fn may_evict(&mut self, page: Page, _tier: Tier) -> bool {
        Random::mix(u64::from(self.block(page)) ^ ((self.at as u64 / 16) << 32)) % 100 >= self.refuse_percent
    }

    fn emit(&mut self, movement: Movement) {
        self.apply(movement.page, movement.verb);
        if matches!(movement.verb, Verb::WriteBack { .. }) {
            self.counts.write_back_ios += u64::from(!movement.joined);
        }
    }

    fn now_us(&self) -> u64 {
        self.trace.times_us.as_ref().map_or(self.at as u64, |times| times[self.at])
    }

    fn next_use(&self) -> u32 {
        if self.next_use.is_empty() { NEVER } else { self.next_use[self.at] }
    }

    fn address(&self, page: Page) -> Address {
        self.trace.address(Page(self.block(page)))
    }

    fn successor(&self, page: Page) -> Option<Page> {
        self.neighbour(page, 1)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        self.neighbour(page, -1)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.trace.objects[object.index()].pages
    }
}

impl Engine<'_> {
    /// The engine's directory knows a neighbour only while that page has a handle.
    fn neighbour(&self, page: Page, step: i64) -> Option<Page> {
        let here = self.address(page);
        let block = here.block.checked_add_signed(step)?;
        let other =
            (0..self.trace.footprint() as u32).find(|&id| self.trace.address(Page(id)) == Address { block, ..here })?;
        self.handle_of.get(&other).copied()
    }
}

fn scratch() -> File {
    let path = std::env::temp_dir().join(format!("entresol-drive-twice-{}-{}", std::process::id(), scratch_number()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a scratch file");
    std::fs::remove_file(&path).expect("the scratch file just made");
    file
}

fn scratch_number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn initial(block: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// A whole write fills the page; an update changes its second half only.
fn modify(bytes: &mut [u8; PAGE], op: Op, payload: u8) {
    let from = if op == Op::Update { PAGE / 2 } else { 0 };
    bytes[from..].fill(payload);
}

/// Drives a policy over the trace, checks every read against a plain map, and returns the counts.
struct Drive<'a> {
    addresses: &'a Addresses<'a>,
    config: &'a Config,
    refuse_percent: u64,
}

impl Visitor for Drive<'_> {
    type Output = EngineCounts;

    fn visit<P: Policy>(self, mut policy: P) -> EngineCounts {
        let trace = self.addresses.trace;
        let mut engine = Engine::new(self.addresses, &self.config.tiers, self.config.pages, self.refuse_percent);
        let mut truth: Vec<[u8; PAGE]> = (0..trace.footprint() as u64).map(initial).collect();
        for at in 0..trace.len() {
            let (op, page) = (trace.request(at).op, trace.pages[at] as usize);
            let payload = (at % 251) as u8 + 1;
            let read = engine.access(&mut policy, at, payload);
            match op {
                Op::Read => assert_eq!(read, truth[page], "request {at}: page {page} read wrong"),
                _ => modify(&mut truth[page], op, payload),
            }
        }
        for (block, bytes) in truth.iter().enumerate() {
            let handle = engine.handle_of.get(&(block as u32));
            let held = handle
                .and_then(|h| engine.tiers.iter().find_map(|tier| tier.frame_of.get(h).map(|&f| tier.store.read(f))));
            let newest = held.unwrap_or_else(|| engine.backing.read(block as u64));
            assert_eq!(&newest, bytes, "page {block} is wrong at the end");
        }
        engine.counts
    }
}

/// Reuse, scans, writes of runs and partial writes over two objects.
fn trace(seed: u64) -> Trace {
    let spec = format!(
        "zipf:n=1500:pages=200:seed={seed}:write=40:update=30 | scan:n=300:base=300:write=50:update=20 \
         + loop:n=600:pages=60:base=40:write=70 \
         + uniform:n=800:pages=250:seed={seed}:write=20:update=50 | zipf:n=400:pages=80:object=index:write=30"
    );
    generate(&spec.parse().expect("a trace specification"))
}

fn tiers(info: &Info) -> Vec<Vec<usize>> {
    let at_least = |tiers: &[usize]| tiers.iter().zip(info.min_pages).map(|(&t, &min)| t.max(min)).collect();
    match info.tiers.len() {
        1 => [[3], [20], [80]].iter().map(|tiers| at_least(tiers)).collect(),
        _ => [[1, 5], [10, 30], [40, 80]].iter().map(|tiers| at_least(tiers)).collect(),
    }
}

fn simulated(addresses: &Addresses, info: &'static Info, tiers: &[usize]) -> EngineCounts {
    let policy = PolicySpec { info, options: Options::defaults(info) };
    let sizes = tiers.iter().map(|&pages| entresol_core::Size::Pages(pages as u64)).collect();
    let options = CellOptions { seed: 9, ..CellOptions::default() };
    let row = run_cell(addresses, &[LayerSpec { policy, sizes }], String::new(), &options).expect("a cell that runs");
    EngineCounts {
        read_hits: row.read_hits,
        write_hits: row.write_hits,
        fetches: row.fetches,
        write_backs: row.write_backs,
        write_back_ios: row.write_back_ios,
        bypasses: row.bypasses,
    }
}

fn config(addresses: &Addresses, tiers: &[usize]) -> Config {
    Config {
        pages: addresses.trace.footprint(),
        objects: addresses.trace.objects.len(),
        tiers: tiers.to_vec(),
        page_bytes: addresses.trace.page_bytes,
        seed: 9,
        peak_temporal_distance: Some(entresol_trace::peak_temporal_distance(addresses.trace)),
    }
}

#[test]
fn the_engine_counts_what_the_simulator_counts_and_every_byte_is_right() {
    for info in catalogue::ALL {
        for seed in [1, 2] {
            let trace = trace(seed);
            let addresses = Addresses::new(&trace);
            for tiers in tiers(info) {
                println!("{} {tiers:?} seed {seed}", info.name);
                let config = config(&addresses, &tiers);
                let drive = Drive { addresses: &addresses, config: &config, refuse_percent: 0 };
                let live = catalogue::build(info, &config, &Options::defaults(info), drive).expect("a policy");
                assert_eq!(
                    live,
                    simulated(&addresses, info, &tiers),
                    "{} {tiers:?} seed {seed}: (live, simulated)",
                    info.name
                );
            }
        }
    }
}

#[test]
fn bytes_stay_right_when_evictions_are_refused() {
    for info in catalogue::ALL {
        for refuse_percent in [20, 70, 100] {
            let trace = trace(3);
            let addresses = Addresses::new(&trace);
            for tiers in tiers(info) {
                println!("{} {tiers:?} refused {refuse_percent} %", info.name);
                let config = config(&addresses, &tiers);
                let drive = Drive { addresses: &addresses, config: &config, refuse_percent };
                catalogue::build(info, &config, &Options::defaults(info), drive).expect("a policy");
            }
        }
    }
}

/// Queries reach a policy through the interface of both drivers, so the trace's events must become the simulator's
/// hints.
#[test]
fn query_boundaries_of_a_trace_become_hints() {
    let trace = generate(&"olap:n=3000:pages=1000".parse().expect("a trace specification"));
    let begins = trace.events.iter().filter(|event| matches!(event.kind, EventKind::QueryBegin { .. })).count();
    let addresses = Addresses::new(&trace);
    let info = catalogue::info("lru").expect("lru");
    let layer = LayerSpec {
        policy: PolicySpec { info, options: Options::defaults(info) },
        sizes: vec![entresol_core::Size::Pages(50)],
    };
    let options = CellOptions { parts: true, ..CellOptions::default() };
    let row = run_cell(&addresses, &[layer], String::new(), &options).expect("a cell that runs");
    assert!(begins > 1);
    assert_eq!(row.queries.len(), begins, "every query has a row");
    let counted: u64 = row.queries.iter().map(|query| query.requests).sum();
    assert!(counted > 0 && counted <= row.requests);
}
