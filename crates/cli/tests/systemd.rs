//! Lost caches, late mounts and upgrades under systemd itself: the units of `contrib/systemd`, started by a systemd of
//! the test's own. That is process 1 of a process namespace with a mount namespace and a control group of its own. Only
//! root may make them.

mod common;

use common::served::client::{Client, FLUSH};
use common::{Scratch, says};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: usize = 256 << 10;
const MANAGER: &str = "/lib/systemd/systemd";
/// Names in the namespace: `/srv` is the scratch directory.
const CACHE: &str = "/srv/fast/cache";

/// Makes the namespaces that systemd expects. `/proc/sys`, the machine's own settings, becomes read-only.
const ENTER: &str = "mount --bind \"$1\" /srv && mount --bind \"$2\" /srv/entresol && mount -t tmpfs run /run \
    && mount -t tmpfs lib /var/lib && mount -t cgroup2 group /sys/fs/cgroup && mount --bind /proc/sys /proc/sys \
    && mount -o remount,bind,ro /proc/sys && exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other \
    SYSTEMD_UNIT_PATH=/srv/units \"$3\" --system --unit=test.target --log-target=console --show-status=no";

/// Makes a clean root for packages: what they change of the machine's own files is seen by the test alone.
const CLEAN: &str = "mkdir \"$1/over\" && mount -t tmpfs over \"$1/over\" && for part in usr etc var/lib; do \
    mkdir -p \"$1/over/$part/upper\" \"$1/over/$part/work\" && mount -t overlay \
    -o \"lowerdir=/$part,upperdir=$1/over/$part/upper,workdir=$1/over/$part/work\" over \"/$part\" || exit 1; done && ";

/// Control groups of the test's processes, below every hierarchy that systemd may look at.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn new() -> Self {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"].map(Path::new);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("entresol-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let made = roots.into_iter().filter(|root| root.join("cgroup.procs").exists()).map(|root| root.join(&name));
        Groups(made.filter(|group| fs::create_dir(group).is_ok()).collect())
    }
}

/// Removes the groups in a group, and then itself.
fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let _in_use = fs::remove_dir(group);
}

impl Drop for Groups {
    fn drop(&mut self) {
        let start = Instant::now();
        while self.0.iter().any(|group| group.exists()) && start.elapsed() < Duration::from_secs(5) {
            self.0.iter().for_each(|group| remove_group(group));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A systemd that runs services in the scratch directory. All of its processes end with this value.
struct Systemd {
    namespaces: Child,
    /// Process 1 of the namespaces.
    manager: String,
    scratch: Scratch,
    _groups: Groups,
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ended = self.namespaces.kill();
        let _ended = self.namespaces.wait();
    }
}

impl Systemd {
    /// Starts a systemd. None, with a message, where that is impossible.
    fn start(test: &str) -> Option<Self> {
        Self::start_as(test, ENTER, put_units)
    }

    /// Starts a systemd with a clean root, in which packages can be installed.
    fn start_clean(test: &str) -> Option<Self> {
        Self::start_as(test, &(CLEAN.to_owned() + &ENTER.replace("&& mount -t tmpfs lib /var/lib ", "")), put_drop_ins)
    }

    fn start_as(test: &str, enter: &str, put_units: fn(&Scratch)) -> Option<Self> {
        let need = match () {
            () if !rustix::process::geteuid().is_root() => Some("root"),
            () if !Path::new(MANAGER).exists() => Some(MANAGER),
            () if !Path::new("/dev/loop-control").exists() => Some("/dev/loop-control"),
            () if !Path::new("/dev/fuse").exists() => Some("/dev/fuse"),
            () => None,
        };
        if let Some(need) = need {
            entresol_skip::skipped!(need, "{test}: there is no {need}");
            return None;
        }
        let scratch = Scratch::new();
        scratch.file("entresol", "");
        put_units(&scratch);
        let groups = Groups::new();
        let join = groups.0.iter().map(|group| format!("echo $$ > {}/cgroup.procs && ", group.display()));
        let unshare = "exec unshare --pid --fork --kill-child --mount --propagation private --mount-proc --cgroup --uts --ipc sh -c";
        let shell = format!("{}{unshare} \"$0\" enter \"$@\"", join.collect::<String>());
        let mut command = Command::new("sh");
        command.args(["-c", &shell, enter]).arg(scratch.path("")).args([env!("CARGO_BIN_EXE_entresol"), MANAGER]);
        let log = File::create(scratch.path("log")).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let namespaces = command.spawn().expect("a shell");
        let mut systemd = Systemd { namespaces, manager: String::new(), scratch, _groups: groups };
        if systemd.is_up() {
            return Some(systemd);
        }
        let said = fs::read_to_string(systemd.scratch.path("log")).unwrap_or_default();
        entresol_skip::skipped!("kernel", "{test}: no systemd can be started here: {said}");
        None
    }

    /// Waits until it is up. False if it ends instead.
    fn is_up(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && self.namespaces.try_wait().expect("a child").is_none() {
            let pid = self.namespaces.id();
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            if let Some(manager) = children.split_whitespace().next() {
                self.manager = manager.to_owned();
                if self.systemctl(&["is-active", "test.target"]).status.success() {
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Runs a program in the namespaces.
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.manager, "-m", "-p", "-C", "--", program]).args(arguments);
        command.output().expect("nsenter")
    }

    fn ok(&self, program: &str, arguments: &[&str]) {
        let output = self.run(program, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
    }

    fn systemctl(&self, arguments: &[&str]) -> Output {
        self.run("systemctl", arguments)
    }

    /// The path, from outside, of a path in the namespaces of the service manager.
    fn inside(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.manager))
    }

    fn property(&self, unit: &str, name: &str) -> String {
        let shown = self.systemctl(&["show", "-P", name, unit]);
        String::from_utf8_lossy(&shown.stdout).trim().to_owned()
    }

    fn eventually(&self, what: &str, mut so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !so() {
            let said = fs::read_to_string(self.scratch.path("said")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}; said: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn mounted(&self, disk: &str, is_mounted: bool) {
        let unit = format!("srv-{disk}.mount");
        self.ok("systemctl", &[if is_mounted { "start" } else { "stop" }, &unit]);
    }
}

const UNITS: [&str; 2] = ["entresol@.service", "entresol-nbd@.service"];

/// Installs the supplied units, with paths of the test, and drop-ins.
fn put_units(scratch: &Scratch) {
    put_drop_ins(scratch);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    for name in UNITS {
        let unit = fs::read_to_string(folder.join(name)).expect("the unit");
        fs::remove_file(scratch.path(&format!("units/{name}"))).expect("a link");
        scratch.file(
            &format!("units/{name}"),
            unit.replace("/usr/bin/entresol", "/srv/entresol").replace("/etc/entresol/", "/srv/"),
        );
    }
}

/// Installs links to the units of a package, drop-ins as by `systemctl edit`, and units of the disks.
fn put_drop_ins(scratch: &Scratch) {
    fs::create_dir_all(scratch.path("units")).expect("a directory");
    scratch.file("units/test.target", "[Unit]\nDescription=Nothing at all\n");
    for name in UNITS {
        let link = std::os::unix::fs::symlink(
            Path::new("/usr/lib/systemd/system").join(name),
            scratch.path(&format!("units/{name}")),
        );
        link.expect("a link");
        let edited = format!("units/{name}.d");
        fs::create_dir(scratch.path(&edited)).expect("a directory");
        let more = "[Unit]\nDefaultDependencies=no\n[Service]\nRestartSec=500ms\nStandardOutput=append:/srv/said\n\
                    StandardError=append:/srv/said\n";
        scratch.file(&format!("{edited}/test.conf"), more);
    }
    for disk in ["fast", "slow"] {
        fs::create_dir(scratch.path(disk)).expect("a directory");
        let image = scratch.path(&format!("{disk}.img"));
        File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output().expect("mkfs.ext4");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let what = format!("[Mount]\nWhat=/srv/{disk}.img\nWhere=/srv/{disk}\nOptions=loop\nType=ext4\n");
        scratch.file(&format!("units/srv-{disk}.mount"), format!("[Unit]\nDefaultDependencies=no\n{what}"));
    }
}

/// Front-end that serves the cache: each has its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrontEnd {
    Mount,
    Nbd,
}

/// A cache in front of a file or directory, and the unit that serves it.
struct Service {
    systemd: Systemd,
    front_end: FrontEnd,
    unit: &'static str,
    /// Bytes of the unit's output that were checked.
    seen: usize,
}

impl Service {
    fn new(test: &str, front_end: FrontEnd, mode: &str) -> Option<Self> {
        Some(Self::over(Systemd::start(test)?, front_end, mode, "/srv/entresol", "/srv"))
    }

    /// A cache that a program serves whose unit reads its settings in this folder.
    fn over(systemd: Systemd, front_end: FrontEnd, mode: &str, program: &str, settings: &str) -> Self {
        ["fast", "slow"].iter().for_each(|disk| systemd.mounted(disk, true));
        let places = match front_end {
            FrontEnd::Mount => "[mount]\nmountpoint = \"/srv/mnt\"\n",
            FrontEnd::Nbd => "[serve.nbd]\nsocket = \"/run/entresol-a/s\"\n",
        };
        let backing = "/srv/slow/data";
        let settings = systemd.inside(settings).join("a.toml");
        fs::write(settings, format!("cache = \"{CACHE}\"\nbacking = \"{backing}\"\n{places}")).expect("settings");
        match front_end {
            FrontEnd::Mount => {
                fs::create_dir(systemd.scratch.path("mnt")).expect("a directory");
                fs::create_dir(systemd.inside(backing)).expect("a directory");
            }
            FrontEnd::Nbd => fs::write(systemd.inside(backing), vec![0; BYTES]).expect("a file"),
        }
        let unit = if front_end == FrontEnd::Mount { "entresol@a.service" } else { "entresol-nbd@a.service" };
        let service = Service { systemd, front_end, unit, seen: 0 };
        let format = ["-q", "format", "--cache", CACHE, "--backing", backing, "--size", "2MiB", "--mode", mode];
        service.systemd.ok(program, &format);
        service.ask("start");
        service
    }

    fn ask(&self, verb: &str) {
        self.systemd.ok("systemctl", &[verb, self.unit]);
    }

    /// Starts the unit without waiting until it can be reached.
    fn ask_for_start(&self) {
        self.systemd.ok("systemctl", &["start", "--no-block", self.unit]);
    }

    /// Waits until it can be reached.
    fn is_active(&self) {
        self.systemd.eventually("it is active", || self.systemd.property(self.unit, "ActiveState") == "active");
    }

    /// Waits until the unit was refused three times, with the exit code of a refusal, and is still retried.
    fn is_refused(&mut self, parts: &[&str]) {
        let restarts = || self.systemd.property(self.unit, "NRestarts").parse::<u32>().unwrap_or(0);
        let before = restarts();
        self.systemd.eventually("it is tried again", || restarts() >= before + 3);
        assert_eq!(self.systemd.property(self.unit, "ActiveState"), "activating");
        self.says(parts);
    }

    /// Checks that the output since the last call contains all these parts.
    fn says(&mut self, parts: &[&str]) {
        let said = fs::read_to_string(self.systemd.scratch.path("said")).expect("words");
        says(&said[self.seen..], parts);
        self.seen = said.len();
    }

    fn write(&self, byte: u8) {
        let bytes = vec![byte; BYTES];
        match self.front_end {
            FrontEnd::Mount => {
                let file = File::create(self.systemd.inside("/srv/mnt/f"));
                file.and_then(|mut file| file.write_all(&bytes).and(file.sync_all())).expect("a write");
            }
            FrontEnd::Nbd => {
                let mut client = self.client();
                client.write(0, &bytes, 0);
                assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).expect("an answer").errno, 0);
            }
        }
    }

    /// Process that serves, a child of the unit's main one; empty while there is none.
    fn server(&self) -> String {
        let main = self.systemd.property(self.unit, "MainPID");
        let children = self.systemd.run("cat", &[&format!("/proc/{main}/task/{main}/children")]);
        String::from_utf8_lossy(&children.stdout).trim().to_owned()
    }

    fn client(&self) -> Client {
        Client::connect(&self.systemd.inside("/run/entresol-a/s"), false).expect("a connection")
    }

    /// Asserts that all bytes are these.
    fn reads(&self, byte: u8) {
        let found = match self.front_end {
            FrontEnd::Mount => fs::read(self.systemd.inside("/srv/mnt/f")).expect("a read"),
            FrontEnd::Nbd => self.client().read(0, BYTES as u32),
        };
        assert!(found == vec![byte; BYTES], "other bytes");
    }

    fn cache(&self) -> PathBuf {
        self.systemd.inside(CACHE)
    }

    /// Makes the cache device blank; returns its former bytes.
    fn blank(&self) -> Vec<u8> {
        let bytes = fs::read(self.cache()).expect("a cache");
        fs::write(self.cache(), vec![0; bytes.len()]).expect("zeros");
        bytes
    }
}

/// A cache on instance storage, which is blank after each stop, with all bytes in the backing store as well.
fn write_through(test: &str, front_end: FrontEnd) {
    let Some(mut service) = Service::new(test, front_end, "write-through") else { return };
    service.write(1);
    for stop in 0..2 {
        service.ask("stop");
        service.blank();
        service.ask("start");
        service.says(&["is blank; it was made anew, and is empty: nothing was lost with it"]);
        service.reads(1 + stop);
        service.write(2 + stop);
    }
    // The file system of the cache is mounted late: no cache is made in its place.
    service.ask("stop");
    service.systemd.mounted("fast", false);
    service.ask_for_start();
    service.is_refused(&["/srv/fast/cache"]);
    assert_eq!(fs::read_dir(service.systemd.inside("/srv/fast")).expect("a directory").count(), 0);
    service.systemd.mounted("fast", true);
    service.is_active();
    service.reads(3);
    // The file system of the backing store is mounted late.
    service.ask("stop");
    service.systemd.mounted("slow", false);
    service.ask_for_start();
    service.is_refused(&["/srv/slow/data: No such file or directory"]);
    assert_eq!(fs::read_dir(service.systemd.inside("/srv/slow")).expect("a directory").count(), 0);
    service.systemd.mounted("slow", true);
    service.is_active();
    service.reads(3);
}

/// A cache with dirty pages: the unit waits for it.
fn write_back(test: &str, front_end: FrontEnd) {
    let Some(mut service) = Service::new(test, front_end, "write-back") else { return };
    service.write(7);
    // The unit is started again after a kill, and has the synced bytes.
    let before = service.systemd.property(service.unit, "MainPID");
    service.systemd.ok("systemctl", &["kill", "--kill-whom=main", "--signal=KILL", service.unit]);
    service.systemd.eventually("it is another process", || {
        let now = service.systemd.property(service.unit, "MainPID");
        now != "0" && now != before && service.systemd.property(service.unit, "ActiveState") == "active"
    });
    service.reads(7);
    service.ask("stop");
    let cache = service.blank();
    service.ask_for_start();
    service.is_refused(&["is blank", "is not complete without what only the cache has", "--if-lost recreate"]);
    assert!(fs::read(service.cache()).expect("a cache").iter().all(|&byte| byte == 0), "it was written");
    // The device is found without a command.
    fs::write(service.cache(), cache).expect("the cache");
    service.is_active();
    service.reads(7);
}

/// A reload, a kill and a hang of the process that serves: pauses for clients, and for systemd the same service.
fn outlives(test: &str, front_end: FrontEnd) {
    let Some(mut service) = Service::new(test, front_end, "write-back") else { return };
    let configured = service.systemd.scratch.read("a.toml");
    service.systemd.scratch.file("a.toml", configured + "restart-after = \"2s\"\n");
    service.ask("restart");
    service.write(1);
    let opened = |name: &str| {
        let path = service.systemd.inside(&format!("/srv/mnt/{name}"));
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
    };
    let [file, beside] = ["f", "beside"].map(|name| (front_end == FrontEnd::Mount).then(|| opened(name)));
    let shown = |service: &Service, name: &str| service.systemd.property(service.unit, name);
    let unchanged = |service: &Service| ["MainPID", "NRestarts", "ActiveState"].map(|name| shown(service, name));
    let before = unchanged(&service);
    for (byte, what) in [(2, "reload"), (3, "KILL"), (4, "STOP"), (5, "reload")] {
        // Answered, and not synced.
        match &file {
            Some(file) => file.write_all_at(&vec![byte; BYTES], 0).expect("a write"),
            None => service.client().write(0, &vec![byte; BYTES], 0),
        }
        let is_over = AtomicBool::new(false);
        let paused = std::thread::scope(|scope| {
            let writes = beside.as_ref().map(|file| scope.spawn(|| write_on(file, &is_over)));
            let former = service.server();
            match what {
                "reload" => service.ask("reload"),
                signal => service.systemd.ok("kill", &[&format!("-{signal}"), &former]),
            }
            service.systemd.eventually("another process serves", || {
                let now = service.server();
                now != former && !now.is_empty() && !now.contains(' ')
            });
            std::thread::sleep(Duration::from_millis(300));
            is_over.store(true, Ordering::Relaxed);
            writes.map(|writes| writes.join().expect("no error"))
        });
        if let Some((rounds, longest)) = paused {
            println!("{what}: {rounds} rounds of a client; the longest took {longest:?}");
        }
        if let Some(file) = &file {
            let mut found = vec![0; BYTES];
            file.read_exact_at(&mut found, 0).expect("a read");
            assert!(found == vec![byte; BYTES], "other bytes after {what}");
        }
        service.reads(byte);
        assert_eq!(unchanged(&service), before, "after {what}");
    }
    drop((file, beside));
    service.says(&["the server was upgraded", "the server crashed or was killed", "gave no sign of life"]);
    service.ask("stop");
    assert_eq!(shown(&service, "Result"), "success");
    service.says(&["is closed"]);
    service.ask("start");
    service.reads(5);
}

/// A package of this program in a version of its own, whose program has another length than those of other versions.
fn package(scratch: &Scratch, version: &str) -> PathBuf {
    let program = scratch.path(&format!("program-{version}"));
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_entresol")).output();
    if !stripped.is_ok_and(|stripped| stripped.status.success()) {
        fs::copy(env!("CARGO_BIN_EXE_entresol"), &program).expect("a copy");
    }
    let mut longer = File::options().append(true).open(&program).expect("a program");
    longer.write_all(version.as_bytes()).expect("a longer program");
    drop(longer);
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb.sh");
    let mut made = Command::new(packaging);
    made.arg(&program).arg(scratch.path("packages")).envs([("LINKED", "any"), ("VERSION", version)]);
    let made = made.env("DPKG_DEB_COMPRESSOR_TYPE", "none").output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8_lossy(&made.stdout).trim())
}

/// Installs a package; returns what that says.
fn install(systemd: &Systemd, package: &Path) -> String {
    let inside = Path::new("/srv/packages").join(package.file_name().expect("a name"));
    let done = systemd.run("dpkg", &["-i", &inside.display().to_string()]);
    let said = [&done.stdout[..], &done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

/// Writes to a file and reads it without pause until an end; any error, and any byte that is not the last one written,
/// is a failure. Returns the number of rounds and the longest.
fn write_on(file: &File, is_over: &AtomicBool) -> (u32, Duration) {
    let (mut rounds, mut longest) = (0_u32, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        rounds += 1;
        let (at, bytes) = (u64::from(rounds % 50) * 4096 + 11, rounds.to_le_bytes());
        file.write_all_at(&bytes, at).expect("a write");
        let mut found = [0; 4];
        file.read_exact_at(&mut found, at).expect("a read");
        assert_eq!(found, bytes, "an older byte");
        if rounds % 100 == 0 {
            file.sync_data().expect("a sync");
        }
        longest = longest.max(began.elapsed());
    }
    (rounds, longest)
}

/// The package is upgraded while a program writes to the mount of its unit: the unit goes on, with the new program.
#[test]
fn a_package_upgrade_is_a_pause_for_the_users_of_a_mount() {
    const TEST: &str = "a_package_upgrade_is_a_pause_for_the_users_of_a_mount";
    for need in ["dpkg", "dpkg-deb", "file"] {
        if Command::new(need).arg("--version").output().is_err() {
            return entresol_skip::skipped!(need, "{TEST}: there is no {need}");
        }
    }
    let Some(systemd) = Systemd::start_clean(TEST) else { return };
    let [before, after] = ["0.0.1", "0.0.2-longer"].map(|version| package(&systemd.scratch, version));
    install(&systemd, &before);
    systemd.ok("systemctl", &["daemon-reload"]);
    fs::create_dir_all(systemd.inside("/etc/entresol")).expect("a directory");
    let mut service = Service::over(systemd, FrontEnd::Mount, "write-back", "/usr/bin/entresol", "/etc/entresol");
    service.write(1);
    let running = |service: &Service| {
        let server = service.server();
        let program = fs::metadata(service.systemd.inside(&format!("/proc/{server}/exe"))).expect("a program").len();
        (server, program)
    };
    let main = service.systemd.property(service.unit, "MainPID");
    let former = running(&service);
    let file = File::options().read(true).write(true).open(service.systemd.inside("/srv/mnt/f")).expect("a file");
    let is_over = AtomicBool::new(false);
    let (said, (rounds, longest)) = std::thread::scope(|scope| {
        let writes = scope.spawn(|| write_on(&file, &is_over));
        std::thread::sleep(Duration::from_millis(300));
        let said = install(&service.systemd, &after);
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        (said, writes.join().expect("no error"))
    });
    println!("{rounds} rounds of a client; the longest took {longest:?}");
    assert!(!said.contains("goes on with the program of before"), "{said}");
    let now = running(&service);
    assert!(now.0 != former.0 && now.1 == former.1 + 7, "{former:?}, {now:?}");
    assert_eq!(service.systemd.property(service.unit, "MainPID"), main);
    let stats = service.systemd.run("/usr/bin/entresol", &["stats", "--json", CACHE]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).expect("JSON");
    assert_eq!((&stats["restarts"]["upgrades"], &stats["restarts"]["crashes"]), (&1.into(), &0.into()));
    drop(file);
    service.says(&["the server was upgraded"]);
    service.ask("stop");
    service.ask("start");
    assert_eq!(running(&service).1, now.1);
}

#[test]
fn a_mount_outlives_its_server_under_systemd() {
    outlives("a_mount_outlives_its_server_under_systemd", FrontEnd::Mount);
}

#[test]
fn an_nbd_server_outlives_its_process_under_systemd() {
    outlives("an_nbd_server_outlives_its_process_under_systemd", FrontEnd::Nbd);
}

#[test]
fn a_mount_whose_cache_comes_back_blank_is_served_again_by_systemd() {
    write_through("a_mount_whose_cache_comes_back_blank_is_served_again_by_systemd", FrontEnd::Mount);
}

#[test]
fn a_server_whose_cache_comes_back_blank_is_served_again_by_systemd() {
    write_through("a_server_whose_cache_comes_back_blank_is_served_again_by_systemd", FrontEnd::Nbd);
}

#[test]
fn a_mount_whose_cache_alone_has_bytes_waits_for_it_under_systemd() {
    write_back("a_mount_whose_cache_alone_has_bytes_waits_for_it_under_systemd", FrontEnd::Mount);
}

#[test]
fn a_server_whose_cache_alone_has_bytes_waits_for_it_under_systemd() {
    write_back("a_server_whose_cache_alone_has_bytes_waits_for_it_under_systemd", FrontEnd::Nbd);
}
