//! `entresol run`: a command in a namespace of its own, and the state after it.

mod common;
#[path = "../../names/tests/support/mod.rs"]
mod servers;

use common::{Scratch, Signal, children, is_impossible, says, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const RUN: [&str; 6] = ["-q", "run", "--backing", "data", "--cache", "cache"];

fn formatted() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("data")).unwrap();
    scratch.format(&["--cache", "cache", "--backing", "data", "--size", "2MiB"]);
    scratch
}

fn shell(scratch: &Scratch, script: &str) -> Command {
    scratch.command(&[&RUN[..], &["--", "sh", "-c", script]].concat())
}

/// None, with a message, where nothing can be mounted.
fn possible(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if is_impossible(&said) { None } else { Some(said) }
}

fn is_mounted(scratch: &Scratch) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(scratch.path("data").canonicalize().unwrap().to_str().unwrap())
}

/// Asserts the state of an orderly close: nothing mounted, nothing in use, nothing lost.
fn is_cleaned_up(scratch: &Scratch) {
    assert!(!is_mounted(scratch));
    let both = ["--cache", "cache", "--backing", "data"];
    says(&scratch.ok(&["stats", "--cache", "cache"]), &["closed in good order"]);
    scratch.ok(&[&["check"], &both[..]].concat());
    scratch.ok(&[&["-q", "drain"], &both[..]].concat());
}

#[test]
fn the_command_alone_sees_the_cached_directory() {
    let scratch = formatted();
    // Umask and current directory are the caller's.
    let script = "umask; cd data && echo cached > f && sync f && cat f; \
                  grep entresol /proc/self/mounts | grep -cF \" $(pwd -P) \"; echo go; read line; cat f";
    let mut command = shell(&scratch, script);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let before: Vec<String> = said.by_ref().take_while(|line| line != "go").collect();
    if before.is_empty() {
        let output = child.wait_with_output().unwrap();
        assert!(possible(&output).is_none(), "{output:?}");
        return;
    }
    let mask = Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
    assert_eq!(before, [String::from_utf8(mask).unwrap().trim(), "cached", "1"]);
    assert!(!is_mounted(&scratch));
    assert_eq!(fs::read(scratch.path("data/f")).unwrap(), [0; 7], "the bytes are in the cache");
    let both = ["--cache", "cache", "--backing", "data"];
    says(&scratch.refused(&[&["check"], &both[..]].concat()), &["in use by another process"]);
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
    assert_eq!(said.next().as_deref(), Some("cached"));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
    is_cleaned_up(&scratch);
    assert_eq!(fs::read(scratch.path("data/f")).unwrap(), b"cached\n");
}

#[test]
fn its_exit_code_is_passed_on() {
    let scratch = formatted();
    for (script, code) in [("exit 7", 7), ("true", 0), ("kill -9 $$", 137), ("echo x > data/f; kill -TERM $$", 143)] {
        let output = shell(&scratch, script).output().unwrap();
        let Some(said) = possible(&output) else { return };
        assert_eq!((output.status.code(), said.as_str()), (Some(code), ""), "{script}");
        is_cleaned_up(&scratch);
    }
    let absent = scratch.run(&[&RUN[..], &["--", "/absent/command"]].concat());
    assert_eq!(absent.status.code(), Some(2));
    says(&String::from_utf8_lossy(&absent.stderr), &["/absent/command: No such file"]);
    is_cleaned_up(&scratch);
}

#[test]
fn signals_reach_the_command() {
    let scratch = formatted();
    let all = [("TERM", Signal::TERM), ("INT", Signal::INT), ("USR1", Signal::USR1), ("HUP", Signal::HUP)];
    for (name, sent) in all {
        let script = format!("trap 'echo got; exit 9' {name}; echo x > data/f; echo go; while :; do sleep 0.02; done");
        let mut command = shell(&scratch, &script);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let Some(line) = said.next() else {
            assert!(possible(&child.wait_with_output().unwrap()).is_none());
            return;
        };
        assert_eq!(line, "go");
        signal(child.id(), sent);
        assert_eq!(said.next().as_deref(), Some("got"), "{name}");
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        is_cleaned_up(&scratch);
    }
}

#[test]
fn what_the_command_leaves_behind_is_waited_for() {
    let scratch = formatted();
    let script = "(sleep 0.3; echo late >> data/f) > /dev/null 2>&1 & exec true";
    let output = shell(&scratch, script).output().unwrap();
    let Some(said) = possible(&output) else { return };
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    is_cleaned_up(&scratch);
    assert_eq!(fs::read(scratch.path("data/f")).unwrap(), b"late\n");
}

#[test]
fn a_killed_cache_takes_the_command_with_it_and_keeps_what_was_synced() {
    let scratch = formatted();
    let script = "echo durable > data/f; sync data/f; echo $$; exec sleep 100";
    let words = [&RUN[..], &["--restart", "off", "--", "sh", "-c", script]].concat();
    let mut child = scratch.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said.is_empty() {
        assert!(possible(&child.wait_with_output().unwrap()).is_none());
        return;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || !fs::exists(format!("/proc/{}/exe", said.trim())).unwrap();
    for _ in 0..1000 {
        if gone() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(gone(), "the command lives without its files");
    assert!(!is_mounted(&scratch));
    let output = shell(&scratch, "cat data/f").output().unwrap();
    assert_eq!(output.stdout, b"durable\n");
    is_cleaned_up(&scratch);
}

/// As a user who may mount nothing, where this test may become one.
#[test]
fn an_ordinary_user_needs_user_namespaces_alone() {
    const NOBODY: u32 = 65534;
    let scratch = formatted();
    fs::set_permissions(scratch.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["data", "data/.entresol", "data/.entresol/map", "data/.entresol/map.new", "cache"] {
        if std::os::unix::fs::chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).is_err() {
            entresol_skip::skipped!("root", "this test runs as an ordinary user itself, and so do all others");
            return;
        }
    }
    let binary = scratch.path("entresol");
    fs::copy(env!("CARGO_BIN_EXE_entresol"), &binary).unwrap();
    let run = |script: &str| {
        let mut command = Command::new(&binary);
        command.args(RUN).args(["--", "sh", "-c", script]).current_dir(scratch.path(".")).uid(NOBODY).gid(NOBODY);
        command.output().unwrap()
    };
    let output = run("id -u; echo mine > data/f; stat -c %u data/f; cat data/f");
    let Some(said) = possible(&output) else { return };
    assert_eq!(said, "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "65534\n65534\nmine\n");
    is_cleaned_up(&scratch);
    // A server that is killed has another one after it, which has the same rights.
    let output = run("for process in $(cat /proc/$PPID/task/*/children); do \
                      test $process = $$ || kill -9 $(cat /proc/$process/task/*/children); done; \
                      echo more >> data/f; cat data/f");
    says(&String::from_utf8_lossy(&output.stderr), &["another one took over after"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\nmore\n");
    is_cleaned_up(&scratch);
    // In a user namespace that allows no further ones.
    let mut nested = Command::new("unshare");
    nested.args(["-U", "--map-current-user", "--keep-caps", "sh", "-c"]);
    nested.args(["echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"", "-"]);
    nested.arg(&binary).args(RUN).args(["--", "true"]).current_dir(scratch.path(".")).uid(NOBODY).gid(NOBODY);
    let Ok(output) = nested.output() else { return };
    says(&String::from_utf8_lossy(&output.stderr), &["entresol: user namespaces are not allowed here (No space"]);
    assert_eq!(output.status.code(), Some(2));
}

/// PostgreSQL and pgbench are the command, as the user nobody. Servers of their files are killed meanwhile. No client
/// sees an error, and each transaction that was answered is there.
#[test]
fn a_database_outlives_the_servers_of_its_files() {
    const KILLS: usize = 20;
    let Some(mut database) = servers::Postgres::start("fsync = on\ncheckpoint_timeout = 30s") else { return };
    database.stop();
    let at = |name: &str| database.scratch.path(name).display().to_string();
    let binary = database.scratch.path("entresol");
    fs::copy(env!("CARGO_BIN_EXE_entresol"), &binary).unwrap();
    let [data, cache] = [at("data"), at("cache")];
    let both = ["--backing", &data, "--cache", &cache];
    let entresol = |words: &[&str]| {
        let mut command = servers::command(&binary);
        command.args(words).current_dir(database.scratch.path(""));
        command
    };
    servers::ok(&mut entresol(
        &[&["-q", "format", "--mode=write-back", "--size", "16MiB", "--page-size", "8KiB"], &both[..]].concat(),
    ));
    let script = format!(
        "export PATH={}:$PATH PGHOST={} PGUSER=me PGDATABASE=postgres
         end() {{ pg_ctl -D {data} -m fast -w stop >&2; }}
         trap end EXIT
         set -e
         pg_ctl -D {data} -w -l server.log start >&2
         pgbench -i -q >&2
         echo loaded
         pgbench -n -c 2 -T 12 >report
         sed -n 's/^number of transactions actually processed: //p; s/^number of failed transactions: //p' report
         psql -XqtAc 'select count(*) from pgbench_history'
         psql -XqtAc 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)'",
        database.programs.display(),
        at("")
    );
    let words = [&["-q", "run"], &both[..], &["--restart", "on", "--", "sh", "-c", &script]].concat();
    let mut running = entresol(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stdout.take().unwrap());
    let mut errors = running.stderr.take().unwrap();
    let told = std::thread::spawn(move || {
        let mut told = String::new();
        errors.read_to_string(&mut told).map(|_| told)
    });
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line.is_empty() {
        running.wait().unwrap();
        let told = told.join().unwrap().unwrap();
        assert!(is_impossible(&told), "{told}");
        return;
    }
    let child = |process| children(process).first().copied();
    let begun = Instant::now();
    let (mut last, mut kills) = (None, 0);
    while kills < KILLS && begun.elapsed() < Duration::from_secs(12) {
        std::thread::sleep(Duration::from_millis(300));
        let Some(server) = child(running.id()).and_then(child).filter(|&server| Some(server) != last) else { continue };
        signal(server, Signal::KILL);
        (last, kills) = (Some(server), kills + 1);
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let status = running.wait().unwrap();
    let told = told.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(0), "{rest}{told}");
    let found: Vec<&str> = rest.lines().collect();
    let [answered, failed, counted, is_sound] = found[..] else { panic!("{rest}{told}") };
    assert_eq!((failed, counted, is_sound), ("0 (0.000%)", answered, "t"), "{told}");
    assert!(kills > KILLS / 2 && told.contains("another one took over after"), "{kills} kills: {told}");
    println!("{kills} kills, {answered} transactions");
    servers::ok(&mut entresol(&[&["check"], &both[..]].concat()));
}
