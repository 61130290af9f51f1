//! Sweeps, curves, stacks and samples against each other and against plain reasoning.

use entresol_core::{Op, Size};
use entresol_policy::parts::Sampler;
use entresol_policy::{Options, catalogue};
use entresol_sim::{
    Addresses, Cell, CellOptions, LayerSpec, PolicySpec, Row, Sample, lru_curve, parse_policies, parse_stack, run_cell,
    sweep,
};
use entresol_trace::{Trace, generate};
use proptest::prelude::*;

fn traced(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

fn layer(name: &str, pages: u64) -> LayerSpec {
    let info = catalogue::info(name).expect("a policy");
    LayerSpec { policy: PolicySpec { info, options: Options::defaults(info) }, sizes: vec![Size::Pages(pages)] }
}

fn row(addresses: &Addresses, layers: &[LayerSpec], options: &CellOptions) -> Row {
    run_cell(addresses, layers, String::new(), options).expect("a cell that runs")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// One pass over the trace gives the results of a run per size, write-backs included.
    #[test]
    fn the_curve_of_lru_is_that_of_its_cells(seed in 0u64..1000, write in 0u32..=100, pages in 2u64..300) {
        let trace = traced(&format!(
            "zipf:n=1000:pages={pages}:seed={seed}:write={write}:update=30 + loop:n=400:pages={pages}:write={write}"
        ));
        let addresses = Addresses::new(&trace);
        let capacities: Vec<usize> = (1..=pages as usize + 3).collect();
        for point in lru_curve(&addresses, &capacities) {
            let cell = row(&addresses, &[layer("lru", point.capacity as u64)], &CellOptions::default());
            let misses = cell.reads - point.read_hits + point.update_misses;
            prop_assert_eq!(point.read_hits, cell.read_hits, "read hits at {}", point.capacity);
            prop_assert_eq!(point.write_hits, cell.write_hits, "write hits at {}", point.capacity);
            prop_assert_eq!(misses, cell.fetches, "fetches at {}", point.capacity);
            prop_assert_eq!(point.write_backs, cell.write_backs, "write-backs at {}", point.capacity);
            prop_assert_eq!(point.dirty_at_end, cell.dirty_at_end, "dirty pages at {}", point.capacity);
            prop_assert_eq!(point.held as u64, cell.tiers[0].held_pages, "frames at {}", point.capacity);
        }
    }
}

/// A long trace over few pages makes the curve renumber its clock.
#[test]
fn the_curve_survives_many_more_requests_than_its_clock_has_ticks() {
    let trace = traced("zipf:n=300000:pages=500:seed=3:write=20");
    let addresses = Addresses::new(&trace);
    for point in lru_curve(&addresses, &[1, 50, 499]) {
        let cell = row(&addresses, &[layer("lru", point.capacity as u64)], &CellOptions::default());
        assert_eq!((point.read_hits, point.write_backs), (cell.read_hits, cell.write_backs));
    }
}

#[test]
fn a_sweep_gives_the_rows_of_its_cells_in_order() {
    let trace = traced("zipf:n=20000:pages=1000:seed=5:write=30");
    let addresses = Addresses::new(&trace);
    let sizes: Vec<Size> = ["1%", "5%", "10%", "20%", "50%"].map(|size| size.parse().expect("a size")).to_vec();
    let policies = parse_policies("lru,face,face-gsc:scan=16").expect("policies");
    let cells: Vec<Cell> = policies
        .iter()
        .flat_map(|policy| sizes.iter().map(|&size| Cell::single(policy, size, None, &addresses).expect("a cell")))
        .collect();
    let mut reported = 0;
    let swept = sweep(&addresses, &cells, &CellOptions::default(), 2, &mut |progress| {
        reported += 1;
        assert_eq!(progress.done, reported);
    });
    let rows = swept.expect("a sweep that runs").rows;
    assert_eq!(reported, cells.len());
    for (policy, chunk) in policies.iter().zip(rows.chunks(sizes.len())) {
        for (size, swept) in sizes.iter().zip(chunk) {
            let spec = LayerSpec { policy: policy.clone(), sizes: vec![*size] };
            let mut alone = run_cell(&addresses, &[spec], size.to_string(), &CellOptions::default()).expect("a cell");
            // Time differs from run to run, and the one pass over all sizes of LRU has neither cell state nor gauges.
            alone.cpu_seconds = swept.cpu_seconds;
            alone.memory_bytes = swept.memory_bytes;
            assert_eq!(&alone, swept);
        }
    }
}

#[test]
fn a_stack_passes_misses_and_write_backs_on() {
    let trace = traced("zipf:n=20000:pages=2000:seed=5:write=40:update=50");
    let addresses = Addresses::new(&trace);
    let stack = parse_stack("lru:100,lru:400").expect("a stack");
    let whole = row(&addresses, &stack, &CellOptions::default());
    let top = row(&addresses, &stack[..1], &CellOptions::default());
    let [upper, lower] = whole.layers.as_slice() else { panic!("two layers") };
    assert_eq!(upper.fetches, top.fetches, "the layer above does not notice the one below");
    assert_eq!(lower.requests, top.fetches + top.write_backs, "what leaves one layer reaches the next");
    assert_eq!(lower.writes, top.write_backs);
    assert_eq!(whole.fetches, lower.requests - lower.writes - lower.read_hits, "reads below are misses of both");
    assert!(whole.read_hits >= top.read_hits && whole.write_hits >= top.write_hits);
    let found = whole.read_hits + whole.write_hits - top.read_hits - top.write_hits;
    assert_eq!(found, lower.read_hits, "what the lower layer finds counts for the request that caused it");
    assert!(whole.read_hits <= whole.reads && whole.write_hits <= whole.writes);
}

/// Dirty pages neither vanish nor multiply on their way down a stack.
#[test]
fn every_written_page_ends_below_or_dirty() {
    let trace = traced("uniform:n=5000:pages=300:write=60");
    let addresses = Addresses::new(&trace);
    let mut written = vec![false; trace.footprint()];
    (0..trace.len()).filter(|&i| trace.request(i).op != Op::Read).for_each(|i| written[trace.pages[i] as usize] = true);
    let distinct = written.iter().filter(|&&w| w).count() as u64;
    let whole = row(&addresses, &parse_stack("lru:10,face:0:50").expect("a stack"), &CellOptions::default());
    assert!(whole.write_backs + whole.dirty_at_end >= distinct);
    assert!(whole.write_backs <= whole.writes);
}

#[test]
fn warm_up_is_driven_but_not_counted() {
    let trace = traced("zipf:n=10000:pages=500:seed=1");
    let addresses = Addresses::new(&trace);
    let options = CellOptions { warmup: 0.25, interval: Some(1000), ..CellOptions::default() };
    let warm = row(&addresses, &[layer("lru", 50)], &options);
    let cold = row(&addresses, &[layer("lru", 50)], &CellOptions { interval: Some(2500), ..CellOptions::default() });
    assert_eq!(warm.requests, 7500);
    let after_first: u64 = cold.series[1..].iter().map(|interval| interval.hits).sum();
    assert_eq!(warm.read_hits, after_first);
    assert_eq!(
        warm.series.iter().map(|interval| interval.requests).collect::<Vec<_>>(),
        [[1000; 7].as_slice(), &[500]].concat()
    );
}

#[test]
fn drain_counts_runs_of_neighbours() {
    let trace = traced("scan:n=30:write=100 + scan:n=10:base=100:write=100");
    let addresses = Addresses::new(&trace);
    let options = CellOptions { drain: true, ..CellOptions::default() };
    let row = row(&addresses, &[layer("lru", 100)], &options);
    assert_eq!((row.dirty_at_end, row.drain_ios), (40, Some(2)));
}

#[test]
fn a_sample_is_near_and_says_how_near() {
    let trace = traced("zipf:n=400000:pages=60000:seed=11:write=20:ids=scattered");
    let addresses = Addresses::new(&trace);
    for size in [600, 6000] {
        let exact = row(&addresses, &[layer("lru", size)], &CellOptions::default());
        let sampler = Sampler::of_share(3, false, 0.1);
        let sampled = trace.sampled(&|at| sampler.find(at).is_some());
        let sample = Sample::new(&sampled.trace, &sampled.population, sampler, 0.1, 5).expect("enough pages");
        let lru = layer("lru", size).policy;
        let estimate = sample.estimate(&[(&lru, Size::Pages(size))], &CellOptions::default(), 1, &|| ()).remove(0);
        let estimate = estimate.expect("an estimate");
        let miss_ratio = 1.0 - exact.hit_ratio();
        let off = (estimate.miss_ratio - miss_ratio).abs();
        println!(
            "{size}: exact {miss_ratio:.4}, estimate {:.4} +- {:.4}",
            estimate.miss_ratio, estimate.miss_ratio_error
        );
        assert_eq!(estimate.samples, 20, "two halves each of ten divisions");
        assert!(off < 0.03 && off < 5.0 * estimate.miss_ratio_error, "off by {off}");
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let trace = traced("zipf:n=100:pages=50");
    let addresses = Addresses::new(&trace);
    let lru = &parse_policies("lru").expect("lru")[0];
    for size in ["0", "0%", "0.1%", "100B"] {
        let refused = Cell::single(lru, size.parse().expect("a size"), None, &addresses);
        assert!(refused.is_err(), "{size} was taken");
    }
    assert!(Cell::single(lru, Size::Percent(10.0), Some(Size::Pages(3)), &addresses).is_ok());
}
