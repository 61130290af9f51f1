//! `entresol simulate --tiers` by its command line.

mod common;

use common::{Scratch, says};

const FILES: [&str; 6] = ["--json", "out.json", "--csv", "out.csv", "--html", "out.html"];

fn json(scratch: &Scratch, name: &str) -> serde_json::Value {
    serde_json::from_str(&scratch.read(name)).expect("JSON")
}

#[test]
fn time_changes_no_count_and_every_form_tells_the_same() {
    let scratch = Scratch::with_trace();
    let policies = ["-q", "simulate", "t.etr", "--policy", "lru,arc", "--size", "10%,25%"];
    scratch.ok(&[&policies[..], &["--json", "plain.json"]].concat());
    let tiers = ["--tiers", "cache=p4800x,backing=cheetah-15k5", "--clients", "8"];
    let text = scratch.ok(&[&policies[..], &tiers, &FILES].concat());
    let (plain, timed) = (json(&scratch, "plain.json"), json(&scratch, "out.json"));
    let (plain, timed) = (&plain["results"], &timed["results"]);
    assert_eq!(timed.as_array().map(Vec::len), Some(4));
    for (without, with) in plain.as_array().expect("rows").iter().zip(timed.as_array().expect("rows")) {
        for key in ["policy", "size", "requests", "read_hits", "write_hits", "fetches", "write_backs"] {
            assert_eq!(without[key], with[key], "{key}");
        }
        let time = &with["timed"];
        assert_eq!((time["requests"].as_u64(), time["clients"].as_u64()), (Some(3000), Some(8)));
        let disk = &time["devices"][1];
        assert_eq!(disk["name"], "below (cheetah-15k5)");
        assert_eq!(disk["reads"], with["fetches"]);
        // A miss waits for a disk: milliseconds.
        let below = &time["latencies"][2];
        assert_eq!(below["name"], "below");
        assert!(below["mean_us"].as_f64().expect("a mean") > 1000.0, "{below}");
        let hits: u64 = ["read_hits", "write_hits"].map(|key| with[key].as_u64().expect("a count")).iter().sum();
        assert_eq!(time["latencies"][1]["count"].as_u64(), Some(hits));
        let rate = format!("{:.1}", time["requests_per_second"].as_f64().expect("a rate"));
        assert!(text.contains(&rate), "{rate} is not in {text}");
    }
    assert_eq!(scratch.read("out.csv").lines().count(), 5);
    let page = scratch.read("out.html");
    for part in ["Throughput", "Devices", "p4800x", "cheetah-15k5", "arc 25%", "--clients 8"] {
        assert!(page.contains(part), "{part}");
    }
    // The same seed gives the same times; another seed another disk.
    let seeded = |seed: &str| {
        scratch.ok(&[&policies[..], &tiers, &["--seed", seed, "--json", "seed.json"]].concat());
        json(&scratch, "seed.json")["results"][0]["timed"].clone()
    };
    assert_eq!(seeded("42"), timed[0]["timed"]);
    assert_ne!(seeded("43"), timed[0]["timed"]);
}

#[test]
fn dram_goes_to_the_policies_of_two_tiers_and_to_a_pool_above_the_others() {
    let scratch = Scratch::with_trace();
    let tiers = "dram=dram:20p,cache=p4800x:100p,backing=face-raid0x16";
    let common = ["-q", "simulate", "t.etr", "--policy", "face-gsc,lru", "--tiers", tiers, "--json", "out.json"];
    scratch.ok(&[&common[..], &["--clients", "4"]].concat());
    let results = json(&scratch, "out.json")["results"].clone();
    assert_eq!((&results[0]["policy"], &results[1]["policy"]), (&"face-gsc".into(), &"lru+lru".into()));
    let devices = |at: usize| -> Vec<String> {
        let devices = results[at]["timed"]["devices"].as_array().expect("devices").iter();
        devices.map(|device| device["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(devices(0), ["dram (dram)", "flash (p4800x)", "below (face-raid0x16)"]);
    assert_eq!(devices(1), ["dram (dram)", "cache (p4800x)", "below (face-raid0x16)"]);
    let elapsed = |more: &[&str]| {
        scratch.ok(&[&common[..], more].concat());
        json(&scratch, "out.json")["results"][0]["timed"]["elapsed_seconds"].as_f64().expect("seconds")
    };
    let (alone, crowd) = (elapsed(&["--clients", "1"]), elapsed(&["--clients", "16"]));
    assert!(crowd < alone, "{crowd} s for 16 requesters, {alone} s for one");
    // 3000 requests and as many pauses of a millisecond.
    assert!(elapsed(&["--think", "1000"]) > alone.max(2.9));
    assert!(elapsed(&["--background", "1"]) >= alone, "a narrower window cannot be faster");
}

/// DRAM and an Optane DIMM are memory, of which requests move 64 B; an Optane SSD is a device, and moves whole pages. So do pages
/// between tiers.
#[test]
fn a_request_touches_memory_and_moves_pages_of_other_devices() {
    let scratch = Scratch::with_trace();
    let read = |tiers: &str, more: &[&str]| -> Vec<u64> {
        let common = ["-q", "simulate", "t.etr", "--policy", "lru", "--tiers", tiers, "--json", "out.json"];
        scratch.ok(&[&common[..], more].concat());
        let devices = json(&scratch, "out.json")["results"][0]["timed"]["devices"].clone();
        devices.as_array().expect("devices").iter().map(|d| d["read_bytes"].as_u64().expect("bytes")).collect()
    };
    for cache in ["optane-dimm", "p4800x"] {
        let tiers = format!("dram=dram:20p,cache={cache}:100p,backing=face-raid0x16");
        let (whole, touched) = (read(&tiers, &[]), read(&tiers, &["--touch", "64"]));
        assert!(touched[0] < whole[0], "{cache}: DRAM {touched:?}, {whole:?}");
        assert_eq!(touched[1..], whole[1..], "{cache}: what moves up or is fetched moves whole");
        assert_eq!(read(&tiers, &["--touch", "1000000"]), whole, "never more than a page");
    }
    let tiers = "cache=optane-dimm:100p,backing=face-raid0x16";
    let (whole, touched) = (read(tiers, &[]), read(tiers, &["--touch", "64"]));
    assert!(touched[0] < whole[0] && touched[1] == whole[1], "{touched:?}, {whole:?}");
    for device in ["p4800x", "840-pro"] {
        let refused = scratch.refused(&[
            "-q",
            "simulate",
            "t.etr",
            "--tiers",
            &tiers.replace("optane-dimm", device),
            "--touch",
            "64",
        ]);
        assert!(refused.contains("--touch: no tier is memory"), "{refused}");
    }
}

#[test]
fn the_clock_of_the_trace_may_drive() {
    let scratch = Scratch::new();
    scratch.ok(&["-q", "trace", "generate", "zipf:n=1000:pages=50:seed=3:gap=20000", "clock.etr"]);
    let tiers = ["--tiers", "cache=p4800x:50%,backing=cheetah-15k5"];
    scratch.ok(&[&["-q", "simulate", "clock.etr"][..], &tiers, &["--clock", "trace", "--json", "out.json"]].concat());
    let timed = json(&scratch, "out.json")["results"][0]["timed"].clone();
    let seconds = timed["elapsed_seconds"].as_f64().expect("seconds");
    assert!((19.9..20.2).contains(&seconds), "{seconds} s for 1000 requests 20 ms apart");
    assert_eq!(timed["clients"], 0);
}

/// A trace of random writes to 2000 pages of 4 KiB.
fn writes(scratch: &Scratch) {
    scratch.ok(&["-q", "trace", "generate", "uniform:n=150k:pages=2k:seed=9:write=100", "w.etr"]);
}

/// Finding of 001, and the reason why a simulation has to name its mode. A cache on a small part of a drive full of
/// other data is written over and over, so that greedy cleaning finds its blocks empty. The measured amplification
/// says otherwise.
#[test]
fn a_cache_may_be_a_part_of_a_drive_and_the_mode_of_its_amplification_is_said() {
    let scratch = Scratch::new();
    writes(&scratch);
    let run = |cache: &str, more: &[&str]| {
        let tiers = format!("cache={cache},backing=face-raid0x16");
        let command =
            ["-q", "simulate", "w.etr", "--warmup", "0.7", "--tiers", &tiers, "--clients", "8", "--json", "out.json"];
        let text = scratch.ok(&[&command[..], more].concat());
        (text, json(&scratch, "out.json")["results"][0]["timed"]["devices"][0].clone())
    };
    let waf = |device: &serde_json::Value| device["write_amplification"].as_f64().expect("a ratio");
    let (text, part) = run("840-pro:1000p/2GiB", &[]);
    assert_eq!((&part["capacity_bytes"], &part["waf_mode"]), (&(2u64 << 30).into(), &"mech".into()));
    assert!((1.0..1.6).contains(&waf(&part)), "{part}");
    assert!(text.contains(&format!("{:.2} mech", waf(&part))) && text.contains("(840-pro, 2GiB)"), "{text}");
    let (text, curve) = run("840-pro:1000p/2GiB", &["--waf", "curve"]);
    assert_eq!(curve["waf_mode"], "curve");
    // Single pages have 5.15 and pairs 4.46. Of 1080 slots some 60 are free, most of them ahead of the hand that gives
    // them: a share f = 2 * 60 / 1080 there. So k neighbours are written together with k f^(k-1) (1-f)^2 of the pages,
    // which makes 4.99.
    assert!((4.9..5.1).contains(&waf(&curve)), "{curve}");
    assert!(text.contains(&format!("{:.2} curve", waf(&curve))), "{text}");
    // A curve needs no map, so that the whole of a drive costs no more.
    let (_, whole) = run("840-pro:1000p/whole", &["--waf", "curve"]);
    assert_eq!(whole["capacity_bytes"], 256_060_514_304u64);
    let (_, used) = run("840-pro:1000p", &[]);
    // Four segments of 16 slots and one slot in 64 are spare: 16 of 1080.
    assert_eq!(used["capacity_bytes"], (1000 + 64 + 16) * 4096);
    let (_, other) = run("p4800x:1000p", &[]);
    assert_eq!((&other["waf_mode"], &other["write_amplification"]), (&serde_json::Value::Null, &1.0.into()));
}

#[test]
fn series_parts_and_what_a_drain_would_take_are_those_of_a_run_without_time() {
    let scratch = Scratch::with_trace();
    let wanted = ["--policy", "lru,arc", "--size", "10%", "--parts", "--drain", "--interval", "700"];
    let run = |more: &[&str]| {
        let command = ["-q", "simulate", "t.etr", "--json", "out.json", "--html", "out.html"];
        scratch.ok(&[&command[..], &wanted, more].concat());
        json(&scratch, "out.json")["results"].clone()
    };
    let plain = run(&[]);
    let timed = run(&["--tiers", "cache=p4800x,backing=cheetah-15k5", "--clients", "8"]);
    let page = scratch.read("out.html");
    assert!(page.contains("Over the trace") && page.contains("Per table and per query"));
    for (without, with) in plain.as_array().expect("rows").iter().zip(timed.as_array().expect("rows")) {
        for key in ["series", "objects", "queries", "drain_ios"] {
            assert_eq!(without[key], with[key], "{key}");
        }
        assert_eq!(with["series"].as_array().map(Vec::len), Some(5), "3000 requests in intervals of 700");
        assert!(with["drain_ios"].as_u64().expect("a count") > 0);
    }
    // After a warm-up the intervals begin where it ended.
    let warm = run(&["--tiers", "cache=p4800x,backing=cheetah-15k5", "--warmup", "0.5"]);
    let series = warm[0]["series"].as_array().expect("a series").clone();
    let requests: u64 = series.iter().map(|interval| interval["requests"].as_u64().expect("a count")).sum();
    assert_eq!((Some(requests), series.len()), (warm[0]["requests"].as_u64(), 3));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let scratch = Scratch::with_trace();
    let disk = "cache=p4800x:10%,backing=face-disk";
    for (arguments, parts) in [
        (&["--tiers", "cache=p4800y:1%,backing=face-disk"][..], &["p4800y", "p4800x"][..]),
        (&["--tiers", "cache=p4800x:1%"], &["backing is missing"]),
        (&["--tiers", "backing=face-disk"], &["cache is missing"]),
        (&["--tiers", "dram=dram,cache=p4800x,backing=face-disk"], &["size of dram is missing"]),
        (&["--tiers", "cache=p4800x:lots,backing=face-disk"], &["cache", "'lots' is not a size"]),
        (&["--tiers", "cache=cheetah-15k5:300GB,backing=face-disk"], &["tier cache", "holds 146815737344 B", "asked"]),
        (&["--tiers", disk, "--policy", "face"], &["face", "dram=PROFILE:SIZE"]),
        (&["--tiers", disk, "--size", "7%"], &["size", "given twice"]),
        (&["--tiers", disk, "--dram", "7%"], &["--tiers", "--dram", "dram=PROFILE:SIZE"]),
        (&["--tiers", disk, "--stack", "lru:10p,arc:100p"], &["--tiers", "--stack", "sizes of their own"]),
        (&["--tiers", disk, "--baseline", "arc"], &["--tiers", "--baseline", "miss ratios"]),
        (&["--tiers", disk, "--svg", "c.svg"], &["--tiers", "--svg", "--html"]),
        (&["--tiers", "cache=840-pro:10%/5%,backing=face-disk"], &["tier cache", "840-pro", "are used, more than its"]),
        (&["--tiers", "cache=840-pro:10%/300GB,backing=face-disk"], &["tier cache", "holds 256060514304 B", "asked"]),
        (&["--tiers", "cache=p4800x:10%/whole,backing=face-disk"], &["tier cache", "p4800x", "no size"]),
        (&["--tiers", "cache=840-pro:10%/,backing=face-disk"], &["cache", "'' is not a size"]),
        (&["--tiers", disk, "--waf", "curve"], &["--waf", "flash drive"]),
        (&["--tiers", "cache=p3700-2tb:10%,backing=face-disk", "--waf", "curve"], &["p3700-2tb", "`curve` is missing"]),
        (&["--tiers", disk, "--waf", "guess"], &["--waf", "guess", "mech", "curve"]),
        (&["--waf", "mech"], &["--tiers"]),
        (&["--tiers", disk, "--touch", "64"], &["--touch", "no tier is memory", "nvm-dimm"]),
        (&["--tiers", disk, "--touch", "0"], &["--touch", "0"]),
        (&["--touch", "64"], &["--tiers"]),
        (&["--tiers", disk, "--clients", "0"], &["--clients", "0"]),
        (&["--tiers", disk, "--clock", "trace", "--clients", "2"], &["--clock", "--clients"]),
        (&["--tiers", disk, "--clock", "wall"], &["--clock", "wall"]),
        (&["--tiers", disk, "--policy", "nolru"], &["nolru"]),
        (&["--clients", "2"], &["--tiers"]),
    ] {
        says(&scratch.refused(&[&["-q", "simulate", "t.etr"], arguments, &FILES].concat()), parts);
    }
    scratch.file("times.csv", "op,offset,size\nR,0,4096\nW,4096,4096\nR,8192,4096\n");
    let csv = ["-q", "simulate", "times.csv", "--format", "csv", "--tiers", "cache=dram:1p,backing=face-disk"];
    says(&scratch.refused(&[&csv[..], &["--clock", "trace"], &FILES].concat()), &["no times", "clients"]);
    scratch.file("bad.toml", "name = \"bad\"\n");
    let bad = ["-q", "simulate", "t.etr", "--tiers", "cache=bad.toml:5%,backing=face-disk"];
    says(&scratch.refused(&[&bad[..], &FILES].concat()), &["bad.toml", "[device] is missing"]);
}
