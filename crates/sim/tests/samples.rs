//! Estimates from samples against exact simulation: errors, the coverage of their intervals, what is refused and what
//! is marked.

use entresol_core::Random;
use entresol_core::Size;
use entresol_policy::catalogue;
use entresol_policy::parts::Sampler;
use entresol_sim::{
    Addresses, CACHE_PAGES_MIN, Cell, CellError, CellOptions, Estimate, LayerSpec, PolicySpec, Row, SAMPLED_PAGES_MIN,
    Sample, SampleError, parse_policies, run_cell,
};
use entresol_trace::{Column, Trace, generate};

fn traced(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

/// A stream as a database's: most requests go to a few pages, which are neighbours; a table is scanned in between.
fn skewed() -> Trace {
    traced(
        "zipf:n=150k:pages=30k:exponent=1.1:seed=4:write=30 | loop:n=30k:pages=15k:object=scanned \
         | zipf:n=60k:pages=40:exponent=0.5:seed=5:write=10:object=hot",
    )
}

fn exact(trace: &Trace, policy: &PolicySpec, size: Size) -> Row {
    let layer = LayerSpec { policy: policy.clone(), sizes: vec![size] };
    run_cell(&Addresses::new(trace), &[layer], String::new(), &CellOptions::default()).expect("a cell that runs")
}

fn estimates(
    trace: &Trace,
    cells: &[(&PolicySpec, Size)],
    (seed, neighbours, rate): (u64, bool, f64),
    options: &CellOptions,
) -> Result<Vec<Result<Estimate, CellError>>, SampleError> {
    let sampler = Sampler::of_share(seed, neighbours, rate);
    let sampled = trace.sampled(&|at| sampler.find(at).is_some());
    let sample = Sample::new(&sampled.trace, &sampled.population, sampler, rate, 4)?;
    Ok(sample.estimate(cells, options, 2, &|| ()))
}

/// A ratio beyond 1 cannot be: dividing by the expected number of requests once gave 406 % for such a stream.
#[test]
fn a_sample_of_a_skewed_stream_is_near_for_any_seed() {
    let trace = skewed();
    let policies = parse_policies("lru,s3-fifo,h-arc").expect("policies");
    let sizes = [Size::Percent(5.0), Size::Percent(20.0)];
    let cells: Vec<(&PolicySpec, Size)> = policies.iter().flat_map(|policy| sizes.map(|size| (policy, size))).collect();
    let rows: Vec<Row> = cells.iter().map(|(policy, size)| exact(&trace, policy, *size)).collect();
    let (mut errors, mut worst) = (0.0, 0.0f64);
    let seeds = 30;
    for seed in 0..seeds {
        let made = estimates(&trace, &cells, (seed, false, 0.02), &CellOptions::default()).expect("enough pages");
        for (row, made) in rows.iter().zip(made) {
            let made = made.expect("a cell that runs");
            assert!((0.0..=1.0).contains(&made.miss_ratio), "seed {seed}: {made:?}");
            assert!(0.0 <= made.miss_ratio_low && made.miss_ratio_high <= 1.0, "seed {seed}: {made:?}");
            assert!((made.miss_ratio_low..=made.miss_ratio_high).contains(&made.miss_ratio), "seed {seed}: {made:?}");
            assert!(
                (made.write_ratio_low..=made.write_ratio_high).contains(&made.write_ratio),
                "seed {seed}: {made:?}"
            );
            let off = (made.miss_ratio - (1.0 - row.hit_ratio())).abs();
            let written = (made.write_ratio - row.written_below() as f64 / row.requests as f64).abs();
            assert!(written < 0.1, "seed {seed}: {} at {}: written off by {written}", made.policy, made.size);
            errors += off;
            worst = worst.max(off);
        }
    }
    let mean = errors / (seeds as usize * cells.len()) as f64;
    println!("seeds 0 to {}: mean error {mean:.4}, worst {worst:.4}", seeds - 1);
    assert!(mean < 0.01 && worst < 0.06, "mean {mean}, worst {worst}");
}

#[test]
fn the_interval_holds_the_exact_ratio_about_nineteen_times_in_twenty() {
    let trace = skewed();
    let policies = parse_policies("lru,s3-fifo").expect("policies");
    let sizes = [Size::Percent(5.0), Size::Percent(10.0), Size::Percent(20.0)];
    let cells: Vec<(&PolicySpec, Size)> = policies.iter().flat_map(|policy| sizes.map(|size| (policy, size))).collect();
    let rows: Vec<Row> = cells.iter().map(|(policy, size)| exact(&trace, policy, *size)).collect();
    let (seeds, mut misses, mut writes) = (120, 0, 0);
    for seed in 0..seeds {
        let made =
            estimates(&trace, &cells, (1000 + seed, false, 0.02), &CellOptions::default()).expect("enough pages");
        for (row, made) in rows.iter().zip(made) {
            let made = made.expect("a cell that runs");
            let (miss_ratio, write_ratio) = (1.0 - row.hit_ratio(), row.written_below() as f64 / row.requests as f64);
            misses += usize::from((made.miss_ratio_low..=made.miss_ratio_high).contains(&miss_ratio));
            writes += usize::from((made.write_ratio_low..=made.write_ratio_high).contains(&write_ratio));
        }
    }
    let share = |count: usize| count as f64 / (seeds as usize * cells.len()) as f64;
    println!("seeds 1000 to {}: misses {:.3}, writes {:.3}", 999 + seeds, share(misses), share(writes));
    assert!((0.90..=0.99).contains(&share(misses)) && (0.90..=0.99).contains(&share(writes)));
}

/// Every page sampled: the estimate is the exact ratio, and nothing is left to be uncertain.
#[test]
fn a_sample_of_all_pages_is_exact() {
    let trace = traced("zipf:n=30k:pages=5k:seed=2:write=30");
    let policies = parse_policies("lru,2q,bplru,min").expect("policies");
    for policy in &policies {
        for warmup in [0.0, 0.5] {
            let size = Size::Percent(10.0);
            let options = CellOptions { warmup, ..CellOptions::default() };
            let made = estimates(&trace, &[(policy, size)], (1, policy.info.neighbours, 1.0), &options);
            let made = made.expect("enough pages").remove(0).expect("a cell that runs");
            let layer = LayerSpec { policy: policy.clone(), sizes: vec![size] };
            let row = run_cell(&Addresses::new(&trace), &[layer], String::new(), &options).expect("a cell that runs");
            let off = (made.miss_ratio - (1.0 - row.hit_ratio())).abs();
            let written = (made.write_ratio - row.written_below() as f64 / row.requests as f64).abs();
            // Misses within an octave of requests are extrapolated by its mean: exact but for rounding when warm too.
            assert!(off < 0.005 && written < 0.005, "{} off by {off}, {written}", made.policy);
            assert!(made.miss_ratio_error == 0.0 && made.miss_ratio_low == made.miss_ratio_high, "{made:?}");
        }
    }
}

#[test]
fn only_a_sample_of_few_pages_is_refused() {
    let trace = traced("zipf:n=60k:pages=25k:seed=3:write=30:ids=hashed");
    let lru = &parse_policies("lru").expect("lru")[0];
    let cell = [(lru, Size::Percent(1.0))];
    let share = |pages: f64| pages / trace.footprint() as f64;
    let refused = estimates(&trace, &cell, (1, false, share(240.0)), &CellOptions::default());
    let refused = refused.expect_err("fewer pages than are needed");
    assert!(matches!(refused, SampleError::TooFewPages { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("at least {SAMPLED_PAGES_MIN}")), "{refused}");
    let made = estimates(&trace, &cell, (1, false, share(400.0)), &CellOptions::default()).expect("enough pages");
    let made = made.into_iter().next().expect("one cell").expect("a cell that runs");
    assert!(made.small && made.sampled_capacity_pages < CACHE_PAGES_MIN, "{made:?}");
    let large = [(lru, Size::Percent(20.0))];
    let made = estimates(&trace, &large, (1, false, share(400.0)), &CellOptions::default()).expect("enough pages");
    assert!(!made[0].as_ref().expect("a cell that runs").small);
}

/// Every policy of the catalogue at a size that the sample makes tiny: each is estimated if it can be run at all.
#[test]
fn no_cell_is_refused_that_runs_without_a_sample() {
    let trace = traced("zipf:n=40k:pages=20k:seed=6:write=30:update=20 | scan:n=10k:object=s");
    let policies = parse_policies("all").expect("policies");
    let addresses = Addresses::new(&trace);
    for size in [Size::Percent(1.0), Size::Pages(3)] {
        for policy in &policies {
            let made = estimates(&trace, &[(policy, size)], (9, policy.info.neighbours, 0.05), &CellOptions::default());
            let made = made.expect("enough pages").remove(0);
            match Cell::single(policy, size, None, &addresses) {
                Ok(_) => {
                    let made = made.unwrap_or_else(|error| panic!("{} at {size}: {error}", policy.info.name));
                    assert!((0.0..=1.0).contains(&made.miss_ratio), "{made:?}");
                }
                Err(skipped) => assert_eq!(made.expect_err("too small"), skipped.error),
            }
        }
    }
}

/// Gives the blocks of each object's pages other places at random: whoever looks for neighbours sees others.
fn scattered(trace: Trace, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut blocks = trace.page_block.to_vec();
    for last in (1..blocks.len()).rev() {
        let other = random.below(last as u64 + 1) as usize;
        if trace.page_object[other] == trace.page_object[last] {
            blocks.swap(last, other);
        }
    }
    Trace { page_block: Column::Owned(blocks), ..trace }
}

/// Addresses hashed by the policies, which do not look for neighbours all the same.
const HASHES: [&str; 2] = ["w-tinylfu", "auto"];

#[test]
fn policies_that_look_for_neighbours_say_so() {
    let seed = 8;
    println!("seed {seed}");
    let spec = "olap:n=20k:pages=6k:seed=3 | zipf:n=30k:pages=6k:seed=1:write=60:object=rows";
    let (whole, apart) = (traced(spec), scattered(traced(spec), seed));
    for info in catalogue::ALL.iter().filter(|info| !HASHES.contains(&info.name)) {
        let policy = &parse_policies(info.name).expect("a policy")[0];
        let rows = [&whole, &apart].map(|trace| Row { cpu_seconds: 0.0, ..exact(trace, policy, Size::Percent(10.0)) });
        let same = rows[0] == rows[1];
        assert_eq!(same, !info.neighbours, "{}: with other neighbours it does the same: {same}", info.name);
    }
}
