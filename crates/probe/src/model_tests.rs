use super::*;
use entresol_device::Queued;
use entresol_device::fixed::{Fixed, FixedParameters};
use entresol_device::load::closed_loop;

/// One I/O at a time: a read takes 1 us, a write 3 us.
fn fixed(parallelism: u32) -> Queued<Fixed> {
    let parameters = FixedParameters {
        read_ns: 1_000,
        write_ns: 3_000,
        gb_per_s: None,
        write_gb_per_s: None,
        parallelism,
        endurance_writes: None,
        energy: None,
    };
    Queued::new(Fixed::new(&parameters, 1 << 20))
}

fn target(parallelism: u32, host: Option<HostParameters>) -> ModelTarget {
    ModelTarget::new("fixed", Box::new(fixed(parallelism)), host)
}

fn reads(count: u64) -> Stream {
    Stream {
        write_share: 0.0,
        bytes: 4096,
        align: 4096,
        range: 0..1 << 20,
        pattern: Pattern::Random,
        pace: Pace::Closed { depth: 1 },
        until: Until::Count(count),
        flush_every: None,
        keep_raw: true,
    }
}

#[test]
fn a_closed_loop_is_the_load_generators() {
    for depth in [1, 3, 8] {
        let load = closed_loop(&mut fixed(4), depth as usize, 1_000, |_| Io::read(0, 4096));
        let stream = Stream { pace: Pace::Closed { depth }, ..reads(1_000) };
        let samples = target(4, None).run(&[stream], 1).expect("within").remove(0);
        assert_eq!((samples.completions, samples.elapsed), (1_000, load.elapsed), "depth {depth}");
        assert_eq!(samples.reads, load.latency, "depth {depth}");
    }
}

#[test]
fn an_open_loop_counts_from_the_intended_time() {
    // One I/O every 500 ns of 1 us each: the n-th, from 0, ends at (n + 1) us and was intended for n / 2 us.
    let stream = Stream { pace: Pace::Open { per_second: 2e6 }, ..reads(100) };
    let samples = target(1, None).run(&[stream], 1).expect("within").remove(0);
    let expected: Vec<Nanos> = (0..100).map(|n| (n + 1) * 1_000 - n * 500).collect();
    assert_eq!(samples.raw.iter().map(|raw| raw.1).collect::<Vec<_>>(), expected);
    assert_eq!(samples.elapsed, 100_000);
}

#[test]
fn a_background_ends_with_the_foreground_and_streams_pay_for_their_own_threads() {
    let host = HostParameters { threads: 1, software_ns: 200, busy_ns: 1_500 };
    let background = Stream { until: Until::First, write_share: 1.0, ..reads(0) };
    let mut target = target(2, Some(host));
    let samples = target.run(&[reads(10), background], 1).expect("within");
    // Each read: 200 ns of software and 1 us, and the thread is free 1.5 us after it began.
    assert_eq!(samples[0].raw[9].0, 9 * 1_500 + 1_200);
    assert_eq!((samples[0].raw_device.max(), samples[0].reads.count()), (1_000, 10));
    // Each write: 3.2 us; the fifth is under way when the reads end at 14.7 us.
    assert_eq!(samples[1].completions, 5);
}

#[test]
fn a_flush_counts_into_the_write_before_it() {
    let stream = Stream { write_share: 1.0, flush_every: Some(2), ..reads(4) };
    let samples = target(1, None).run(&[stream], 1).expect("within").remove(0);
    assert_eq!(samples.writes.count(), 4);
    let host = HostParameters { threads: 1, software_ns: 100, busy_ns: 100 };
    let stream = Stream { write_share: 1.0, flush_every: Some(2), ..reads(4) };
    let samples = target(1, Some(host)).run(&[stream], 1).expect("within").remove(0);
    let latencies: Vec<Nanos> = samples.raw.iter().map(|raw| raw.1).collect();
    assert_eq!(latencies, [3_100, 3_200, 3_100, 3_200]);
}

#[test]
fn lists_go_round_time_ends_and_shares_are_drawn() {
    let list = Stream { pattern: Pattern::List(vec![0, 8192]), until: Until::Elapsed(10_500), ..reads(0) };
    let samples = target(1, None).run(&[list], 1).expect("within").remove(0);
    assert_eq!(samples.completions, 11);
    let seed = 7;
    let mixed = Stream { write_share: 0.3, keep_raw: false, ..reads(10_000) };
    let samples = target(1, None).run(&[mixed], seed).expect("within").remove(0);
    assert!((2_850..3_150).contains(&samples.writes.count()), "seed {seed}: {} writes", samples.writes.count());
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |stream: Stream| target(1, None).run(&[stream], 1).expect_err("refused").to_string();
    assert!(refused(Stream { range: 0..(1 << 20) + 1, ..reads(1) }).contains("1048576"));
    assert!(refused(Stream { bytes: 0, ..reads(1) }).contains("0 B"));
    assert!(refused(Stream { range: 0..100, ..reads(1) }).contains("room"));
    assert!(refused(Stream { pattern: Pattern::List(vec![1 << 20]), ..reads(1) }).contains("list"));
    assert!(refused(Stream { pace: Pace::Closed { depth: 0 }, ..reads(1) }).contains("depth"));
    assert!(refused(Stream { pace: Pace::Open { per_second: 0.0 }, ..reads(1) }).contains("a second"));
    assert!(refused(Stream { until: Until::First, ..reads(1) }).contains("background"));
    assert!(target(1, None).discard(0..(1 << 20) + 1).is_err());
    assert!(target(1, None).discard(0..1 << 20).is_ok());
}
