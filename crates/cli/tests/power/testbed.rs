//! Two disks with a volatile write cache, a file system on each and the mount of a cache, from a start to the cut and
//! after it.

use crate::withholding::Withholding;
use entresol_core::Random;
use entresol_fuse::{Mount, Options};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// User of a server that refuses to run as root.
const NOBODY: u32 = 65534;
const CACHE_SIZE: &str = "6MiB";
/// Longest time that a load may take to begin; the power is cut after that all the same.
const BEGINNING_MAX: Duration = Duration::from_secs(60);

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

pub fn output(program: &str, arguments: &[&str]) -> String {
    succeed(Command::new(program).args(arguments))
}

/// Runs a command that must succeed; returns its output.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The program under test.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    /// The step that the program leaves out.
    left_out: Option<&'static str>,
    /// True if it runs as a user other than root who may mount, and who alone sees its mounts.
    nobody: bool,
}

impl Program {
    /// The program that was built with these tests.
    pub fn ours() -> Self {
        Program { path: env!("CARGO_BIN_EXE_entresol").into(), left_out: None, nobody: false }
    }

    /// A program that was built with the feature `mutants`, and leaves a step out.
    pub fn mutant(path: &Path, step: &'static str) -> Self {
        Program { path: path.into(), left_out: Some(step), nobody: false }
    }

    pub fn run_by_nobody(self) -> Self {
        Program { nobody: true, ..self }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // The program is run by its descriptor, because nobody may not be able to reach its path, nor /dev/fuse where
        // there is no udev.
        let shell = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+sys_admin,+dac_override \
                     --ambient-caps=+sys_admin,+dac_override /proc/self/fd/3 \"$@\" 3<\"$0\"";
        let mut command = Command::new(if self.nobody { "sh".as_ref() } else { self.path.as_path() });
        if self.nobody {
            command.args(["-c", shell]).arg(&self.path);
        }
        command.args(arguments);
        self.left_out.map(|step| command.env("ENTRESOL_MUTANT", step));
        command
    }
}

/// A file system on a loop device, detached when it is dropped.
pub struct Attached {
    device: String,
    at: PathBuf,
}

impl Attached {
    /// # Errors
    /// The system's message where the file system cannot be mounted.
    pub fn new(image: &Path, at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).expect("a mount point");
        let device = output("losetup", &["-f", "--show", text(image)]).trim().to_owned();
        let attached = Attached { device, at: at.into() };
        let mounted = Command::new("mount").arg(&attached.device).arg(at).output().expect("mount");
        if mounted.status.success() { Ok(attached) } else { Err(String::from_utf8_lossy(&mounted.stderr).into_owned()) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.at).output();
        let _gone = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

/// A mount with a cache, killed when it is dropped.
pub struct Cached {
    child: Child,
    at: PathBuf,
}

impl Cached {
    fn start(testbed: &Testbed, how: How) -> Result<Self, String> {
        let at = testbed.path("mnt");
        fs::create_dir_all(&at).expect("a mount point");
        testbed.give(&at);
        let (data, cache) = (testbed.path("slow/data"), testbed.path("fast/cache"));
        let mount = ["mount", text(&data), text(&at), "--cache", text(&cache)];
        let mut command = testbed.program.command(&mount);
        // The kill of the command is that of its server.
        command.args(["--policy", how.policy, "--mode", how.mode, "--restart", "off"]);
        let said = File::create(testbed.path("said")).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(said).spawn().expect("entresol");
        let mut cached = Cached { child, at };
        let since = Instant::now();
        let parent = fs::metadata(testbed.scratch.path()).expect("a folder").dev();
        while !is_mounted(&cached.at, parent) {
            let ended = cached.child.try_wait().expect("a child").is_some();
            if ended || since.elapsed() > Duration::from_secs(60) {
                return Err(format!("not mounted: {}", fs::read_to_string(testbed.path("said")).unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(cached)
    }
}

/// True if another file system is mounted here than around it. Root may not look into the mounts of another user.
fn is_mounted(at: &Path, parent: u64) -> bool {
    match fs::metadata(at) {
        Ok(found) => found.dev() != parent,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
        let _gone = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

#[derive(Clone, Copy, Debug)]
pub struct How {
    pub layout: &'static str,
    pub mode: &'static str,
    pub policy: &'static str,
}

/// Two disks with a volatile write cache, and the folders where they are mounted.
pub struct Testbed {
    program: Program,
    scratch: tempfile::TempDir,
}

impl Testbed {
    /// Fresh disks.
    pub fn new(program: &Program) -> Self {
        let testbed = Self::with_fast_disk(program);
        make_disk(&testbed.image("slow"), 32);
        testbed
    }

    /// A fresh disk for the cache, and a disk with files in `data` as its backing store.
    pub fn before(program: &Program, slow: &Path) -> Self {
        let testbed = Self::with_fast_disk(program);
        output("cp", &["--sparse=always", text(slow), text(&testbed.image("slow"))]);
        testbed
    }

    fn with_fast_disk(program: &Program) -> Self {
        let testbed = Testbed { program: program.clone(), scratch: tempfile::tempdir().expect("a directory") };
        fs::set_permissions(testbed.scratch.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
        fs::create_dir(testbed.path("images")).expect("a directory");
        make_disk(&testbed.image("fast"), 24);
        testbed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn image(&self, name: &str) -> PathBuf {
        self.path("images").join(name)
    }

    /// Gives a path to the user as whom the program runs.
    fn give(&self, path: &Path) {
        if self.program.nobody {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("another owner");
        }
    }

    /// Both images, whose writes are all withheld until a sync.
    fn withheld(&self) -> (Mount, Withholding, [Attached; 2]) {
        fs::create_dir_all(self.path("withheld")).expect("a mount point");
        let layer = Withholding::default();
        let options = Options { page_cache: false, passthrough: false, ..Options::default() };
        let mount = Mount::start(&self.path("images"), &self.path("withheld"), Arc::new(layer.clone()), options);
        let mount = mount.expect("a mount");
        let attach = |name| Attached::new(&self.path("withheld").join(name), &self.path(name)).expect("a file system");
        let attached = ["fast", "slow"].map(attach);
        (mount, layer, attached)
    }
}

/// Makes an image with an empty file system.
pub fn make_disk(image: &Path, mib: u64) {
    File::create(image).and_then(|file| file.set_len(mib << 20)).expect("an image");
    output("mkfs.ext4", &["-q", "-F", text(image)]);
}

/// The disks with their file systems, and the mount of the cache if there is one.
pub struct Running {
    cache: Option<Cached>,
    _attached: [Attached; 2],
    pub withheld: Option<(Mount, Withholding)>,
    /// Directory of the files.
    pub directory: PathBuf,
}

impl Running {
    /// Mounts fresh disks, whose writes are withheld, with a new cache.
    pub fn begin(testbed: &Testbed, cached: Option<How>) -> Self {
        let (mount, layer, attached) = testbed.withheld();
        let data = testbed.path("slow/data");
        fs::create_dir_all(&data).expect("a directory");
        let cache = cached.map(|how| {
            testbed.give(&testbed.path("fast"));
            let cache = testbed.path("fast/cache");
            let format = [
                "format",
                "--mode=write-back",
                "--cache",
                text(&cache),
                "--backing",
                text(&data),
                "--size",
                CACHE_SIZE,
            ];
            succeed(testbed.program.command(&format).args(["--layout", how.layout]));
            output("sync", &["-f", text(&cache)]);
            Cached::start(testbed, how).expect("a mount")
        });
        output("sync", &["-f", text(&data)]);
        let directory = cache.as_ref().map_or(data, |cache| cache.at.clone());
        Running { cache, _attached: attached, withheld: Some((mount, layer)), directory }
    }

    /// Mounts the same disks after the power came back.
    ///
    /// # Errors
    /// The message of the system or the program where a file system or the cache is refused.
    pub fn again(testbed: &Testbed, cached: Option<How>) -> Result<Self, String> {
        let attach = |name| Attached::new(&testbed.image(name), &testbed.path(name));
        let attached = [attach("fast")?, attach("slow")?];
        let cache = cached.map(|how| Cached::start(testbed, how)).transpose()?;
        let directory = cache.as_ref().map_or(testbed.path("slow/data"), |cache| cache.at.clone());
        Ok(Running { cache, _attached: attached, withheld: None, directory })
    }

    /// Runs a load and cuts the power in the middle, some time after it has `begun`; returns the sectors that were not
    /// synced then, and those that were kept.
    pub fn until_the_cut(
        self,
        testbed: &Testbed,
        random: &mut Random,
        begun: &AtomicBool,
        load: impl FnOnce(&(dyn Fn() -> bool + Sync)),
    ) -> (u64, u64) {
        let layer = self.withheld.as_ref().expect("disks that forget").1.clone();
        let until = Duration::from_millis(30 + random.below(700));
        let at_cut = std::thread::scope(|scope| {
            let cutter = scope.spawn(|| {
                let start = Instant::now();
                while !begun.load(Ordering::SeqCst) && start.elapsed() < BEGINNING_MAX {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(until);
                layer.cut(random)
            });
            scope.spawn(|| stir(testbed, &layer));
            load(&|| layer.is_off());
            // If the load ended by itself the power is cut all the same.
            cutter.join().expect("a cut")
        });
        let Running { cache, .. } = self;
        drop(cache);
        at_cut
    }
}

/// Makes the kernel write its dirty pages of both disks' files, without a flush: a disk then has the sectors, and may
/// lose them.
fn stir(testbed: &Testbed, layer: &Withholding) {
    while !layer.is_off() {
        let folders = ["", "pg_wal", "pg_xact"].map(|name| fs::read_dir(testbed.path("slow/data").join(name)));
        let data = folders.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
        for path in data.chain([testbed.path("fast/cache")]) {
            if let Ok(file) = File::open(path) {
                let _tried = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
