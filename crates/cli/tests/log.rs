//! Log of a server about its cache: one event a line.

mod common;

use common::served::{PAGE, formatted, formatted_log, reached, start};
use common::{Scratch, Signal, says, signal};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Stdio};

fn serve(scratch: &Scratch, more: &[&str]) -> Child {
    let arguments = "serve nbd --backing disk --cache cache --socket s --policy lru --mode write-through";
    let arguments: Vec<&str> = arguments.split(' ').chain(more.iter().copied()).collect();
    let mut command = scratch.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
}

/// Ends a server; returns its exit code and output.
fn end(mut child: Child) -> (Option<i32>, String) {
    signal(child.id(), Signal::TERM);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (child.wait().expect("an end").code(), said)
}

/// A run of a cache whose mode changes twice and whose file is then truncated.
fn life(scratch: &Scratch, more: &[&str]) -> (Option<i32>, String) {
    let mut child = serve(scratch, more);
    let mut client = reached(scratch, &mut child);
    client.write(0, &[5; 20 * PAGE], 1);
    scratch.ok(&["set", "--cache", "cache", "mode=write-back", "policy=arc"]);
    scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
    let cache = std::fs::OpenOptions::new().write(true).open(scratch.path("cache")).expect("the cache");
    cache.set_len(8192).expect("it is cut off");
    assert_eq!(client.read(0, 20 * PAGE as u32), [5; 20 * PAGE], "no request fails");
    drop(client);
    end(child)
}

#[test]
fn events_are_json_lines_where_that_is_asked_for() {
    let scratch = formatted_log();
    let (_, said) = life(&scratch, &["--log", "json"]);
    println!("{said}");
    let events: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let plain: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
    assert!(
        plain.iter().all(|line| line.starts_with("entresol: ")),
        "only the error that ended it is plain: {plain:?}"
    );
    let of = |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["event"] == *kind).collect() };
    assert!(
        events.iter().all(|event| event["cache"] == "cache" && event["time"].as_str().is_some_and(|t| t.len() == 24))
    );
    let open = of("open");
    assert_eq!((open.len(), &open[0]["clean_shutdown"], &open[0]["pages"]), (1, &true.into(), &0.into()));
    let [layout] = of("layout")[..] else { panic!("an LRU over a log is mentioned, once: {said}") };
    assert_eq!(
        (&layout["level"], &layout["layout"], &layout["policy"]),
        (&"info".into(), &"log".into(), &"lru".into())
    );
    let commands = [
        "`entresol drain --cache cache --backing disk`",
        "`entresol format --cache cache --backing disk --layout slots --force`",
    ];
    says(layout["message"].as_str().expect("text"), &commands);
    let set: Vec<_> = of("set").iter().map(|event| (event["mode"].clone(), event["policy"].clone())).collect();
    let expected = [("write-back", "lru"), ("write-back", "arc"), ("write-through", "arc")];
    assert_eq!(set, expected.map(|(mode, policy)| (mode.into(), policy.into())));
    let errors = of("device-errors");
    assert!(!errors.is_empty() && errors.iter().all(|event| event["device"] == "cache" && event["level"] == "warning"));
    assert_eq!(of("lost-pages").len(), 0, "write-through loses nothing");
    assert_eq!((of("close").len(), &of("close")[0]["dirty_pages"]), (1, &0.into()));
}

#[test]
fn and_else_lines_for_people_of_which_quiet_leaves_the_warnings() {
    let scratch = formatted();
    let (_, said) = life(&scratch, &[]);
    says(
        &said,
        &[
            "cache: closed in good order: 0 pages",
            "cache: mode is write-back\n",
            "cache: policy is arc, of ",
            "cache: the cache device failed ",
            "the cache is closed; ",
        ],
    );
    scratch.format(&["--force", "--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
    let (_, said) = life(&scratch, &["-q"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().all(|line| line.contains("failed") || line.contains("truncated")), "{said}");
    assert!(!lines.is_empty());
    says(&scratch.refused(&["serve", "nbd", "--file", "disk", "--socket", "s", "--log", "json"]), &["--cache"]);
}

#[test]
fn a_policy_that_changes_its_mind_says_why_and_keeps_what_is_cached() {
    let scratch = formatted();
    let policy = "auto:of=lru/mru:sample=100%:window=500:first=1:payback=1000000";
    let mut child = start(&scratch, policy, "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[7; 16 * PAGE], 1);
    let json = || serde_json::from_str::<Value>(&scratch.ok(&["stats", "cache", "--json"])).expect("JSON");
    assert_eq!(json()["choice"]["active"], "lru", "{}", json());
    // A loop that does not fit, in which LRU finds no page.
    let mut read_all = || (16..1024).for_each(|page| drop(client.read(page * PAGE as u64, PAGE as u32)));
    (0..6).for_each(|_| read_all());
    let figures = json();
    let choice = &figures["choice"];
    assert_eq!((&choice["active"], &choice["switches"]), (&"mru".into(), &1.into()), "{figures}");
    let before = hits_of(&figures);
    read_all();
    assert!(hits_of(&json()) > before + 200, "what was cached is found by the one that decides now: {}", json());
    assert_eq!(client.read(0, 16 * PAGE as u32), [7; 16 * PAGE]);
    let table = scratch.ok(&["stats", "cache"]);
    says(
        &table,
        &[
            "choice         mru decides; 1 switch; ",
            "  lru          hit ratio ",
            "  last         switched from lru to mru: ",
        ],
    );
    drop(client);
    let (code, said) = end(child);
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["cache: switched from lru to mru: predicted cost ", " sampled requests\n"]);
}

fn hits_of(figures: &Value) -> u64 {
    figures["requests"]["read_hits"].as_u64().expect("a count")
}
