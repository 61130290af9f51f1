//! A tuner at work in a simulation with time.

use entresol_core::{Demand, Shadow};
use entresol_device::profile;
use entresol_policy::miniature::{Access, Prices, Scale, Terms};
use entresol_sim::{
    Addresses, Cell, CellOptions, Hierarchy, Mode, NamedDevice, Row, TimedOptions, TimedRow, Tuning, parse_policies,
    prices,
};
use entresol_trace::{Trace, generate};
use entresol_tune::search::{Annealing, Climb, Halving, Schedule, Search};
use entresol_tune::{EpochRow, Fixed, Guarded, Limits, Objective, Role, Space, Tuner};

const EPOCH: u64 = 2_000;
const SEED: u64 = 5;

fn traced(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

/// DRAM and NVM of a few per cent of the pages above an SSD.
fn cell(policy: &str, addresses: &Addresses) -> Cell {
    let policy = &parse_policies(policy).expect("a policy")[0];
    let size = |text: &str| text.parse().expect("a size");
    Cell::single(policy, size("20%"), Some(size("2%")), addresses).expect("a cell")
}

fn hierarchy(cell: &Cell, addresses: &Addresses) -> Hierarchy {
    let device = |(name, bytes): (&str, u64)| -> NamedDevice {
        let profile = profile::load(name).expect("a profile of the house");
        (name.to_owned(), profile.build(bytes, SEED).expect("a device"))
    };
    let needs = cell.needs(addresses);
    let mut devices: Vec<NamedDevice> =
        ["dram", "optane-dimm", "arulraj-ssd"].into_iter().zip(needs).map(device).collect();
    let backing = devices.pop().expect("three");
    Hierarchy { tiers: devices, backing }
}

fn options(warmup: f64) -> CellOptions {
    CellOptions { warmup, seed: SEED, ..CellOptions::default() }
}

fn tuned(
    cell: &Cell,
    addresses: &Addresses,
    tunables: usize,
    tuner: &mut dyn Tuner,
    warmup: f64,
) -> (Row, TimedRow, Vec<EpochRow>) {
    let timed = TimedOptions { clients: 4, ..TimedOptions::default() };
    let tunables = (0..tunables).collect();
    let tuning = Tuning { tuner, tunables, epoch_requests: EPOCH, shadows: None, tier: 1 };
    cell.run_tuned(addresses, hierarchy(cell, addresses), &options(warmup), &timed, tuning).expect("a run")
}

fn tuners(cell: &Cell, addresses: &Addresses) -> Vec<(&'static str, Guarded)> {
    let knobs = cell.knobs(addresses, &options(0.0)).expect("knobs");
    let (space, start) = Space::new(knobs).expect("a space");
    let searches = [
        ("annealing", Search::Annealing(Annealing::new(Schedule::FAST, &start, SEED))),
        ("climb", Search::Climb(Climb::new(&start))),
        ("halving", Search::Halving(Halving::new(&space, &start, 8, SEED))),
    ];
    let guarded =
        |search| Guarded::new(space.clone(), start.clone(), search, Objective::Throughput, Limits::default(), EPOCH);
    searches.into_iter().map(|(name, search)| (name, guarded(search))).collect()
}

fn without_time(row: Row) -> Row {
    Row { cpu_seconds: 0.0, ..row }
}

#[test]
fn settings_that_never_change_are_a_simulation_without_a_tuner() {
    let trace = traced("zipf:n=30000:pages=3000:seed=3:write=30");
    let addresses = Addresses::new(&trace);
    let cell = cell("multi-tier:preset=c", &addresses);
    for warmup in [0.0, 0.3] {
        let timed = TimedOptions { clients: 4, ..TimedOptions::default() };
        let plain = cell.run_timed(&addresses, hierarchy(&cell, &addresses), &options(warmup), &timed).expect("a run");
        let mut fixed = Fixed(vec![0.01, 0.01, 0.2, 0.5]);
        let (row, timed, epochs) = tuned(&cell, &addresses, 4, &mut fixed, warmup);
        assert_eq!(without_time(row), without_time(plain.0));
        assert_eq!(timed.elapsed_seconds, plain.1.elapsed_seconds);
        // Requests of the four clients under way at the end of the warm-up are completed after it.
        let started: u64 = epochs.iter().map(|epoch| epoch.requests).sum();
        assert!(started <= timed.requests && timed.requests <= started + 4, "{started} of {}", timed.requests);
        let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
        assert!((seconds - timed.elapsed_seconds).abs() < 1e-6, "{seconds} of {}", timed.elapsed_seconds);
        let written: u64 = epochs.iter().map(|epoch| epoch.pages_written).sum();
        assert_eq!(written * u64::from(trace.page_bytes), timed.devices[1].write_bytes);
        assert!(epochs.windows(2).all(|pair| pair[0].at + pair[0].requests == pair[1].at));
    }
}

#[test]
fn each_tuner_makes_the_eager_policy_faster_and_is_the_same_twice() {
    let trace = traced("zipf:n=600k:pages=8000:exponent=0.8:seed=7:write=20");
    let addresses = Addresses::new(&trace);
    let cell = cell("multi-tier:preset=eager", &addresses);
    let eager = tuned(&cell, &addresses, 4, &mut Fixed(vec![1.0; 4]), 0.1).1.requests_per_second;
    for (name, mut tuner) in tuners(&cell, &addresses) {
        let twin = tuned(&cell, &addresses, 4, &mut tuner.clone(), 0.1).2;
        let (_, timed, epochs) = tuned(&cell, &addresses, 4, &mut tuner, 0.1);
        assert_eq!(epochs, twin, "{name}");
        let gain = timed.requests_per_second / eager - 1.0;
        println!("{name}: {:+.1} %, {:?}, {} epochs", gain * 100.0, tuner.held(), epochs.len());
        assert!(gain > 0.0, "{name} (seed {SEED}): {gain} with {:?}", tuner.held());
        assert!(epochs.iter().any(|epoch| epoch.role == Role::Trial));
        // The policy ran with the settings of each epoch: its gauges show the last ones.
        assert_ne!(tuner.held(), [1.0; 4], "{name}");
    }
}

#[test]
fn the_settings_of_the_last_epoch_are_the_policys_at_the_end() {
    let trace = traced("zipf:n=60000:pages=3000:seed=3:write=30");
    let addresses = Addresses::new(&trace);
    let cell = cell("multi-tier:preset=eager", &addresses);
    for (name, mut tuner) in tuners(&cell, &addresses) {
        let (row, _, epochs) = tuned(&cell, &addresses, 4, &mut tuner, 0.0);
        let last = epochs.last().expect("epochs");
        let gauges: Vec<f64> = row.gauges.iter().map(|gauge| gauge.1).collect();
        assert_eq!(gauges, last.values, "{name}");
        let changed = epochs.windows(2).filter(|pair| pair[0].values != pair[1].values).count();
        assert!(changed > 5, "{name}: {changed} changes");
    }
}

/// A policy of another family with its own tunable, under a pool in DRAM.
#[test]
fn any_policy_with_a_tunable_can_be_tuned() {
    let trace = traced("zipf:n=100k:pages=4000:seed=9:write=50");
    let addresses = Addresses::new(&trace);
    for (policy, expected) in [("expcache", "tolerance"), ("lc", "dirty")] {
        let cell = cell(policy, &addresses);
        let knobs = cell.knobs(&addresses, &options(0.0)).expect("knobs");
        assert_eq!(knobs.iter().map(|knob| knob.name.as_str()).collect::<Vec<_>>(), [expected]);
        let (space, start) = Space::new(knobs).expect("a space");
        let search = Search::Climb(Climb::new(&start));
        let mut tuner = Guarded::new(space, start, search, Objective::Throughput, Limits::default(), EPOCH);
        let timed = TimedOptions::default();
        let tuning = Tuning { tuner: &mut tuner, tunables: vec![0], epoch_requests: EPOCH, shadows: None, tier: 1 };
        let run = cell.run_tuned(&addresses, hierarchy(&cell, &addresses), &options(0.0), &timed, tuning);
        let epochs = run.expect("a run").2;
        assert_eq!(epochs.iter().map(|epoch| epoch.requests).sum::<u64>(), 100_000, "{policy}");
        assert!(epochs.iter().any(|epoch| epoch.role == Role::Trial), "{policy}");
    }
}

/// Miniatures over a sample of the pages order settings by speed as full runs do.
#[test]
fn miniatures_put_settings_in_the_order_of_the_whole() {
    const CLIENTS: u32 = 4;
    let trace = traced("tpcc:n=300k:warehouses=2:seed=3");
    let addresses = Addresses::new(&trace);
    let cell = cell("multi-tier:preset=eager", &addresses);
    let levels = [0.0, 0.2, 1.0];
    let settings: Vec<[f64; 4]> =
        (0..81).step_by(4).map(|at| [at / 27, at / 9 % 3, at / 3 % 3, at % 3].map(|level| levels[level])).collect();

    let needs = cell.needs(&addresses);
    let place = |(name, &need): (&str, &u64)| {
        let profile = profile::load(name).expect("a profile of the house");
        prices(|| profile.build(need, SEED), trace.page_bytes, trace.page_bytes, CLIENTS as usize, SEED)
    };
    let places = ["dram", "optane-dimm", "arulraj-ssd"].into_iter().zip(&needs).map(place);
    let places = places.collect::<Result<Vec<_>, _>>().expect("devices");
    let terms = Terms { places, wears: 1, ..Terms::default() };
    let scale = Scale { share: 0.01, pages_min: 64 };
    let mut small = cell.miniatures(&[0, 1, 2, 3], &addresses, &options(0.0), scale, terms).expect("a small policy");
    assert!(small.rate() < 0.3, "a sample of {}", small.rate());
    let shadow = |(id, values): (usize, &[f64; 4])| Shadow { id: id as u64, values: values.to_vec(), from: None };
    small.arrange(&settings.iter().enumerate().map(shadow).collect::<Vec<_>>());
    for at in 0..trace.len() {
        let request = trace.request(at);
        small.told(request, trace.address(request.page), || at as u64);
    }

    // Speed limited by the requesters and by the busiest device.
    let foretold = |id: usize| {
        let mut all = Demand::default();
        small.demands(id as u64).expect("as arranged").iter().for_each(|part| all += *part);
        let busiest = all.busy.into_iter().fold(0.0, f64::max);
        all.requests / busiest.max(all.waits / f64::from(CLIENTS))
    };
    let timed = TimedOptions { clients: CLIENTS, ..TimedOptions::default() };
    let simulated = |values: &[f64; 4]| {
        let (tunables, mut tuner) = (vec![0, 1, 2, 3], Fixed(values.to_vec()));
        let tuning = Tuning { tuner: &mut tuner, tunables, epoch_requests: EPOCH, shadows: None, tier: 1 };
        let run =
            cell.run_tuned(&addresses, hierarchy(&cell, &addresses), &options(0.0), &timed, tuning).expect("a run");
        run.1.requests_per_second
    };
    let rates: Vec<[f64; 2]> =
        settings.iter().enumerate().map(|(id, values)| [simulated(values), foretold(id)]).collect();
    let pairs = || (0..rates.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    // Pairs that differ by a fifth or more.
    let apart: Vec<_> = pairs().filter(|&(a, b)| (rates[a][0] / rates[b][0]).ln().abs() > 0.2).collect();
    let wrong = apart.iter().filter(|&&(a, b)| (rates[a][0] > rates[b][0]) != (rates[a][1] > rates[b][1])).count();
    println!("{} settings at a sample of {:.3}: {wrong} of {} pairs wrong", rates.len(), small.rate(), apart.len());
    assert!(apart.len() > 50 && wrong * 50 <= apart.len(), "{wrong} of {} pairs: {rates:?}", apart.len());
}

/// A miniature of all pages has as many reads and writes of the backing store as the whole, in every mode.
#[test]
fn miniatures_have_the_writes_of_each_mode() {
    // More than all reads of the trace.
    const WRITE: f64 = 1e6;
    let trace = traced("zipf:n=60000:pages=3000:seed=3:write=30:update=20");
    let addresses = Addresses::new(&trace);
    for policy in ["multi-tier:preset=c", "lc", "reuse"] {
        let cell = cell(policy, &addresses);
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            let options = CellOptions { mode, ..options(0.0) };
            let values: Vec<f64> =
                cell.knobs(&addresses, &options).expect("knobs").iter().map(|knob| knob.value).collect();
            let tunables: Vec<usize> = (0..values.len()).collect();
            let priced = |busy| Access { waits: 0.0, busy };
            let below = Prices { read: priced(1.0), write: priced(WRITE), ..Prices::default() };
            let terms =
                Terms { places: vec![Prices::default(), Prices::default(), below], wears: 1, ..Terms::default() };
            let scale = Scale { share: 1.0, pages_min: 1 };
            let mut small = cell.miniatures(&tunables, &addresses, &options, scale, terms).expect("a small policy");
            small.arrange(&[Shadow { id: 0, values: values.clone(), from: None }]);
            for at in 0..trace.len() {
                let request = trace.request(at);
                small.told(request, trace.address(request.page), || at as u64);
            }
            let busy: f64 = small.demands(0).expect("as arranged").iter().map(|part| part.busy[2]).sum();
            let (timed, mut tuner) = (TimedOptions::default(), Fixed(values));
            let tuning = Tuning { tuner: &mut tuner, tunables, epoch_requests: EPOCH, shadows: None, tier: 1 };
            let run = cell.run_tuned(&addresses, hierarchy(&cell, &addresses), &options, &timed, tuning);
            let below = run.expect("a run").1.devices[2].clone();
            // Neighbours may be written by one I/O.
            let pages = |bytes: u64| (bytes / u64::from(trace.page_bytes)) as f64;
            let expected = pages(below.read_bytes) + WRITE * pages(below.write_bytes);
            assert_eq!(busy, expected, "{policy}, {mode:?}, seed {SEED}");
            assert!(below.writes > 0 && below.reads > 0, "{policy}, {mode:?}");
        }
    }
}
