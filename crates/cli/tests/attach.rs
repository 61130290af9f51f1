//! `entresol attach` and `entresol detach`: a directory behind a cache in one command, and off it in another.

mod common;

use common::mounted::Mounted;
use common::{Scratch, crash, is_impossible, says};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::Command;

/// A directory with files, and one for the cache.
struct Attached(Scratch);

impl Drop for Attached {
    fn drop(&mut self) {
        // Only a mount that a failed test has left behind remains to be removed.
        let _ = rustix::mount::unmount(self.data(), rustix::mount::UnmountFlags::DETACH);
    }
}

impl Attached {
    fn new() -> Self {
        let scratch = Scratch::new();
        for name in ["data", "fast"] {
            fs::create_dir(scratch.path(name)).expect("a directory");
        }
        scratch.file("data/old", [1; 300_000]);
        Attached(scratch)
    }

    fn data(&self) -> PathBuf {
        self.0.path("data")
    }

    /// Makes a file whose bytes survive a kill.
    fn synced(&self, name: &str, bytes: &[u8]) {
        let mut file = File::create(self.0.path(name)).expect("a file");
        file.write_all(bytes).and_then(|()| file.sync_all()).expect("a write");
    }

    fn is_mounted(&self) -> bool {
        fs::metadata(self.data()).map(|found| found.dev()).ok()
            != fs::metadata(self.0.path(".")).map(|it| it.dev()).ok()
    }

    /// Attaches; returns what it says, or none, with a message, where nothing can be mounted.
    fn attach(&self, more: &[&str]) -> Option<String> {
        let output = self.0.run(&[&["attach", "data", "--cache", "fast"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Some(String::from_utf8(output.stdout).expect("text"));
        }
        assert!(is_impossible(&said), "{said}");
        None
    }

    /// Process of the mount in the background.
    fn mount(&self) -> u32 {
        let data = self.data();
        let is_it = |id: &u32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let mut words = words.split(|&byte| byte == 0);
            words.nth(1) == Some(b"mount") && words.nth(1) == Some(data.as_os_str().as_encoded_bytes())
        };
        let ids = fs::read_dir("/proc").expect("it is mounted").flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(is_it).min().expect("a mount")
    }
}

const SMALL: &[&str] = &["--size", "2MiB"];

#[test]
fn files_are_used_through_the_cache_until_the_directory_is_detached() {
    for mode in ["write-through", "write-back"] {
        let attached = Attached::new();
        let Some(said) = attached.attach(&[SMALL, &["--mode", mode]].concat()) else { return };
        says(&said, &["cached by reuse in", "fast/data.cache", "`entresol detach data`"]);
        assert!(attached.is_mounted());
        assert!(attached.0.read("fast/data.cache.log").contains("fast/data.cache"), "what the mount says");
        says(
            &attached.0.refused(&["attach", "data", "--cache", "fast"]),
            &["is attached to", "fast/data.cache already"],
        );

        let below = attached.0.path("data.below");
        assert_eq!(below.exists(), mode == "write-back", "files are moved where they may lack pages");
        attached.0.file("data/new", [2; 100_000]);
        assert!(attached.0.bytes("data/old") == [1; 300_000]);
        let stats = attached.0.ok(&["stats", "fast/data.cache", "--json"]);
        assert!(stats.contains(&format!("\"mode\":\"{mode}\"")), "{stats}");

        let open = File::open(attached.0.path("data/new")).expect("a file");
        let refused = attached.0.refused(&["detach", "data"]);
        says(&refused, &["is in use by", &format!("process {} (", std::process::id())]);
        assert!(attached.is_mounted());
        drop(open);

        let said = attached.0.ok(&["detach", "data"]);
        says(&said, &["fast/data.cache is not needed any more"]);
        assert!(!attached.is_mounted() && !below.exists());
        assert!(attached.0.bytes("data/new") == [2; 100_000] && attached.0.bytes("data/old") == [1; 300_000]);

        // The cache is used as it was left, and its mode stays.
        attached.attach(SMALL).expect("as before");
        assert!(attached.0.ok(&["stats", "data", "--json"]).contains(&format!("\"mode\":\"{mode}\"")));
        attached.0.ok(&["-q", "detach", "data"]);
        // Once more says so too.
        attached.0.ok(&["detach", "data"]);
    }
}

#[test]
fn a_mount_that_was_killed_or_unmounted_by_hand_is_detached_too() {
    let attached = Attached::new();
    for (round, by_hand) in [false, true].into_iter().enumerate() {
        let more = if round == 0 { &[SMALL, &["--mode", "write-back"]].concat()[..] } else { &[] };
        if attached.attach(more).is_none() {
            return;
        }
        let name = format!("data/{round}");
        attached.synced(&name, &[3; 50_000]);
        if by_hand {
            let unmounted = Command::new("fusermount3").arg("-u").arg(attached.data()).status();
            assert!(unmounted.expect("it is there").success());
        } else {
            crash(attached.mount());
            // After a restart of the machine the mount is gone, and a server finds nothing to work on.
            let _ = rustix::mount::unmount(attached.data(), rustix::mount::UnmountFlags::DETACH);
            assert!(fs::read_dir(attached.data()).expect("a directory").next().is_none());
            attached.attach(&[]).expect("as before");
            assert!(attached.0.bytes(&name) == [3; 50_000]);
            crash(attached.mount());
            attached.attach(&[]).expect("over the mount that is left");
            assert!(attached.0.bytes(&name) == [3; 50_000]);
            crash(attached.mount());
        }
        attached.0.ok(&["detach", "data"]);
        assert!(!attached.is_mounted() && attached.0.bytes(&name) == [3; 50_000], "round {round}");
    }
}

#[test]
fn a_complete_directory_is_detached_from_a_cache_that_cannot_be_opened_and_no_other_is() {
    for mode in ["write-through", "write-back"] {
        let attached = Attached::new();
        if attached.attach(&[SMALL, &["--mode", mode]].concat()).is_none() {
            return;
        }
        attached.synced("data/new", &[3; 50_000]);
        crash(attached.mount());
        File::create(attached.0.path("fast/data.cache")).expect("a cache without bytes");
        if mode == "write-through" {
            let output = attached.0.run(&["detach", "data"]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            says(&said, &["fast/data.cache", "data is complete without the cache"]);
            assert!(!attached.is_mounted() && attached.0.bytes("data/new") == [3; 50_000]);
        } else {
            says(&attached.0.refused(&["detach", "data"]), &["fast/data.cache"]);
            assert!(attached.0.path("data.below").exists(), "the files stay where no server looks for them");
        }
    }
}

#[test]
fn files_that_came_where_others_were_moved_away_are_not_taken_for_them() {
    let attached = Attached::new();
    if attached.attach(&[SMALL, &["--mode", "write-back"]].concat()).is_none() {
        return;
    }
    attached.synced("data/new", b"kept");
    crash(attached.mount());
    let _ = rustix::mount::unmount(attached.data(), rustix::mount::UnmountFlags::DETACH);
    // A server that was started too early has made a database of its own.
    attached.0.file("data/early", "other files");
    for command in [&["attach", "data", "--cache", "fast"][..], &["detach", "data"]] {
        says(
            &attached.0.refused(command),
            &["data: has files of its own, and those that were attached are in", ".below"],
        );
    }
    fs::remove_file(attached.0.path("data/early")).expect("a file");
    attached.0.ok(&["detach", "data"]);
    assert_eq!(attached.0.read("data/new"), "kept");
}

#[test]
fn a_cache_that_is_in_use_elsewhere_is_not_detached() {
    let Some(mut mounted) = Mounted::with(Some(["write-through", "lru"])) else { return };
    says(
        &mounted.scratch.refused(&["detach", "backing"]),
        &["backing: its cache is in use, and not by a mount over it"],
    );
    mounted.unmount();
}

#[test]
fn the_size_of_a_new_cache_is_that_of_the_files() {
    let attached = Attached::new();
    fs::write(attached.0.path("data/large"), vec![1; 70 << 20]).expect("room");
    let Some(_said) = attached.attach(&[]) else { return };
    let size = fs::metadata(attached.0.path("fast/data.cache")).expect("a cache").len();
    assert_eq!(size, 70 << 20, "300,000 bytes more are no MiB");
    attached.0.ok(&["detach", "data"]);
}

#[test]
fn what_cannot_be_attached_or_detached_is_refused_and_nothing_is_changed() {
    let attached = Attached::new();
    let refused = |arguments: &[&str], parts: &[&str]| says(&attached.0.refused(arguments), parts);
    refused(&["attach", "absent", "--cache", "fast"], &["absent: No such file"]);
    refused(&["attach", "data/old", "--cache", "fast"], &["data/old: is no directory"]);
    refused(&["attach", "data", "--cache", "data"], &["data/data.cache"]);
    refused(&["attach", "data", "--cache", "absent/cache"], &["absent: No such file"]);
    refused(&["detach", "data"], &["no cache is attached to it"]);
    let open = fs::OpenOptions::new().append(true).open(attached.0.path("data/old")).expect("a file");
    refused(&["attach", "data", "--cache", "fast"], &["data", &std::process::id().to_string()]);
    drop(open);
    if rustix::process::geteuid().is_root() {
        chown(attached.data(), Some(65534), Some(65534)).expect("root may");
        refused(&["attach", "data", "--cache", "fast"], &["belongs to user 65534", "sudo -u '#65534' entresol attach"]);
        chown(attached.data(), Some(0), Some(0)).expect("root may");
    } else {
        entresol_skip::skipped!("root", "only root can give a directory away");
    }
    refused(&["attach", "data", "--cache", "fast", "--", "--mode=write-back"], &["--mode is an option of attach too"]);
    // What the mount refuses is passed on, and files that were moved are moved back.
    let write_back = ["attach", "data", "--cache", "fast", "--size", "2MiB", "--mode", "write-back"];
    let output = attached.0.run(&[&write_back[..], &["--", "--policy", "nothing"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    says(&said, &["nothing"]);
    assert!(!attached.is_mounted() && !attached.0.path("data.below").exists());
    fs::create_dir(attached.0.path("data.below")).expect("a directory");
    attached.0.file("data.below/a", "other files");
    refused(&write_back, &["data.below: is there already"]);
}
