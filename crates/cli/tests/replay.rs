//! `entresol replay`: traces through the live cache.

mod common;

use common::Scratch;

const TRACE: &str = "generate:zipf:n=4000:pages=800:seed=3:write=40:update=30 | loop:n=1000:pages=90:base=300:write=60";

/// A trace of several objects, to which `reuse` pays attention.
const OBJECTS: &str = "generate:tpcc:warehouses=1:n=6000:seed=5";

#[test]
fn a_replay_counts_what_the_simulation_counts_and_writes_a_table_with_every_batch() {
    let scratch = Scratch::new();
    let tiers = ["--dram", "5%", "--size", "20%,300p", "--flush-every", "50", "--json", "replay.json"];
    let shown = scratch.ok(&[&["-q", "replay", TRACE, "-p", "face-gsc,lc,hibachi"][..], &tiers].concat());
    assert_eq!(shown.matches(" yes ").count(), 6, "{shown}");
    let all: serde_json::Value = serde_json::from_str(&scratch.read("replay.json")).expect("JSON");
    let results = all["results"].as_array().expect("rows");
    assert_eq!(results.len(), 6);
    for row in results {
        for (name, both) in row["simulated_and_live"].as_object().expect("counts") {
            assert_eq!(both[0], both[1], "{} {} {name}", row["policy"], row["size"]);
        }
        let number = |name: &str| row[name].as_u64().expect("a count");
        assert_eq!(number("cache_blocks"), number("cache_pages") + number("cache_batches"), "{row}");
        assert!(number("cache_syncs") > 10 && number("cache_pages") > number("copied"), "{row}");
    }
    let left: Vec<_> = std::fs::read_dir(scratch.path("")).expect("a directory").collect();
    assert_eq!(left.len(), 1, "the results and nothing else: {left:?}");
}

/// The slots of a live cache and those of the simulator wear a flash drive alike, by the curve of write amplification.
#[test]
fn a_flash_drive_wears_as_simulated() {
    let scratch = Scratch::new();
    let trace = "generate:tpcc:n=25k:warehouses=1:seed=3";
    for drive in ["840-pro", "s3500"] {
        let over = ["--layout", "slots", "--cache-profile", drive, "--waf", "curve", "--json", "replay.json"];
        let shown = scratch.ok(&[&["-q", "replay", trace, "-p", "lru,reuse,heuristicdb"][..], &over].concat());
        let all: serde_json::Value = serde_json::from_str(&scratch.read("replay.json")).expect("JSON");
        let results = all["results"].as_array().expect("rows");
        assert_eq!(results.len(), 3);
        for row in results {
            let [simulated, live] = [0, 1].map(|at| row["write_amplification"][at].as_f64().expect("a ratio"));
            println!("{drive}, {}: {simulated:.2} simulated, {live:.2} live", row["policy"]);
            assert!(live > 2.0, "{drive}, {}: most writes are of single pages: {live}", row["policy"]);
            assert!((simulated / live - 1.0).abs() < 0.1, "{drive}, {}: {simulated}, live {live}", row["policy"]);
            assert!(shown.contains(&format!("{simulated:.2}")) && shown.contains(&format!("{live:.2}")), "{shown}");
        }
    }
}

/// A disk below a live cache is asked for what it is asked for in a simulation, and so takes about as long: what is on its
/// way below is read from memory, and written once if it is written again meanwhile.
#[test]
fn a_disk_below_is_as_busy_as_simulated() {
    let scratch = Scratch::new();
    let trace = "generate:tpcc:n=25k:warehouses=1:seed=3";
    for (device, policies, sizes) in [
        ("cheetah-15k5", "lru,io-cache", &["--size", "1000p"][..]),
        ("sas-raid5x6", "hybrid-lru,hibachi", &["--dram", "500p", "--size", "500p"]),
    ] {
        let over = ["--layout", "slots", "--backing-profile", device, "--json", "replay.json"];
        let shown = scratch.ok(&[&["-q", "replay", trace, "-p", policies][..], sizes, &over].concat());
        assert_eq!(shown.matches(" yes ").count(), 2, "{shown}");
        let all: serde_json::Value = serde_json::from_str(&scratch.read("replay.json")).expect("JSON");
        for row in all["results"].as_array().expect("rows") {
            let below = |what: &str| [0, 1].map(|at| row["below_device"][what][at].as_f64().expect("a number"));
            let (seconds, reads, writes) = (below("seconds"), below("reads"), below("writes"));
            println!("{device}, {}: seconds {seconds:?}, reads {reads:?}, writes {writes:?}", row["policy"]);
            assert!(seconds[0] > 10.0 && (seconds[1] / seconds[0] - 1.0).abs() < 0.2, "{device}: {row}");
        }
    }
}

#[test]
fn a_replay_counts_alike_in_each_mode_and_layout() {
    let scratch = Scratch::new();
    for (layout, wear) in [("slots", "unbounded"), ("segments", "unbounded"), ("segments", "amplification=1.2")] {
        let mut shown = Vec::new();
        for mode in ["write-back", "write-through", "write-around"] {
            let options = ["--layout", layout, "--wear", wear, "--mode", mode, "--size", "20%,300p"];
            shown.push(scratch.ok(&[&["-q", "replay", OBJECTS, "-p", "reuse,lru"][..], &options].concat()));
            let pooled =
                scratch.ok(&[&["-q", "replay", OBJECTS, "-p", "reuse,lru", "--dram", "2%"][..], &options].concat());
            assert_eq!(pooled.matches(" yes ").count(), 4, "{layout}, {wear}, below a pool: {pooled}");
        }
        for (at, text) in shown.iter().enumerate() {
            assert_eq!(text.matches(" yes ").count(), 4, "{layout}, {wear}: {text}");
            assert!(!shown[..at].contains(text), "{layout}, {wear}: modes write alike: {text}");
        }
    }
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let scratch = Scratch::new();
    for (policy, extra, why) in [
        ("lru", &["--wear", "1DWPD"][..], "--wear is for --layout segments"),
        ("face", &[][..], "--dram gives its size"),
        ("min", &[][..], "needs to know the future"),
        ("table-placement", &[][..], "queries"),
        ("lru", &["--cache-profile", "p4800x"][..], "no flash drive"),
    ] {
        let said = scratch.refused(&[&["-q", "replay", TRACE, "-p", policy][..], extra].concat());
        assert!(said.contains(why), "{policy}: {said}");
    }
}
