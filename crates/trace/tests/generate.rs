//! Generated traces: bit-exact against the digests of the oracle traces, and the promised properties of each kind.

use entresol_core::Op;
use entresol_trace::{EventKind, GenerateSpec, OpByte, Trace, generate};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

fn trace(text: &str) -> Trace {
    generate(&text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digest of the blocks, plus `add`, as 64-bit little-endian words.
fn digest_of_ids(trace: &Trace, add: u64) -> String {
    let mut sha = Sha256::new();
    for chunk in trace.pages.chunks(8192) {
        let bytes: Vec<u8> =
            chunk.iter().flat_map(|page| (trace.page_block[*page as usize] + add).to_le_bytes()).collect();
        sha.update(bytes);
    }
    hex(sha.finalize())
}

fn writes(trace: &Trace) -> usize {
    trace.ops.iter().filter(|byte| OpByte(**byte).op().is_write()).count()
}

/// Columns agree in length, pages are numbered in order of first appearance, no page is listed twice.
fn check_shape(trace: &Trace) {
    assert_eq!(trace.pages.len(), trace.ops.len());
    assert_eq!(trace.times_us.as_ref().map(|times| times.len()), Some(trace.len()));
    assert_eq!(trace.page_object.len(), trace.page_block.len());
    let mut next = 0;
    for page in trace.pages.iter() {
        assert!(*page <= next, "page {page} before {next}");
        next = next.max(page + 1);
    }
    assert_eq!(next as usize, trace.footprint());
    let places: HashSet<_> = trace.page_object.iter().zip(trace.page_block.iter()).collect();
    assert_eq!(places.len(), trace.footprint());
    for (object, block) in places {
        assert!(*block < trace.objects[*object as usize].pages);
    }
}

#[test]
fn small_oracle_traces_are_reproduced_to_the_bit() {
    let zipf = trace("zipf:n=200k:pages=20k:seed=42");
    assert_eq!(digest_of_ids(&zipf, 1), "a78892adf6befee368066473fe2c98e3e8399f9a4a83a74daa8387a71eb4f0a2");
    let mixed = trace("mixed:n=200k:pages=20k:seed=7");
    assert_eq!(digest_of_ids(&mixed, 1), "3d66fd5ec960c78db3f77f448c44a23184e319126660fe50605352e7bfe78852");
    check_shape(&mixed);
}

/// The digests come from a plain implementation of the oracle's generator in another language.
#[test]
fn the_read_write_oracle_trace_is_reproduced_to_the_bit() {
    let trace = trace("mixed:n=50k:pages=5k:seed=7:write=30");
    assert_eq!(digest_of_ids(&trace, 1), "503b95d9774ad80066b9ce1c1f98e2adcf2bf2fc31229c4465b8e8ca42ed48e9");
    let flags: Vec<u8> = trace.ops.iter().map(|byte| u8::from(OpByte(*byte).op() == Op::Write)).collect();
    assert_eq!(hex(Sha256::digest(flags)), "446b43541611f8d2135aa5b14f2e5f81768b9f95f427c3bc0b9f4a5da5c311c2");
    assert_eq!(writes(&trace), 14_776);
}

#[test]
fn large_oracle_traces_are_reproduced_to_the_bit() {
    let zipf = trace("zipf:n=10M:pages=1M:seed=42:ids=hashed");
    assert_eq!(zipf.footprint(), 762_860);
    assert_eq!(digest_of_ids(&zipf, 0), "7fd53f60ece1b0f339d2b3361cb84ba51dac8e61cc28477d92f1953c094feff7");
    drop(zipf);
    let digest = digest_of_ids(&trace("mixed:n=10M:pages=1M:seed=7:ids=hashed"), 0);
    assert!(digest.starts_with("92253b38") && digest.ends_with("eeec787d5"), "{digest}");
}

#[test]
fn every_kind_has_its_shape_and_repeats_itself() {
    for text in [
        "zipf:n=3k:pages=500:exponent=0.8:write=20:update=50",
        "pareto:n=3k:pages=500:seed=3",
        "hotcold:n=3k:pages=500:hot=10:to=90:ids=scattered",
        "uniform:n=3k:pages=500:ids=hashed",
        "loop:n=3k:pages=500:base=7",
        "scan:n=3k:gap=0",
        "mixed:n=3k:pages=500",
        "tpcc:n=30k:warehouses=1",
        "olap:n=30k:pages=1000",
        "zipf:n=1k:pages=100|scan:n=500:base=1k+tpcc:n=2k|olap:n=1k",
    ] {
        let (one, two) = (trace(text), trace(text));
        check_shape(&one);
        assert_eq!(one.len() as u64, text.parse::<GenerateSpec>().expect("a spec").requests());
        assert!(one.pages[..] == two.pages[..] && one.ops[..] == two.ops[..] && one.events == two.events, "{text}");
    }
}

#[test]
fn shares_come_out_as_asked() {
    let share = |trace: &Trace, below: u64| {
        let hits = trace.pages.iter().filter(|page| trace.page_block[**page as usize] < below).count();
        hits as f64 / trace.len() as f64
    };
    let pareto = trace("pareto:n=100k:pages=10k:hot=20:to=80");
    assert!((share(&pareto, 2000) - 0.8).abs() < 0.01);
    assert!((share(&pareto, 400) - 0.64).abs() < 0.01);
    let hot_cold = trace("hotcold:n=100k:pages=10k:hot=10:to=70");
    assert!((share(&hot_cold, 1000) - 0.7).abs() < 0.01);
    assert!((share(&hot_cold, 500) - 0.35).abs() < 0.01);
    let uniform = trace("uniform:n=100k:pages=10k:write=40:update=25");
    assert!((share(&uniform, 5000) - 0.5).abs() < 0.01);
    assert!((writes(&uniform) as f64 / 1e5 - 0.4).abs() < 0.01);
    let updates = uniform.ops.iter().filter(|byte| OpByte(**byte).op() == Op::Update).count();
    assert!((updates as f64 / 1e5 - 0.1).abs() < 0.01);
    let zipf = trace("zipf:n=100k:pages=1k:exponent=2");
    assert!((share(&zipf, 1) - 0.6083).abs() < 0.01); // 1 / (sum of 1 / r^2 up to 1000)
}

#[test]
fn a_mixture_keeps_counts_and_orders_and_phases_keep_apart() {
    let trace = trace("scan:n=7k:object=a | loop:n=3k:pages=10:object=b:gap=5 + uniform:n=1k:pages=5:object=c");
    let object = |i: usize| trace.objects[trace.page_object[trace.pages[i] as usize] as usize].name.as_str();
    let early_b = (0..5000).filter(|i| object(*i) == "b").count();
    assert!((1300..1700).contains(&early_b), "{early_b} of the first half come from the smaller part");
    assert_eq!((0..10_000).filter(|i| object(*i) == "a").count(), 7000);
    assert!((10_000..11_000).all(|i| object(i) == "c"));
    let scan: Vec<u64> =
        (0..10_000).filter(|i| object(*i) == "a").map(|i| trace.page_block[trace.pages[i] as usize]).collect();
    assert!(scan.iter().copied().eq(0..7000));
    let sequential = (0..10_000).filter(|i| object(*i) == "a" && trace.request(*i).sequential).count();
    assert_eq!(sequential, 6999);
    assert_eq!(trace.times_us.as_ref().expect("times")[10_000], 7000 + 3000 * 5);
}

#[test]
fn another_seed_scatters_the_same_pages_otherwise() {
    let blocks = |seed| -> HashMap<u64, usize> {
        let trace = trace(&format!("zipf:n=50k:pages=100:ids=scattered:seed={seed}"));
        let mut counts = HashMap::new();
        for page in trace.pages.iter() {
            *counts.entry(trace.page_block[*page as usize]).or_insert(0) += 1;
        }
        counts
    };
    let (one, two) = (blocks(1), blocks(2));
    assert!(one.keys().all(|block| *block < 100) && one.len() == 100 && two.len() == 100);
    let hottest = |counts: &HashMap<u64, usize>| *counts.iter().max_by_key(|entry| entry.1).expect("pages").0;
    assert_ne!(hottest(&one), hottest(&two));
}

#[test]
fn tpcc_looks_like_a_recorded_run() {
    let spec = GenerateSpec::parse("tpcc:n=2M:warehouses=20:seed=9", 8192).expect("a spec");
    let trace = generate(&spec);
    check_shape(&trace);
    assert_eq!(trace.objects.len(), 19);
    let mut requests: HashMap<&str, usize> = HashMap::new();
    let mut first_writes = 0;
    let mut seen = vec![false; trace.footprint()];
    for i in 0..trace.len() {
        let page = trace.pages[i] as usize;
        *requests.entry(trace.objects[trace.page_object[page] as usize].name.as_str()).or_default() += 1;
        if trace.request(i).op == Op::Write {
            assert!(!seen[page], "request {i} writes a fresh page that is not");
            first_writes += 1;
        }
        seen[page] = true;
    }
    assert!(first_writes > 500, "{first_writes} fresh pages");
    // Shares of the recorded stream above PostgreSQL's pool (20 warehouses): stock_pkey 0.29, stock 0.18,
    // order_line_pkey 0.11, order_line 0.10, item 0.025, customer 0.036. The generator's stay within a factor 2.5.
    for (name, recorded) in
        [("stock_pkey", 0.29), ("stock", 0.18), ("order_line_pkey", 0.11), ("order_line", 0.10), ("customer", 0.036)]
    {
        let share = requests[name] as f64 / trace.len() as f64;
        assert!((recorded / 2.5..recorded * 2.5).contains(&share), "{name}: {share:.3}, recorded {recorded}");
    }
    assert!((0.15..0.35).contains(&(writes(&trace) as f64 / trace.len() as f64)));
}

#[test]
fn olap_queries_have_boundaries_and_objects() {
    let trace = trace("olap:n=400k:pages=20k:seed=5");
    let mut open = None;
    let mut labels = HashSet::new();
    for event in &trace.events {
        match &event.kind {
            EventKind::QueryBegin { query, label, objects } => {
                assert!(open.is_none() && !objects.is_empty() && objects.is_sorted());
                open = Some((*query, event.at, objects.clone()));
                labels.insert(label.split('#').next().expect("a name").to_owned());
            }
            EventKind::QueryEnd { query } => {
                let (begun, at, objects) = open.take().expect("a query runs");
                assert_eq!(begun, *query);
                let used: HashSet<u32> =
                    (at..event.at).map(|i| trace.page_object[trace.pages[i as usize] as usize]).collect();
                assert_eq!(used, objects.into_iter().collect());
            }
        }
    }
    assert!(open.is_none(), "the last query is ended");
    assert!(labels.len() >= 5, "{labels:?}");
}
