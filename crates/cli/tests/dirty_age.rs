//! The bound on the age of dirty pages, by the command line. The engine tests in virtual time that it holds to the
//! second.

mod common;

use common::served::client::{Client, FUA};
use common::served::{PAGE, formatted, reached, start_with, terminate};
use common::{Scratch, crash, says};
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

fn start(scratch: &Scratch, age: &str) -> (Child, Client) {
    let mut child = start_with(scratch, "lru", &["--dirty-age", age]);
    let client = reached(scratch, &mut child);
    (child, client)
}

fn is_below(scratch: &Scratch, page: usize, byte: u8) -> bool {
    let disk = std::fs::read(scratch.path("disk")).expect("the backing file");
    disk[page * PAGE..][..PAGE] == [byte; PAGE]
}

/// Waits until a page is in the backing store, without a request to the server meanwhile.
fn await_below(scratch: &Scratch, page: usize, byte: u8) {
    let began = Instant::now();
    while !is_below(scratch, page, byte) {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing was written below in two minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn age(scratch: &Scratch) -> Value {
    let figures = scratch.ok(&["stats", "--cache", "cache", "--json"]);
    serde_json::from_str::<Value>(&figures).expect("one JSON object")["dirty_age"].clone()
}

#[test]
fn what_is_dirty_is_written_below_though_nothing_is_asked_for() {
    let scratch = formatted();
    let (child, mut client) = start(&scratch, "2s");
    client.write(3 * PAGE as u64, &[7; PAGE], 0);
    await_below(&scratch, 3, 7);
    client.write(5 * PAGE as u64, &[8; PAGE], FUA);
    await_below(&scratch, 5, 8);
    // Pages count as written once a sync below has covered them.
    let began = Instant::now();
    let counted = |now: &Value| now["written_pages"].as_u64() >= Some(2);
    let now = std::iter::repeat_with(|| age(&scratch)).find(|now| counted(now) || began.elapsed().as_secs() > 60);
    let now = now.expect("figures");
    assert!(counted(&now), "{now}");
    assert_eq!((now["bound_s"].as_f64(), now["late_by_s"].is_number()), (Some(2.0), true), "{now}");
    says(&scratch.ok(&["stats", "--cache", "cache"]), &["dirty age      oldest "]);
    drop(client);
    terminate(child);
}

#[test]
fn a_bound_is_set_in_use_and_what_is_no_time_is_refused() {
    let scratch = formatted();
    let (child, mut client) = start(&scratch, "none");
    client.write(3 * PAGE as u64, &[7; PAGE], FUA);
    assert!(age(&scratch).is_null() && !is_below(&scratch, 3, 7));
    let set = |value: &str| scratch.ok(&["set", "--cache", "cache", &format!("dirty-age={value}")]);
    // The time for which the page has been dirty is not known.
    says(&set("1h"), &["written below before they are 3600 s old"]);
    await_below(&scratch, 3, 7);
    client.write(4 * PAGE as u64, &[9; PAGE], FUA);
    says(&set("1"), &["written below before they are 1 s old"]);
    await_below(&scratch, 4, 9);
    says(&set("none"), &["of any age"]);
    assert!(age(&scratch).is_null());
    for wrong in ["0", "0.5", "1w", "p"] {
        let refused = scratch.refused(&["set", "--cache", "cache", &format!("dirty-age={wrong}")]);
        says(&refused, &[&format!("dirty-age: '{wrong}': it must be whole seconds, such as 90s, 15m or 2h, or none")]);
    }
    drop(client);
    terminate(child);
    says(
        &scratch.refused(&[
            "serve",
            "nbd",
            "--backing",
            "disk",
            "--cache",
            "cache",
            "--socket",
            "s",
            "--dirty-age",
            "0",
        ]),
        &["--dirty-age", "whole seconds"],
    );
    let timer = ["--policy", "io-cache:max-dirty-seconds=5"];
    let serve = ["serve", "nbd", "--backing", "disk", "--cache", "cache", "--socket", "s"];
    says(&scratch.refused(&[&serve[..], &timer].concat()), &["io-cache", "for the simulator", "--dirty-age"]);
}

#[test]
fn what_a_killed_server_left_is_below_when_it_is_too_old() {
    let scratch = formatted();
    let (mut child, mut client) = start(&scratch, "1h");
    client.write(3 * PAGE as u64, &[7; PAGE], FUA);
    crash(child.id());
    child.wait().expect("an end");
    assert!(!is_below(&scratch, 3, 7));
    drop(client);
    let (child, client) = start(&scratch, "1s");
    await_below(&scratch, 3, 7);
    drop(client);
    terminate(child);
}
