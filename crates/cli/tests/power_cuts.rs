//! Power cuts under load: the cache and what it caches each on an ext4 of its own, on loop devices over files that forget what
//! nobody flushed. Nothing may be lost that ext4 alone would have kept. Root alone may make loop devices.
//!
//! `ENTRESOL_CUTS` says how many cuts there are of each kind (`make test-power-cuts`: 300).

#[path = "power/load.rs"]
mod load;
#[path = "power/withholding.rs"]
mod withholding;

use entresol_core::Random;
use entresol_front::fuse::{Mount, Options};
use load::Load;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use withholding::Withholding;

const CUTS: u64 = 2;

fn cuts() -> u64 {
    std::env::var("ENTRESOL_CUTS").map_or(CUTS, |cuts| cuts.parse().expect("a number"))
}

fn can_run(test: &str) -> bool {
    let need = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "/dev/loop-control"
    } else if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        "mkfs.ext4"
    } else {
        return true;
    };
    entresol_skip::skipped!(need, "{test}: there is no {need}");
    false
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A file system on a loop device, detached when it is dropped.
struct Attached {
    device: String,
    at: PathBuf,
}

impl Attached {
    fn new(image: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).expect("a mount point");
        let device = output("losetup", &["-f", "--show", text(image)]).trim().to_owned();
        let attached = Attached { device, at: at.into() };
        output("mount", &[&attached.device, text(at)]);
        attached
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.at).output();
        let _gone = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

/// A mount with a cache, killed when it is dropped.
struct Cached {
    child: Child,
    at: PathBuf,
}

impl Cached {
    fn start(ground: &Ground, how: How) -> Self {
        let at = ground.path("mnt");
        fs::create_dir_all(&at).expect("a mount point");
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.args([
            "mount",
            text(&ground.path("slow/data")),
            text(&at),
            "--cache",
            text(&ground.path("fast/cache")),
        ]);
        command.args(["--policy", how.policy, "--mode", how.mode]);
        let said = File::create(ground.path("said")).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(said).spawn().expect("entresol");
        let mut cached = Cached { child, at };
        let since = Instant::now();
        let parent = fs::metadata(ground.scratch.path()).expect("a folder").dev();
        while fs::metadata(&cached.at).map_or(parent, |found| found.dev()) == parent {
            let ended = cached.child.try_wait().expect("a child").is_some();
            if ended || since.elapsed() > Duration::from_secs(60) {
                panic!("not mounted: {}", fs::read_to_string(ground.path("said")).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        cached
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
struct How {
    layout: &'static str,
    mode: &'static str,
    policy: &'static str,
}

/// Two disks that forget, and the folders where they are mounted.
struct Ground {
    scratch: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Ground { scratch: tempfile::tempdir().expect("a directory") };
        fs::create_dir(ground.path("images")).expect("a directory");
        for (name, mib) in [("fast", 24), ("slow", 32)] {
            let image = ground.image(name);
            File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("an image");
            output("mkfs.ext4", &["-q", "-F", text(&image)]);
        }
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        self.path("images").join(name)
    }

    /// Both images, of which every write is withheld until a sync.
    fn withheld(&self) -> (Mount, Withholding, [Attached; 2]) {
        fs::create_dir_all(self.path("withheld")).expect("a mount point");
        let layer = Withholding::default();
        let options = Options { page_cache: false, passthrough: false, ..Options::default() };
        let mount = Mount::start(&self.path("images"), &self.path("withheld"), Arc::new(layer.clone()), options);
        let mount = mount.expect("a mount");
        let attached = ["fast", "slow"].map(|name| Attached::new(&self.path("withheld").join(name), &self.path(name)));
        (mount, layer, attached)
    }
}

/// What came of a cut.
#[derive(Debug, Default)]
struct Round {
    calls: u64,
    renames: u64,
    unlinks: u64,
    /// Sectors not synced at the cut, and how many of them were kept.
    at_cut: (u64, u64),
    /// Something was lost that had not been synced.
    lost_unsynced: bool,
}

/// Makes a load under a cache, or without one; lets the power go in the middle, and looks at what is there then.
fn round(seed: u64, cached: Option<How>, lies: Option<&str>) -> Result<Round, String> {
    let ground = Ground::new();
    let mut random = Random::new(seed);
    let (mount, layer, attached) = ground.withheld();
    fs::create_dir(ground.path("slow/data")).expect("a directory");
    let cache = cached.map(|how| {
        let (cache, backing) = (ground.path("fast/cache"), ground.path("slow/data"));
        let format = ["format", "--cache", text(&cache), "--backing", text(&backing), "--size", "6MiB"];
        output(env!("CARGO_BIN_EXE_entresol"), &[&format[..], &["--layout", how.layout]].concat());
        output("sync", &["-f", text(&cache)]);
        Cached::start(&ground, how)
    });
    output("sync", &["-f", text(&ground.path("slow"))]);
    if let Some(name) = lies {
        layer.lie(fs::metadata(ground.image(name)).expect("an image").ino());
    }
    let directory = cache.as_ref().map_or(ground.path("slow/data"), |cache| cache.at.clone());
    let mut load = Load::new(&directory, random.next_u64());
    let until = Duration::from_millis(30 + random.below(700));
    let at_cut = std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            std::thread::sleep(until);
            layer.cut(&mut random)
        });
        load.run(|| layer.is_off());
        // Where the load ended by itself the power goes all the same.
        cutter.join().expect("a cut")
    });
    drop(cache);
    drop(attached);
    drop(mount);

    let _attached = ["fast", "slow"].map(|name| Attached::new(&ground.image(name), &ground.path(name)));
    let cache = cached.map(|how| Cached::start(&ground, how));
    let directory = cache.as_ref().map_or(ground.path("slow/data"), |cache| cache.at.clone());
    let lost_unsynced = load.verify(&directory)?;
    let Load { done: calls, renames, unlinks, .. } = load;
    Ok(Round { calls, renames, unlinks, at_cut, lost_unsynced })
}

const HOW: [How; 6] = [
    How { layout: "log", mode: "write-back", policy: "lru" },
    How { layout: "slots", mode: "write-back", policy: "lru" },
    How { layout: "log", mode: "write-back", policy: "face-gsc" },
    How { layout: "slots", mode: "write-back", policy: "h-arc" },
    How { layout: "log", mode: "write-through", policy: "lru" },
    How { layout: "slots", mode: "write-around", policy: "lru" },
];

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_goes() {
    if !can_run("nothing_that_was_synced_is_lost_when_the_power_goes") {
        return;
    }
    let (mut total, mut lost) = (Round::default(), 0);
    for seed in 0..cuts() {
        let how = HOW[seed as usize % HOW.len()];
        let round = round(seed, Some(how), None).unwrap_or_else(|why| panic!("seed {seed}, {how:?}: {why}"));
        println!("seed {seed}, {how:?}: {round:?}");
        total.calls += round.calls;
        total.renames += round.renames;
        total.unlinks += round.unlinks;
        total.at_cut = (total.at_cut.0 + round.at_cut.0, total.at_cut.1 + round.at_cut.1);
        lost += u64::from(round.lost_unsynced);
    }
    println!("{} cuts: {total:?}; in {lost} something was lost that had not been synced", cuts());
    assert!(total.calls > 0 && total.at_cut.0 > 0, "there was a load, and something to lose: {total:?}");
}

/// What a round looks at is what a cut takes: without a cache what was not synced is lost in one round of ten at least, and what was
/// is not.
#[test]
fn without_a_cache_only_what_was_not_synced_is_lost() {
    if !can_run("without_a_cache_only_what_was_not_synced_is_lost") {
        return;
    }
    let rounds = cuts().max(10);
    let lost = (0..rounds)
        .filter(|&seed| round(seed, None, None).unwrap_or_else(|why| panic!("seed {seed}: {why}")).lost_unsynced);
    let lost = lost.count() as u64;
    println!("without a cache: in {lost} of {rounds} rounds something was lost that had not been synced");
    assert!(lost * 10 >= rounds, "the cuts are none");
}

/// A cache device whose syncs do nothing loses what was synced, and a round says so.
#[test]
fn a_cache_device_that_lies_about_its_syncs_is_found() {
    if !can_run("a_cache_device_that_lies_about_its_syncs_is_found") {
        return;
    }
    let rounds = 12;
    let found = (0..rounds).find(|&seed| {
        let outcome = std::panic::catch_unwind(|| round(seed, Some(HOW[seed as usize % 4]), Some("fast")));
        !matches!(outcome, Ok(Ok(_)))
    });
    println!("found in round {found:?}");
    assert!(found.is_some(), "syncs of the cache device do nothing, and nobody has noticed in {rounds} rounds");
}
