//! `entresol tune` by its command line.

mod common;

use common::{Scratch, says};
use serde_json::Value;

const TRACE: &str = "generate:zipf:n=120k:pages=4000:exponent=0.8:seed=7:write=20";
const TIERS: [&str; 2] = ["--tiers", "dram=dram:2%,cache=optane-dimm:20%,backing=arulraj-ssd"];

fn json(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.read("out.json")).expect("JSON")
}

fn sum(epochs: &Value, field: &str) -> f64 {
    epochs.as_array().expect("epochs").iter().map(|epoch| epoch[field].as_f64().expect("a number")).sum()
}

#[test]
fn tuners_are_compared_with_fixed_settings_in_every_form() {
    let scratch = Scratch::new();
    let common = ["-q", "tune", TRACE, "--epoch", "2k", "--grid", "2", "--options", "dr,nr", "--warmup", "10%"];
    let files = ["--json", "out.json", "--html", "out.html"];
    let text = scratch.ok(&[&common[..], &TIERS, &files].concat());
    let out = json(&scratch);
    let tuners = out["tuners"].as_array().expect("tuners");
    let names: Vec<&str> = tuners.iter().map(|run| run["tuner"].as_str().expect("a name")).collect();
    assert_eq!(names, ["annealing", "climb", "halving"]);
    let grid = out["grid"].as_array().expect("fixed settings");
    assert_eq!(grid.len(), 4);
    let rate = |run: &Value| run["requests_per_second"].as_f64().expect("a rate");
    assert!(grid.windows(2).all(|pair| rate(&pair[0]) >= rate(&pair[1])), "the best first");
    for run in tuners.iter().chain(grid).chain([&out["start"]]) {
        assert_eq!(sum(&run["epochs"], "requests"), 108_000.0, "all but the warm-up");
        let mean = 108_000.0 / sum(&run["epochs"], "seconds");
        assert!((mean / rate(run) - 1.0).abs() < 1e-9, "{mean} and {}", rate(run));
        assert_eq!(run["values"].as_array().map(Vec::len), Some(2));
    }
    // The eager start is one of the corners.
    assert!(grid.iter().any(|run| run["values"] == out["start"]["values"] && rate(run) == rate(&out["start"])));
    for part in ["annealing", "climb", "halving", "start", "fixed 1", "against the best of 4 fixed settings"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(text.contains(&format!("{:.0}", rate(&tuners[0]))), "{text}");
    let page = scratch.read("out.html");
    for part in ["Throughput per epoch", "Settings over time", "best fixed", "--grid 2"] {
        assert!(page.contains(part), "{part}");
    }
    // The same seed gives the same digits, whatever the number of threads.
    scratch.ok(&[&common[..], &TIERS, &files, &["-j", "1"]].concat());
    let strip = |mut out: Value| {
        for key in ["tuners", "grid"] {
            let runs = out[key].as_array_mut().expect("runs");
            runs.iter_mut().for_each(|run| run["row"]["cpu_seconds"] = Value::Null);
        }
        out["start"]["row"]["cpu_seconds"] = Value::Null;
        out
    };
    assert!(strip(json(&scratch)) == strip(out), "two runs differ");
}

#[test]
fn several_traces_are_one_workload_and_any_policy_with_a_tunable_will_do() {
    let scratch = Scratch::new();
    let second = "generate:zipf:n=30k:pages=3000:seed=2:write=50";
    let first = "generate:zipf:n=30k:pages=2000:seed=1:write=10";
    for policy in ["lc", "expcache:tolerance=5%", "multi-tier:preset=c"] {
        let words = ["-q", "tune", first, second, "-p", policy, "--epoch", "1k", "--grid", "0", "--tuner", "climb"];
        let text = scratch.ok(&[&words[..], &TIERS, &["--json", "out.json"]].concat());
        assert!(text.contains("2 objects") && text.contains("no fixed settings"), "{text}");
        assert_eq!(sum(&json(&scratch)["tuners"][0]["epochs"], "requests"), 60_000.0, "{policy}");
    }
}

#[test]
fn endurance_counts_when_it_is_asked_for() {
    let scratch = Scratch::new();
    let written = |more: &[&str]| {
        let words = ["-q", "tune", TRACE, "--epoch", "1k", "--grid", "0", "--tuner", "climb", "--json", "out.json"];
        scratch.ok(&[&words[..], &TIERS, more].concat());
        let run = &json(&scratch)["tuners"][0];
        run["pages_written_per_million"].as_f64().expect("pages")
    };
    let throughput = written(&[]);
    // A lambda so large that throughput does not count beside it.
    let lambda = written(&["--lambda", "1e15"]);
    let years = written(&["--years", "0.05"]);
    assert!(lambda < 0.9 * throughput && years < 0.9 * throughput, "{throughput} {lambda} {years}");
}

#[test]
fn settings_are_judged_in_the_mode_that_is_given() {
    let scratch = Scratch::new();
    let runs = |mode: &[&str], tiers: &str, policy: &str| {
        let words = ["-q", "tune", TRACE, "--epoch", "2k", "--grid", "2", "--tuner", "climb,shadows", "-p", policy];
        scratch.ok(&[&words[..], &["--tiers", tiers, "--json", "out.json"], mode].concat());
        let out = json(&scratch);
        let lists = [&out["tuners"], &out["grid"]].map(|list| list.as_array().expect("runs").clone());
        let runs: Vec<Value> = lists.concat().into_iter().chain([out["start"].clone()]).collect();
        assert!(runs.len() >= 5, "two tuners, two levels and the start");
        runs
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let one = "cache=p4800x:10%,backing=arulraj-ssd";
    for (tiers, policy) in [(one, "reuse"), (one, "expcache"), (TIERS[1], "reuse"), (TIERS[1], "multi-tier")] {
        let devices = tiers.split(',').count();
        let plain = runs(&[], tiers, policy);
        assert_eq!(sum_of_rates(&runs(&["--mode", "write-back"], tiers, policy)), sum_of_rates(&plain), "the default");
        for (mode, around) in [("write-through", false), ("write-around", true)] {
            let clean = runs(&["--mode", mode], tiers, policy);
            for run in &clean {
                let (row, below) = (&run["row"], &run["timed"]["devices"][devices - 1]);
                let arounds = number(&row["write_arounds"]);
                let at_once = number(&row["write_bypasses"]) + number(&row["write_throughs"]) + arounds;
                assert_eq!((at_once, arounds > 0), (number(&row["writes"]), around), "{mode} {policy}: {row}");
                assert_eq!(
                    (number(&row["write_backs"]), number(&row["dirty_at_end"])),
                    (0, 0),
                    "{mode} {policy}: {row}"
                );
                assert_eq!(number(&below["writes"]), number(&row["writes"]), "{mode} {policy}: {below}");
            }
            assert_ne!(sum_of_rates(&clean), sum_of_rates(&plain), "{mode} {policy}");
        }
        assert!(plain.iter().all(|run| number(&run["row"]["write_backs"]) > 0), "{policy}");
    }
}

fn sum_of_rates(runs: &[Value]) -> f64 {
    runs.iter().map(|run| run["requests_per_second"].as_f64().expect("a rate")).sum()
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    let scratch = Scratch::new();
    let refused = |words: &[&str], parts: &[&str]| {
        let line = scratch.refused(&[&["-q", "tune", "generate:loop:n=100:pages=50"], words].concat());
        says(&line, parts);
    };
    refused(&[], &["--tiers"]);
    refused(&[&TIERS[..], &["-p", "lru"]].concat(), &["'lru'", "no tunable option"]);
    refused(&[&TIERS[..], &["-p", "lc,multi-tier"]].concat(), &["one policy", "2"]);
    refused(&[&TIERS[..], &["--mode", "read-only"]].concat(), &["write-around"]);
    refused(&[&TIERS[..], &["--options", "preset"]].concat(), &["'preset'", "dr, dw, nr, nw"]);
    refused(&[&TIERS[..], &["--grid", "11", "--epoch", "0"]].concat(), &["above 0"]);
    refused(&[&TIERS[..], &["--lambda", "0"]].concat(), &["above 0"]);
    refused(&[&TIERS[..], &["--lambda", "1", "--years", "1"]].concat(), &["--years"]);
    refused(&["--tiers", "cache=pcm:10p,backing=arulraj-ssd"], &["dram=PROFILE:SIZE"]);
    refused(&["--tiers", "dram=dram:5p,cache=pcm,backing=arulraj-ssd"], &["size of the cache is missing"]);
    refused(&["--tiers", "dram=dram:5p,cache=840-pro:20p,backing=arulraj-ssd", "--years", "5"], &["endurance_writes"]);
}

/// The same arguments with --live: a real buffer, whose bytes are checked, and the same table.
#[test]
fn a_live_buffer_is_tuned_by_the_same_words() {
    let scratch = Scratch::new();
    let trace = "generate:zipf:n=20k:pages=2000:exponent=0.8:seed=7:write=20:update=50";
    let words =
        ["-q", "tune", trace, "--live", "--epoch", "500", "--grid", "2", "--options", "dr,nw", "--warmup", "10%"];
    let text = scratch.ok(&[&words[..], &TIERS, &["--tuner", "climb,annealing-paper", "--json", "out.json"]].concat());
    let out = json(&scratch);
    let runs = [&out["tuners"], &out["grid"]].map(|runs| runs.as_array().expect("runs"));
    assert_eq!((runs[0].len(), runs[1].len()), (2, 4));
    for run in runs.into_iter().flatten().chain([&out["start"]]) {
        assert_eq!(sum(&run["epochs"], "requests"), 18_000.0, "all but the warm-up");
        assert!(run["live"]["page_reads"].as_u64() > Some(0) && run["row"].is_null(), "{run}");
    }
    // Fixed settings give the simulation's decisions: real time changes none.
    scratch.ok(&[&words[..3], &words[4..], &TIERS, &["--tuner", "climb", "--json", "simulated.json"]].concat());
    let simulated: Value = serde_json::from_str(&scratch.read("simulated.json")).expect("JSON");
    let written = |out: &Value| out["start"]["pages_written_per_million"].as_f64().expect("pages");
    assert_eq!(written(&out), written(&simulated), "pages written to NVM after the warm-up");
    // Counted time is the same in two runs, with as many threads as there are.
    let counted = |json: &str, background: &str| {
        let counted = ["--live=counted", "--tuner", "climb", "--json", json, "--background", background];
        scratch.ok(&[&words[..3], &words[4..], &TIERS, &counted].concat());
        serde_json::from_str::<Value>(&scratch.read(json)).expect("JSON")
    };
    let once = counted("once.json", "256");
    assert_eq!(once, counted("twice.json", "256"));
    assert_eq!(written(&out), written(&once));
    // With one write to the backing store at a time a requester waits for it, and decides the same.
    let narrow = counted("narrow.json", "1");
    let start = |out: &Value, key: &str| out["start"][key].as_f64().expect("a rate");
    assert!(start(&narrow, "requests_per_second") < start(&once, "requests_per_second"));
    let waits = [&once, &narrow].map(|out| out["start"]["live"]["waits_for_writes"].as_u64().expect("a count"));
    assert!(waits[0] == 0 && waits[1] > 0, "{waits:?}");
    assert_eq!(written(&narrow), written(&once));
    for part in ["against the best of 4 fixed settings", "NVM: read 4096 B: asked", "level below: "] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// Requesters that wait for the backing store side by side: threads, or one thread's in turns. No page is lost on
/// them.
#[test]
fn a_live_buffer_has_several_requesters() {
    let scratch = Scratch::new();
    let run = |live: &str, clients: &str| {
        let trace = "generate:zipf:n=20k:pages=2000:exponent=0.8:seed=7:write=20:update=50";
        let words = ["-q", "tune", trace, live, "--clients", clients, "--epoch", "500", "--grid", "0"];
        scratch.ok(&[&words[..], &["--options", "dr,nw", "--tuner", "climb", "--json", "out.json"], &TIERS].concat());
        let out = json(&scratch);
        assert_eq!(sum(&out["start"]["epochs"], "requests"), 20_000.0);
        out
    };
    let pace = |out: &Value| out["start"]["requests_per_second"].as_f64().expect("a rate");
    let [one, eight] = ["1", "8"].map(|clients| run("--live=counted", clients));
    assert!(pace(&eight) > 1.5 * pace(&one), "{} and {}", pace(&one), pace(&eight));
    assert_eq!(eight, run("--live=counted", "8"));
    // A page that two requesters want at a time is read once.
    let reads = |out: &Value| out["start"]["live"]["page_reads"].as_f64().expect("reads");
    assert!((reads(&eight) / reads(&one) - 1.0).abs() < 0.02, "{} and {}", reads(&one), reads(&eight));
    let threads = run("--live", "3");
    assert!((reads(&threads) / reads(&one) - 1.0).abs() < 0.02, "{} and {}", reads(&one), reads(&threads));
}

#[test]
fn what_cannot_be_live_says_why() {
    let scratch = Scratch::new();
    let refused = |words: &[&str], parts: &[&str]| {
        let line = scratch.refused(&[&["-q", "tune", "generate:loop:n=100:pages=50", "--live"], words].concat());
        says(&line, parts);
    };
    refused(&[&TIERS[..], &["-p", "expcache"]].concat(), &["'expcache'", "DRAM and NVM"]);
    refused(&["--tiers", "dram=dram:5p,cache=840-pro:20p,backing=arulraj-ssd"], &["'840-pro'", "no memory"]);
    refused(&[&TIERS[..], &["--think", "8"]].concat(), &["--live", "--think"]);
    for mode in ["write-through", "write-around"] {
        refused(&[&TIERS[..], &["--mode", mode]].concat(), &["--live", "writes back", mode]);
    }
}
