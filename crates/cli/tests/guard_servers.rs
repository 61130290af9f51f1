//! A cache is refused in front of files that a server, or any other process, is writing: tested with the servers
//! themselves.

mod common;
#[path = "../../names/tests/support/mod.rs"]
mod servers;

use common::{Scratch, Signal, says, signal};
use servers::{MariaDb, Postgres};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 65533;

fn skipped(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// A scratch directory with a cache for a data directory, whose page size `format` finds.
fn formatted(data: &Path, page_size: &str) -> Scratch {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("mount")).expect("a mount point");
    let data = data.display().to_string();
    let output =
        scratch.run(&["format", "--cache", "cache", "--backing", &data, "--size", "4MiB", "--mode", "write-back"]);
    says(&String::from_utf8_lossy(&output.stderr), &[&format!("cache: page size {page_size} (--page-size)")]);
    scratch
}

/// Returns the refusal of a mount over this directory.
fn refusal(scratch: &Scratch, data: &Path, at: &str) -> String {
    let said = scratch.refused(&["mount", &data.display().to_string(), at, "--cache", "cache"]);
    says(&said, &["a cache over files that are written without it loses data", "--writers-ok"]);
    said
}

/// Mounts the directory, which has no writer now, and ends.
fn mounts(scratch: &Scratch, data: &Path) {
    let mut command = scratch.command(&["mount", &data.display().to_string(), "mount", "--cache", "cache"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if !line.is_empty() {
        signal(server.id(), Signal::TERM);
    }
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let code = server.wait().expect("an end").code();
    assert!(code == Some(0) || common::is_impossible(&said), "{said}");
}

#[test]
fn a_mount_over_the_directory_of_a_running_postgresql_is_refused() {
    let test = "a_mount_over_the_directory_of_a_running_postgresql_is_refused";
    let Some(mut server) = Postgres::start("") else { return skipped(test, "no PostgreSQL (make servers)") };
    server.sql("postgres", "create table h(a int primary key); insert into h select generate_series(1, 1000)");
    let data = server.data();
    let scratch = formatted(&data, "8192, PostgreSQL's");
    says(&refusal(&scratch, &data, "mount"), &["its postmaster.pid names process", "(postgres)"]);
    says(&refusal(&scratch, &data, &data.display().to_string()), &["its postmaster.pid names process"]);
    // A forgotten stop: the directory has another name, and an empty one has its name.
    let moved = data.with_extension("below");
    std::fs::rename(&data, &moved).expect("another name");
    std::fs::create_dir(&data).expect("a mount point");
    says(&refusal(&scratch, &moved, &data.display().to_string()), &["its postmaster.pid names process"]);
    // Its pid file was removed by hand: its open files give it away.
    std::fs::rename(moved.join("postmaster.pid"), scratch.path("postmaster.pid")).expect("it is there");
    says(&refusal(&scratch, &moved, "mount"), &["open for writing (postgres)"]);
    std::fs::copy(scratch.path("postmaster.pid"), moved.join("postmaster.pid")).expect("it is back");
    chown(moved.join("postmaster.pid"), Some(NOBODY), Some(NOBODY)).ok();
    std::fs::remove_dir(&data).expect("an empty directory");
    std::fs::rename(&moved, &data).expect("its name");
    server.stop();
    mounts(&scratch, &data);
}

#[test]
fn a_mount_over_the_directory_of_a_running_mariadb_is_refused() {
    let test = "a_mount_over_the_directory_of_a_running_mariadb_is_refused";
    let Some(mut server) = MariaDb::start("") else { return skipped(test, "no MariaDB (make servers)") };
    let data = server.data();
    let scratch = formatted(&data, "16384, InnoDB's");
    says(&refusal(&scratch, &data, "mount"), &[" is locked by process ", "as a running MariaDB or MySQL does"]);
    server.stop();
    mounts(&scratch, &data);
}

#[test]
fn innodbs_lock_alone_refuses_a_cache() {
    let scratch = Scratch::new();
    for name in ["data", "mount"] {
        std::fs::create_dir(scratch.path(name)).expect("a directory");
    }
    for name in ["ibdata1", "ib_logfile0", "undo_001", "aria_log_control"] {
        scratch.file(&format!("data/{name}"), vec![0; 4096]);
    }
    scratch.format(&["--cache", "cache", "--backing", "data", "--size", "4MiB"]);
    for name in ["ibdata1", "ib_logfile0", "undo_001", "aria_log_control"] {
        let file = std::fs::File::options().write(true).open(scratch.path("data").join(name)).expect("a file");
        // As InnoDB does: a lock of the process on the whole file.
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("a lock");
        let said = refusal(&scratch, &scratch.path("data"), "mount");
        says(&said, &[&format!("{name} is locked by process {}", std::process::id())]);
    }
    mounts(&scratch, &scratch.path("data"));
}

/// A process of another user than the server's, until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn of(user: u32) -> Self {
        let mut command = Command::new("sleep");
        Sleeper(command.arg("600").uid(user).gid(user).current_dir("/").spawn().expect("sleep"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Output of a server run by nobody for a file; `prefix` is a command that runs it. None where it cannot be run so.
fn said_to_nobody(scratch: &Scratch, test: &str, prefix: &[&str]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_entresol");
    let words = ["serve", "nbd", "--backing", "disk", "--cache", "cache", "--socket", "s"];
    let mut command = Command::new(prefix.first().copied().unwrap_or(program));
    match prefix {
        [] => drop(command.args(words).uid(NOBODY).gid(NOBODY)),
        [_, rest @ ..] => drop(command.args(rest).arg(program).args(words)),
    }
    command.current_dir(scratch.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = match command.spawn() {
        Ok(server) => server,
        Err(error) => {
            skipped(test, &format!("nobody cannot run it: {error}"));
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    signal(server.id(), Signal::TERM);
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    server.wait().expect("an end");
    if line.is_empty() {
        skipped(test, said.trim());
        return None;
    }
    Some(said)
}

/// A file with this mode and its cache, owned by nobody.
fn nobodys(mode: u32) -> Scratch {
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(""), PermissionsExt::from_mode(0o755)).expect("its mode");
    scratch.file("disk", vec![0; 1 << 20]);
    scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
    for name in ["", "disk", "cache"] {
        chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).expect("its owner");
    }
    std::fs::set_permissions(scratch.path("disk"), PermissionsExt::from_mode(mode)).expect("its mode");
    scratch
}

#[test]
fn an_ordinary_user_is_warned_of_processes_that_could_write_there_and_of_no_others() {
    let test = "an_ordinary_user_is_warned_of_processes_that_could_write_there_and_of_no_others";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "only root can act as other users");
    }
    let sleeper = Sleeper::of(SOMEBODY);
    let expected = format!("process {} (sleep)", sleeper.0.id());
    let Some(said) = said_to_nobody(&nobodys(0o666), test, &[]) else { return };
    says(&said, &["may write there unseen", &expected, "be sure that no server runs on it"]);
    // A file that others may not write has no other writers; root's processes are no reason to warn always.
    let said = said_to_nobody(&nobodys(0o600), test, &[]).expect("it ran before");
    assert!(!said.contains("may write there unseen"), "{said}");
}

#[test]
fn where_processes_of_others_are_hidden_that_is_said() {
    let test = "where_processes_of_others_are_hidden_that_is_said";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "only root can hide processes");
    }
    let hidden =
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh"];
    let Some(said) = said_to_nobody(&nobodys(0o666), test, &prefix) else { return };
    says(&said, &["/proc hides processes of other users", "be sure that no server runs on it"]);
    let said = said_to_nobody(&nobodys(0o600), test, &prefix).expect("it ran before");
    assert!(!said.contains("hides"), "{said}");
}

/// Text of the refusal of a command that nobody runs with these arguments.
fn refused_to_nobody(scratch: &Scratch, prefix: &[&str], words: &[&str]) -> String {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(env!("CARGO_BIN_EXE_entresol")).args(words).current_dir(scratch.path(""));
    let output = command.output().expect("the command runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

/// Nobody may not inspect processes of others, whose open files `/proc` does not show.
#[test]
fn a_file_that_another_user_has_open_for_writing_is_found_by_a_lease_where_proc_does_not_tell() {
    let test = "a_file_that_another_user_has_open_for_writing_is_found_by_a_lease_where_proc_does_not_tell";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "only root can act as other users");
    }
    let scratch = nobodys(0o600);
    if said_to_nobody(&scratch, test, &[]).is_none() {
        return;
    }
    let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let hidden =
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let unseen = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh"];
    for name in ["data", "data/deep"] {
        std::fs::create_dir(scratch.path(name)).expect("a directory");
        chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).expect("its owner");
    }
    scratch.file("data/deep/table", "rows");
    chown(scratch.path("data/deep/table"), Some(NOBODY), Some(NOBODY)).expect("its owner");
    let format = ["format", "--cache", "other", "--backing", "data", "--size", "2MiB"];
    let mut command = Command::new(as_nobody[0]);
    command.args(&as_nobody[1..]).arg(env!("CARGO_BIN_EXE_entresol")).args(format).current_dir(scratch.path(""));
    assert!(command.output().expect("it runs").status.success());
    let of_file = ["serve", "nbd", "--backing", "disk", "--cache", "cache", "--socket", "s"];
    let of_directory = ["mount", "data", "data", "--cache", "other"];
    for (name, words, expected) in [
        ("disk", &of_file[..], "disk: a process that may not be inspected has it open for writing; "),
        (
            "data/deep/table",
            &of_directory[..],
            "data: a process that may not be inspected has deep/table open for writing; ",
        ),
    ] {
        let open = |write: bool| {
            let file = std::fs::File::options().read(true).write(write).open(scratch.path(name)).expect("a file");
            let mut command = Command::new("sleep");
            let command = command.arg("600").uid(SOMEBODY).gid(SOMEBODY).current_dir("/").stdin(file);
            Sleeper(command.spawn().expect("sleep"))
        };
        let writer = open(true);
        for prefix in [&as_nobody[..], &unseen[..]] {
            let said = refused_to_nobody(&scratch, prefix, words);
            says(&said, &[expected, "--writers-ok"]);
        }
        drop(writer);
        // A process that only reads is no writer.
        let _reader = open(false);
        if name == "disk" {
            let said = said_to_nobody(&scratch, test, &[]).expect("it ran before");
            assert!(!said.contains("open for writing"), "{said}");
        }
    }
}

#[test]
fn writers_that_were_allowed_are_listed_by_stats() {
    let scratch = common::served::formatted();
    let disk = std::fs::File::options().append(true).open(scratch.path("disk")).expect("a file");
    let mut writer = Command::new("sleep").arg("600").stdout(disk).spawn().expect("sleep");
    let arguments = ["serve", "nbd", "--backing", "disk", "--cache", "cache", "--socket", "s", "--writers-ok"];
    let mut server =
        scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(common::served::reached(&scratch, &mut server));
    let told = scratch.ok(&["stats", "cache"]);
    let json: serde_json::Value = serde_json::from_str(&scratch.ok(&["stats", "--json", "cache"])).expect("JSON");
    let _ = writer.kill();
    let _ = writer.wait();
    common::served::terminate(server);
    let expected = format!("process {} has it open for writing (sleep)", writer.id());
    says(&told, &["writers", &expected]);
    assert_eq!(json["writers"], serde_json::json!([expected]));
}
