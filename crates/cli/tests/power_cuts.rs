//! Power cuts under load: the cache and what it caches each on an ext4 of its own, on loop devices over files that forget what
//! nobody flushed. Nothing may be lost that ext4 alone would have kept. Root alone may make loop devices.
//!
//! `ENTRESOL_CUTS` says how many cuts there are of each kind (`make test-power-cuts`: 300).

#[path = "power/load.rs"]
mod load;
#[path = "power/sqlite.rs"]
mod sqlite;
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

/// Outcome of a cut.
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

/// The disks with their file systems, and the mount of the cache if there is one.
struct Running {
    cache: Option<Cached>,
    _attached: [Attached; 2],
    withheld: Option<(Mount, Withholding)>,
    directory: PathBuf,
}

impl Running {
    /// Fresh disks, whose writes are withheld.
    fn begin(ground: &Ground, cached: Option<How>) -> Self {
        let (mount, layer, attached) = ground.withheld();
        let data = ground.path("slow/data");
        fs::create_dir(&data).expect("a directory");
        let cache = cached.map(|how| {
            let cache = ground.path("fast/cache");
            let format = ["format", "--cache", text(&cache), "--backing", text(&data), "--size", "6MiB"];
            output(env!("CARGO_BIN_EXE_entresol"), &[&format[..], &["--layout", how.layout]].concat());
            output("sync", &["-f", text(&cache)]);
            Cached::start(ground, how)
        });
        output("sync", &["-f", text(&data)]);
        let directory = cache.as_ref().map_or(data, |cache| cache.at.clone());
        Running { cache, _attached: attached, withheld: Some((mount, layer)), directory }
    }

    /// The same disks after the power came back.
    fn again(ground: &Ground, cached: Option<How>) -> Self {
        let attached = ["fast", "slow"].map(|name| Attached::new(&ground.image(name), &ground.path(name)));
        let cache = cached.map(|how| Cached::start(ground, how));
        let directory = cache.as_ref().map_or(ground.path("slow/data"), |cache| cache.at.clone());
        Running { cache, _attached: attached, withheld: None, directory }
    }

    /// Has a load run, and lets the power go in the middle of it: sectors that were not synced then, and those that were kept.
    fn until_the_cut(
        self,
        ground: &Ground,
        random: &mut Random,
        load: impl FnOnce(&(dyn Fn() -> bool + Sync)),
    ) -> (u64, u64) {
        let layer = self.withheld.as_ref().expect("disks that forget").1.clone();
        let until = Duration::from_millis(30 + random.below(700));
        let at_cut = std::thread::scope(|scope| {
            let cutter = scope.spawn(|| {
                std::thread::sleep(until);
                layer.cut(random)
            });
            scope.spawn(|| stir(ground, &layer));
            load(&|| layer.is_off());
            // Where the load ended by itself the power goes all the same.
            cutter.join().expect("a cut")
        });
        let Running { cache, .. } = self;
        drop(cache);
        at_cut
    }
}

/// Has the kernel write what it has in memory of the files on both disks, without a flush: a disk has it then, and may forget it.
fn stir(ground: &Ground, layer: &Withholding) {
    while !layer.is_off() {
        let data = fs::read_dir(ground.path("slow/data")).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in data.chain([ground.path("fast/cache")]) {
            if let Ok(file) = File::open(path) {
                let _tried = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a load under a cache, or without one; lets the power go in the middle, and looks at what is there then.
fn round(seed: u64, cached: Option<How>, lies: Option<&str>) -> Result<Round, String> {
    let ground = Ground::new();
    let mut random = Random::new(seed);
    let running = Running::begin(&ground, cached);
    if let (Some(name), Some((_, layer))) = (lies, &running.withheld) {
        layer.lie(fs::metadata(ground.image(name)).expect("an image").ino());
    }
    let mut load = Load::new(&running.directory, random.next_u64());
    let at_cut = running.until_the_cut(&ground, &mut random, |is_over| load.run(is_over));
    let running = Running::again(&ground, cached);
    let lost_unsynced = load.verify(&running.directory)?;
    let Load { done: calls, renames, unlinks, .. } = load;
    Ok(Round { calls, renames, unlinks, at_cut, lost_unsynced })
}

/// The same of SQLite: rows that were committed, and those that were found.
fn round_of_sqlite(seed: u64, how: How, journal: &str) -> Result<(u64, u64), String> {
    let ground = Ground::new();
    let mut random = Random::new(seed);
    let running = Running::begin(&ground, Some(how));
    let database = running.directory.join("database");
    sqlite::make(&database, journal);
    let mut committed = 0;
    running.until_the_cut(&ground, &mut random, |is_over| committed = sqlite::run(&database, journal, is_over));
    let running = Running::again(&ground, Some(how));
    let found = sqlite::verify(&running.directory.join("database"), committed)?;
    Ok((committed, found))
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

#[test]
fn what_sqlite_committed_is_there_after_the_power_went() {
    let test = "what_sqlite_committed_is_there_after_the_power_went";
    if !can_run(test) {
        return;
    }
    if Command::new("sqlite3").arg("-version").output().is_err() {
        return entresol_skip::skipped!("sqlite3", "{test}: sqlite3 is not installed");
    }
    let mut total = 0;
    for seed in 0..cuts().max(4) {
        let journal = ["delete", "truncate", "persist", "wal"][seed as usize % 4];
        // Every pair of a journal and a cache comes once in twenty-four rounds.
        let how = HOW[(seed as usize + seed as usize / 12) % HOW.len()];
        let rows = round_of_sqlite(seed, how, journal);
        let (committed, found) = rows.unwrap_or_else(|why| panic!("seed {seed}, {how:?}, {journal}: {why}"));
        println!("seed {seed}, {how:?}, {journal}: {committed} rows known to be committed, {found} found");
        total += committed;
    }
    println!("{} cuts of SQLite, {total} rows known to be committed", cuts().max(4));
    assert!(total > 0, "there was a load");
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
        match outcome {
            Ok(Ok(_)) => false,
            Ok(Err(why)) => {
                println!("round {seed}: {}", why.chars().take(300).collect::<String>());
                true
            }
            // The cache itself may be refused.
            Err(_) => true,
        }
    });
    println!("found in round {found:?}");
    assert!(found.is_some(), "syncs of the cache device do nothing, and nobody has noticed in {rounds} rounds");
}
