//! `entresol advise placement`.

mod common;

use common::Scratch;
use serde_json::Value;

const TRACE: &str = "generate:olap:n=20k:pages=4k:seed=5";

fn advice(scratch: &Scratch, more: &[&str]) -> (String, Value) {
    let text = scratch.ok(&[&["-q", "advise", "placement", TRACE, "--json", "advice.json"], more].concat());
    (text, serde_json::from_str(&scratch.read("advice.json")).expect("json"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn the_advice_adds_up_and_is_compared_with_caches() {
    let scratch = Scratch::new();
    let (text, advice) = advice(&scratch, &["--budget", "800p"]);
    let objects = advice["objects"].as_array().expect("objects");
    let placement = &advice["placement"];
    let placed: Vec<bool> =
        placement["placed"].as_array().expect("flags").iter().map(|flag| flag == &Value::Bool(true)).collect();
    assert!(placed.contains(&true) && placed.contains(&false), "{placement}");
    let sum = |of: &dyn Fn(&Value, bool) -> u64| objects.iter().zip(&placed).map(|(o, &p)| of(o, p)).sum::<u64>();
    let pages = sum(&|object, placed| if placed { number(object, "pages") } else { 0 });
    assert!(pages == number(placement, "pages") && pages <= 800, "{placement}");
    let below = sum(&|object, placed| {
        let fields: &[&str] =
            if placed { &["pages", "written_pages"] } else { &["random_reads", "sequential_reads", "writes"] };
        fields.iter().map(|field| number(object, field)).sum()
    });
    assert_eq!(below, number(placement, "pages_below"), "{placement}");
    assert_eq!(placement["exact"], Value::Bool(true));
    assert_eq!(number(placement, "requests"), 20_000);
    assert!(text.contains("no choice saves more") && text.contains("this placement"), "{text}");
    let policies = advice["policies"].as_array().expect("policies");
    assert_eq!(policies.len(), 9);
    for policy in policies {
        assert!(text.contains(policy["policy"].as_str().expect("a name")), "{policy} in {text}");
    }
}

#[test]
fn with_devices_their_times_count() {
    let scratch = Scratch::new();
    let devices = ["--budget", "50%", "--fast", "p4800x", "--below", "cheetah-15k5", "--policy", "lru"];
    let (text, advice) = advice(&scratch, &devices);
    let cost = |device: &str, what: &str| advice["costs_us"][device][what].as_f64().expect("a cost");
    assert!(cost("below", "random_read") > 10.0 * cost("fast", "random_read"), "{}", advice["costs_us"]);
    assert!(advice["placement"]["saved_together"].as_f64().expect("microseconds") > 0.0);
    assert!(text.contains(" s"), "{text}");
}

#[test]
fn what_cannot_be_advised_on_is_refused() {
    let scratch = Scratch::new();
    let refused = |more: &[&str]| scratch.refused(&[&["advise", "placement", TRACE], more].concat());
    assert!(refused(&["--budget", "0p"]).contains("is no page"));
    assert!(refused(&[]).contains("--budget"));
    assert!(refused(&["--budget", "5%", "--fast", "p4800x"]).contains("--below"));
    assert!(refused(&["--budget", "5%", "--fast", "floppy", "--below", "p4800x"]).contains("floppy"));
    assert!(refused(&["--budget", "5%", "--policy", "nothing"]).contains("nothing"));
}

/// An object of 101 pages of which two are requested.
#[test]
fn an_object_with_pages_that_nobody_requests_fits_a_budget_of_everything() {
    let scratch = Scratch::new();
    let lines = (0..400).map(|i| format!("{i},R,{},4096\n", i % 2 * 100 * 4096));
    scratch.file("holes.csv", "time,op,offset,size\n".to_owned() + &lines.collect::<String>());
    let advise = ["-q", "advise", "placement", "holes.csv", "--policy", "lru", "--json", "a.json", "--budget"];
    let placed = |budget: &str| {
        scratch.ok(&[&advise[..], &[budget]].concat());
        let advice: Value = serde_json::from_str(&scratch.read("a.json")).expect("json");
        (number(&advice, "budget_pages"), advice["placement"]["placed"][0] == Value::Bool(true))
    };
    assert_eq!(placed("100%"), (101, true));
    assert_eq!(placed("99%"), (99, false));
}

const HOT: &str = "generate:zipf:n=24k:pages=4k:seed=5:write=30:ids=scattered";
const PRICES: &str = r#"
date = "2026-11"
source = "a test"
[[item]]
name = "DRAM"
tier = "dram"
profile = "arulraj-dram"
capacities_gb = [4, 16, 64]
dollars_per_gb = 10.0
watts = [1, 4, 16]
[[item]]
name = "NVM"
tier = "nvm"
profile = "arulraj-pcm"
capacities_gb = [64, 128]
dollars_per_gb = 1.0
endurance_writes = 1e10
watts = [4, 8]
[[item]]
name = "SSD"
tier = "ssd"
profile = "arulraj-ssd"
capacities_gb = [256]
dollars_per_gb = 0.2
endurance_writes = 1e5
watts = [2]
"#;

fn hierarchy(scratch: &Scratch, more: &[&str]) -> (String, Value) {
    scratch.file("prices.toml", PRICES);
    let base =
        ["-q", "advise", "hierarchy", HOT, "--catalogue", "prices.toml", "--footprint", "160GB", "--json", "a.json"];
    let text = scratch.ok(&[&base[..], more].concat());
    (text, serde_json::from_str(&scratch.read("a.json")).expect("json"))
}

#[test]
fn a_hierarchy_is_recommended_with_its_reasons() {
    let scratch = Scratch::new();
    let (text, advice) = hierarchy(&scratch, &["--budget", "700", "--csv", "a.csv"]);
    let candidates = advice["candidates"].as_array().expect("candidates");
    let best = &candidates[advice["choice"]["best"].as_u64().expect("a place") as usize];
    let per_second = |entry: &Value| entry["fate"]["simulated"]["requests_per_second"].as_f64();
    let highest = candidates.iter().filter_map(per_second).fold(0.0, f64::max);
    assert_eq!(per_second(best), Some(highest), "{best}");
    assert!(candidates.iter().all(|entry| entry["dollars"].as_f64().expect("a price") <= 700.0));
    for part in ["prices of 2026-11", "buy ", "why: ", "Front between price and throughput", "Performance per price"] {
        assert!(part.starts_with(char::is_uppercase) || text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("per dollar") && text.contains(" of the requests in SSD"), "{text}");
    assert_eq!(scratch.read("a.csv").lines().count(), candidates.len() + 1);
    let (_, again) = hierarchy(&scratch, &["--budget", "700", "--threads", "1"]);
    assert_eq!(advice, again, "threads change nothing");
    let (_, every) = hierarchy(&scratch, &["--budget", "700", "--every"]);
    assert_eq!(every["choice"], advice["choice"], "what was left out changes nothing");
    assert!(every["candidates"].as_array().expect("candidates").iter().all(|entry| per_second(entry).is_some()));
    let (text, _) = hierarchy(&scratch, &["--budget", "700", "--objective", "energy"]);
    assert!(text.contains("less energy") && text.contains("J a request"), "{text}");
}

#[test]
fn in_write_through_the_disk_is_written_more_and_the_search_is_as_exact() {
    let scratch = Scratch::new();
    let advised = |more: &[&str]| hierarchy(&scratch, &[&["--budget", "700"], more].concat()).1;
    let (back, through) = (advised(&[]), advised(&["--mode", "write-through"]));
    assert_eq!(advised(&["--mode", "write-through", "--every"])["choice"], through["choice"]);
    let written = |advice: &Value| {
        let best = &advice["candidates"][advice["choice"]["best"].as_u64().expect("a place") as usize];
        let devices = best["fate"]["simulated"]["devices"].as_array().expect("devices").clone();
        number(devices.last().expect("a lowest tier"), "written_bytes")
    };
    assert!(written(&through) > written(&back), "{} and {} B", written(&through), written(&back));
}

#[test]
fn without_a_word_of_its_own_it_is_about_the_hierarchy() {
    let scratch = Scratch::new();
    let (text, advice) = hierarchy(&scratch, &["--budget", "700"]);
    let words = ["-q", "advise", HOT, "--catalogue", "prices.toml", "--footprint", "160GB", "--budget", "700"];
    assert_eq!(scratch.ok(&[&words[..], &["--json", "b.json", "--html", "a.html"]].concat()), text);
    assert_eq!(serde_json::from_str::<Value>(&scratch.read("b.json")).expect("json"), advice);
    let page = scratch.read("a.html");
    for part in ["Price and throughput", "Performance per price", "<svg", "DRAM - SSD", "over 256 GB SSD for $"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Other circumstances"), "they were not asked for");
    assert!(!page.contains("Candidates with ~"), "all were simulated in full");
    scratch.ok(&[&words[..], &["--sample", "0.5", "--what-if", "--html", "s.html"]].concat());
    let sampled = scratch.read("s.html");
    assert!(sampled.contains("with 50.0% of the pages") && sampled.contains("Other circumstances"), "{sampled}");
    assert!(scratch.refused(&["advise"]).contains("--budget"));
    assert!(scratch.refused(&["advise", HOT]).contains("--budget"));
}

#[test]
fn several_traces_share_a_machine_by_their_weights() {
    let scratch = Scratch::new();
    let other = "generate:uniform:n=8k:pages=2k";
    let (text, advice) = hierarchy(&scratch, &["--budget", "700", other, "--weight", "3,1"]);
    assert!(text.contains("75% ") && text.contains("25% uniform:n=8k"), "{text}");
    let (_, alone) = hierarchy(&scratch, &["--budget", "700"]);
    assert_ne!(advice["candidates"], alone["candidates"], "it takes its part of the machine");
    let (_, swapped) = hierarchy(&scratch, &["--budget", "700", other, "--weight", "6,2"]);
    assert_eq!(advice["candidates"], swapped["candidates"], "weights need not add up to 1");
    let refused = |more: &[&str]| {
        scratch.refused(&[&["advise", HOT, "--catalogue", "prices.toml", "--budget", "700"], more].concat())
    };
    assert!(refused(&["--weight", "1,2"]).contains("2 weights given for 1 trace"));
    assert!(refused(&[other, "--weight", "1,0"]).contains("above 0"));
}

#[test]
fn other_circumstances_are_told() {
    let scratch = Scratch::new();
    let (text, advice) = hierarchy(&scratch, &["--budget", "300", "--what-if"]);
    let answers = advice["what_if"]["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), 6 + 4 + 2, "prices of three classes, four latencies, two halves");
    for part in ["price of dram x 0.5", "latency of nvm 8 x DRAM's", "second half of the trace", "a GB more of "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let best = &advice["candidates"][advice["choice"]["best"].as_u64().expect("a place") as usize];
    let tiers = best["parts"].as_array().expect("parts").len();
    assert_eq!(advice["what_if"]["more"].as_array().expect("tiers").len(), tiers - 1);
}

#[test]
fn no_advice_without_a_reason_and_what_would_do() {
    let scratch = Scratch::new();
    scratch.file("prices.toml", PRICES);
    scratch.file("no-price.toml", PRICES.replace("dollars_per_gb = 0.2", ""));
    scratch.file("no-profile.toml", PRICES.replace("arulraj-pcm", "arulraj-pmc"));
    let refused = |more: &[&str]| scratch.refused(&[&["advise", "hierarchy", HOT], more].concat());
    let own = ["--catalogue", "prices.toml", "--footprint", "160GB"];
    let with = |more: &[&str]| refused(&[&own[..], more].concat());
    assert!(
        with(&["--budget", "50"])
            .contains("the cheapest hierarchy that holds the data is 4 GB DRAM over 256 GB SSD for $91.20")
    );
    assert!(with(&["--budget", "91.199999"]).contains("for $91.20"));
    assert!(with(&["--budget", "1e10"]).contains("at most 1000000000.00"));
    assert!(with(&["--budget", "900", "--max-p99", "0.001"]).contains("the nearest is"));
    let short = scratch.refused(&["advise", "hierarchy", TRACE, "--budget", "900", "--warmup", "90%"]);
    assert!(short.contains("too short to decide") && short.contains("--warmup 0.5"), "{short}");
    assert!(with(&["--budget", "0"]).contains("above 0"));
    assert!(with(&["--budget", "900", "--dram-policy", "min"]).contains("'min'"));
    let of = |catalogue: &str, footprint: &str| {
        refused(&["--budget", "900", "--catalogue", catalogue, "--footprint", footprint])
    };
    assert!(of("no-price.toml", "160GB").contains("dollars_per_gb = 0.2"));
    assert!(of("no-profile.toml", "160GB").contains("nearest: arulraj-pcm"));
    assert!(of("nowhere.toml", "160GB").contains("arulraj-2019"));
    assert!(of("prices.toml", "2TB").contains("nothing holds"));
    assert!(of("prices.toml", "1GB").contains("--footprint says how much"));
    assert!(of("prices.toml", "20%").contains("a number of bytes"));
    assert!(refused(&["--budget", "900"]).contains("--footprint"), "as large as it is it tells nothing");
}

/// The cheapest price is the sum of 40 and 20.48, which is more than 60.48 in doubles.
#[test]
fn a_price_as_printed_is_a_budget_for_it() {
    let scratch = Scratch::new();
    let advise = ["-q", "advise", "hierarchy", HOT, "--footprint", "400GB", "--objective", "price", "--budget"];
    let line = scratch.refused(&[&advise[..], &["60.47"]].concat());
    assert!(line.contains("4 GB DRAM over 1024 GB HDD for $60.48"), "{line}");
    let text = scratch.ok(&[&advise[..], &["60.48"]].concat());
    assert!(text.contains("buy 4 GB DRAM over 1024 GB HDD for $60.48\n"), "{text}");
    scratch.ok(&[&advise[..], &["10000", "--json", "all.json"]].concat());
    let advice: Value = serde_json::from_str(&scratch.read("all.json")).expect("json");
    for entry in advice["candidates"].as_array().expect("candidates") {
        let price = entry["dollars"].to_string();
        assert!(price.split_once('.').is_some_and(|(_, cents)| cents.len() <= 2), "{price} is no sum of cents");
    }
}

#[test]
fn devices_that_cost_nothing_have_no_throughput_for_a_dollar() {
    let scratch = Scratch::new();
    let free = PRICES.replace("dollars_per_gb = 10.0", "dollars_per_gb = 0").replace("= 0.2", "= 0");
    scratch.file("free.toml", free);
    let advise =
        ["-q", "advise", "hierarchy", HOT, "--catalogue", "free.toml", "--footprint", "160GB", "--budget", "1"];
    let text = scratch.ok(&[&advise[..], &["--what-if", "--json", "free.json", "--html", "free.html"]].concat());
    assert!(text.contains("DRAM over 256 GB SSD for $0.00") && !text.contains("for a dollar"), "{text}");
    for told in [&text, &scratch.read("free.html")] {
        // Infinity as an integer.
        assert!(!told.replace('\u{202f}', "").contains(&i128::MAX.to_string()), "{told}");
    }
    let advice: Value = serde_json::from_str(&scratch.read("free.json")).expect("json");
    let best = &advice["candidates"][advice["choice"]["best"].as_u64().expect("a place") as usize];
    assert_eq!(best["fate"]["simulated"]["per_dollar"], Value::Null, "{best}");
    // What costs nothing beats any price.
    let text = scratch.ok(&[&advise[..9], &["900", "--objective", "per-dollar"]].concat());
    assert!(text.contains("for $0.00\n"), "{text}");
}

/// Flash that is slower than the backing store, once with too little space beside its pages and once with enough.
#[test]
fn caches_that_are_worse_than_none_are_told() {
    let scratch = Scratch::new();
    let item = |name: &str, tier: &str, profile: &str, sizes: &str| {
        format!(
            "[[item]]\nname = \"{name}\"\ntier = \"{tier}\"\nprofile = \"{profile}\"\ncapacities_gb = [{sizes}]\n\
             dollars_per_gb = 1.0\nendurance_writes = 1e16\n"
        )
    };
    let items = item("Flash", "ssd", "yang-nand", "0.002, 0.012") + &item("Array", "disk", "p4800x", "1");
    scratch.file("slow.toml", format!("date = \"2026-11\"\nsource = \"a test\"\n{items}"));
    let words = ["-q", "advise", "hierarchy", "generate:loop:n=24k:pages=6k:write=50", "--catalogue", "slow.toml"];
    let more = ["--below-pool", "--budget", "100", "--every", "--clients", "4", "--json", "w.json", "--html", "w.html"];
    // A log has segments to make free; slots have none.
    let of_log = ["--flash-policy", "face-gsc"];
    let text = scratch.ok(&[&words[..], &more, &of_log].concat());
    let advice: Value = serde_json::from_str(&scratch.read("w.json")).expect("json");
    let warnings = advice["warnings"].as_array().expect("warnings");
    let (slower, cramped): (Vec<_>, Vec<_>) = warnings.iter().partition(|warning| warning["slower"].is_object());
    assert!(slower.len() == 2 && cramped.len() == 1 && cramped[0]["cramped"]["pages"] == 488, "{warnings:?}");
    assert!(slower.iter().all(|warning| warning["slower"]["times"].as_f64().expect("a factor") < 1.0), "{slower:?}");
    for told in [text, scratch.read("w.html")] {
        for part in [
            "warning: 0.002 GB Flash over 1 GB Array is no faster than without its cache: 0.",
            "warning: 0.012 GB Flash over 1 GB Array is no faster than without its cache: 0.",
            " times the throughput of 1 GB Array",
            "with 488 pages of flash, fewer than 1584, its cache has so little room",
            "the prediction does not have the rounds in which it makes room, and is too high",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(!told.contains("warning, of the recommended hierarchy"), "what has no cache is recommended");
    }
}
