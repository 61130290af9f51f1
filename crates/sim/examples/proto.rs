use entresol_core::*;
use entresol_device::profile;
use entresol_policy::miniature::*;
use entresol_policy::{Config, Options, catalogue};
use entresol_sim::prices;
use entresol_trace::Trace;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let path = &a[1];
    let (dram, nvm): (f64, f64) = (a[2].parse().unwrap(), a[3].parse().unwrap());
    let pages_min: usize = a[4].parse().unwrap();
    let depth: usize = a[5].parse().unwrap();
    let levels: usize = a[6].parse().unwrap();
    let limit: usize = a.get(7).map_or(usize::MAX, |t| t.parse().unwrap());
    let trace = entresol_trace::load(std::path::Path::new(path), &Default::default()).unwrap().trace;
    let f = trace.footprint();
    let tiers = vec![(f as f64 * dram / 100.0).round() as usize, (f as f64 * nvm / 100.0).round() as usize];
    let pb = trace.page_bytes;
    let names = ["dram", "optane-dimm", "arulraj-ssd"];
    let needs = [tiers[0] as u64, tiers[1] as u64, f as u64 * 2];
    let places: Vec<Prices> = names
        .iter()
        .zip(needs)
        .map(|(n, need)| {
            let p = profile::load(n).unwrap();
            prices(|| p.build(need * pb as u64, 42), pb, pb, depth, 42).unwrap()
        })
        .collect();
    eprintln!("{tiers:?} {places:#?}");
    let info = catalogue::info("multi-tier").unwrap();
    let options = Options::parse(info, ["preset=eager"]).unwrap();
    let config = Config {
        pages: f,
        objects: trace.objects.len(),
        tiers,
        page_bytes: pb,
        seed: 42,
        peak_temporal_distance: None,
    };
    let subject = Subject { info, options: &options, config: &config, tunables: vec![0, 1, 2, 3] };
    let terms = Terms { places, wears: 1, ..Terms::default() };
    let d: &[f64] = if levels == 3 { &[0.0, 0.1, 1.0] } else { &[0.0, 1.0] };
    let nn: &[f64] = if levels == 3 { &[0.0, 0.2, 1.0] } else { &[0.0, 1.0] };
    let mut all = vec![];
    for &x in d {
        for &y in d {
            for &z in nn {
                for &w in nn {
                    all.push(vec![x, y, z, w]);
                }
            }
        }
    }
    let started = std::time::Instant::now();
    for chunk in all.chunks(27) {
        let mut small = Miniatures::new(&subject, Scale { share: 0.01, pages_min }, terms.clone()).unwrap();
        let wanted: Vec<Shadow> =
            chunk.iter().enumerate().map(|(i, v)| Shadow { id: i as u64, values: v.clone(), from: None }).collect();
        small.arrange(&wanted);
        let n = trace.len().min(limit);
        for at in 0..n {
            if at == n / 10 {
                small.clear();
            }
            let r = trace.request(at);
            small.told(r, trace.address(r.page), 0);
        }
        for (i, v) in chunk.iter().enumerate() {
            let t = small.demands(i as u64).unwrap();
            let s = |f: &dyn Fn(&Demand) -> f64| t.iter().map(f).sum::<f64>();
            let n = s(&|t| t.requests);
            println!(
                "{},{},{},{} {} {} {} {} {} {}",
                v[0],
                v[1],
                v[2],
                v[3],
                n,
                s(&|t| t.waits) / n * 1e6,
                s(&|t| t.busy[0]) / n * 1e6,
                s(&|t| t.busy[1]) / n * 1e6,
                s(&|t| t.busy[2]) / n * 1e6,
                small.rate()
            );
        }
    }
    eprintln!("{:?}", started.elapsed());
}
