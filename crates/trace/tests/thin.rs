//! Samples that are taken while a trace is read, against those of the loaded trace and against plain counting.

mod common;

use common::Folder;
use entresol_core::{Address, Page, Random};
use entresol_trace::{LoadOptions, Population, Sampled, Trace, generate, load, load_sample, native};
use std::collections::HashMap;
use std::fmt::Write as _;
use zerocopy::IntoBytes;

fn columns(trace: &Trace) -> [&[u8]; 5] {
    let times = trace.times_us.as_deref().unwrap_or(&[]);
    [trace.pages.as_bytes(), &trace.ops, times.as_bytes(), trace.page_object.as_bytes(), trace.page_block.as_bytes()]
}

fn assert_same(a: &Sampled, b: &Sampled) {
    assert_eq!(a.population, b.population);
    assert!(columns(&a.trace) == columns(&b.trace), "requests differ");
    assert_eq!(a.trace.events, b.trace.events);
    assert_eq!(a.trace.objects, b.trace.objects);
}

fn every_fifth(at: Address) -> bool {
    Random::mix(at.block ^ 77).is_multiple_of(5)
}

#[test]
fn a_file_is_thinned_while_it_is_read() {
    let seed = 3;
    println!("seed {seed}");
    let folder = Folder::new();
    let mut random = Random::new(seed);
    let mut text = String::new();
    // More requests than are taken at once.
    for at in 0..1_300_000u64 {
        let op = if random.below(3) == 0 { "Write" } else { "Read" };
        let time = 128_166_372_000_000_000 + at * 10;
        let _ = writeln!(text, "{time},host,0,{op},{},4096,0", random.below(20_000) * 4096);
    }
    let path = folder.file("t.csv", text);
    for limit in [None, Some(1_200_000)] {
        let options = LoadOptions { limit, ..LoadOptions::default() };
        let whole = load(&path, &options).expect("a trace");
        let thinned = load_sample(&path, &options, &every_fifth).expect("a sample");
        assert_same(&thinned.sampled, &whole.trace.sampled(&every_fifth));
        assert_eq!(thinned.report.counts, whole.report.counts);
        assert_eq!(thinned.sampled.population.requests, whole.trace.len() as u64);
        let etr = folder.path("t.etr");
        native::write(&whole.trace, &etr).expect("a native trace");
        let mapped = load_sample(&etr, &LoadOptions::default(), &every_fifth).expect("a sample");
        assert_same(&thinned.sampled, &mapped.sampled);
    }
}

#[test]
fn a_sample_has_the_requests_of_its_pages_and_the_counts_of_all() {
    let trace = generate(
        &"olap:n=30k:pages=5k:seed=5 | zipf:n=20k:pages=3k:write=40:seed=6:object=rows".parse().expect("a spec"),
    );
    let Sampled { trace: sample, population } = trace.sampled(&every_fifth);
    let kept: Vec<(Address, u8)> = (0..trace.len())
        .map(|at| (trace.address(Page(trace.pages[at])), trace.ops[at]))
        .filter(|(at, _)| every_fifth(*at))
        .collect();
    let sampled: Vec<(Address, u8)> =
        (0..sample.len()).map(|at| (sample.address(Page(sample.pages[at])), sample.ops[at])).collect();
    assert!(kept == sampled, "requests are kept in order");
    let mut counts: HashMap<u32, u64> = HashMap::new();
    trace.pages.iter().for_each(|&page| *counts.entry(page).or_default() += 1);
    assert_eq!((population.pages, population.requests), (counts.len() as u64, trace.len() as u64));
    for (octave, counted) in population.octaves.iter().enumerate() {
        let own: Vec<u64> = counts.values().copied().filter(|&count| Population::octave(count) == octave).collect();
        assert_eq!((counted.pages, counted.requests), (own.len() as u64, own.iter().sum()), "octave {octave}");
    }
    // Each event comes after the sampled ones of the requests that it came after.
    assert_eq!(sample.events.len(), trace.events.len());
    for (event, whole) in sample.events.iter().zip(&trace.events) {
        let before = (0..whole.at as usize).filter(|&at| every_fifth(trace.address(Page(trace.pages[at])))).count();
        assert_eq!((event.at, &event.kind), (before as u64, &whole.kind));
    }
}
