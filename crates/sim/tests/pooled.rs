//! A policy under a pool decides as the lower of two stacked layers does, whose upper one is LRU.

use entresol_core::Size;
use entresol_policy::catalogue;
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, Row, parse_policies, parse_stack, run_cell};
use entresol_trace::{Trace, generate};

const SEED: u64 = 11;

fn options(seed: u64) -> CellOptions {
    CellOptions { seed, ..CellOptions::default() }
}

fn pooled(policy: &PolicySpec, sizes: [usize; 2], addresses: &Addresses) -> Row {
    let layer = LayerSpec { policy: policy.clone(), sizes: sizes.map(|pages| Size::Pages(pages as u64)).to_vec() };
    run_cell(addresses, &[layer], String::new(), &options(SEED)).expect("a run")
}

/// The same as two layers. The seed of the lower one is one above that of the stack.
fn stacked(policy: &PolicySpec, sizes: [usize; 2], addresses: &Addresses) -> Row {
    let [dram, size] = sizes;
    let layers = parse_stack(&format!("lru:{dram},{}:{size}", policy.info.name)).expect("a stack");
    run_cell(addresses, &layers, String::new(), &options(SEED - 1)).expect("a run")
}

fn trace(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

#[test]
fn a_pool_and_a_stack_have_the_same_requests_below() {
    // No request is marked as sequential: a layer does not hear of that mark from the one above.
    let specs = [
        "zipf:n=20k:pages=2k:seed=1:write=40",
        "mixed:n=20k:pages=1k:seed=2:write=20",
        "uniform:n=8k:pages=300:seed=3:write=60",
    ];
    let (mut spared, mut exact) = (0, 0);
    for spec in specs {
        let trace = trace(spec);
        let addresses = Addresses::new(&trace);
        for info in catalogue::ALL.iter().filter(|info| info.tiers.len() == 1 && !info.future) {
            let policy = &parse_policies(info.name).expect("a policy")[0];
            for sizes in [[1, 60], [20, 200], [200, 40]] {
                let (ours, stack) = (pooled(policy, sizes, &addresses), stacked(policy, sizes, &addresses));
                let context = format!("{spec}, {}, {sizes:?}, seed {SEED}", info.name);
                assert_eq!(ours.policy, stack.policy, "{context}");
                assert_eq!(ours.read_hits, stack.read_hits, "{context}: read hits");
                assert_eq!(ours.fetches, stack.fetches, "{context}: fetches");
                // A layer of a stack writes below what is newer in the layer above as well.
                let (written, most) = (ours.written_below(), stack.written_below());
                assert!(written <= most, "{context}: {written} pages written below, {most} from a stack");
                spared += most - written;
                exact += u64::from(written == most);
                assert_eq!(ours.dirty_at_end, stack.dirty_at_end, "{context}: dirty at the end");
                // Writes of pages that the lower layer has count as hits, as they do for policies of two tiers.
                assert!(ours.write_hits >= stack.write_hits, "{context}: write hits");
            }
        }
    }
    println!("{spared} pages not written, equal in {exact} cells");
    assert!(spared > 0 && exact > 0);
}
