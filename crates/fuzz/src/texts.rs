//! Targets for input of users: traces of every format, sizes, policies, stacks.

use entresol_core::Size;
use entresol_sim::{Addresses, Cell, CellOptions, parse_policies, parse_stack, sweep};
use entresol_trace::{Compression, Format, Input, LoadOptions, LoadReport, Meta, build, detect, native as own, source};
use entresol_trace::{GenerateSpec, Trace, generate};
use std::io::Cursor;
use std::path::Path;
use std::sync::OnceLock;

/// A trace in the native format. An accepted trace is safe to drive.
pub(crate) fn native(data: &[u8]) {
    if let Ok(trace) = own::from_bytes(Path::new("fuzz"), data) {
        for i in 0..trace.len() {
            assert!(trace.address(trace.request(i).page).object.index() < trace.objects.len());
        }
    }
}

/// A trace in a foreign format, which the first byte chooses.
pub(crate) fn readers(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let path = Path::new("fuzz");
    let _ = detect(bytes, choice & 0x80 == 0, "fuzz");
    let format = Format::ALL[usize::from(choice & 0x7F) % Format::ALL.len()];
    let Ok(input) = Input::new(path, Box::new(Cursor::new(bytes.to_vec()))) else { return };
    let meta = Meta::new(8192, (0..).zip(["stock", "WAL", "q1#0:a"].map(str::to_owned)));
    let Ok(mut source) = source(format, input, meta) else { return };
    let options = LoadOptions { limit: Some(100_000), skip_bad: u64::MAX, ..LoadOptions::default() };
    let mut report = LoadReport::new(format, Compression::Plain);
    if let Ok(mut trace) = build(path, &mut *source, &options, &mut report) {
        assert!(trace.len() <= 100_000);
        trace.compute_next_use();
    }
}

fn trace() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| generate(&"zipf:n=300:pages=60:seed=1:write=40".parse().expect("a specification")))
}

/// Drives a cell if it can be built; its options were accepted, so it must not fail.
fn drive(cell: Result<Cell, impl Sized>, addresses: &Addresses) {
    if let Ok(cell) = cell {
        let swept = sweep(addresses, &[cell], &CellOptions::default(), 1, &mut |_| {});
        assert_eq!(swept.expect("a cell that was built runs").rows[0].requests, 300);
    }
}

/// Sizes, policies, stacks and generated traces as typed by a user. Accepted and small input is driven.
pub(crate) fn specs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let addresses = Addresses::new(trace());
    if let Ok(size) = text.parse::<Size>() {
        let _ = size.pages(4096, 1_000_000);
        let _ = size.to_string();
    }
    if let Ok(policies) = parse_policies(text) {
        for policy in policies.iter().take(3) {
            drive(Cell::single(policy, Size::Pages(12), None, &addresses), &addresses);
        }
    }
    if let Ok(layers) = parse_stack(text) {
        let small = |size: &Size| size.pages(4096, 60) <= 1000;
        if layers.len() <= 4 && layers.iter().all(|layer| layer.sizes.iter().all(small)) {
            drive(Cell::stack(&layers, text.to_owned(), &addresses), &addresses);
        }
    }
    let _ = GenerateSpec::parse(text, 4096);
}
