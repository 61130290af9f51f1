//! `entresol simulate --tiers` as a user meets it.

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
    // The same seed gives the same times; another one another disk.
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
    assert_eq!(devices(1), ["lru.cache (dram)", "lru.cache (p4800x)", "below (face-raid0x16)"]);
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
        (&["--tiers", disk, "--dram", "7%"], &["--tiers", "--dram"]),
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
