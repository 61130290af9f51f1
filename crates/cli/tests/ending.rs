//! End of a server, whatever happens to its standard error, its control socket or its threads.

mod common;

use common::served::{formatted, formatted_log, reached};
use common::{Scratch, Signal, crash, is_impossible, serving, signal};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any orderly end takes here.
const END_MAX: Duration = Duration::from_secs(10);

fn skipped(need: &str, test: &str, why: &str) {
    entresol_skip::skipped!(need, "{test}: {why}");
}

fn wait(child: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("its state") {
            return status.code();
        }
        if since.elapsed() > END_MAX {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it has not ended within {END_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_closed(scratch: &Scratch) -> bool {
    scratch.ok(&["stats", "cache"]).contains("closed in good order")
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read("/proc/self/mounts").expect("mounts");
    String::from_utf8_lossy(&mounts).contains(&format!(" {} fuse", at.display()))
}

/// A directory, its cache, and its mount with this standard error.
struct Mount {
    scratch: Scratch,
    server: Child,
}

impl Mount {
    fn start(test: &str, stderr: Stdio, change: impl FnOnce(&mut Command)) -> Option<Self> {
        let scratch = Scratch::new();
        for name in ["backing", "mount"] {
            std::fs::create_dir(scratch.path(name)).expect("a directory");
        }
        scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
        if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            skipped("/dev/fuse", test, "/dev/fuse cannot be opened");
            return None;
        }
        let mut command = scratch.command(&["mount", "backing", "mount", "--cache", "cache"]);
        command.stdout(Stdio::piped()).stderr(stderr);
        change(&mut command);
        let mut server = command.spawn().expect("the command runs");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        if line.is_empty() {
            let code = wait(&mut server);
            let mut said = String::new();
            server.stderr.take().map(|mut from| from.read_to_string(&mut said));
            if is_impossible(&said) {
                skipped("/dev/fuse", test, said.trim());
                return None;
            }
            panic!("not mounted, exit code {code:?}: {said}");
        }
        Some(Mount { scratch, server })
    }

    fn end(&mut self, by: Signal) -> Option<i32> {
        signal(self.server.id(), by);
        wait(&mut self.server)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = rustix::mount::unmount(self.scratch.path("mount"), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_mount_whose_log_is_on_a_full_disk_starts_and_ends_in_good_order() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let test = "a_mount_whose_log_is_on_a_full_disk_starts_and_ends_in_good_order";
    let Some(mut mount) = Mount::start(test, full.into(), |_| {}) else { return };
    std::fs::write(mount.scratch.path("mount/file"), "data").expect("a file");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_closed(&mount.scratch));
}

#[test]
fn a_mount_whose_log_has_lost_its_reader_takes_settings_and_ends_in_good_order() {
    let test = "a_mount_whose_log_has_lost_its_reader_takes_settings_and_ends_in_good_order";
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let Some(mut mount) = Mount::start(test, OwnedFd::from(writer).into(), |_| {}) else { return };
    drop(reader);
    mount.scratch.ok(&["set", "--cache", "cache", "dirty-high=50"]);
    let path = mount.scratch.path("mount/file");
    std::fs::write(&path, "data").expect("a file");
    let open = File::open(&path).expect("it is there");
    signal(mount.server.id(), Signal::TERM);
    // The server should print that it waits, and cannot.
    std::thread::sleep(Duration::from_millis(1500));
    drop(open);
    assert_eq!(wait(&mut mount.server), Some(0));
    assert!(is_closed(&mount.scratch));
}

/// The log of a service whose reader stands still is full in time.
#[test]
fn a_mount_whose_log_nobody_reads_outlives_its_server_and_ends_in_good_order() {
    let test = "a_mount_whose_log_nobody_reads_outlives_its_server_and_ends_in_good_order";
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let pipe_bytes = rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a size");
    writer.write_all(&vec![b'.'; pipe_bytes]).expect("room");
    let stderr = OwnedFd::from(writer.try_clone().expect("a descriptor"));
    let Some(mut mount) = Mount::start(test, stderr.into(), |_| {}) else { return };
    let path = mount.scratch.path("mount/file");
    std::fs::write(&path, "data").expect("a file");
    for _ in 0..2 {
        signal(serving(mount.server.id()), Signal::KILL);
        assert_eq!(std::fs::read_to_string(&path).expect("another server"), "data");
    }
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_closed(&mount.scratch));
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("the dots");
    assert!(said == vec![b'.'; pipe_bytes], "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_drain_and_a_run_whose_log_is_on_a_full_disk_do_their_work() {
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let scratch = formatted();
    let drain = scratch.command(&["drain", "--cache", "cache", "--backing", "disk"]).stderr(full()).status();
    assert_eq!(drain.expect("it runs").code(), Some(0));
    std::fs::create_dir(scratch.path("backing")).expect("a directory");
    scratch.format(&["--cache", "fast", "--backing", "backing", "--size", "2MiB"]);
    let run = ["run", "--backing", "backing", "--cache", "fast", "--", "true"];
    let said = String::from_utf8(scratch.run(&run).stderr).expect("text");
    if is_impossible(&said) {
        return skipped("/dev/fuse", "a_drain_and_a_run_whose_log_is_on_a_full_disk_do_their_work", said.trim());
    }
    assert_eq!(scratch.command(&run).stderr(full()).status().expect("it runs").code(), Some(0));
}

#[test]
fn a_hang_up_ends_a_mount_as_a_termination_does_unless_it_was_ignored() {
    let test = "a_hang_up_ends_a_mount_as_a_termination_does_unless_it_was_ignored";
    let Some(mut mount) = Mount::start(test, Stdio::null(), |_| {}) else { return };
    assert_eq!(mount.end(Signal::HUP), Some(0));
    assert!(is_closed(&mount.scratch) && !is_mounted(&mount.scratch.path("mount")));
    // As `nohup` starts a process.
    let ignoring = |command: &mut Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP && exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(command.get_current_dir().expect("a directory")).stdout(Stdio::piped()).stderr(Stdio::null());
        *command = shell;
    };
    let mut mount = Mount::start(test, Stdio::null(), ignoring).expect("it could be mounted before");
    signal(mount.server.id(), Signal::HUP);
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_mounted(&mount.scratch.path("mount")), "the end of a terminal is none of its");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_closed(&mount.scratch));
}

#[test]
fn a_server_whose_socket_file_was_removed_makes_it_again_and_ends() {
    let scratch = formatted();
    let mut server = common::served::start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut server));
    let socket = scratch.path("cache.control");
    std::fs::remove_file(&socket).expect("the socket");
    let since = Instant::now();
    while !socket.exists() {
        assert!(since.elapsed() < Duration::from_secs(5), "the control socket is not made again");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(scratch.ok(&["stats", "cache"]).contains("hits"));
    std::fs::remove_file(&socket).expect("the socket");
    std::fs::remove_file(scratch.path("s")).expect("the socket of clients");
    signal(server.id(), Signal::TERM);
    assert_eq!(wait(&mut server), Some(0));
    assert!(is_closed(&scratch) && !socket.exists());
}

#[test]
fn a_server_whose_folder_was_renamed_ends() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("folder")).expect("a folder");
    scratch.file("disk", vec![0; 1 << 20]);
    scratch.format(&["--cache", "folder/cache", "--backing", "disk", "--size", "2MiB"]);
    let arguments = ["serve", "nbd", "--backing", "disk", "--cache", "folder/cache", "--socket", "s"];
    let mut server = scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    drop(reached(&scratch, &mut server));
    std::fs::rename(scratch.path("folder"), scratch.path("moved")).expect("another name");
    signal(server.id(), Signal::TERM);
    assert_eq!(wait(&mut server), Some(0));
    assert!(scratch.ok(&["stats", "moved/cache"]).contains("closed in good order"));
}

#[test]
fn a_panic_in_a_thread_unmounts_closes_the_cache_and_is_told() {
    let test = "a_panic_in_a_thread_unmounts_closes_the_cache_and_is_told";
    let panicking = |command: &mut Command| {
        // With a holder it is a crash, after which another server is started.
        command.args(["--restart", "off"]).env("ENTRESOL_FAULT", "panic");
    };
    let Some(mut mount) = Mount::start(test, Stdio::null(), panicking) else { return };
    assert_eq!(wait(&mut mount.server), Some(2));
    assert!(is_closed(&mount.scratch) && !is_mounted(&mount.scratch.path("mount")));
}

#[test]
fn stats_and_set_of_a_stopped_server_end_with_a_word_about_it() {
    let scratch = formatted();
    let mut server = common::served::start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut server));
    signal(serving(server.id()), Signal::STOP);
    // The command has a limit of its own of ten seconds.
    let mut asked = scratch.command(&["stats", "cache"]);
    let mut asked = asked.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let since = Instant::now();
    while asked.try_wait().expect("its state").is_none() {
        if since.elapsed() > 2 * END_MAX {
            let _ = asked.kill();
            crash(server.id());
            panic!("stats waits for ever");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(asked.wait().expect("an end").code(), Some(2));
    for command in [&["stats", "cache"][..], &["set", "--cache", "cache", "dirty-high=50"]] {
        let began = Instant::now();
        let said = scratch.refused(&[command, &["--timeout", "0.5"]].concat());
        assert!(said.contains("has not answered within 0.5 s"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    signal(serving(server.id()), Signal::CONT);
    signal(server.id(), Signal::TERM);
    assert_eq!(wait(&mut server), Some(0));
}

#[test]
fn slow_clients_and_a_stopped_server_do_not_silence_metrics() {
    let (one, other) = (formatted(), formatted());
    let mut servers = [&one, &other].map(|scratch| common::served::start(scratch, "lru", "write-back"));
    for (scratch, server) in [&one, &other].into_iter().zip(&mut servers) {
        drop(reached(scratch, server));
    }
    let places = [&one, &other].map(|scratch| scratch.path("cache").display().to_string());
    let mut command = one.command(&["metrics", "--listen", "127.0.0.1:0", &places[0], &places[1]]);
    let mut metrics = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(metrics.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
    let address = line.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let slow: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    slow.iter().for_each(|mut stream| stream.write_all(b"GET").expect("a part of a request"));
    signal(serving(servers[1].id()), Signal::STOP);
    let began = Instant::now();
    let mut client = TcpStream::connect(&address).expect("a connection");
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
    client.set_read_timeout(Some(END_MAX)).expect("a limit");
    let mut page = String::new();
    client.read_to_string(&mut page).expect("the page");
    let took = began.elapsed();
    signal(serving(servers[1].id()), Signal::CONT);
    signal(metrics.id(), Signal::TERM);
    let _ = metrics.wait();
    servers.iter_mut().for_each(|server| {
        signal(server.id(), Signal::TERM);
        assert_eq!(wait(server), Some(0));
    });
    let up = |place: &str, up: u8| page.contains(&format!("entresol_up{{cache=\"{place}\"}} {up}"));
    assert!(up(&places[0], 1) && up(&places[1], 0), "{page}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn signals_at_any_moment_end_a_server_and_leave_a_cache_that_opens() {
    const SEED: u64 = 25;
    println!("seed {SEED}");
    let scratch = formatted();
    let mut state = SEED;
    for round in 0..12 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut server = common::served::start(&scratch, "lru", "write-back");
        std::thread::sleep(Duration::from_micros(state >> 47));
        for by in [Signal::TERM, if round % 2 == 0 { Signal::TERM } else { Signal::HUP }] {
            signal(server.id(), by);
            std::thread::sleep(Duration::from_micros(state >> 51));
        }
        wait(&mut server);
        scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
        let _ = std::fs::remove_file(scratch.path("s"));
    }
}

#[test]
fn the_lower_dirty_limit_follows_the_upper_one_and_sizes_are_bytes_without_a_unit() {
    let scratch = formatted_log();
    let mut server = common::served::start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut server));
    let set = |setting| scratch.ok(&["set", "--cache", "cache", setting]);
    assert!(set("dirty-high=5").contains("4.5 %"));
    assert!(set("dirty-high=50").contains("45.0 %"));
    assert!(set("dirty-low=20").contains("20.0 %"));
    assert!(set("dirty-high=60").contains("20.0 %"), "one that was chosen stays");
    File::options().write(true).open(scratch.path("cache")).and_then(|file| file.set_len(18 << 20)).expect("room");
    assert!(set("device-size=18874368").contains("room for"));
    signal(server.id(), Signal::TERM);
    assert_eq!(wait(&mut server), Some(0));
}

#[test]
fn a_cache_file_that_was_unlinked_or_replaced_is_told_and_drained_at_the_stop() {
    for replaced in [false, true] {
        let scratch = formatted();
        let mut server = common::served::start(&scratch, "lru", "write-back");
        let mut client = reached(&scratch, &mut server);
        client.write(0, &[7; 4096], 0);
        client.call(3, 0, 0, 0, b"").expect("a flush");
        drop(client);
        std::fs::remove_file(scratch.path("cache")).expect("the cache");
        if replaced {
            scratch.file("cache", vec![0; 2 << 20]);
        }
        std::thread::sleep(Duration::from_millis(2500));
        signal(server.id(), Signal::TERM);
        let mut said = String::new();
        server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(wait(&mut server), Some(2), "{said}");
        assert!(said.contains("while in use; it was drained"), "{said}");
        assert_eq!(scratch.bytes("disk")[..4096], [7; 4096], "what was synced is below");
    }
}

#[test]
fn a_mount_that_was_taken_away_lazily_ends_with_its_cache_closed() {
    let test = "a_mount_that_was_taken_away_lazily_ends_with_its_cache_closed";
    let Some(mut mount) = Mount::start(test, Stdio::null(), |_| {}) else { return };
    if !rustix::process::geteuid().is_root() {
        return skipped("root", test, "only root may end a connection of FUSE that is in use");
    }
    let path = mount.scratch.path("mount/file");
    let mut open = File::create(&path).expect("a file");
    open.write_all(b"one").expect("a write");
    open.sync_all().expect("a sync");
    rustix::mount::unmount(mount.scratch.path("mount"), rustix::mount::UnmountFlags::DETACH).expect("it is away");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_closed(&mount.scratch));
    assert!(open.write_all(b"two").and_then(|()| open.sync_all()).is_err(), "nobody takes it any more");
}

#[test]
fn a_cache_file_is_the_owners_alone_and_an_older_one_becomes_so_at_its_next_open_and_is_told_once() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = formatted();
    let mode = || std::fs::metadata(scratch.path("cache")).expect("the cache").permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(scratch.path("cache"), PermissionsExt::from_mode(0o644)).expect("other permissions");
    for told in [true, false] {
        let mut server = common::served::start(&scratch, "lru", "write-back");
        drop(reached(&scratch, &mut server));
        assert_eq!(mode(), 0o600);
        assert_eq!(common::served::terminate(server).contains("mode 0644"), told);
    }
}
