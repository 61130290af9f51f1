//! The fluid model compared with the published numbers of chapter 5 (004), simulated at the PFS rates of the design's
//! page.

use entresol_burst::simulate::{Cluster, CopiesBy, Program, Published, Workload, bound_s, median, quantile, run};
use entresol_burst::{CheckpointId, Coordinator, Epoch, JobId, LEASE_NS, Policy};

const SEEDS: u64 = 32;

fn policy(text: &str) -> Policy {
    text.parse().expect(text)
}

/// Checks the fit and the median; returns the lowest and the highest ratio over all seeds.
fn check(workload: &Workload, pfs: f64, published: &Published) -> (f64, f64) {
    let cluster = Cluster::thesis(pfs);
    let runs = |text: &str| (0..SEEDS).map(|seed| run(&cluster, workload, policy(text), seed)).collect::<Vec<_>>();
    let (ldbb, cdbb) = (runs("ldbb"), runs("cdbb"));
    for (name, expected) in [("QE", published.qe_s), ("pBWA", published.pbwa_s)] {
        let at = workload.programs.iter().position(|program| program.name == name).expect(name);
        let ratio = median(ldbb.iter().map(|run| run.program_total_s(at))) / expected;
        println!("simulated {} {name} under ldbb over published: {ratio:.3}", workload.name);
        assert!((0.9..=1.1).contains(&ratio), "{} {name}: {ratio:.3}", workload.name);
    }
    let ratios: Vec<f64> = ldbb.iter().zip(&cdbb).map(|(ldbb, cdbb)| ldbb.total_s() / cdbb.total_s()).collect();
    let at = |share| quantile(ratios.iter().copied(), share);
    let (low, middle, high) = (at(0.0), at(0.5), at(1.0));
    println!(
        "simulated {} ldbb over cdbb: {low:.2} .. {middle:.2} .. {high:.2}, published {}",
        workload.name, published.ratio
    );
    assert!((middle / published.ratio - 1.0).abs() <= 0.25, "median {middle:.2}, published {}", published.ratio);
    (low, high)
}

#[test]
fn medium_is_as_published() {
    let (low, high) = check(&Workload::medium(), 2.0e9, &Published::MEDIUM);
    let ratio = Published::MEDIUM.ratio;
    assert!((low..=high).contains(&ratio), "{low:.2} .. {high:.2}, published {ratio}");
}

#[test]
fn heavy_is_as_published() {
    let (low, high) = check(&Workload::heavy(), 3.0e9, &Published::HEAVY);
    let ratio = Published::HEAVY.ratio;
    assert!((low..=high).contains(&ratio), "{low:.2} .. {high:.2}, published {ratio}");
}

#[test]
fn one_job_in_phase_gains_nothing() {
    let (cluster, workload) = (Cluster::thesis(2.0e9), Workload::in_phase());
    let total = |text: &str| run(&cluster, &workload, policy(text), 0).total_s();
    let gain = total("ldbb") / total("cdbb");
    println!("simulated gain of cdbb over ldbb for one job in phase: {gain:.3}");
    assert!((gain - 1.0).abs() < 0.02, "{gain:.3}");
}

/// Decide once, drive twice: a new coordinator given the same events ends with every checkpoint complete and no byte
/// reserved.
#[test]
fn a_run_replays_and_leaves_nothing_reserved() {
    for text in ["pfs", "ldbb:object=whole", "cdbb", "cdbb:redundancy=xor", "chunked", "chunked:redundancy=xor"] {
        let (cluster, workload) = (Cluster::thesis(2.0e9), Workload::medium());
        let simulated = run(&cluster, &workload, policy(text), 1);
        let mut replayed = Coordinator::new(policy(text), Epoch(1), LEASE_NS);
        for (at_ns, event) in &simulated.events {
            replayed.apply(*at_ns, event).expect("it was accepted before");
        }
        replayed.check().unwrap_or_else(|broken| panic!("{text}: {broken}"));
        assert_eq!(simulated.checkpoints.len(), 30, "{text}");
        for job in 0..5 {
            let newest = replayed.locations().newest_complete(JobId(job));
            assert_eq!(newest, Some(CheckpointId(5)), "{text}: job {job}");
        }
        for node in replayed.status().nodes() {
            assert_eq!(replayed.reservations(node).count(), 0, "{text}: node {}", node.0);
        }
    }
}

/// The largest program of the medium workload takes about the least time that links, buffers and PFS allow, with any
/// redundancy.
#[test]
fn chunked_is_near_the_least_time_that_is_possible() {
    let (cluster, workload) = (Cluster::thesis(2.0e9), Workload::medium());
    let pbwa = workload.programs.iter().position(|program| program.name == "pBWA").expect("pBWA");
    for (text, most) in [("chunked:redundancy=none", 1.02), ("chunked", 1.02), ("chunked:redundancy=xor", 1.15)] {
        let times = (0..8).flat_map(|seed| run(&cluster, &workload, policy(text), seed).times_s(pbwa));
        let over = median(times) / bound_s(&cluster, &workload, pbwa, policy(text));
        println!("simulated {text}: median of pBWA over the least possible {over:.3}");
        assert!((0.999..=most).contains(&over), "{text}: {over:.3}");
    }
}

/// One writer, three parts of 100 bytes, links of 100 bytes a second: its own node takes the first part, others the next two. The first
/// copy and the two parts leave its link in 3 s, and the node that has the last part copies it in one more. A writer that copies by itself
/// sends five times 100 bytes.
#[test]
fn a_copy_is_sent_by_the_node_of_its_part_or_by_the_writer() {
    let programs = vec![Program { name: "one", bytes: 300, writers: 1 }];
    let workload = Workload { programs, checkpoints: 1, ..Workload::light() };
    for (copies_by, expected_s) in [(CopiesBy::Node, 4.0), (CopiesBy::Writer, 5.0)] {
        let rates = Cluster { link: 100.0, copy: 1e9, stream: 1e-3, ..Cluster::thesis(1e-3) };
        let cluster = Cluster { nodes: 8, writers_per_node: 2, buffer_bytes: 100, copies_by, ..rates };
        let time = run(&cluster, &workload, policy("cdbb:redundancy=partner"), 0).total_s();
        assert!((time - expected_s).abs() < 0.01, "{copies_by:?}: {time}");
    }
}
