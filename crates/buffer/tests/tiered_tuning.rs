//! A tuner at work in a buffer over DRAM and NVM. The tuner decides as in the simulator, goes on after a restart, and
//! changes nothing but decisions.

use crate::common::{drive, simulated_options, two_phases};
use entresol_buffer::{MemoryIo, PageIo, TieredBuffer, TieredOptions, Tuning, TuningError};
use entresol_core::{Address, ObjectId, Random};
use entresol_device::Queued;
use entresol_device::emulated::{Calibration, Clock as DeviceClock, Curve, Mapped, Slowdown, VirtualClock};
use entresol_device::fixed::{Fixed as FixedDevice, FixedParameters};
use entresol_policy::miniature::{Access, Miniatures, Prices, Scale, Subject, Terms};
use entresol_policy::{Config, Mode, Options, catalogue};
use entresol_sim::{
    Addresses, Cell, CellOptions, Hierarchy, NamedDevice, PolicySpec, TimedOptions, Tuning as Simulated, parse_policies,
};
use entresol_trace::Trace;
use entresol_tune::search::{Annealing, Climb, Halving, Schedule, Search};
use entresol_tune::{
    EpochRow, Fixed, Guarded, Knob, Limits, Objective, Plain, Role, Saved, Shadowing, ShadowingOptions, Space, Tuner,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;
const SEED: u64 = 11;
const EPOCH: u64 = 500;
/// Time of a read from below, in nanoseconds. All else takes no time. So a requester waits equally long in the
/// simulator, which fills and writes back in the background, and in the buffer, which does not.
const BELOW_NS: u64 = 25_000;
/// Pages of DRAM and of NVM.
const PAGES: [usize; 2] = [30, 150];

/// Storage whose reads advance a virtual clock.
struct Below {
    pages: MemoryIo,
    clock: Arc<VirtualClock>,
}

impl PageIo for Below {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.clock.advance(BELOW_NS);
        self.pages.read_page(at, into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.pages.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.pages.object_pages(object)
    }
}

type Buffer = TieredBuffer<Below, Arc<VirtualClock>>;

fn buffer(trace: &Trace, policy: &PolicySpec) -> Buffer {
    let file = tempfile::tempfile().expect("a file");
    file.set_len((PAGES[1] * PAGE) as u64).expect("room");
    let nothing = || Curve::new([(64, 0.0), (4096, 0.0)]);
    let calibration = Calibration { clock_ns: 0.0, load: nothing(), store: nothing() };
    let clock = Arc::new(VirtualClock::new());
    let nvm = Mapped::with_clock(&file, Slowdown { read: 1.0, write: 1.0 }, calibration, clock.clone());
    let options = simulated_options(trace, PAGES, SEED);
    let below = Below { pages: MemoryIo::new(), clock };
    TieredBuffer::new(options, policy.info, &policy.options, nvm.expect("a region"), below, None).expect("a buffer")
}

fn trace(seed: u64) -> Trace {
    two_phases(24_000, seed)
}

fn policy(spec: &str) -> PolicySpec {
    parse_policies(spec).expect("a policy").remove(0)
}

type Ended = (Vec<EpochRow>, Box<dyn Tuner + Send>);

fn live(trace: &Trace, policy: &PolicySpec, tuner: Box<dyn Tuner + Send>) -> Ended {
    live_with(trace, policy, tuner, None)
}

fn live_with(trace: &Trace, policy: &PolicySpec, tuner: Box<dyn Tuner + Send>, shadows: Option<Miniatures>) -> Ended {
    let buffer = buffer(trace, policy);
    let tunables = (0..policy.info.tunables.len()).collect();
    buffer.start_tuning(Tuning { tuner, tunables, epoch_requests: EPOCH, shadows }).expect("a tuner that fits");
    drive(&buffer, trace);
    let tuner = buffer.stop_tuning().expect("the tuner at work");
    let values: Vec<f64> = buffer.knobs().iter().map(|knob| knob.value).collect();
    assert_eq!(values, tuner.held(), "what is held in the end is what the policy has");
    (buffer.take_epochs(), tuner)
}

fn simulated(trace: &Trace, policy: &PolicySpec, tuner: &mut dyn Tuner) -> Vec<EpochRow> {
    simulated_with(trace, policy, tuner, None)
}

fn simulated_with(
    trace: &Trace,
    policy: &PolicySpec,
    tuner: &mut dyn Tuner,
    shadows: Option<Miniatures>,
) -> Vec<EpochRow> {
    let addresses = Addresses::new(trace);
    let pages = |at: usize| format!("{}p", PAGES[at]).parse().expect("a size");
    let cell = Cell::single(policy, pages(1), Some(pages(0)), &addresses).expect("a cell");
    let device = |(bytes, read_ns): (u64, u64)| -> NamedDevice {
        let parameters = FixedParameters {
            read_ns,
            write_ns: 0,
            gb_per_s: None,
            write_gb_per_s: None,
            parallelism: 256,
            endurance_writes: None,
            energy: None,
        };
        ("fixed".to_owned(), Box::new(Queued::new(FixedDevice::new(&parameters, bytes))))
    };
    let mut devices: Vec<NamedDevice> = cell.needs(&addresses).into_iter().zip([0, 0, BELOW_NS]).map(device).collect();
    let backing = devices.pop().expect("three");
    let tunables = (0..policy.info.tunables.len()).collect();
    let tuning = Simulated { tuner, tunables, epoch_requests: EPOCH, shadows, tier: 1 };
    let options = CellOptions { seed: SEED, ..CellOptions::default() };
    let hierarchy = Hierarchy { tiers: devices, backing };
    cell.run_tuned(&addresses, hierarchy, &options, &TimedOptions::default(), tuning).expect("a run").2
}

fn knobs(policy: &PolicySpec, trace: &Trace) -> Vec<Knob> {
    buffer(trace, policy).knobs()
}

fn guarded(knobs: Vec<Knob>, objective: Objective, search: impl Fn(&Space, &Vec<usize>) -> Search) -> Guarded {
    let (space, start) = Space::new(knobs).expect("a space");
    let search = search(&space, &start);
    Guarded::new(space, start, search, objective, Limits::default(), EPOCH)
}

type MakeSearch = fn(&Space, &Vec<usize>) -> Search;

fn searches() -> [(&'static str, MakeSearch); 3] {
    [
        ("annealing", |_, start| Search::Annealing(Annealing::new(Schedule::FAST, start, SEED))),
        ("climb", |_, start| Search::Climb(Climb::new(start))),
        ("halving", |space, start| Search::Halving(Halving::new(space, start, 8, SEED))),
    ]
}

/// Decide once, drive twice: the same tuner over the same stream sees the same epochs and draws the same conclusions.
#[test]
fn a_tuner_decides_live_what_it_decides_simulated() {
    let objectives = [
        Objective::Throughput,
        Objective::Weighted { lambda: 1e9 },
        Objective::Lifetime { pages_per_second_max: 10_000.0 },
    ];
    for seed in [1, 2] {
        let trace = trace(seed);
        for spec in ["multi-tier:preset=eager", "multi-tier:preset=a:nvm-admission=hymem:queue=50%:replacement=clock"] {
            let policy = policy(spec);
            for ((name, search), objective) in searches().into_iter().zip(objectives) {
                let mut tuner = guarded(knobs(&policy, &trace), objective, search);
                let (epochs, after) = live(&trace, &policy, Box::new(tuner.clone()));
                assert_eq!(epochs, simulated(&trace, &policy, &mut tuner), "{spec} {name} {objective:?} seed {seed}");
                assert_eq!(after.save(), tuner.save(), "{spec} {name}: another state in the end");
                let trials = epochs.iter().filter(|epoch| epoch.role == Role::Trial).count();
                println!("{spec} {name} seed {seed}: {} epochs, {trials} trials, {:?}", epochs.len(), tuner.held());
                assert!(trials > 5, "{spec} {name}: {trials} trials");
                assert_eq!(epochs.iter().map(|epoch| epoch.requests).sum::<u64>(), trace.len() as u64);
            }
        }
    }
}

/// Miniatures of a policy in a buffer of this test: a tenth of the pages, at most.
fn miniatures(trace: &Trace, policy: &PolicySpec) -> Miniatures {
    let config = Config {
        pages: trace.footprint(),
        objects: trace.objects.len(),
        tiers: PAGES.to_vec(),
        page_bytes: PAGE as u32,
        seed: SEED,
        peak_temporal_distance: None,
    };
    let tunables = (0..policy.info.tunables.len()).collect();
    let subject =
        Subject { info: policy.info, options: &policy.options, config: &config, tunables, mode: Mode::WriteBack };
    let below = Prices::of(Access { waits: BELOW_NS as f64 / 1e9, busy: 0.0 });
    let terms = Terms { places: vec![Prices::default(), Prices::default(), below], wears: 1, ..Terms::default() };
    Miniatures::new(&subject, Scale { share: 0.01, pages_min: 12 }, terms).expect("a small policy")
}

/// A tuner that adopts the results of its shadows, which see the same requests in both.
#[test]
fn so_does_a_tuner_with_shadows() {
    let mut adopted = 0;
    for seed in [1, 2] {
        let trace = trace(seed);
        for spec in ["multi-tier:preset=eager", "multi-tier:preset=a:nvm-admission=hymem:queue=50%:replacement=clock"] {
            let policy = policy(spec);
            let (space, start) = Space::new(knobs(&policy, &trace)).expect("a space");
            let options = ShadowingOptions { seed, ..ShadowingOptions::default() };
            let mut tuner = Shadowing::new(space, start, Objective::Throughput, &options, EPOCH);
            let small = || Some(miniatures(&trace, &policy));
            let (epochs, after) = live_with(&trace, &policy, Box::new(tuner.clone()), small());
            assert_eq!(epochs, simulated_with(&trace, &policy, &mut tuner, small()), "{spec} seed {seed}");
            assert_eq!(after.save(), tuner.save(), "{spec}: another state in the end");
            assert_eq!(after.shadowed(), tuner.shadowed());
            adopted += epochs.windows(2).filter(|pair| pair[0].held != pair[1].held).count();
            println!("{spec} seed {seed}: {} epochs, {:?}", epochs.len(), tuner.held());
        }
    }
    assert!(adopted > 4, "{adopted} times something was adopted");
}

/// The paper's own way, with no bound.
#[test]
fn so_does_a_tuner_without_bound() {
    let trace = trace(3);
    let eager = policy("multi-tier:preset=eager");
    let (space, start) = Space::new(knobs(&eager, &trace)).expect("a space");
    let search = Search::Annealing(Annealing::new(Schedule::PAPER, &start, SEED));
    let mut plain = Plain::new(space, start, search, Objective::Throughput);
    let (epochs, _) = live(&trace, &eager, Box::new(plain.clone()));
    assert_eq!(epochs, simulated(&trace, &eager, &mut plain));
}

/// LC frees a frame first, and may evict the very page that is requested. The simulator reads it again from
/// below; the buffer still has its bytes. So their times differ by exactly these reads, and a tuner of LC by time
/// may take another path.
#[test]
fn of_another_policy_time_differs_by_the_reads_that_the_buffer_saves() {
    let mut tuned = 0;
    for info in catalogue::ALL.iter().filter(|info| info.tiers.len() == 2 && !info.tunables.is_empty()) {
        let (trace, policy) = (trace(3), PolicySpec { info, options: Options::defaults(info) });
        let knobs = knobs(&policy, &trace);
        let mut fixed = Fixed(knobs.iter().map(|knob| knob.value).collect());
        let buffer = buffer(&trace, &policy);
        let tunables = (0..knobs.len()).collect();
        let tuning = Tuning { tuner: Box::new(fixed.clone()), tunables, epoch_requests: EPOCH, shadows: None };
        buffer.start_tuning(tuning).expect("a tuner that fits");
        drive(&buffer, &trace);
        buffer.stop_tuning().expect("the tuner at work");
        let stats = buffer.stats();
        let ns = |rows: &[EpochRow]| rows.iter().map(|row| (row.seconds * 1e9).round() as u64).sum::<u64>();
        let saved = stats.decided.fetches - stats.page_reads;
        let simulated = simulated(&trace, &policy, &mut fixed);
        assert_eq!(ns(&simulated) - ns(&buffer.take_epochs()), saved * BELOW_NS, "{}", info.name);
        println!("{}: {saved} of {} reads saved", info.name, stats.decided.fetches);
        assert_eq!(saved > 0, info.name == "lc", "{}: {saved} reads", info.name);

        let tuner = guarded(knobs, Objective::Throughput, |_, start| Search::Climb(Climb::new(start)));
        let (epochs, _) = live(&trace, &policy, Box::new(tuner));
        assert!(epochs.iter().any(|epoch| epoch.role == Role::Trial), "{}", info.name);
        tuned += 1;
    }
    assert!(tuned >= 2, "{tuned} policies");
}

/// The process ends in the middle of an epoch. The next one has only the state in a file.
#[test]
fn the_state_of_the_tuner_at_work_survives_a_restart() {
    let policy = policy("multi-tier:preset=eager");
    let (before, after) = (trace(4), trace(5));
    for (name, search) in searches() {
        let tuner = guarded(knobs(&policy, &before), Objective::Throughput, search);
        let first = buffer(&before, &policy);
        let tunables = vec![0, 1, 2, 3];
        let tuning = Tuning { tuner: Box::new(tuner), tunables, epoch_requests: EPOCH, shadows: None };
        first.start_tuning(tuning).expect("a tuner that fits");
        drive(&first, &before);
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), first.tuner_state().expect("a tuner at work").text()).expect("room");
        let held = first.take_epochs().last().expect("epochs").held.clone();
        drop(first);

        let saved = Saved::from_text(std::fs::read_to_string(file.path()).expect("what was saved"));
        let (space, _) = Space::new(knobs(&policy, &after)).expect("a space");
        let mut tuner = Guarded::restore(&saved, &space).expect("the tuner that was saved");
        assert_eq!(tuner.held(), held, "{name}");
        let second = buffer(&after, &policy);
        let tuning =
            Tuning { tuner: Box::new(tuner.clone()), tunables: vec![0, 1, 2, 3], epoch_requests: EPOCH, shadows: None };
        second.start_tuning(tuning).expect("a tuner that fits");
        let values: Vec<f64> = second.knobs().iter().map(|knob| knob.value).collect();
        assert_eq!(values, held, "{name}: the policy begins with what was found");
        drive(&second, &after);
        second.stop_tuning().expect("the tuner at work");
        assert_eq!(second.take_epochs(), simulated(&after, &policy, &mut tuner), "{name}");
    }
}

#[test]
fn numbers_are_set_by_hand_or_by_a_tuner_and_only_to_what_they_may_be() {
    let policy = policy("multi-tier:preset=eager");
    let buffer = buffer(&trace(1), &policy);
    let values = || buffer.knobs().iter().map(|knob| knob.value).collect::<Vec<_>>();
    assert_eq!(values(), [1.0; 4]);
    buffer.tune(2, 0.25).expect("between its levels");
    assert_eq!(values(), [1.0, 1.0, 0.25, 1.0]);
    for value in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(buffer.tune(0, value), Err(TuningError::Value { name: "dr", .. })), "{value}");
    }
    assert_eq!(buffer.tune(4, 0.0), Err(TuningError::NoTunable { policy: "multi-tier", tunables: 4, at: 4 }));
    let start = |values: Vec<f64>, tunables: Vec<usize>| {
        buffer.start_tuning(Tuning { tuner: Box::new(Fixed(values)), tunables, epoch_requests: 100, shadows: None })
    };
    assert_eq!(start(vec![0.5], vec![0, 1]), Err(TuningError::Knobs { knobs: 1, tunables: 2 }));
    assert!(matches!(start(vec![0.5], vec![9]), Err(TuningError::NoTunable { at: 9, .. })));
    assert!(matches!(start(vec![2.0], vec![0]), Err(TuningError::Value { .. })));
    assert_eq!(values(), [1.0, 1.0, 0.25, 1.0], "a refusal changes nothing");
    start(vec![0.5, 0.1], vec![3, 0]).expect("a tuner that fits");
    assert_eq!(values(), [0.1, 1.0, 0.25, 0.5]);
    assert_eq!(buffer.tune(1, 0.0), Err(TuningError::AtWork));
    assert_eq!(start(vec![1.0], vec![0]), Err(TuningError::AtWork));
    assert!(buffer.stop_tuning().is_some() && buffer.stop_tuning().is_none());
    assert_eq!(buffer.tuner_state(), None);
    buffer.tune(1, 0.0).expect("nobody tunes any more");
}

/// Settings change under threads that read and write: every byte is right, and every request is in one epoch.
#[test]
fn threads_may_work_while_a_tuner_does() {
    const REQUESTS: u64 = 8000;
    let policy = policy("multi-tier:preset=eager");
    let trace = trace(6);
    let buffer = buffer(&trace, &policy);
    let tuner = guarded(buffer.knobs(), Objective::Throughput, searches()[0].1);
    let tuning = Tuning { tuner: Box::new(tuner), tunables: vec![0, 1, 2, 3], epoch_requests: EPOCH, shadows: None };
    buffer.start_tuning(tuning).expect("a tuner that fits");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let buffer = &buffer;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut mine = [0u64; 400];
                // Each thread has eight bytes of every page.
                for _ in 0..REQUESTS / 2 {
                    let block = random.below(400);
                    let (at, offset) = (Address { object: ObjectId(0), block }, thread as usize * 8);
                    let mut bytes = [0; 8];
                    buffer.read(at, offset, &mut bytes).expect("a page");
                    assert_eq!(u64::from_le_bytes(bytes), mine[block as usize], "page {block}");
                    mine[block as usize] += 1;
                    buffer.write(at, offset, &mine[block as usize].to_le_bytes()).expect("a page");
                }
            });
        }
    });
    buffer.stop_tuning().expect("the tuner at work");
    let epochs = buffer.take_epochs();
    assert_eq!(epochs.iter().map(|epoch| epoch.requests).sum::<u64>(), 4 * REQUESTS);
    assert!(epochs.windows(2).all(|pair| pair[0].at + pair[0].requests == pair[1].at));
    assert!(epochs.iter().any(|epoch| epoch.values != [1.0; 4]), "the settings never changed");
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Hits of 64 bytes in DRAM, the cheapest request, in turns in a buffer with a tuner and in one without. Returns
/// the ratios of the CPU times of five rounds, ascending.
fn ratios_of_hits<I: PageIo + 'static, C: DeviceClock + 'static>(
    [with, without]: [&TieredBuffer<I, C>; 2],
    hit: impl Fn(&TieredBuffer<I, C>, u64) -> Duration,
) -> Vec<f64> {
    // Slices so short that the machine's other work weighs on both equally.
    const SLICES: u32 = 40;
    const REQUESTS: u64 = 100_000;
    hit(without, REQUESTS);
    let round = || {
        let (mut one, mut other) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..SLICES {
            one += hit(without, REQUESTS);
            other += hit(with, REQUESTS);
        }
        println!("{} hits: {one:?} without a tuner, {other:?} with one", u64::from(SLICES) * REQUESTS);
        other.as_secs_f64() / one.as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..5).map(|_| round()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Reads 64 bytes of so many pages at random.
fn hits<I: PageIo + 'static, C: DeviceClock + 'static>(pages: u64) -> impl Fn(&TieredBuffer<I, C>, u64) -> Duration {
    move |buffer, requests| {
        let (mut random, mut bytes, began) = (Random::new(SEED), [0; 64], cpu_time());
        for _ in 0..requests {
            buffer.read(Address { object: ObjectId(0), block: random.below(pages) }, 128, &mut bytes).expect("a page");
        }
        cpu_time() - began
    }
}

/// Cost of eight shadows at a sample of one page in a hundred, with the cheapest requests.
#[test]
#[ignore = "a measurement of ten seconds of CPU time, written down in lab/results/adaptive-live.md: `make bench-deciding`"]
fn what_shadows_of_one_percent_cost_a_request() {
    let (info, dram, nvm_pages, asked) = (policy("multi-tier:preset=eager"), 20_000, 40_000, 18_000);
    let made = || {
        let nvm = Mapped::anonymous(nvm_pages * PAGE as u64, Slowdown { read: 1.0, write: 1.0 }).expect("memory");
        TieredBuffer::new(TieredOptions::new(dram), info.info, &info.options, nvm, MemoryIo::new(), None)
    };
    let [with, without] = [made(), made()].map(|buffer| buffer.expect("a buffer"));
    let hit = hits(asked);
    let config = Config::two_tiers(asked as usize, dram, nvm_pages as usize);
    let tunables = vec![0, 1, 2, 3];
    let mode = Mode::WriteBack;
    let subject =
        Subject { info: info.info, options: &info.options, config: &config, tunables: tunables.clone(), mode };
    let (free, dear) = (Prices::default(), Prices::of(Access { waits: 1e-4, busy: 1e-5 }));
    let terms = Terms { places: vec![free, free, dear], wears: 1, ..Terms::default() };
    let shadows = Miniatures::new(&subject, Scale::default(), terms).expect("miniatures");
    let (space, start) = Space::new(with.knobs()).expect("a space");
    let epoch_requests = 20_000;
    let tuner = Shadowing::new(space, start, Objective::Throughput, &ShadowingOptions::default(), epoch_requests);
    let tuning = Tuning { tuner: Box::new(tuner), tunables, epoch_requests, shadows: Some(shadows) };
    with.start_tuning(tuning).expect("a tuner that fits");
    // All pages are in DRAM, and the shadows have seen theirs.
    for buffer in [&with, &without] {
        hit(buffer, 500_000);
    }
    let read = with.stats().page_reads;
    let ratios = ratios_of_hits([&with, &without], hit);
    assert!(with.stats().page_reads == read && read <= asked, "all were hits");
    println!("CPU time with shadows of 1 % over none: {ratios:.4?}, median {:.4}", ratios[2]);
}

/// Cost of a settled tuner where it is greatest: every request is a hit of 64 bytes in DRAM. The settings make no
/// difference, and only the tuner's share of a request remains. With and without in turns, median of five.
#[test]
#[ignore = "a measurement of ten seconds of CPU time, written down in lab/results/adaptive-live.md: `make bench-deciding`"]
fn what_a_settled_tuner_costs_a_request() {
    let info = policy("multi-tier:preset=eager");
    let made = || {
        let nvm = Mapped::anonymous(1000 * PAGE as u64, Slowdown { read: 1.0, write: 1.0 }).expect("memory");
        TieredBuffer::new(TieredOptions::new(1000), info.info, &info.options, nvm, MemoryIo::new(), None)
    };
    let [with, without] = [made(), made()].map(|buffer| buffer.expect("a buffer"));
    let hit = hits(900);
    let (space, start) = Space::new(with.knobs()).expect("a space");
    let search = Search::Climb(Climb::new(&start));
    // Once settled the tuner stays so, at any load of the machine. Nothing is adopted, so nothing is left again, and no
    // change of speed restarts the search.
    let limits = Limits { margin: 1e9, drift: 1e9, again: u32::MAX, ..Limits::default() };
    let epoch_requests = 20_000;
    let tuner = Guarded::new(space, start, search, Objective::Throughput, limits, epoch_requests);
    let tuning = Tuning { tuner: Box::new(tuner), tunables: vec![0, 1, 2, 3], epoch_requests, shadows: None };
    with.start_tuning(tuning).expect("a tuner that fits");
    let settled = |epochs: Vec<EpochRow>| epochs.last().is_some_and(|epoch| epoch.settled);
    let mut epochs = 0;
    while !settled(with.take_epochs()) {
        hit(&with, epoch_requests);
        epochs += 1;
        assert!(epochs < 10_000, "the search does not end");
    }
    let ratios = ratios_of_hits([&with, &without], hit);
    assert!(settled(with.take_epochs()) && with.stats().page_reads <= 900);
    println!(
        "CPU time with a settled tuner over none, settled after {epochs} epochs: {ratios:.4?}, median {:.4}",
        ratios[2]
    );
}
