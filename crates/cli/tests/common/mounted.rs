//! A directory and its mount by `entresol mount`, where this system allows mounts.

use super::{Scratch, Signal, crash, serving, signal};
use std::io::{BufRead, BufReader, Read};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words of `format` for segments. A server of a small cache would say at some time that its bound on wear is used up.
pub const UNBOUNDED: &[&str] = &["--wear", "unbounded"];

/// User and group number of `nobody`.
pub const NOBODY: u32 = 65534;

pub struct Mounted {
    pub scratch: Scratch,
    server: Option<Child>,
    /// Mode and policy of the cache, if there is one.
    cache: Option<[String; 2]>,
    /// The kernel's page cache above the mount: on or off.
    page_cache: &'static str,
    /// Passthrough, by which the kernel itself performs I/O that bypasses the cache: on, where the kernel grants it,
    /// or off.
    passthrough: &'static str,
    /// True if the user nobody runs the server, which serves root too.
    nobody: bool,
}

/// Choices for a mount, where a test does not use those of [`Mounted::with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// Mode and policy of a cache, and further arguments of `format`.
    pub cache: Option<([&'static str; 2], &'static [&'static str])>,
    /// The kernel's page cache above: on or off.
    pub page_cache: &'static str,
    /// Passthrough, by which the kernel performs I/O that bypasses the cache: on or off.
    pub passthrough: &'static str,
    /// Run by the user nobody, for nobody and root; only root can start that.
    pub nobody: bool,
}

impl How {
    /// A setup's name has the layout of its cache, which is stated: another default would change it unseen.
    pub fn is_named(&self, name: &str) {
        if let Some((_, format)) = self.cache {
            let layout = format.iter().skip_while(|&&word| word != "--layout").nth(1);
            assert!(layout.is_some_and(|layout| name.contains(layout)), "{name}: {format:?}");
        }
    }
}

/// Runs a test on the backing files directly and through a cache of 400 pages, in two of its modes, with the kernel's
/// page cache above and without. Passthrough serves I/O that bypasses the caches; of direct files it has a setup of
/// its own. Two of them run at a time: they wait for
/// the kernel most of it.
pub fn each(test: impl Fn(Mounted) + Sync) {
    let (back, through) = (Some(["write-back", "face-gsc"]), Some(["write-through", "lru"]));
    let worlds = ["off", "on"].map(|page_cache| [(None, page_cache), (back, page_cache), (through, page_cache)]);
    let worlds = worlds.as_flattened().iter().map(|&(cache, page_cache)| (cache, page_cache, cache.is_some()));
    let worlds: Vec<_> = worlds.chain([(None, "on", true)]).collect();
    two_at_a_time(&worlds, |&(cache, page_cache, passed)| {
        let passthrough = if passed { "on" } else { "off" };
        println!("{cache:?}, page cache {page_cache}, passthrough {passthrough}");
        Mounted::set_up(cache, page_cache, passthrough).map(&test).is_some()
    });
}

/// Runs a test on each item, on two threads, until it says that nothing can be tested.
pub fn two_at_a_time<T: Sync>(items: &[T], test: impl Fn(&T) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    let run = || while items.get(next.fetch_add(1, Ordering::Relaxed)).is_some_and(&test) {};
    std::thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}

impl Mounted {
    /// `None`, with a message, where nothing can be mounted.
    pub fn new() -> Option<Self> {
        Self::with(None)
    }

    /// As [`new`](Self::new), through a small cache of this mode and policy, which sees every request.
    pub fn with(cache: Option<[&str; 2]>) -> Option<Self> {
        Self::set_up(cache, "off", "on")
    }

    /// As [`with`](Self::with), with the kernel's page cache above (`on`) or not (`off`), over a cache of this layout.
    pub fn with_layout(cache: [&str; 2], page_cache: &'static str, layout: &str) -> Option<Self> {
        let mut mounted = Self::set_up(Some(cache), page_cache, "on")?;
        mounted.unmount();
        let words = ["--force", "--cache", "cache", "--backing", "backing", "--size", "2MiB", "--layout", layout];
        mounted.scratch.format(&[&words[..], if layout == "segments" { UNBOUNDED } else { &[] }].concat());
        mounted.start().then_some(mounted)
    }

    /// A mount of existing directories: `backing`, `mount` and a cache, which need not have been made here. Not
    /// started yet.
    pub fn over(scratch: Scratch, [mode, policy]: [&str; 2]) -> Self {
        let cache = Some([mode.to_owned(), policy.to_owned()]);
        Mounted { scratch, server: None, cache, page_cache: "off", passthrough: "on", nobody: false }
    }

    fn set_up(cache: Option<[&str; 2]>, page_cache: &'static str, passthrough: &'static str) -> Option<Self> {
        let scratch = Scratch::new();
        for name in ["backing", "mount", "plain"] {
            std::fs::create_dir(scratch.path(name)).expect("a directory");
        }
        if cache.is_some() {
            scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
        }
        let cache = cache.map(|cache| cache.map(str::to_owned));
        let mut mounted = Mounted { scratch, server: None, cache, page_cache, passthrough, nobody: false };
        mounted.start().then_some(mounted)
    }

    /// A mount with a formatted cache, in directories that exist already or are made; not started yet.
    pub fn made(scratch: Scratch, how: &How) -> Self {
        let How { cache, page_cache, passthrough, nobody } = *how;
        for name in ["backing", "mount", "plain", "."] {
            std::fs::create_dir_all(scratch.path(name)).expect("a directory");
            let owner = if nobody { Some(NOBODY) } else { None };
            std::os::unix::fs::chown(scratch.path(name), owner, owner).expect("an owner");
        }
        let words = cache.map(|(words, _)| words.map(str::to_owned));
        let mounted = Mounted { scratch, server: None, cache: words, page_cache, passthrough, nobody };
        if let Some((_, format)) = cache {
            let both = ["-q", "format", "--mode=write-back", "--cache", "cache", "--backing", "backing"];
            let size: &[&str] = if format.contains(&"--size") { &[] } else { &["--size", "2MiB"] };
            mounted.ok(&[&both[..], size, format].concat());
        }
        mounted
    }

    /// The command, run by the server's user.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.scratch.command(arguments);
        if self.nobody {
            // The program is run by its descriptor, because nobody may not be able to reach its path. Mounting takes a
            // capability.
            let shell = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin \
                         /proc/self/fd/3 \"$@\" 3<\"$0\"";
            let mut other = Command::new("sh");
            other.args(["-c", shell]).arg(command.get_program()).args(arguments);
            other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            other.current_dir(self.scratch.path("."));
            command = other;
        }
        command
    }

    /// Runs a command that must succeed, as the server's user.
    fn ok(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().expect("the command runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "entresol {arguments:?}: {complaint}");
    }

    /// Mounts; true if that is possible here.
    pub fn start(&mut self) -> bool {
        self.start_with(&[])
    }

    /// As [`start`](Self::start), with more arguments.
    pub fn start_with(&mut self, more: &[&str]) -> bool {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            entresol_skip::skipped!("/dev/fuse", "/dev/fuse: {error}");
            return false;
        }
        let mut arguments = vec!["-q", "mount", "backing", "mount", "--page-cache", self.page_cache];
        arguments.extend(["--passthrough", self.passthrough]);
        let mut expected = "backing at mount, no cache\n".to_owned();
        if let Some([mode, policy]) = &self.cache {
            arguments.extend(["--cache", "cache", "--mode", mode, "--policy", policy]);
            expected = format!("backing at mount, cached by {policy} in cache\n");
        }
        if self.nobody {
            arguments.push("--allow-root");
        }
        arguments.extend(more);
        let mut command = self.command(&arguments);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        let (mut line, mut said) = (String::new(), String::new());
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        if line == expected {
            self.server = Some(server);
            return true;
        }
        server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        server.wait().expect("an end");
        assert!(super::is_impossible(&said), "{said}");
        false
    }

    pub fn above(&self) -> PathBuf {
        self.scratch.path("mount")
    }

    pub fn below(&self) -> PathBuf {
        self.scratch.path("backing")
    }

    pub fn plain(&self) -> PathBuf {
        self.scratch.path("plain")
    }

    /// Process id of the command, which is the server or its holder.
    pub fn command_id(&self) -> u32 {
        self.server.as_ref().expect("a server").id()
    }

    /// Process id of the server.
    pub fn process(&self) -> u32 {
        serving(self.command_id())
    }

    /// Sends a signal to the command. A kill is a crash of the machine.
    pub fn signal(&self, sent: Signal) {
        match sent {
            Signal::KILL => crash(self.command_id()),
            _ => signal(self.command_id(), sent),
        }
    }

    /// Waits for the server's end; returns its exit code and output.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut server = self.server.take().expect("a server");
        let mut said = String::new();
        server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        (server.wait().expect("an end").code(), said)
    }

    /// True if writes reach the backing files at once, because there is no cache.
    pub fn is_direct(&self) -> bool {
        self.cache.is_none()
    }

    /// Sets mode and policy from the next start on.
    pub fn change(&mut self, mode: &str, policy: &str) {
        self.cache = Some([mode.to_owned(), policy.to_owned()]);
    }

    /// Sets the mode from the next start on, if there is a cache.
    pub fn change_mode(&mut self, mode: &str) {
        if let Some([now, _]) = &mut self.cache {
            *now = mode.to_owned();
        }
    }

    /// Unmounts in order; the backing files are complete afterwards.
    pub fn unmount(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end(), (Some(0), String::new()));
        if self.cache.is_some() {
            let both = ["--cache", "cache", "--backing", "backing"];
            self.ok(&[&["check"], &both[..]].concat());
            self.ok(&[&["-q", "drain"], &both[..]].concat());
            self.ok(&[&["check"], &both[..]].concat());
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // A test failed: no process may hang on a mount without a server.
            crash(server.id());
            let _ = server.wait();
        }
        // Only a mount that was left behind remains to be removed.
        let _ = rustix::mount::unmount(self.above(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Everything in a directory except the cache's own files: names, modes, links, sizes and bytes, in order.
pub fn contents(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.ends_with(".entresol") {
            continue;
        }
        let data = std::fs::symlink_metadata(&path).expect("attributes");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut line = format!("{name} {:o}", data.mode());
        if data.is_dir() {
            found.extend(contents(&path).into_iter().map(|line| format!("{name}/{line}")));
        } else if data.is_symlink() {
            line += &format!(" -> {}", std::fs::read_link(&path).expect("a link").display());
        } else {
            let bytes = std::fs::read(&path).expect("bytes");
            assert_eq!(bytes.len() as u64, data.len());
            line += &format!(" {} links, {}", data.nlink(), hash(&bytes));
        }
        found.push(line);
    }
    found.sort();
    found
}

/// A digest of bytes in a short line.
pub fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte) + 1));
    format!("{} bytes {hash:x}", bytes.len())
}
