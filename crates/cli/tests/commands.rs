//! Every command and every option, on small traces.

mod common;

use common::Scratch;
use serde_json::Value;

/// The published names of a row, as issue 2 lists them. More may be added, and none removed.
const ROW: [&str; 16] = [
    "policy",
    "options",
    "capacity_pages",
    "requests",
    "reads",
    "writes",
    "read_hits",
    "write_hits",
    "fetches",
    "admissions",
    "bypasses",
    "write_backs",
    "write_back_ios",
    "dirty_at_end",
    "tiers",
    "cpu_seconds",
];

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("json")
}

/// Simulates with these arguments and reads the rows.
fn rows(scratch: &Scratch, arguments: &[&str]) -> Vec<Value> {
    scratch.ok(&[&["-q", "simulate", "--json", "out.json"], arguments].concat());
    json(&scratch.read("out.json"))["results"].as_array().expect("rows").clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} of {value}"))
}

#[test]
fn a_mode_says_when_writes_reach_the_backing_store() {
    let scratch = Scratch::with_trace();
    let policies = ["t.etr", "--policy", "lru,arc,reuse,face-gsc", "--size", "10%"];
    for (mode, around) in [("write-through", false), ("write-around", true)] {
        let moded = |more: &[&str]| rows(&scratch, &[&policies[..], &["--mode", mode], more].concat());
        for row in moded(&["--csv", "out.csv", "--warmup", "20%"]) {
            let arounds = row["write_arounds"].as_u64().unwrap_or(0);
            let at_once = number(&row, "write_bypasses") + number(&row, "write_throughs") + arounds;
            assert_eq!((at_once, arounds > 0), (number(&row, "writes"), around), "{row}");
            assert_eq!((number(&row, "write_backs"), number(&row, "dirty_at_end")), (0, 0), "{row}");
        }
        assert_eq!(scratch.read("out.csv").contains(",write_throughs,write_arounds,"), around);
        let devices = ["--tiers", "cache=p4800x:10%,backing=cheetah-15k5"];
        for row in rows(&scratch, &[&["t.etr", "--policy", "lru", "--mode", mode], &devices[..]].concat()) {
            let below = &row["timed"]["devices"][1];
            assert_eq!(
                (number(below, "writes"), number(below, "reads")),
                (number(&row, "writes"), number(&row, "fetches"))
            );
        }
        let text = scratch.ok(&[&["-q", "simulate", "--mode", mode], &policies[..]].concat());
        assert!(text.contains("through") && text.contains("around") == around, "{text}");
    }
    let plain = rows(&scratch, &policies);
    assert!(plain.iter().all(|row| row["write_throughs"].is_null() && row["write_arounds"].is_null()));
    assert!(scratch.refused(&["simulate", "t.etr", "--mode", "read-only"]).contains("write-around"));
}

#[test]
fn a_simulation_writes_all_its_files() {
    let scratch = Scratch::with_trace();
    let files = ["--json", "out.json", "--csv", "out.csv", "--html", "out.html", "--svg", "out.svg"];
    let text = scratch.ok(&[&["simulate", "t.etr", "--policy", "all", "--size", "5%,10%,20%"], &files[..]].concat());
    for part in
        ["hit ratio", "pages written below per request", "the best per size", "knows the future", "write buffer"]
    {
        assert!(text.contains(part), "'{part}' is not in {text}");
    }
    let results = json(&scratch.read("out.json"));
    let keys: Vec<&String> = results.as_object().expect("an object").keys().collect();
    assert!(keys.iter().any(|key| *key == "trace") && keys.iter().any(|key| *key == "results"), "{keys:?}");
    assert_eq!(number(&results["trace"], "requests"), 3000);
    let rows = results["results"].as_array().expect("rows");
    assert_eq!(rows.len(), 47 * 3);
    for row in rows {
        ROW.iter().for_each(|name| assert!(!row[name].is_null(), "{name} is missing in {row}"));
        assert_eq!(number(row, "requests"), 3000);
        assert_eq!(number(row, "reads") + number(row, "writes"), 3000);
        assert!(number(row, "read_hits") <= number(row, "reads") && number(row, "write_hits") <= number(row, "writes"));
        let tiers = row["tiers"].as_array().expect("tiers");
        let capacity: u64 = tiers.iter().map(|tier| number(tier, "capacity_pages")).sum();
        assert_eq!(capacity, number(row, "capacity_pages"), "{row}");
    }
    let csv = scratch.read("out.csv");
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(csv.starts_with("trace,policy,options,size,capacity_pages,"), "{csv}");
    let html = scratch.read("out.html");
    for part in ["Summary", "Curves over the cache size", "Against lru", "The trace", "All numbers"] {
        assert!(html.contains(part), "'{part}' is not on the page");
    }
    assert!(!html.contains("http://") || html.matches("http://").count() == html.matches("http://www.w3.org/").count());
    assert!(!html.contains("https://"), "the page needs no network");
    let svg = scratch.read("out.svg");
    assert!(svg.starts_with("<svg") && svg.contains("Miss ratio") && !svg.contains("wrb"), "{svg}");
    assert_eq!(scratch.names(), ["out.csv", "out.html", "out.json", "out.svg", "t.etr"]);
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let scratch = Scratch::with_trace();
    let run = |seed: &str| {
        let outputs = ["--json", "out.json", "--html", "out.html"];
        let arguments =
            ["simulate", "t.etr", "-p", "random,lecar,tac", "-s", "5%,20%", "--seed", seed, "--interval", "500"];
        let text = scratch.ok(&[&arguments[..], &outputs].concat());
        let mut results = json(&scratch.read("out.json"));
        for row in results["results"].as_array_mut().expect("rows") {
            row.as_object_mut().expect("a row").remove("cpu_seconds").expect("it was there");
        }
        (text, results)
    };
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1").1["results"], run("2").1["results"], "random choices follow the seed");
}

#[test]
fn options_of_a_simulation_do_what_they_say() {
    let scratch = Scratch::with_trace();
    let plain = rows(&scratch, &["t.etr", "-p", "lru", "-s", "40p"]);
    assert_eq!(number(&plain[0], "capacity_pages"), 40);

    let warm = rows(&scratch, &["t.etr", "-p", "lru", "-s", "40p", "--warmup", "0.5"]);
    assert_eq!(number(&warm[0], "requests"), 1500);

    let series = rows(&scratch, &["t.etr", "-p", "arc", "-s", "40p", "--interval", "1k"]);
    let series = series[0]["series"].as_array().expect("a series");
    assert_eq!(series.iter().map(|interval| number(interval, "at")).collect::<Vec<_>>(), [1000, 2000, 3000]);
    assert!(!series[0]["gauges"].as_array().expect("gauges").is_empty());

    let drained = rows(&scratch, &["t.etr", "-p", "lru", "-s", "40p", "--drain"]);
    let (ios, dirty) = (number(&drained[0], "drain_ios"), number(&drained[0], "dirty_at_end"));
    assert!(0 < ios && ios <= dirty, "{ios} I/Os for {dirty} dirty pages");
    assert!(plain[0]["drain_ios"].is_null());

    let limited = rows(&scratch, &["t.etr", "-s", "40p", "--limit", "2k", "-j", "1"]);
    assert_eq!(number(&limited[0], "requests"), 2000);

    let dram = rows(&scratch, &["t.etr", "-p", "face-gsc,sieve", "-s", "80p", "--dram", "20p"]);
    assert_eq!(
        dram.iter().map(|row| row["policy"].as_str().expect("a name")).collect::<Vec<_>>(),
        ["face-gsc", "lru+sieve"]
    );
    assert!(dram.iter().all(|row| number(row, "capacity_pages") == 100), "{dram:?}");

    let stacks = rows(&scratch, &["t.etr", "--stack", "h-arc:64,wrb:16", "--stack", "lru:64,bplru:16:block=8"]);
    assert_eq!(stacks.len(), 2);
    assert_eq!(stacks[0]["policy"], "h-arc+wrb");
    let layers = stacks[0]["layers"].as_array().expect("layers");
    assert_eq!(number(&layers[1], "requests"), number(&layers[0], "fetches") + number(&layers[0], "write_backs"));

    let parts =
        rows(&scratch, &["generate:olap:n=4k:pages=2k:seed=5", "-p", "lru,heuristicdb", "-s", "10%", "--parts"]);
    for row in &parts {
        let objects = row["objects"].as_array().expect("objects");
        assert_eq!(objects.iter().map(|part| number(part, "requests")).sum::<u64>(), number(row, "requests"));
        assert!(!row["queries"].as_array().expect("queries").is_empty());
    }
}

#[test]
fn the_baseline_is_simulated_and_compared_with() {
    let scratch = Scratch::with_trace();
    let names =
        |rows: &[Value]| rows.iter().map(|row| row["policy"].as_str().expect("a name").to_owned()).collect::<Vec<_>>();
    let with = rows(&scratch, &["t.etr", "-p", "arc,sieve", "-s", "10%", "--baseline", "fifo", "--html", "out.html"]);
    assert_eq!(names(&with), ["arc", "sieve", "fifo"]);
    assert!(scratch.read("out.html").contains("Against fifo"));
    let already = rows(&scratch, &["t.etr", "-p", "arc,fifo", "-s", "10%", "--baseline", "fifo"]);
    assert_eq!(names(&already), ["arc", "fifo"]);
    rows(&scratch, &["t.etr", "-p", "arc,sieve", "-s", "10%", "--html", "out.html"]);
    assert!(!scratch.read("out.html").contains("Against"), "nothing was asked for, and lru was not simulated");
    // Under a DRAM pool the baseline has one too.
    rows(
        &scratch,
        &["t.etr", "-p", "lc,face-gsc", "-s", "10%", "--dram", "9p", "--baseline", "sieve", "--html", "out.html"],
    );
    assert!(scratch.read("out.html").contains("Against lru+sieve"));
}

#[test]
fn several_traces_are_kept_apart() {
    let scratch = Scratch::with_trace();
    std::fs::create_dir(scratch.path("other")).expect("a folder");
    scratch.ok(&["-q", "trace", "generate", "loop:n=1000:pages=100", "other/t.etr"]);
    let files = ["--json", "out.json", "--csv", "out.csv", "--html", "out.html"];
    scratch.ok(&[&["simulate", "t.etr", "other/t.etr", "-p", "lru,mru", "-s", "50%"], &files[..]].concat());
    let traces = json(&scratch.read("out.json"));
    let requests = |i: usize| number(&traces["traces"][i]["results"][0], "requests");
    assert_eq!((requests(0), requests(1)), (3000, 1000), "two traces of one name are two traces");
    assert_eq!(scratch.read("out.csv").lines().count(), 5);
    assert!(scratch.read("out.html").contains("Simulation of t.etr, t.etr"));
}

#[test]
fn samples_come_with_their_error() {
    let scratch = Scratch::new();
    for name in ["a.etr", "b.etr"] {
        scratch.ok(&["-q", "trace", "generate", "zipf:n=50k:pages=40k:seed=2:write=20:ids=scattered", name]);
    }
    let sampled = ["-p", "lru,arc", "-s", "5%,20%", "--sample", "10%", "--samples", "5", "--csv", "out.csv"];
    let files = ["--json", "out.json", "--html", "out.html"];
    let text = scratch.ok(&[&["simulate", "a.etr", "b.etr"], &sampled[..], &files].concat());
    assert!(text.contains("± standard error"), "{text}");
    let csv = scratch.read("out.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * 4, "both traces are in the file: {csv}");
    assert!(csv.lines().nth(1).expect("a line").starts_with("a.etr,lru,5%,"), "{csv}");
    let traces = json(&scratch.read("out.json"));
    let trace = |i: usize| &traces["traces"][i];
    assert_eq!(number(&trace(0)["trace"], "requests"), 50_000, "the counts of the trace, not of its sample");
    for (at, size) in ["5%", "20%", "5%", "20%"].into_iter().enumerate() {
        let row = &trace(1)["results"][at];
        assert_eq!((&row["policy"], &row["size"]), (&["lru", "arc"][at / 2].into(), &size.into()));
        let of = |key: &str| row[key].as_f64().expect("a number");
        let ends = of("miss_ratio_low")..=of("miss_ratio_high");
        assert!(ends.contains(&of("miss_ratio")) && *ends.start() >= 0.0 && *ends.end() <= 1.0, "{row}");
        assert_eq!(row["small"], false);
    }
    let html = scratch.read("out.html");
    assert!(html.contains("Simulation of a.etr, b.etr by a sample") && html.contains("All numbers"));
}

#[test]
fn small_samples_are_marked_and_groups_serve_policies_that_look_for_neighbours() {
    let scratch = Scratch::new();
    scratch.ok(&["-q", "trace", "generate", "zipf:n=50k:pages=40k:seed=2:write=20:ids=hashed", "t.etr"]);
    let sampled = ["--sample", "0.05", "--svg", "out.svg", "--csv", "out.csv"];
    let text = scratch.ok(&[&["simulate", "t.etr", "-p", "lru,bplru", "-s", "0.5%,20%"], &sampled[..]].concat());
    assert!(text.contains("small: the cache has fewer than 8 sampled pages"), "{text}");
    let csv = scratch.read("out.csv");
    let marks: Vec<bool> = csv.lines().skip(1).map(|line| line.ends_with(",small")).collect();
    assert_eq!(marks, [true, false, true, false], "{csv}");
    assert!(scratch.read("out.svg").starts_with("<svg"));
    let large = scratch.ok(&["simulate", "t.etr", "-p", "lru", "-s", "20%", "--sample", "0.05"]);
    assert!(!large.contains("small"), "{large}");
}

#[test]
fn traces_are_generated_converted_measured_and_looked_at() {
    let scratch = Scratch::new();
    let spec = "tpcc:warehouses=1:n=5k:seed=9";
    scratch.ok(&["trace", "generate", spec, "a.etr"]);
    scratch.ok(&["trace", "generate", spec, "again.etr"]);
    assert_eq!(scratch.bytes("a.etr"), scratch.bytes("again.etr"), "the same specification gives the same bytes");
    scratch.ok(&["trace", "generate", spec, "next.etr", "--next-use"]);
    assert_eq!(scratch.bytes("next.etr").len().abs_diff(scratch.bytes("a.etr").len() + 4 * 5000) / 4096, 0);
    scratch.ok(&["trace", "generate", spec, "large.etr", "--page-size", "16KiB"]);
    scratch.ok(&["trace", "convert", "a.etr", "converted.etr", "--next-use"]);
    let same = ["-s", "10%", "-p", "min,face-gsc"];
    let rows_of = |name: &str| {
        let mut all = rows(&scratch, &[&[name], &same[..]].concat());
        all.iter_mut().for_each(|row| drop(row.as_object_mut().expect("a row").remove("cpu_seconds")));
        all
    };
    assert_eq!(rows_of("a.etr"), rows_of("converted.etr"));
    assert_eq!(rows_of("a.etr"), rows_of(&format!("generate:{spec}")));

    let text = scratch.ok(&["trace", "stat", "a.etr", "--windows", "10", "--json", "stat.json", "--html", "stat.html"]);
    for part in ["page requests", "repeat access rate", "sequential reads"] {
        assert!(text.contains(part), "'{part}' is not in {text}");
    }
    let stat = json(&scratch.read("stat.json"));
    assert_eq!(stat["working_set"].as_array().expect("windows").len(), 10);
    assert!(scratch.read("stat.html").contains("Temporal distance"));

    scratch.file("plain.csv", "time,op,offset,size\n0,R,0,8192\n5,W,4096,4096\n9,R,8192,512\n");
    let head = scratch.ok(&["trace", "head", "plain.csv", "-n", "3"]);
    assert!(head.starts_with("format csv, offsets and sizes in bytes\n"), "{head}");
    assert!(head.contains("offset 4096  size 4096") && !head.contains("offset 8192"), "{head}");
    assert_eq!(head, scratch.ok(&["trace", "head", "plain.csv", "-n", "3", "--format", "csv"]));
    scratch.ok(&["-q", "trace", "convert", "plain.csv", "plain.etr"]);
    assert_eq!(number(&rows(&scratch, &["plain.etr", "-s", "2p"])[0], "requests"), 4);
    for (option, requests) in [(["--page-size", "8192"], 3), (["--split", "exp"], 4), (["--limit", "3"], 3)] {
        let measured = rows(&scratch, &[&["plain.csv", "-s", "1p"], &option[..]].concat());
        assert_eq!(number(&measured[0], "requests"), requests, "{option:?}");
    }
    let formats = scratch.ok(&["trace", "formats"]);
    assert!(formats.lines().any(|line| line == "msr") && formats.lines().count() >= 18, "{formats}");
}

#[test]
fn a_trace_of_any_kind_is_looked_at_and_becomes_text() {
    let scratch = Scratch::new();
    let spec = "tpcc:n=3k:warehouses=1:seed=3|scan:n=300:object=backup:write=40:update=50";
    scratch.ok(&["-q", "trace", "generate", spec, "a.etr"]);
    let native = scratch.ok(&["trace", "head", "a.etr", "-n", "30"]);
    let generated = scratch.ok(&["trace", "head", &format!("generate:{spec}"), "-n", "30"]);
    let records = native.strip_prefix("format native, offsets and sizes in pages\n").expect("its format");
    assert_eq!(generated.strip_prefix("format generated, offsets and sizes in pages\n"), Some(records));
    assert_eq!(records.lines().count(), 30);
    assert!(records.starts_with("object 0 is \"") && records.contains("  size 1  "), "{records}");

    scratch.ok(&["-q", "trace", "convert", "a.etr", "a.csv"]);
    assert_eq!(scratch.read("a.csv").lines().count(), 3300 + 1);
    scratch.ok(&["-q", "trace", "convert", "a.csv", "again.etr"]);
    // Objects are numbered in another order.
    let requests = |name: &str| {
        let text = scratch.ok(&["trace", "head", name, "-n", "10000"]);
        let of_request =
            |line: &str| Some((line.split_once("  object ")?.0.to_owned(), line.split_once("  offset ")?.1.to_owned()));
        text.lines().filter_map(of_request).collect::<Vec<_>>()
    };
    assert_eq!(requests("a.etr").len(), 3300);
    assert_eq!(requests("again.etr"), requests("a.etr"));
    let hits = |name: &str| {
        let row = rows(&scratch, &[name, "-p", "lru", "-s", "50p"]).remove(0);
        ["reads", "read_hits", "write_hits", "write_backs"].map(|count| number(&row, count))
    };
    assert_eq!(hits("again.etr"), hits("a.etr"));
}

/// Sizes that nobody named are left out where they are no page.
#[test]
fn a_small_trace_is_simulated_at_the_default_sizes_that_it_has() {
    let scratch = Scratch::new();
    let output = scratch.run(&["simulate", "generate:uniform:n=500:pages=50:seed=1", "--json", "small.json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("skipped at 1%: ") && said.contains("0 pages of 4096 B (footprint 50 pages)"), "{said}");
    let measured = json(&scratch.read("small.json"));
    let sizes: Vec<&str> = measured["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|row| row["size"].as_str().expect("a size"))
        .collect();
    assert_eq!(sizes, ["5%", "10%", "20%"]);
    let refused = scratch.refused(&["simulate", "generate:uniform:n=500:pages=50:seed=1", "-s", "1%,5%"]);
    assert!(refused.contains("size 1% is 0 pages"), "{refused}");
}

/// A name means the same in a row and in its intervals.
#[test]
fn write_backs_of_intervals_are_those_of_the_row() {
    let scratch = Scratch::new();
    let trace = "generate:zipf:n=20k:pages=2k:seed=5:write=60";
    for mode in ["write-back", "write-through"] {
        let more = ["--interval", "3000", "--mode", mode, "-p", "lru,tac,h-arc", "-s", "5%", "--json", "series.json"];
        scratch.ok(&[&["-q", "simulate", trace], &more[..]].concat());
        for row in json(&scratch.read("series.json"))["results"].as_array().expect("results") {
            let sum =
                |name: &str| row["series"].as_array().expect("intervals").iter().map(|i| number(i, name)).sum::<u64>();
            let absent = |name: &str| row[name].as_u64().unwrap_or(0);
            let at_once = absent("write_bypasses") + absent("write_throughs") + absent("write_arounds");
            assert_eq!(sum("write_backs"), number(row, "write_backs"), "{mode}: {row}");
            assert_eq!(sum("written_below"), number(row, "write_backs") + at_once, "{mode}: {row}");
            assert!(mode == "write-back" || at_once > 0, "{mode}: {row}");
        }
    }
}

#[test]
fn the_catalogue_describes_itself() {
    let scratch = Scratch::new();
    let all = scratch.ok(&["policies"]);
    assert_eq!(all.lines().count(), 2 + 47);
    let family = scratch.ok(&["policies", "--family", "learned"]);
    assert_eq!(family.lines().count(), 2 + 4);
    let one = scratch.ok(&["policies", "face-gsc"]);
    for part in ["Flash as cache extension", "pages=mixed", "scan=", "tiers", "dram"] {
        assert!(one.contains(part), "'{part}' is not in {one}");
    }
    assert!(scratch.ok(&["policies", "min"]).contains("a bound for policies that admit every page"));
    assert!(scratch.ok(&["policies", "h-arc"]).contains("for reads alone it remembers one evicted page at most"));
    for name in all.lines().skip(2).map(|line| line.split_whitespace().next().expect("a name")) {
        assert!(scratch.ok(&["policies", name]).starts_with(&format!("{name}: ")));
    }
}

#[test]
fn shells_and_manuals_are_served() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.ok(&["completions", shell]);
        assert!(script.contains("entresol") && script.contains("simulate") && script.contains("skip-bad"), "{shell}");
    }
    scratch.ok(&["man", "pages/man1"]);
    let page = scratch.read("pages/man1/entresol-simulate.1");
    assert!(page.contains(".TH") && page.contains("baseline"), "{page}");
    assert!(scratch.path("pages/man1/entresol-trace-generate.1").exists());
    assert!(scratch.ok(&["--version"]).starts_with("entresol "));
    let help = scratch.ok(&["simulate", "--help"]);
    assert!(help.contains("--skip-bad <N>"), "{help}");
    let bare = scratch.run(&[]);
    assert_eq!(bare.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bare.stderr).contains("Usage: entresol"));
}

#[test]
fn what_cannot_run_at_a_size_is_said_in_one_line_a_size() {
    let scratch = Scratch::with_trace();
    let output = scratch.run(&["simulate", "t.etr", "--policy", "all", "--size", "1p,0.01%,10%", "--json", "out.json"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[1].starts_with("skipped at 1p: policy 'cacheus' needs at least 2 pages"), "{said}");
    assert!(lines[0].starts_with("skipped at 0.01%: all policies, for it is 0 pages of 4096 B"), "{said}");
    let skipped = json(&scratch.read("out.json"))["skipped"].as_array().expect("what was skipped").len();
    assert!(skipped > 45);
}

/// A program built as always leaves out no step, whatever the environment asks for.
#[test]
fn a_step_is_left_out_in_a_program_that_was_built_for_it_and_in_no_other() {
    let scratch = Scratch::new();
    let asked = |step: &str| {
        let mut command = scratch.command(&["--version"]);
        let output = command.env("ENTRESOL_MUTANT", step).output().expect("the command runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    for step in ["files:DirectoryUnsynced", "engine:NoLogSync", "burst:LeaseIgnored"] {
        let (code, said) = asked(step);
        assert_eq!((code, said.contains(step)), (Some(0), cfg!(feature = "mutants")), "{said}");
    }
    for unknown in ["files:NoLogSync", "NoLogSync", "", "cellar:Door"] {
        let (code, said) = asked(unknown);
        let told = (Some(2), true);
        let expected = if cfg!(feature = "mutants") { told } else { (Some(0), false) };
        assert_eq!((code, said.contains("no step is named")), expected, "{said}");
    }
}
