//! Loop devices, and file systems on them, which only root may make.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system in a file, mounted until it goes out of scope.
pub struct Image {
    device: String,
    pub at: PathBuf,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Image {
    /// Makes a file system of `mib` MiB by `mkfs`, in `at`.img. None, printed and counted, where that is impossible.
    pub fn new(at: PathBuf, mib: u64, mkfs: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            entresol_skip::skipped!("root", "only root can make a file system on a loop device");
            return None;
        }
        if output(mkfs[0], &["-V"]).is_err() {
            entresol_skip::skipped!(mkfs[0], "{} is not installed", mkfs[0]);
            return None;
        }
        let made = Self::made(at, mib, mkfs);
        made.map_err(|why| entresol_skip::skipped!("kernel", "no file system on a loop device here: {why}")).ok()
    }

    fn made(at: PathBuf, mib: u64, mkfs: &[&str]) -> Result<Self, String> {
        let image = at.with_extension("img");
        std::fs::create_dir_all(&at).expect("a mount point");
        std::fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("a file");
        output(mkfs[0], &[&mkfs[1..], &[text(&image)]].concat())?;
        let device = output("losetup", &["--find", "--show", text(&image)])?;
        let image = Image { device, at };
        output("mount", &[&image.device, text(&image.at)])?;
        Ok(image)
    }

    /// Remounts the file system with other options.
    pub fn remount(&self, options: &str) {
        output("mount", &["-o", &format!("remount,{options}"), text(&self.at)]).expect("other options");
    }

    /// Makes the file system read-only as an error of the device does (ext4).
    pub fn break_off(&self) {
        self.remount("errors=remount-ro");
        let name = self.device.trim_start_matches("/dev/");
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").expect("an error");
    }

    /// Repairs the file system after that, and mounts it with these options.
    pub fn mend(&self, options: &str) {
        // A process that another thread starts has our files open until it runs its program.
        let begun = Instant::now();
        while let Err(why) = output("umount", &[text(&self.at)]) {
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody uses it: {why}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Exit code 1 means that there was something to repair.
        let _mended = output("e2fsck", &["-fp", &self.device]);
        output("mount", &["-o", options, &self.device, text(&self.at)]).expect("a file system");
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.at).expect("a file system");
        found.f_bfree * found.f_frsize
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _gone = output("umount", &["-l", text(&self.at)]);
        let _gone = output("losetup", &["-d", &self.device]);
    }
}

/// A file as a block device until it goes out of scope.
pub struct Loop(pub String);

impl Loop {
    /// # Errors
    /// The reason for which there are no loop devices here.
    pub fn new(file: &Path) -> Result<Self, String> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.map_err(|error| format!("losetup: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        Ok(Loop(String::from_utf8(made.stdout).expect("a name").trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _detached = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
