//! What a person types: sizes, policies, stacks, generated traces. Any text is understood or refused, and what is
//! understood and small is driven. `cargo +nightly fuzz run specs -- -max_len=512`
#![no_main]

use entresol_core::Size;
use entresol_sim::{Cell, CellOptions, World, parse_policies, parse_stack, sweep};
use entresol_trace::{GenerateSpec, Trace, generate};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fn trace() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| generate(&"zipf:n=300:pages=60:seed=1:write=40".parse().expect("a specification")))
}

/// Drives a cell if it can be; its options were accepted, so nothing may go wrong.
fn drive(cell: Result<Cell, impl Sized>, world: &World) {
    if let Ok(cell) = cell {
        let swept = sweep(world, &[cell], &CellOptions::default(), 1, &mut |_| {});
        assert_eq!(swept.expect("a cell that was built runs").rows[0].requests, 300);
    }
}

fuzz_target!(|text: &str| {
    let world = World::new(trace());
    if let Ok(size) = text.parse::<Size>() {
        let _ = size.pages(4096, 1_000_000);
        let _ = size.to_string();
    }
    if let Ok(policies) = parse_policies(text) {
        for policy in policies.iter().take(3) {
            drive(Cell::single(policy, Size::Pages(12), None, &world), &world);
        }
    }
    if let Ok(layers) = parse_stack(text) {
        let small = |size: &Size| size.pages(4096, 60) <= 1000;
        if layers.len() <= 4 && layers.iter().all(|layer| layer.sizes.iter().all(small)) {
            drive(Cell::stack(&layers, text.to_owned(), &world), &world);
        }
    }
    let _ = GenerateSpec::parse(text, 4096);
});
