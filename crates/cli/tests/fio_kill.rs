//! `fio --verify` over NBD while the server is killed and started again. Without fio, or its nbd engine, the test
//! prints so and passes (`apt-get install fio`).

mod common;

use common::{Scratch, crash};
use entresol_core::Random;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const ROUNDS: u64 = 10;
const SEED: u64 = 20_261_122;

/// A server on the socket `s`, once it accepts connections; it replaces the socket of a killed one.
fn served(scratch: &Scratch) -> Child {
    let arguments = "serve nbd --cache cache --backing disk --policy h-arc --socket s";
    let mut command = scratch.command(&arguments.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("nbd+unix"), "the server ended");
    child
}

fn killed(mut child: Child) {
    crash(child.id());
    child.wait().expect("an end");
}

fn fio(scratch: &Scratch, name: &str, more: &[&str]) -> Command {
    let uri = format!("--uri=nbd+unix:///?socket={}", scratch.path("s").display());
    let mut command = Command::new("fio");
    command.args([&format!("--name={name}"), "--ioengine=nbd", &uri, "--bs=4k", "--iodepth=16"]);
    command.args(["--verify_state_save=0", "--eta=never"]).args(more).current_dir(scratch.path("."));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn fio_finds_what_it_flushed_after_each_of_ten_kills() {
    match Command::new("fio").arg("--enghelp").output() {
        Ok(help) if said(&help).lines().any(|line| line.trim() == "nbd") => {}
        Ok(_) => return entresol_skip::skipped!("fio", "this fio has no nbd engine"),
        Err(error) => return entresol_skip::skipped!("fio", "fio: {error}"),
    }
    println!("seed {SEED}");
    let mut random = Random::new(SEED);
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; 16 << 20]);
    scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "4MiB"]);
    for round in 0..ROUNDS {
        // The pattern distinguishes rounds, and blocks by their offset.
        let pattern = format!("--verify_pattern=%o0x{:08x}", random.below(1 << 32));
        let seed = format!("--randseed={}", random.below(1 << 30));
        let checked = ["--size=4M", "--verify=pattern", &pattern, &seed];
        let server = served(&scratch);
        let write = ["--rw=randwrite", "--do_verify=0", "--end_fsync=1"];
        let output = fio(&scratch, "write", &[&checked[..], &write].concat()).output().expect("fio runs");
        assert!(output.status.success(), "round {round}: {}", said(&output));
        // Writes to the other half, under way when the server dies, may be lost, and must not harm the first half.
        let noise = ["--rw=randwrite", "--offset=8M", "--size=8M", "--time_based", "--runtime=30", &seed];
        let mut noise = fio(&scratch, "noise", &noise).spawn().expect("fio runs");
        std::thread::sleep(Duration::from_millis(random.below(300)));
        killed(server);
        noise.wait().expect("it ends with its server");
        let server = served(&scratch);
        let verify = ["--rw=randwrite", "--verify_only", "--verify_fatal=1"];
        let output = fio(&scratch, "verify", &[&checked[..], &verify].concat()).output().expect("fio runs");
        assert!(output.status.success(), "round {round}: {}", said(&output));
        killed(server);
        scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
    }
}
