//! Tests of typed text: it is parsed or refused, never a panic. A parsed text can be run, or gives a reason why not.

use entresol_core::Size;
use entresol_policy::catalogue;
use entresol_sim::{Addresses, Cell, CellOptions, parse_policies, parse_stack, sweep};
use entresol_trace::{GenerateSpec, Trace, generate};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

/// Settings that draw the same cases every time: a failure prints its smallest text, and a second run finds it again.
fn seeded(cases: u32) -> Config {
    Config { rng_seed: RngSeed::Fixed(0x5eed_0002), failure_persistence: None, cases, ..Config::default() }
}

/// Text of the words that specifications are made of, in any order.
fn words() -> impl Strategy<Value = String> {
    let names: Vec<&str> = catalogue::ALL.iter().map(|info| info.name).collect();
    let options: Vec<&str> = catalogue::ALL.iter().flat_map(|info| info.options).map(|option| option.name).collect();
    let word = prop_oneof![
        prop::sample::select(names).prop_map(str::to_owned),
        prop::sample::select(options).prop_map(|name| format!("{name}=")),
        prop::sample::select(vec!["zipf", "loop", "tpcc", "scan", "n=", "pages=", "seed=", "write=", "all", "%", "p"])
            .prop_map(str::to_owned),
        prop::sample::select(vec![":", ":", ":", ",", "=", "|", "+", ".", "-", " ", "Ki", "MiB"])
            .prop_map(str::to_owned),
        any::<u64>().prop_map(|number| number.to_string()),
        (0..100u64).prop_map(|number| number.to_string()),
        "\\PC{0,3}",
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

fn trace() -> Trace {
    generate(&"zipf:n=200:pages=50:seed=1:write=40".parse().expect("a specification"))
}

proptest! {
    #![proptest_config(seeded(4000))]

    #[test]
    fn any_text_is_understood_or_refused(text in prop_oneof![words(), "\\PC*", ".*"]) {
        if let Ok(size) = text.parse::<Size>() {
            let _ = size.pages(4096, u64::MAX);
            // Displayed text parses again, though a share may lose its last digits.
            prop_assert!(size.to_string().parse::<Size>().is_ok(), "{size}");
        }
        let _ = GenerateSpec::parse(&text, 4096);
        for refused in [parse_policies(&text).err(), parse_stack(&text).err()].into_iter().flatten() {
            prop_assert!(!refused.to_string().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(seeded(600))]

    #[test]
    fn options_that_are_accepted_can_be_run(
        info in prop::sample::select(catalogue::ALL.to_vec()),
        values in prop::collection::vec(
            prop::sample::select(vec!["0", "1", "2", "7", "64", "1000000", "0.5", "1.5", "-1", "10%", "5p", "1MiB", "", "on", "x"]), 1..3),
        chosen in any::<prop::sample::Index>(),
        pages in 1..20u64,
    ) {
        prop_assume!(!info.options.is_empty());
        let first = chosen.index(info.options.len());
        let given = values.iter().enumerate().map(|(i, value)| {
            format!(":{}={value}", info.options[(first + i) % info.options.len()].name)
        });
        let text = format!("{}{}", info.name, given.collect::<String>());
        let trace = trace();
        let addresses = Addresses::new(&trace);
        let Ok(policies) = parse_policies(&text) else { return Ok(()) };
        let Ok(cell) = Cell::single(&policies[0], Size::Pages(pages), None, &addresses) else { return Ok(()) };
        let swept = sweep(&addresses, &[cell], &CellOptions::default(), 1, &mut |_| {});
        prop_assert!(swept.is_ok(), "{text} at {pages} pages was accepted and could not be run");
        prop_assert_eq!(swept.expect("checked").rows[0].requests, 200);
    }
}
