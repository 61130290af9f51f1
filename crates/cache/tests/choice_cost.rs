//! Processor time that a choosing policy's shadows cost a cache. The same requests are measured with that policy
//! and with the policy that decides in both. The cache device and the backing store are memory, so that the time
//! is that of the engine's own work.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance};
use entresol_core::{Op, Page};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::{Options, catalogue};
use entresol_store::{Geometry, Layout};
use entresol_trace::{Trace, generate};

const PAGE: u64 = 4096;
const PAGES: u64 = 60_000;
const CACHED: usize = 13_000;
const DEVICE: u64 = 96 << 20;
const ROUNDS: usize = 5;

/// Processor time of this thread in nanoseconds.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Processor time per request, in nanoseconds.
fn run(trace: &Trace, policy: &str) -> f64 {
    let power = Power::steady();
    let geometry = Geometry::for_device(DEVICE, PAGE as u32, Layout::Log).expect("a geometry");
    let (cache, backing) = (SimDisk::new(DEVICE, &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let mut parts = policy.split(':');
    let info = catalogue::info(parts.next().expect("a name")).expect("a policy");
    let options = Options::parse(info, parts).expect("options");
    let config = CacheConfig { options, maintenance: Maintenance::Requests, ..CacheConfig::new(info, &[CACHED]) };
    let cache = BlockCache::open(cache, backing, [2; 16], &config).expect("a cache");
    let mut bytes = vec![0; PAGE as usize];
    let from = thread_ns();
    for at in 0..trace.len() {
        let offset = trace.address(Page(trace.pages[at])).block * PAGE;
        match trace.request(at).op {
            Op::Read => cache.read(offset, &mut bytes).expect("a read"),
            _ => cache.write(offset, &bytes, false).expect("a write"),
        }
    }
    (thread_ns() - from) as f64 / trace.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[test]
#[ignore = "a measurement of half a minute of CPU time, written down in lab/results/policy-choice.md: `make bench-deciding`"]
fn what_shadows_cost_a_request() {
    let spec = format!("zipf:n=300k:pages={PAGES}:exponent=0.9:ids=scattered:seed=3:write=30");
    let trace = generate(&spec.parse().expect("a trace specification"));
    // A change that must gain everything is never made: LRU decides in all of them.
    let never = "auto:of=lru/reuse/2q/arc/lirs/s3-fifo/w-tinylfu/mq/h-arc:gain=1";
    let policies = ["lru".to_owned(), format!("{never}:sample=1%"), format!("{never}:sample=5%")];
    let mut took = vec![Vec::new(); policies.len()];
    for round in 0..ROUNDS {
        for i in 0..policies.len() {
            let at = if round % 2 == 0 { i } else { policies.len() - 1 - i };
            took[at].push(run(&trace, &policies[at]));
        }
    }
    for (policy, took_ns) in policies.iter().zip(&took) {
        let ratios: Vec<f64> = took_ns.iter().zip(&took[0]).map(|(a, b)| a / b).collect();
        println!("{policy}: {:.0} ns a request, {:.4} of the first; {took_ns:.0?}", median(took_ns), median(&ratios));
    }
}
