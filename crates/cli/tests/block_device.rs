//! Block devices as cache and backing store, by loop devices where this machine has them, and O_DIRECT.

mod common;

use common::image::Loop;
use common::served::client::{Client, FUA};
use common::{Scratch, crash, says};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};

const UUID: &str = "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a10";

fn served(scratch: &Scratch, cache: &str, backing: &str, more: &[&str]) -> (Child, Client) {
    let both = ["serve", "nbd", "--socket", "s", "--cache", cache, "--backing", backing, "--policy", "lru", "--direct"];
    let mut command = scratch.command(&[&both[..], more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("nbd+unix"), "{line}");
    let client = Client::connect(&scratch.path("s"), false).expect("a connection");
    (child, client)
}

fn killed(mut child: Child) {
    crash(child.id());
    child.wait().expect("an end");
}

#[test]
fn devices_without_a_serial_number_need_a_uuid_and_then_survive_a_kill() {
    let scratch = Scratch::new();
    scratch.file("a", vec![0; 4 << 20]);
    scratch.file("b", vec![0; 2 << 20]);
    let devices = Loop::new(&scratch.path("a")).and_then(|a| Ok((a, Loop::new(&scratch.path("b"))?)));
    let (backing, cache) = match devices {
        Ok(devices) => devices,
        Err(why) => return entresol_skip::skipped!("losetup", "no loop devices here: {why}"),
    };
    let (backing, cache) = (backing.0.as_str(), cache.0.as_str());
    let both = ["--cache", cache, "--backing", backing];
    let with = |first: &[&'static str], uuid: &'static str| [first, &["--identity", uuid]].concat();
    let run = |first: &[&'static str]| scratch.run(&[&first[..1], &both, &first[1..]].concat());
    let refused = |first: &[&'static str], parts: &[&str]| {
        let output = run(first);
        assert_eq!(output.status.code(), Some(2), "{first:?}");
        says(&String::from_utf8(output.stderr).expect("text"), parts);
    };
    refused(&["format"], &[backing, "without a serial number", "--identity UUID"]);
    refused(&with(&["format"], "42"), &["32 hexadecimal digits"]);
    let mounted = std::fs::OpenOptions::new().read(true).custom_flags(0o200).open(backing).expect("O_EXCL");
    refused(&with(&["format"], UUID), &[backing, "in use: mounted"]);
    drop(mounted);
    assert!(run(&with(&["format", "--mode=write-back", "-q"], UUID)).status.success());
    refused(&["check"], &["without a serial number"]);
    refused(&with(&["check"], "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a11"), &["the cache of another backing store"]);
    let (child, mut client) = served(&scratch, cache, backing, &["--identity", UUID]);
    client.write(4096, &[5; 12288], FUA);
    // Half a page, at a memory address and an offset that O_DIRECT would refuse.
    client.write(4096 + 512, &[6; 1024], FUA);
    drop(client);
    killed(child);
    let (child, mut client) = served(&scratch, cache, backing, &["--identity", UUID]);
    let expected = [vec![5; 512], vec![6; 1024], vec![5; 12288 - 1536]].concat();
    assert_eq!(client.read(4096, 12288), expected);
    drop(client);
    killed(child);
    says(&scratch.ok(&["stats", "--cache", cache]), &[&UUID.replace('-', "")]);
    assert!(run(&with(&["drain", "-q"], UUID)).status.success());
    assert!(run(&with(&["check"], UUID)).status.success());
    assert_eq!(scratch.bytes("a")[4096..16384], expected);
}

#[test]
fn o_direct_wants_whole_blocks_and_files_take_no_uuid() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; 4 << 20]);
    scratch.file("short", vec![0; (4 << 20) + 512]);
    let format =
        |more: [&'static str; 4]| [&["-q", "format", "--mode=write-back", "--size", "2MiB"][..], &more].concat();
    scratch.ok(&[&format(["--cache", "small", "--backing", "disk"])[..], &["--page-size", "512"]].concat());
    scratch.ok(&format(["--cache", "odd", "--backing", "short"]));
    let serve = |cache: &'static str, backing: &'static str| {
        ["serve", "nbd", "--socket", "s", "--cache", cache, "--backing", backing, "--policy", "lru", "--direct"]
    };
    says(&scratch.refused(&serve("small", "disk")), &["--direct: pages of 512 bytes"]);
    // The disk belongs to the cache that is made last.
    scratch.ok(&format(["--cache", "whole", "--backing", "disk"]));
    says(&scratch.refused(&serve("odd", "short")), &["--direct: short has 4194816 bytes"]);
    let named = [&serve("whole", "disk")[..], &["--identity", UUID]].concat();
    says(&scratch.refused(&named), &["disk: is a file, which has an identity of its own"]);
    let (child, mut client) = served(&scratch, "whole", "disk", &[]);
    client.write(100, &[7; 9000], FUA);
    assert_eq!(client.read(100, 9000), vec![7; 9000]);
    drop(client);
    killed(child);
    let (child, mut client) = served(&scratch, "whole", "disk", &[]);
    assert_eq!(client.read(100, 9000), vec![7; 9000]);
    drop(client);
    killed(child);
}

/// A volume that grew while its cache had dirty pages, as by `lvextend`.
#[test]
fn a_device_that_grew_is_checked_served_and_drained() {
    let scratch = Scratch::new();
    scratch.file("a", vec![0; 4 << 20]);
    let backing = match Loop::new(&scratch.path("a")) {
        Ok(device) => device,
        Err(why) => return entresol_skip::skipped!("losetup", "no loop devices here: {why}"),
    };
    let backing = backing.0.as_str();
    let named = ["--cache", "cache", "--backing", backing, "--identity", UUID];
    let run = |first: &[&str]| {
        let output = scratch.run(&[first, &named].concat());
        assert!(output.status.success(), "{first:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["-q", "format", "--mode=write-back", "--size", "2MiB"]);
    let (child, mut client) = served(&scratch, "cache", backing, &["--identity", UUID]);
    client.write(4096, &[5; 8192], FUA);
    drop(client);
    killed(child);
    let image = std::fs::OpenOptions::new().write(true).open(scratch.path("a")).expect("the image");
    image.set_len(8 << 20).expect("more room");
    drop(image);
    let grown = std::process::Command::new("losetup").args(["--set-capacity", backing]).status();
    assert!(grown.expect("losetup").success());
    run(&["check"]);
    let (child, mut client) = served(&scratch, "cache", backing, &["--identity", UUID]);
    assert_eq!(client.read(4096, 8192), [5; 8192]);
    client.write(6 << 20, &[6; 4096], FUA);
    drop(client);
    killed(child);
    run(&["-q", "drain"]);
    run(&["check"]);
    let below = scratch.bytes("a");
    assert_eq!(below[4096..12288], [5; 8192]);
    assert_eq!(below[6 << 20..(6 << 20) + 4096], [6; 4096]);
}
