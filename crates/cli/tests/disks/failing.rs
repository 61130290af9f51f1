//! A block device that fails when it is told to: a loop device over a file in a mounted directory. The directory's
//! server holds writes or syncs of the file up, and then fails them or lets them pass. All above that is the kernel's:
//! the pages of the device in memory, and which descriptor hears of a page that could not be written.

use crate::common::Scratch;
use crate::common::image::Loop;
use entresol_files::{AtOnce, DirectFiles, FileData, FileId, FileLayer, OpenDirectory, Sought};
use entresol_fuse::{Mount, Options};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, create_dir};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for a call of the disk.
const CALL_MAX: Duration = Duration::from_secs(60);

/// Calls of the disk that are held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Write,
    Sync,
}

#[derive(Default)]
struct State {
    held_up: Option<Call>,
    /// Calls that wait.
    waiting: usize,
    /// True if the calls that were held up last fail.
    fails: bool,
}

#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, call: Call) -> io::Result<()> {
        let mut state = self.state();
        if state.held_up != Some(call) {
            return Ok(());
        }
        state.waiting += 1;
        self.0.1.notify_all();
        let waited = self.0.1.wait_while(state, |state| state.held_up == Some(call));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.fails { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

impl FileLayer for Gate {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let data = DirectFiles.open(id, file, writable)?;
        Ok(Arc::new(Gated { data, gate: self.clone() }))
    }

    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()> {
        DirectFiles.leaving(id, directory)
    }

    fn stays(&self, _id: FileId) {}

    fn replacing(&self, id: FileId) -> io::Result<()> {
        DirectFiles.replacing(id)
    }

    fn removed(&self, _id: FileId) {}
}

struct Gated {
    data: Arc<dyn FileData>,
    gate: Gate,
}

impl FileData for Gated {
    fn size_bytes(&self) -> io::Result<u64> {
        self.data.size_bytes()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        self.data.read_now(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.data.read(offset, bytes)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.write(offset, bytes).map(|()| bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass(Call::Write)?;
        self.data.write(offset, bytes)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.gate.pass(Call::Sync)?;
        self.data.sync(data_only)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.data.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.data.seek(sought, offset)
    }
}

/// The disk, until it goes out of scope.
pub struct FailingDisk {
    gate: Gate,
    device: Loop,
    _mount: Mount,
}

impl FailingDisk {
    /// A disk of zeros in a scratch directory. None, printed and counted, where that is impossible.
    pub fn new(scratch: &Scratch, bytes: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            entresol_skip::skipped!("root", "only root can make a loop device");
            return None;
        }
        if !std::path::Path::new("/dev/fuse").exists() {
            entresol_skip::skipped!("/dev/fuse", "there is no /dev/fuse");
            return None;
        }
        let [images, mounted] = ["images", "mounted"].map(|name| scratch.path(name));
        [&images, &mounted].into_iter().for_each(|path| create_dir(path).expect("a directory"));
        scratch.file("images/disk", vec![0; bytes]);
        let gate = Gate::default();
        let options = Options { page_cache: false, passthrough: false, ..Options::default() };
        let mount = Mount::start(&images, &mounted, Arc::new(gate.clone()), options).expect("a mount");
        match Loop::new(&mounted.join("disk")) {
            Ok(device) => Some(FailingDisk { gate, device, _mount: mount }),
            Err(why) => {
                entresol_skip::skipped!("losetup", "no loop devices here: {why}");
                None
            }
        }
    }

    /// Path of the block device.
    pub fn path(&self) -> &str {
        &self.device.0
    }

    /// Holds such calls up from now on.
    pub fn hold_up(&self, call: Call) {
        self.gate.state().held_up = Some(call);
    }

    /// Waits until a call is held up.
    pub fn wait(&self) {
        let waited = self.gate.0.1.wait_timeout_while(self.gate.state(), CALL_MAX, |state| state.waiting == 0);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "no call came");
    }

    /// Ends that: the calls that wait fail, or pass. Later ones pass.
    pub fn release(&self, fails: bool) {
        let mut state = self.gate.state();
        (state.held_up, state.fails) = (None, fails);
        drop(state);
        self.gate.0.1.notify_all();
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // Otherwise the device could not be detached.
        self.release(true);
    }
}
