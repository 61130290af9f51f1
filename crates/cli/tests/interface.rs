//! The names that users type and that programs read are those of `tests/fixtures/interface.txt`: commands, options and their values,
//! keys of the configuration, settings, metrics, events, keys of JSON. A script breaks where a name goes: the old one is accepted beside
//! the new one until 0.4. A new name is added to the file: `ENTRESOL_WRITE_INTERFACE=1 cargo test -p entresol --test interface`.

mod common;
#[path = "../../policy/tests/common/sources.rs"]
mod sources;

use common::Scratch;
use common::served::{formatted, reached, start, terminate};
use serde_json::Value;
use sources::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Plain text of a manual page.
fn plain(page: &str) -> String {
    page.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace("\\-", "-").replace("\\&", "")
}

/// Adds a manual page's command, its options with their defaults, and the values that they take.
fn add_command(names: &mut BTreeSet<String>, command: &str, page: &str) {
    names.insert(format!("command {command}"));
    let mut option = None;
    let (mut in_options, mut in_values) = (false, false);
    for line in plain(page).lines() {
        if let Some(section) = line.strip_prefix(".SH") {
            in_options = matches!(section.trim(), "OPTIONS" | "ARGUMENTS");
            option = None;
        } else if in_options
            && (line.starts_with('-') || line.starts_with('<') || line.starts_with('['))
            && option.is_none()
        {
            option = Some(line.split(" [default").next().expect("a part").trim().to_owned());
            names.insert(format!("option {command} {line}"));
        } else if line == ".TP" {
            option = None;
        }
        let Some(option) = &option else { continue };
        if let Some((value, _)) = line.split_once(": ").filter(|_| in_values) {
            names.insert(format!("value {command} {option} {value}"));
        }
        in_values = (in_values && line != ".RE") || line == "Possible values:";
        if let Some(values) = line.strip_prefix("[possible values: ") {
            let values = values.trim_end_matches(']').split(", ");
            names.extend(values.map(|value| format!("value {command} {option} {value}")));
        }
    }
}

fn commands(names: &mut BTreeSet<String>) {
    let scratch = Scratch::new();
    scratch.ok(&["man", "pages"]);
    for entry in fs::read_dir(scratch.path("pages")).expect("pages") {
        let path = entry.expect("an entry").path();
        let command = path.file_stem().expect("a name").to_string_lossy().replace('-', " ");
        add_command(names, &command, &fs::read_to_string(&path).expect("a page"));
    }
}

/// Keys of the configuration, with their tables, as the printed configuration has them.
fn configuration(names: &mut BTreeSet<String>) {
    let mut table = String::new();
    for line in Scratch::new().ok(&["config"]).lines() {
        let line = line.trim_start_matches('#').trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut table);
            names.insert(format!("table [{table}]"));
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
        {
            names.insert(format!("key [{table}] {key}"));
        }
    }
}

fn metrics(names: &mut BTreeSet<String>) {
    let list = Scratch::new().ok(&["metrics", "--markdown"]);
    let named = list.split('`').filter(|word| word.starts_with("entresol_"));
    names.extend(named.map(|metric| format!("metric {metric}")));
}

/// Names of events with their levels, from the calls that emit them: not each can be made to happen here. A call whose level
/// is a variable gives none.
fn emitted() -> BTreeMap<String, BTreeSet<String>> {
    let folders = ["src", "../service/src"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let mut levels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in folders.iter().flat_map(|folder| sources(folder)) {
        let text = fs::read_to_string(&file).expect("text");
        for (at, call) in text.match_indices(".event(") {
            let arguments = &text[at + call.len()..];
            // The second argument, or both where a condition chooses the level and the name.
            let end = arguments.find(");").unwrap_or(arguments.len());
            let mut parts = arguments[..end].split('"');
            let (level, name) = (parts.next().unwrap_or_default(), parts.next());
            let Some(name) = name.filter(|name| !name.contains([' ', '{'])) else { continue };
            let known = ["Info", "Warning"].into_iter().filter(|known| level.contains(&format!("Level::{known}")));
            levels.entry(name.to_owned()).or_default().extend(known.map(str::to_lowercase));
        }
    }
    levels
}

fn events(names: &mut BTreeSet<String>) {
    names.extend(emitted().into_keys().map(|name| format!("event {name}")));
}

/// Rows of the table of events in the manual: names with their levels, and with what is to be done.
fn described() -> BTreeMap<String, (BTreeSet<String>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
    let manual = fs::read_to_string(path).expect("docs/OPERATING.md");
    let section = manual.split("\n## Events\n").nth(1).expect("a section on events");
    let section = section.split("\n## ").next().expect("its text");
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_start_matches("| ").trim_end_matches(" |").split(" | ").collect();
        let [name, level, happened, to_do] = cells[..] else { panic!("not four cells: {line}") };
        assert!(!happened.is_empty() && !to_do.is_empty(), "{line}");
        let levels = level.split(", ").map(str::to_owned).collect();
        let before = rows.insert(name.trim_matches('`').to_owned(), (levels, to_do.to_owned()));
        assert!(before.is_none(), "twice: {line}");
    }
    rows
}

#[test]
fn the_manual_lists_every_event_and_no_other() {
    let (emitted, described) = (emitted(), described());
    let names: BTreeSet<&String> = emitted.keys().collect();
    assert_eq!(described.keys().collect::<BTreeSet<_>>(), names, "docs/OPERATING.md, Events");
    for (name, (levels, to_do)) in &described {
        assert!(levels.iter().all(|level| ["info", "warning"].contains(&level.as_str())), "{name}: {levels:?}");
        assert!(emitted[name].is_subset(levels), "{name} is emitted as {:?}", emitted[name]);
        assert!(!levels.contains("warning") || to_do != "nothing", "{name}: a warning asks for something");
    }
}

/// Adds the keys of a document, with the way to each. Lists are one step; keys that are data stand as `*`.
fn add_keys(names: &mut BTreeSet<String>, way: &str, value: &Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let is_data = !key.starts_with(|c: char| c.is_ascii_lowercase())
                    || key.contains(['.', '/', ' ', ':', '%'])
                    || ["policies", "options"].iter().any(|map| way.ends_with(map));
                let way = format!("{way}.{}", if is_data { "*" } else { key });
                names.insert(format!("json {way}"));
                add_keys(names, &way, value);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_keys(names, &format!("{way}[]"), item)),
        _ => {}
    }
}

/// JSON of commands over traces, on a small one.
fn json_of_traces(names: &mut BTreeSet<String>) {
    let scratch = Scratch::with_trace();
    // The shortest that a recommendation is made from has 20,000 requests.
    scratch.ok(&["-q", "trace", "generate", "zipf:n=20000:pages=400:seed=11:write=30:gap=100", "long.etr"]);
    let devices = "dram=dram:400p,cache=p4800x:40p,backing=cheetah-15k5";
    let two = "cache=p4800x:40p,backing=cheetah-15k5";
    for (command, arguments) in [
        ("simulate", &["simulate", "t.etr", "--policy", "lru,h-arc", "--size", "10%"][..]),
        ("simulate --tiers", &["simulate", "t.etr", "--policy", "lru,h-arc", "--tiers", two]),
        ("simulate --dram", &["simulate", "t.etr", "--policy", "lru", "--size", "10%", "--dram", "5%"]),
        ("simulate --stack", &["simulate", "t.etr", "--stack", "lru:5%,lru:10%"]),
        ("tune", &["tune", "t.etr", "--policy", "multi-tier", "--tiers", devices, "--epoch", "1k", "--grid", "2"]),
        ("replay", &["replay", "t.etr", "--policy", "lru", "--size", "40p"]),
        ("trace stat", &["trace", "stat", "t.etr"]),
        ("advise placement", &["advise", "placement", "generate:olap:n=20k:pages=4k:seed=5", "--budget", "800p"]),
        ("advise hierarchy", &["advise", "hierarchy", "long.etr", "--budget", "100", "--footprint", "40GB"]),
    ] {
        scratch.ok(&[&["-q"], arguments, &["--json", "out.json"]].concat());
        add_keys(names, command, &serde_json::from_str(&scratch.read("out.json")).expect("JSON"));
        fs::remove_file(scratch.path("out.json")).expect("it was written");
    }
    let printed = scratch.ok(&["burst", "simulate", "--json"]);
    add_keys(names, "burst simulate", &serde_json::from_str(&printed).expect("JSON"));
}

/// Settings of a cache in use, and the JSON of it and of the cache at rest.
fn caches(names: &mut BTreeSet<String>) {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let client = reached(&scratch, &mut child);
    let figures: Value = serde_json::from_str(&scratch.ok(&["stats", "--cache", "cache", "--json"])).expect("JSON");
    add_keys(names, "stats", &figures);
    let refused = scratch.refused(&["set", "--cache", "cache", "nothing=1"]);
    let (_, settings) = refused.split_once("settings: ").expect("the settings that there are");
    let settings = settings.split("; ").filter_map(|setting| setting.split_once(" (")).map(|(name, _)| name);
    let settings = settings.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    names.extend(settings.map(|name| format!("set {name}")));
    drop(client);
    terminate(child);
}

#[test]
fn names_that_users_type_and_programs_read_stay() {
    let mut names = BTreeSet::new();
    commands(&mut names);
    configuration(&mut names);
    metrics(&mut names);
    events(&mut names);
    json_of_traces(&mut names);
    caches(&mut names);
    for kind in ["command", "option", "value", "table", "key", "metric", "event", "json", "set"] {
        assert!(names.iter().any(|name| name.starts_with(&format!("{kind} "))), "no {kind} is found");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/interface.txt");
    if std::env::var_os("ENTRESOL_WRITE_INTERFACE").is_some() {
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        fs::write(&path, text).expect("the fixture is written");
    }
    let golden = fs::read_to_string(&path).expect("the fixture");
    let golden: BTreeSet<String> = golden.lines().map(str::to_owned).collect();
    let gone: Vec<&String> = golden.difference(&names).collect();
    let come: Vec<&String> = names.difference(&golden).collect();
    assert!(gone.is_empty(), "names that scripts use are gone; accept the old beside the new: {gone:#?}");
    assert!(come.is_empty(), "names that are new are to be added to {}: {come:#?}", path.display());
}
