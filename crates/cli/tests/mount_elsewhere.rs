//! A mount of which another mount namespace has a copy. The test is alone in its file, so that no test runs beside it:
//! the copy of the namespace holds every mount of that moment.

mod common;

use common::mounted::each;
use common::{Signal, says};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const O_DIRECT: i32 = 0o40000;

/// Another mount namespace, begun meanwhile, as a container's is.
struct Elsewhere(Child);

impl Elsewhere {
    /// None, with a message, where there can be none.
    fn begin() -> Option<Self> {
        let own = fs::read_link("/proc/self/ns/mnt").expect("a namespace");
        for how in [&["-m"][..], &["-Urm"]] {
            let Ok(mut child) = Command::new("unshare").args(how).args(["sleep", "30"]).spawn() else { break };
            while child.try_wait().expect("a child").is_none() {
                let its = fs::read_link(format!("/proc/{}/ns/mnt", child.id()));
                if its.is_ok_and(|its| its != own) {
                    return Some(Elsewhere(child));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        entresol_skip::skipped!("unshare", "no mount namespace can be made here");
        None
    }

    fn at(&self, path: &Path) -> PathBuf {
        let within = path.strip_prefix("/").expect("an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.0.id())).join(within)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_ends_although_another_namespace_has_a_copy_of_it() {
    each(|mut mounted| {
        let path = mounted.above().join("f");
        fs::write(&path, [7; 30_000]).unwrap();
        let Some(elsewhere) = Elsewhere::begin() else { return };
        // The copy is as good as the mount, until the namespace is ended.
        let copy = elsewhere.at(&path);
        assert_eq!(fs::read(&copy).unwrap(), [7; 30_000]);
        // Pages in the kernel's cache above can always be read, so this reads past it.
        let copied = File::options().read(true).custom_flags(O_DIRECT).open(&copy).unwrap();
        let began = Instant::now();
        mounted.signal(Signal::TERM);
        let (code, said) = mounted.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // Where the connection cannot be aborted, the end of the process closes it.
        if !said.is_empty() {
            says(&said, &["another mount namespace has a copy", "the copy ends with this process"]);
        }
        assert_eq!(fs::read_dir(mounted.above()).unwrap().count(), 0, "unmounted here");
        copied.read_exact_at(&mut [0; 4096], 0).expect_err("nobody serves it");
        assert!(mounted.start());
        assert_eq!(fs::read(&path).unwrap(), [7; 30_000]);
        drop(elsewhere);
        mounted.unmount();
    });
}
