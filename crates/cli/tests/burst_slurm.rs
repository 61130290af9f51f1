//! The samples for Slurm, called as Slurm calls them, with a real burst buffer behind; and the units of its daemons.

mod common;

use common::burst::Daemon;
use common::{PROGRAM, Scratch, says};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

/// A job script with this line, and settings of a burst buffer with this coordinator.
fn prepare(scratch: &Scratch, coordinator: &str, line: &str) {
    scratch.file("job.sh", format!("#!/bin/sh\n#SBATCH --nodes=2\n{line}\nsrun program\n"));
    let pfs = scratch.path("pfs");
    std::fs::create_dir_all(&pfs).expect("a directory");
    let pfs = pfs.display();
    scratch.file("burst.env", format!("PROGRAM={PROGRAM}\nCOORDINATOR={coordinator}\nPFS={pfs}\nDRAIN_FOR=5s\n"));
}

/// Calls a function of the script for Slurm, with what Slurm gives it. Returns its code and what it says; None without Lua.
fn call(scratch: &Scratch, function: &str, arguments: &[&str]) -> Option<(i32, String)> {
    let stub = "slurm = { SUCCESS = 0, ERROR = -1, log_info = function() end }
        dofile(arg[1])
        local code, said = _G[arg[2]](table.unpack(arg, 3))
        io.write(code, ' ', said or '')";
    scratch.file("stub.lua", stub);
    let mut lua = Command::new("lua5.4");
    lua.arg(scratch.path("stub.lua")).arg(contrib("slurm/burst_buffer.lua")).arg(function).args(arguments);
    lua.env("ENTRESOL_BURST_SETTINGS", scratch.path("burst.env")).current_dir(scratch.path("."));
    let output = match lua.output() {
        Ok(output) => output,
        Err(error) => {
            entresol_skip::skipped!("lua5.4", "lua5.4: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).expect("text");
    let (code, said) = printed.split_once(' ').expect("a code");
    Some((code.parse().expect("a number"), said.to_owned()))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_job_is_staged_out_or_its_reason_says_what_is_left() {
    let scratch = Scratch::new();
    prepare(&scratch, "127.0.0.1:1", "#BB_LUA entresol job=9");
    let coordinator = ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "cdbb", "--nodes", "1"];
    let coordinator = Daemon::start(&scratch, &coordinator);
    let address = coordinator.address.clone();
    let with_script = ["77", "job.sh", "1000", "1000"];
    let Some((code, said)) = call(&scratch, "slurm_bb_data_in", &with_script) else { return };
    assert_eq!(code, -1, "no coordinator: {said}");
    prepare(&scratch, &address, "#BB_LUA entresol job=9");
    let place = ["serve", "--node", "0", "--listen", "127.0.0.1:0", "--memory", "8MiB", "--coordinator", &address];
    let pfs = scratch.path("pfs").display().to_string();
    let _node = Daemon::start(&scratch, &[&place[..], &["--pfs", &pfs]].concat());
    let called = |function: &str, arguments: &[&str]| call(&scratch, function, arguments).expect("Lua is there");
    assert_eq!(called("slurm_bb_job_process", &["job.sh", "1000", "1000"]).0, 0);
    assert_eq!(called("slurm_bb_data_in", &with_script).0, 0);

    // The job's environment names its burst buffer.
    assert_eq!(called("slurm_bb_paths", &["77", "job.sh", "paths", "1000", "1000"]).0, 0);
    let paths = scratch.read("paths");
    assert_eq!(
        paths,
        format!("ENTRESOL_BURST_COORDINATOR={address}\nENTRESOL_BURST_PFS={pfs}\nENTRESOL_BURST_JOB=9\n")
    );

    // One rank of two is put: the checkpoint cannot become durable, and stage-out says so.
    let common = ["--coordinator", &address, "--pfs", &pfs, "--job", "9", "--checkpoint", "4", "--ranks", "2"];
    scratch.file("checkpoint", "x".repeat(100_000));
    let put = |rank: &str| scratch.ok(&[&["burst", "put"], &common[..], &["--rank", rank, "checkpoint"]].concat());
    put("0");
    let (code, said) = called("slurm_bb_data_out", &with_script);
    assert_eq!(code, -1, "{said}");
    says(&said, &["not durable: checkpoint 4"]);
    put("1");
    let (code, said) = called("slurm_bb_data_out", &with_script);
    assert_eq!(code, 0, "{said}");
    let (code, said) = called("slurm_bb_get_status", &["0", "0", "entresol", "9"]);
    assert_eq!(code, 0, "{said}");
    says(&said, &["durable"]);
    for function in ["pools", "setup", "real_size", "pre_run", "post_run", "job_teardown"] {
        assert_eq!(called(&format!("slurm_bb_{function}"), &with_script).0, 0, "{function}");
    }
}

/// Under a key, slurmctld's host has the key, and each job the ticket of its prolog.
#[test]
fn a_job_under_a_key_has_a_ticket_and_sees_no_other_users_checkpoints() {
    let scratch = Scratch::new();
    scratch.ok(&["burst", "key", "key"]);
    let coordinator = ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--nodes", "1", "--key", "key"];
    let coordinator = Daemon::start(&scratch, &[&coordinator[..], &["--policy", "cdbb"]].concat());
    prepare(&scratch, &coordinator.address, "#BB_LUA entresol");
    let key = scratch.path("key").display().to_string();
    let settings = format!("{}ENTRESOL_BURST_KEY={key}\nENTRESOL_BURST_RUN=/run/burst\n", scratch.read("burst.env"));
    scratch.file("burst.env", &settings);
    let place = ["serve", "--node", "0", "--listen", "127.0.0.1:0", "--memory", "8MiB", "--pfs", "pfs", "--key", "key"];
    let _node = Daemon::start(&scratch, &[&place[..], &["--coordinator", &coordinator.address]].concat());
    let Some((code, said)) = call(&scratch, "slurm_bb_data_in", &["77", "job.sh", "1000", "1000"]) else { return };
    assert_eq!(code, 0, "{said}");
    assert_eq!(call(&scratch, "slurm_bb_paths", &["77", "job.sh", "paths", "1000", "1000"]).expect("Lua").0, 0);
    says(&scratch.read("paths"), &["ENTRESOL_BURST_JOB=77\nENTRESOL_BURST_TICKET=/run/burst/77.ticket\n"]);
    // The checkpoints of job 9 are root's.
    std::fs::create_dir(scratch.path("pfs/job-9")).expect("a directory");
    let owner = std::fs::metadata(scratch.path("pfs/job-9")).expect("it is there").uid();
    let other = (owner + 1000).to_string();
    scratch.file("job.sh", "#BB_LUA entresol job=9\n");
    for (uid, code) in [(owner.to_string(), 0), (other.clone(), -1)] {
        for (function, arguments) in [
            ("data_in", ["77", "job.sh", &uid, "1000"]),
            ("data_out", ["77", "job.sh", &uid, "1000"]),
            ("get_status", [&uid, "1000", "entresol", "9"]),
        ] {
            let called = call(&scratch, &format!("slurm_bb_{function}"), &arguments).expect("Lua");
            assert_eq!(called.0, code, "{function} of user {uid}: {}", called.1);
            assert!(code == 0 || called.1 == "entresol: job 9 has no checkpoints of this user", "{}", called.1);
        }
    }
    assert_eq!(call(&scratch, "slurm_bb_paths", &["77", "job.sh", "paths", "1000", "1000"]).expect("Lua").0, 0);
    assert!(!scratch.read("paths").contains("TICKET"), "the ticket of job 77 is none for job 9");

    scratch.file("burst.env", settings.replace("ENTRESOL_BURST_RUN=/run/burst\n", ""));
    let ticket = scratch.path("run/77.ticket");
    for (script, there) in [("prolog.sh", true), ("prolog.sh", true), ("epilog.sh", false), ("epilog.sh", false)] {
        let output = on_node(&scratch, script, &[]).output().expect("the script runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{script}: {}", text(&output));
        assert_eq!((ticket.exists(), scratch.path("run/77").exists()), (there, there), "{script}");
        assert_eq!(std::fs::read_dir(scratch.path("run")).expect("names").count(), if there { 2 } else { 0 });
        if there {
            let metadata = std::fs::metadata(&ticket).expect("it is there");
            assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o400, 0));
            says(&scratch.read("run/77.ticket"), &["job 77\nuid 0\n"]);
        }
    }
    let folder = std::fs::metadata(scratch.path("pfs/job-77")).expect("the folder of the job");
    assert_eq!((folder.mode() & 0o7777, folder.uid()), (0o700, 0));
}

#[test]
fn a_wrong_directive_is_refused_at_submission() {
    let scratch = Scratch::new();
    for (line, code, expected) in [
        ("#BB_LUA entresol", 0, ""),
        ("#BB_LUA entresol job=17", 0, ""),
        ("#BB_LUA entresol jobs=17", -1, "#BB_LUA entresol jobs=17: the options are [job=N]"),
        ("#BB_LUA entresol job=17 x", -1, "the options are [job=N]"),
        ("#BB_LUA entresols", -1, "the script has no line '#BB_LUA entresol [job=N]'"),
    ] {
        prepare(&scratch, "127.0.0.1:1", line);
        let Some(said) = call(&scratch, "slurm_bb_job_process", &["job.sh", "1000", "1000"]) else { return };
        assert_eq!(said.0, code, "{line}: {said:?}");
        assert!(said.1.contains(expected), "{line}: {said:?}");
    }
    // A word of a user's cannot become a command.
    prepare(&scratch, "127.0.0.1:1", "#BB_LUA entresol job=17");
    let (code, said) = call(&scratch, "slurm_bb_get_status", &["0", "0", "entresol", "1;touch pwned"]).expect("Lua");
    assert_eq!(code, -1);
    says(&said, &["usage: scontrol show bbstat entresol JOB"]);
    assert!(!scratch.path("pwned").exists());
}

/// Runs a script of a compute node for job 77; it must succeed.
fn on_node(scratch: &Scratch, script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(contrib("slurm").join(script));
    command.args(arguments).env("ENTRESOL_BURST_SETTINGS", scratch.path("burst.env"));
    command.env("ENTRESOL_BURST_RUN", scratch.path("run")).env("SLURM_JOB_ID", "77").env("SLURM_JOB_UID", "0");
    command
}

#[test]
fn a_jobs_directory_is_made_before_it_and_taken_away_after_it() {
    let scratch = Scratch::new();
    for (script, there) in [("prolog.sh", true), ("prolog.sh", true), ("epilog.sh", false), ("epilog.sh", false)] {
        let output = on_node(&scratch, script, &[]).output().expect("the script runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{script}: {}", text(&output));
        assert_eq!(scratch.path("run/77").exists(), there, "{script}");
    }
}

/// The units of the daemons, with the settings of the sample: each word of their commands is known.
#[test]
fn the_units_of_the_daemons_are_what_systemd_and_the_command_take_them_for() {
    let scratch = Scratch::new();
    let settings = std::fs::read_to_string(contrib("slurm/burst.env")).expect("the sample");
    let settings = settings.replace("/pfs/checkpoints", ".").replace("8GiB", "1MiB").replace("#SERVE", "SERVE");
    for (name, refusal) in [("coordinate", "10.0.0.1:7700"), ("serve", "10.0.0.10:7701")] {
        let name = format!("entresol-burst-{name}.service");
        let unit = std::fs::read_to_string(contrib("systemd").join(&name)).expect("the unit");
        let command =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/entresol ")).expect("a command");
        let mut command = command.replace("/var/lib/entresol/burst", "state");
        for (setting, value) in settings.lines().filter_map(|line| line.split_once('=')) {
            command = command.replace(&format!("${{{setting}}}"), value);
            // Words of the command, or none.
            command = command.replace(&format!("${setting}"), value.trim_matches('"'));
        }
        assert_eq!(name.contains("serve"), command.ends_with("--drain-rate 200MB/s"), "{command}");
        // This machine has no such address.
        let output = scratch.run(&command.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success());
        says(&text(&output), &[refusal, "Cannot assign requested address"]);
        scratch.file(&name, unit.replace("/usr/bin/entresol", PROGRAM));
        let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(scratch.path(&name)).output();
        match verify {
            Ok(output) => assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output)),
            Err(error) => entresol_skip::skipped!("systemd-analyze", "systemd-analyze: {error}"),
        }
    }
}
