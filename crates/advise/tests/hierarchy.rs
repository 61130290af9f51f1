//! The search against simulating everything, and the errors where there is no advice.

use entresol_advise::hierarchy::{
    AdviceError, Candidate, Catalogue, Class, Cramped, FINALISTS, Fate, Known, Limits, Objective, Policies, Question,
    Scale, SearchOptions, Tried, Warning, Workload, Worse, candidates, choose, front, search, warnings, what_if,
};
use entresol_advise::money::Money;
use entresol_core::Random;
use entresol_sim::{Addresses, Mode, Work};
use entresol_trace::{GenerateSpec, Trace, generate};

fn trace(spec: &str) -> Trace {
    generate(&GenerateSpec::parse(spec, 4096).expect("a trace"))
}

fn policies() -> Policies {
    Policies::parse("lru", "multi-tier", "face-gsc:scan=8").expect("policies")
}

fn workload<'w>(addresses: &'w Addresses<'w>, clients: u32) -> Workload<'w> {
    let policies = policies();
    let known = Known::default();
    Workload {
        addresses,
        policies,
        warmup: 0.5,
        clients,
        think_ns: 0,
        work: Work::NONE,
        seed: 7,
        mode: Mode::WriteBack,
        known,
    }
}

/// An amount of dollars.
fn dollars(dollars: f64) -> Money {
    Money::of(dollars).expect("an amount")
}

fn options(objective: Objective, prune: bool) -> SearchOptions {
    SearchOptions { threads: 2, objective, limits: Limits::default(), prune, sample: 1.0 }
}

/// A catalogue of every class with random prices; capacities are parts or multiples of a footprint of about 8 MB.
fn drawn(random: &mut Random) -> Catalogue {
    let mut text = "date = \"today\"\nsource = \"drawn\"\n".to_owned();
    let mut item = |name: &str, tier: &str, profile: &str, capacities: &str, dollars: u64| {
        text += &format!(
            "[[item]]\nname = \"{name}\"\ntier = \"{tier}\"\nprofile = \"{profile}\"\ncapacities_gb = [{capacities}]\n\
             dollars_per_gb = {dollars}.0\nendurance_writes = 1e6\n"
        );
    };
    item("D", "dram", "arulraj-dram", "0.0005, 0.002, 0.004", 10_000 + random.below(30_000));
    item(
        "N",
        "nvm",
        ["arulraj-pcm", "optane-dimm", "arulraj-rram"][random.below(3) as usize],
        "0.002, 0.006",
        1_000 + random.below(9_000),
    );
    item(
        "S",
        "ssd",
        ["arulraj-ssd", "p4800x", "yang-nand"][random.below(3) as usize],
        "0.004, 0.5",
        200 + random.below(800),
    );
    item("H", "disk", ["arulraj-hdd", "face-disk"][random.below(2) as usize], "1", 2 + random.below(40));
    Catalogue::from_toml("drawn", &text).expect("a catalogue")
}

fn decided(catalogue: &Catalogue, list: Vec<Candidate>, workload: &Workload, prune: bool) -> Vec<Tried> {
    search(catalogue, list, workload, &options(Objective::Throughput, prune), &|| ()).expect("a search")
}

/// Candidates that are left out are never the answer, with random catalogues and with one requester or several. Every
/// simulation stays below its bound. The best by each bounded objective and the whole front equal those of simulating
/// everything.
#[test]
fn nothing_that_is_left_out_is_the_answer() {
    const SEED: u64 = 2026;
    println!("seed {SEED}");
    let mut random = Random::new(SEED);
    let specs = [
        "zipf:n=12k:pages=2k:seed=3:ids=scattered",
        "zipf:n=12k:pages=2k:seed=5:write=40:ids=scattered",
        "uniform:n=12k:pages=1500:seed=8:write=50:update=60",
        "hotcold:n=12k:pages=2k:seed=1:write=20:update=100 + scan:n=2k + hotcold:n=6k:pages=2k:seed=2",
        "loop:n=12k:pages=1k:write=10",
        "tpcc:n=14k:warehouses=1",
    ];
    let (mut beaten, mut simulated) = (0, 0);
    for (round, spec) in specs.into_iter().enumerate() {
        let trace = trace(spec);
        let addresses = Addresses::new(&trace);
        let catalogue = drawn(&mut random);
        let scale = Scale::new(&addresses, Some(8e6));
        let workload = workload(&addresses, [1, 4][round % 2]);
        let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
        let every = decided(&catalogue, list.clone(), &workload, false);
        for entry in &every {
            let Fate::Simulated(measured) = &entry.fate else {
                panic!("{spec}: {}: {:?}", entry.candidate, entry.fate)
            };
            assert!(
                measured.requests_per_second <= entry.most_per_second,
                "{spec}: {}: {} above its bound {}",
                entry.candidate,
                measured.requests_per_second,
                entry.most_per_second
            );
        }
        let pruned = decided(&catalogue, list, &workload, true);
        for objective in [Objective::Throughput, Objective::PerDollar, Objective::Price] {
            let limits = Limits::default();
            let (a, b) = (choose(&every, objective, &limits), choose(&pruned, objective, &limits));
            let (a, b) = (a.expect("a choice"), b.expect("a choice"));
            assert_eq!(a, b, "{spec}, {objective:?}: the list is the same, so are the places");
        }
        for (entry, full) in pruned.iter().zip(&every) {
            match &entry.fate {
                Fate::Beaten(by) => {
                    beaten += 1;
                    let (winner, loser) = (&every[*by], full.measured().expect("simulated"));
                    assert!(winner.candidate.dollars <= full.candidate.dollars, "{spec}: {}", full.candidate);
                    assert!(winner.measured().expect("simulated").requests_per_second >= loser.requests_per_second);
                }
                fate => {
                    simulated += 1;
                    assert_eq!(fate, &full.fate, "{spec}: {}", full.candidate);
                }
            }
        }
    }
    println!("{beaten} left out, {simulated} simulated");
    assert!(beaten >= 20, "only {beaten} were left out, {simulated} simulated: the bound does something");
}

/// The best after a sample is nearly as good as the best of all.
#[test]
fn a_sample_finds_one_that_is_nearly_the_best() {
    for (seed, spec) in [
        (3, "zipf:n=90k:pages=30k:seed=3:write=30:ids=scattered"),
        (5, "hotcold:n=60k:pages=30k:seed=2:write=20:update=50:ids=scattered | scan:n=20k:base=100k"),
    ] {
        let trace = trace(spec);
        let addresses = Addresses::new(&trace);
        let catalogue = drawn(&mut Random::new(seed));
        let workload = workload(&addresses, 4);
        let list =
            candidates(&catalogue, &Scale::new(&addresses, Some(8e6)), dollars(1e9), false).expect("candidates").list;
        assert!(list.len() > 2 * FINALISTS, "{} candidates", list.len());
        let every = decided(&catalogue, list.clone(), &workload, false);
        for objective in [Objective::Throughput, Objective::PerDollar] {
            let sampled = SearchOptions { sample: 0.2, ..options(objective, true) };
            let tried = search(&catalogue, list.clone(), &workload, &sampled, &|| ()).expect("a search");
            assert!(tried.iter().filter(|entry| entry.measured().is_some()).count() <= FINALISTS);
            let best = |tried: &[Tried]| choose(tried, objective, &Limits::default()).expect("a choice").best;
            let value = |at: usize| {
                let measured = every[at].measured().expect("simulated");
                if objective == Objective::PerDollar {
                    measured.per_dollar.expect("a price")
                } else {
                    measured.requests_per_second
                }
            };
            let ratio = value(best(&tried)) / value(best(&every));
            println!("{spec}, {objective:?}: {ratio:.4} of the best of {}", list.len());
            assert!(ratio >= 0.95, "{spec}, {objective:?}: {ratio}");
        }
    }
}

/// With limits, a candidate that is left out is beaten by one within them.
#[test]
fn limits_are_kept_and_the_nearest_is_named() {
    let trace = trace("zipf:n=24k:pages=2k:seed=3:write=30:ids=scattered");
    let addresses = Addresses::new(&trace);
    let catalogue = drawn(&mut Random::new(4));
    let workload = workload(&addresses, 4);
    let list =
        candidates(&catalogue, &Scale::new(&addresses, Some(8e6)), dollars(1e9), false).expect("candidates").list;
    let every = decided(&catalogue, list.clone(), &workload, false);
    let years = |entry: &Tried| entry.measured().and_then(|measured| measured.lifetime_years).unwrap_or(f64::INFINITY);
    let mut all: Vec<f64> = every.iter().map(years).collect();
    all.sort_by(f64::total_cmp);
    let median = all[all.len() / 2];
    let limits = Limits { lifetime_years_min: Some(median), ..Limits::default() };
    let limited = SearchOptions { limits, ..options(Objective::Throughput, true) };
    let tried = search(&catalogue, list, &workload, &limited, &|| ()).expect("a search");
    let choice = choose(&tried, Objective::Throughput, &limits).expect("half of them last as long");
    assert_eq!(choice, choose(&every, Objective::Throughput, &limits).expect("the same"));
    assert!(choice.front.iter().all(|&at| years(&tried[at]) >= median));
    assert_ne!(
        choice.best,
        choose(&every, Objective::Throughput, &Limits::default()).expect("one").best,
        "the limit bites"
    );

    let contradictory = Limits { throughput_min: Some(1e12), p99_us_max: Some(1e-3), ..Limits::default() };
    let error = choose(&every, Objective::Throughput, &contradictory).expect_err("nothing is so fast").to_string();
    for part in ["the nearest is", "--min-throughput 1000000000000", "--max-p99 0.001", "would do"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // The values that the error names are accepted.
    let number = |name: &str| {
        let said = &error[error.rfind(name).expect("named")..];
        said.split([' ', '\'']).nth(1).expect("a number").trim_end_matches(':').parse::<f64>().expect("a number")
    };
    let loosened = Limits {
        throughput_min: Some(number("--min-throughput")),
        p99_us_max: Some(number("--max-p99")),
        ..Limits::default()
    };
    choose(&every, Objective::Throughput, &loosened).expect(&error);

    let unknown = Limits { joules_max: Some(1.0), ..Limits::default() };
    let error = choose(&every, Objective::Throughput, &unknown).expect_err("nothing is known").to_string();
    assert!(error.contains("`watts`"), "{error}");
    let error = choose(&every, Objective::Energy, &Limits::default()).expect_err("nothing is known").to_string();
    assert!(error.contains("`watts`"), "{error}");
}

/// Below a database's pool only flash above a disk, or a lowest tier alone, is bought. A simulation stays below its
/// bound, the requesters' work included. Without a cache each request is one I/O of the device.
#[test]
fn below_a_pool_there_is_flash_or_nothing() {
    const SEED: u64 = 11;
    println!("seed {SEED}");
    for (clients, work) in [(1, Work::NONE), (6, Work { ns: 400_000, processors: 2 })] {
        let trace = trace("uniform:n=24k:pages=1500:seed=8:write=50:update=20");
        let addresses = Addresses::new(&trace);
        let catalogue = drawn(&mut Random::new(SEED));
        let scale = Scale { below_pool: true, ..Scale::new(&addresses, Some(8e6)) };
        let workload = Workload { work, ..workload(&addresses, clients) };
        let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
        let shape = |candidate: &Candidate| candidate.parts.iter().map(|part| part.class).collect::<Vec<_>>();
        // NVM of 6 MB cannot hold all data, flash of 500 MB and the disk can; both sizes of flash are caches.
        let shapes: Vec<_> = list.iter().map(shape).collect();
        for expected in [&[Class::Ssd][..], &[Class::Disk], &[Class::Ssd, Class::Disk]] {
            assert!(shapes.iter().any(|shape| shape == expected), "{expected:?} in {shapes:?}");
        }
        assert!(shapes.iter().all(|shape| !shape.contains(&Class::Dram) && shape.len() <= 2), "{shapes:?}");
        let every = decided(&catalogue, list, &workload, false);
        for entry in &every {
            let measured = entry.measured().expect("simulated");
            let (rate, bound) = (measured.requests_per_second, entry.most_per_second);
            assert!(rate <= bound, "{}: {rate} above its bound {bound}", entry.candidate);
            if entry.candidate.caches().is_empty() {
                assert_eq!(measured.devices[0].served, 1.0, "{}", entry.candidate);
            }
            let computing = rate * work.ns as f64 / 1e9;
            assert!(computing <= f64::from(work.processors) * 1.001, "{}: {computing} processors", entry.candidate);
        }
        let rate = |of: &[Class]| {
            let entry = every.iter().find(|entry| shape(&entry.candidate) == of).expect("it is there");
            entry.measured().expect("simulated").requests_per_second
        };
        assert!(rate(&[Class::Disk]) < rate(&[Class::Ssd, Class::Disk]), "a cache is of use");
    }
}

#[test]
fn the_front_is_what_no_other_beats() {
    let trace = trace("zipf:n=24k:pages=2k:seed=3:ids=scattered");
    let addresses = Addresses::new(&trace);
    let catalogue = drawn(&mut Random::new(9));
    let list =
        candidates(&catalogue, &Scale::new(&addresses, Some(8e6)), dollars(1e9), false).expect("candidates").list;
    let every = decided(&catalogue, list, &workload(&addresses, 2), false);
    let on_front = front(&every, &Limits::default());
    let point = |at: usize| (every[at].candidate.dollars, every[at].measured().expect("simulated").requests_per_second);
    for at in 0..every.len() {
        let (dollars, per_second) = point(at);
        let beaten = (0..every.len()).any(|other| {
            let (d, p) = point(other);
            d <= dollars && p >= per_second && (d < dollars || p > per_second || other < at)
        });
        assert_eq!(on_front.contains(&at), !beaten, "{}", every[at].candidate);
    }
}

#[test]
fn only_what_can_be_of_use_is_a_candidate() {
    let trace = trace("uniform:n=2k:pages=1k:seed=3");
    let addresses = Addresses::new(&trace);
    let scale = Scale::new(&addresses, Some(4e6));
    let catalogue = drawn(&mut Random::new(1));
    let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
    assert!(list.windows(2).all(|pair| pair[0].dollars <= pair[1].dollars));
    for candidate in &list {
        let classes: Vec<Class> = candidate.parts.iter().map(|part| part.class).collect();
        assert!(classes.is_sorted() && classes.windows(2).all(|pair| pair[0] != pair[1]), "{candidate}");
        assert!(matches!(classes[0], Class::Dram | Class::Nvm) && classes.len() >= 2, "{candidate}");
        assert!(
            candidate.lowest().pages >= scale.stored_pages && candidate.lowest().class != Class::Dram,
            "{candidate}"
        );
        // Only one size of a kind holds all data, and no cache is below it.
        let full = candidate.caches().iter().position(|part| part.pages >= scale.footprint_pages);
        assert!(full.is_none_or(|at| at + 1 == candidate.caches().len()), "{candidate}");
        assert_eq!(candidate.dollars, candidate.parts.iter().map(|part| part.piece.dollars).sum());
    }
    // 4 MB of data: DRAM up to 4 MB, NVM of 2 and 6, flash of 4 MB above a disk; flash of 500 MB, NVM of 6 MB or the disk below.
    let count =
        |shape: &[Class]| list.iter().filter(|c| c.parts.iter().map(|p| p.class).eq(shape.iter().copied())).count();
    use Class::{Disk, Dram, Nvm, Ssd};
    assert_eq!((count(&[Dram, Ssd]), count(&[Dram, Nvm]), count(&[Nvm, Ssd])), (3, 3, 2));
    assert_eq!(count(&[Dram, Nvm, Ssd, Disk]), 2 * 2 - 2, "where NVM holds all, nothing is cached below it");
    let budget = list[list.len() / 2].dollars;
    let fewer = candidates(&catalogue, &scale, budget, false).expect("candidates");
    assert_eq!(fewer.list.len() + fewer.beyond_budget, list.len());
    assert!(fewer.list.iter().all(|candidate| candidate.dollars <= budget));
    let spare = candidates(&catalogue, &scale, dollars(1e9), true).expect("candidates").list;
    assert!(spare.len() >= list.len(), "a larger lowest tier lasts longer");
}

#[test]
fn without_advice_the_nearest_that_would_do_is_named() {
    let trace = trace("uniform:n=30k:pages=1k:seed=3");
    let addresses = Addresses::new(&trace);
    let catalogue = drawn(&mut Random::new(1));
    let said = |result: Result<_, AdviceError>| {
        result.map(|_: entresol_advise::hierarchy::Candidates| ()).expect_err("no advice").to_string()
    };
    let scale = Scale::new(&addresses, Some(8e6));

    let cheapest = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list.remove(0);
    let error = said(candidates(&catalogue, &scale, cheapest.dollars.times(0.99), false));
    assert!(error.contains(&cheapest.to_string()) && error.contains(&format!("${}", cheapest.dollars)), "{error}");
    assert!(candidates(&catalogue, &scale, cheapest.dollars, false).is_ok());

    let error = said(candidates(&catalogue, &Scale::new(&addresses, Some(5e9)), dollars(1e9), false));
    assert!(error.contains("nothing holds the 5.0 GB") && error.contains("'H' with 1 GB"), "{error}");
    let would = error.rsplit("--footprint of ").next().and_then(|rest| rest.split(' ').next()).expect("a size");
    let would: f64 = would.parse().expect("a number");
    assert!(candidates(&catalogue, &Scale::new(&addresses, Some(would * 1e9)), dollars(1e9), false).is_ok(), "{error}");

    let error = said(candidates(&catalogue, &Scale::new(&addresses, Some(4e5)), dollars(1e9), false));
    assert!(error.contains("all memory") && error.contains("--footprint") && error.contains("0.0005 GB"), "{error}");
    assert!(candidates(&catalogue, &Scale::new(&addresses, Some(6e5)), dollars(1e9), false).is_ok(), "{error}");

    let only = |tiers: &[Class]| Catalogue {
        items: catalogue.items.iter().filter(|item| tiers.contains(&item.class)).cloned().collect(),
        ..catalogue.clone()
    };
    assert!(said(candidates(&only(&[Class::Dram]), &scale, dollars(1e9), false)).contains("only DRAM"));
    assert!(
        said(candidates(&only(&[Class::Ssd, Class::Disk]), &scale, dollars(1e9), false)).contains("no DRAM and no NVM")
    );

    let short = |spec: &str, warmup: f64| {
        let trace = self::trace(spec);
        let addresses = Addresses::new(&trace);
        Workload { warmup, ..workload(&addresses, 1) }.check().map_err(|error| error.to_string())
    };
    assert_eq!(short("uniform:n=20k:pages=1k", 0.5), Ok(()));
    let error = short("uniform:n=19k:pages=1k", 0.5).expect_err("too short");
    assert!(error.contains("too short to decide") && error.contains("--warmup 0.47"), "{error}");
    assert_eq!(short("uniform:n=19k:pages=1k", 0.47), Ok(()));
    let error = short("uniform:n=5k:pages=1k", 0.5).expect_err("too short");
    assert!(error.contains("a trace of 20000 would do"), "{error}");
    let error = short("scan:n=30k", 0.5).expect_err("nothing is asked twice");
    assert!(error.contains("0 of its 15000"), "{error}");
}

#[test]
fn policies_that_cannot_be_bought_are_refused() {
    for (dram, nvm, flash, part) in [
        ("min", "multi-tier", "face-gsc", "'min'"),
        ("lru", "lru", "face-gsc", "manages cache"),
        ("lru", "multi-tier", "hibachi", "as face-gsc is"),
        ("multi-tier", "multi-tier", "face-gsc", "manages dram and nvm"),
        ("table-placement", "multi-tier", "face-gsc", "'table-placement'"),
        ("lru,arc", "multi-tier", "face-gsc", "is not one policy"),
        ("lru", "multi-tier:speed=z", "face-gsc", "speed"),
    ] {
        let error = Policies::parse(dram, nvm, flash).expect_err(part);
        assert!(error.contains(part), "{error}");
    }
}

/// A change of prices gives the answer of a search with those prices; halves of a steady trace give the same answer.
#[test]
fn other_circumstances_are_answered_as_if_they_were_asked_for() {
    let trace = trace("zipf:n=60k:pages=2k:seed=3:write=30:ids=scattered");
    let addresses = Addresses::new(&trace);
    let catalogue = drawn(&mut Random::new(12));
    let scale = Scale::new(&addresses, Some(8e6));
    let asked = workload(&addresses, 4);
    let options = options(Objective::PerDollar, true);
    let found = |catalogue: &Catalogue, workload: &Workload| {
        let list = candidates(catalogue, &scale, dollars(60.0), false).expect("candidates").list;
        let tried = search(catalogue, list, workload, &options, &|| ()).expect("a search");
        let best = choose(&tried, Objective::PerDollar, &Limits::default()).expect("a choice").best;
        (tried, best)
    };
    let (tried, best) = found(&catalogue, &asked);
    let question = Question {
        catalogue: &catalogue,
        scale: &scale,
        budget: dollars(60.0),
        spare: false,
        workload: &asked,
        options: &options,
    };
    let found_out = what_if(&question, &tried, best, &|| ()).expect("answers");
    let said =
        |what: &str| found_out.answers.iter().find(|answer| answer.what == what).unwrap_or_else(|| panic!("{what}"));
    for (class, name) in [(Class::Dram, "dram"), (Class::Nvm, "nvm"), (Class::Ssd, "ssd"), (Class::Disk, "disk")] {
        for factor in [0.5, 2.0] {
            let mut other = catalogue.clone();
            let items = other.items.iter_mut().filter(|item| item.class == class);
            items.flat_map(|item| &mut item.pieces).for_each(|piece| piece.dollars = piece.dollars.times(factor));
            let (wanted, at) = found(&other, &workload(&addresses, 4));
            let answer = said(&format!("price of {name} x {factor}"));
            assert_eq!(answer.hierarchy, wanted[at].candidate.to_string(), "{name} x {factor}");
            assert_eq!(answer.dollars, wanted[at].candidate.dollars);
            assert_eq!(
                Some(answer.requests_per_second),
                wanted[at].measured().map(|measured| measured.requests_per_second)
            );
        }
    }
    for half in ["first half of the trace", "second half of the trace"] {
        let answer = said(half);
        let share = answer.recommended_share.expect("it can be simulated");
        assert!(answer.none.is_none() && (answer.same || share > 0.8), "a steady trace: {answer:?}");
    }
    assert_eq!(found_out.more.len(), tried[best].candidate.caches().len(), "{found_out:?}");
    assert!(found_out.more.iter().all(|more| more.gb > 0.0 && more.gain_per_gb.is_finite()), "{found_out:?}");
    println!("{found_out:#?}");
}

/// A warning names a cache that makes a hierarchy slower, with the faster one, by measured results. Flash with too few
/// free segments is named whatever its prediction.
#[test]
fn caches_that_are_worse_than_none_are_named() {
    // No page is requested again soon: a cache only adds I/Os to those of the disk.
    let trace = trace("loop:n=24k:pages=6k:write=50");
    let addresses = Addresses::new(&trace);
    // A flash cache slower than the disk below it.
    let text = "date = \"today\"\nsource = \"a test\"\n\
        [[item]]\nname = \"S\"\ntier = \"ssd\"\nprofile = \"yang-nand\"\ncapacities_gb = [0.002, 0.012]\ndollars_per_gb = 1.0\n\
        endurance_writes = 1e5\n\
        [[item]]\nname = \"H\"\ntier = \"disk\"\nprofile = \"p4800x\"\ncapacities_gb = [1]\ndollars_per_gb = 2.0\n\
        endurance_writes = 1e5\n";
    let catalogue = Catalogue::from_toml("a test", text).expect("a catalogue");
    let scale = Scale { below_pool: true, ..Scale::new(&addresses, None) };
    let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
    let tried = decided(&catalogue, list, &workload(&addresses, 4), false);
    let found = warnings(&tried, &policies(), trace.page_bytes);
    println!("{found:?}");
    let (mut slower, mut cramped) = (0, 0);
    for Warning { at, what } in &found {
        let rate = |at: usize| tried[at].measured().expect("simulated").requests_per_second;
        let caches = tried[*at].candidate.caches();
        match what {
            Worse::Slower { without, times } => {
                slower += 1;
                assert!(tried[*without].candidate.caches().len() < caches.len());
                assert_eq!(tried[*without].candidate.lowest(), tried[*at].candidate.lowest());
                assert!(*times <= 1.0 && (rate(*at) / rate(*without) - times).abs() < 1e-9, "{times}");
            }
            Worse::Cramped(Cramped { pages, enough_pages }) => {
                cramped += 1;
                assert!(*pages == caches[0].pages && pages < enough_pages, "{pages} of {enough_pages}");
            }
            // Devices this small do not last.
            Worse::Worn { .. } => {}
        }
    }
    // The smaller cache is cramped, and both are slower than none.
    assert_eq!((slower, cramped), (2, 1), "{found:?}");
    // A hierarchy without a cache has no such warning.
    let of_caches = found.iter().filter(|warning| !matches!(warning.what, Worse::Worn { .. }));
    assert!(of_caches.into_iter().all(|warning| !tried[warning.at].candidate.caches().is_empty()));
}

/// A device is named if the load uses its endurance up within three years, with the years by the bytes written.
#[test]
fn devices_that_wear_out_early_are_named() {
    let trace = trace("zipf:n=24k:pages=6k:write=50");
    let addresses = Addresses::new(&trace);
    let mut found = Vec::new();
    for writes in [1e3, 1e13] {
        let text = format!(
            "date = \"today\"\nsource = \"a test\"\n\
            [[item]]\nname = \"S\"\ntier = \"ssd\"\nprofile = \"yang-nand\"\ncapacities_gb = [0.012]\ndollars_per_gb = 1.0\n\
            endurance_writes = {writes:e}\n\
            [[item]]\nname = \"H\"\ntier = \"disk\"\nprofile = \"p4800x\"\ncapacities_gb = [1]\ndollars_per_gb = 2.0\n\
            endurance_writes = 1e12\n"
        );
        let catalogue = Catalogue::from_toml("a test", &text).expect("a catalogue");
        let scale = Scale { below_pool: true, ..Scale::new(&addresses, None) };
        let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
        let tried = decided(&catalogue, list, &workload(&addresses, 4), false);
        let worn =
            warnings(&tried, &policies(), trace.page_bytes).into_iter().filter_map(|Warning { at, what }| match what {
                Worse::Worn { device, years } => Some((at, device, years)),
                _ => None,
            });
        let worn: Vec<_> = worn.collect();
        for (at, device, years) in &worn {
            let (candidate, measured) = (&tried[*at].candidate, tried[*at].measured().expect("simulated"));
            let its = &measured.devices[0];
            let bytes_a_year = its.written_bytes as f64 * its.write_amplification;
            assert!(device == "S" && candidate.caches().len() == 1 && *years < 3.0, "{candidate}: {years}");
            assert!(bytes_a_year > 0.0 && measured.lifetime_years == Some(*years), "{measured:?}");
        }
        found.push(worn.len());
    }
    assert!(found[0] > 0 && found[1] == 0, "{found:?}");
}

/// The two smallest caches built for lab/results/advise-built.md, of 12 and 24 MiB in pages of 8 KiB.
#[test]
fn a_cache_has_room_from_where_one_that_was_built_did_what_was_predicted() {
    let trace = trace("uniform:n=12k:pages=1500");
    let addresses = Addresses::new(&trace);
    let catalogue = drawn(&mut Random::new(1));
    let scale = Scale { below_pool: true, ..Scale::new(&addresses, Some(8e6)) };
    let list = candidates(&catalogue, &scale, dollars(1e9), false).expect("candidates").list;
    let mut cached = list.into_iter().find(|candidate| candidate.bare_flash().is_some()).expect("one with a cache");
    let slots = Policies::parse("lru", "multi-tier", "reuse").expect("policies");
    let mut cramped = |pages| {
        cached.parts[0].pages = pages;
        assert_eq!(cached.cramped(&slots, 8192), None, "no segments are made free in slots");
        cached.cramped(&policies(), 8192)
    };
    assert!(cramped(1152).is_some() && cramped(1536).is_some(), "12 MiB, its log included or not");
    assert_eq!(cramped(3072), None, "24 MiB");
    let largest = (1..1 << 20).rev().find(|&pages| cramped(pages).is_some());
    assert_eq!(largest, Some(2015), "what is cramped is smaller than all that is not");
    assert!((1..=2015).all(|pages| cramped(pages).is_some()));
}
