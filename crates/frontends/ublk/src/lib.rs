//! The ublk front-end: a block device of the kernel (`/dev/ublkb0`) whose requests this process answers.
//!
//! Needs Linux 6.5 with `CONFIG_BLK_DEV_UBLK`, io_uring, and the right to administer the system. The kernel's
//! `Documentation/block/ublk.rst` describes the interface. Data is copied by pread and pwrite on the character device,
//! so that any thread may carry out a request.

mod abi;
mod control;
mod error;
#[cfg(test)]
#[path = "../../../cache/tests/common/memory.rs"]
mod memory;
mod queue;

pub use error::{Error, Result};

use control::Control;
use entresol_cache::{Block, PathError};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that the system may take to show the character device of a new number.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// A block device at work; [`stop`](Device::stop) ends it. When this process is killed, the kernel takes the device
/// away and its requests fail. A user of the device must not go on then as if unflushed writes still existed.
pub struct Device {
    control: Control,
    number: u32,
    block: Arc<dyn Block>,
    queue: JoinHandle<io::Result<u64>>,
}

impl Device {
    /// Makes a block device of `block`. `ended` is called when the device goes away for any reason.
    ///
    /// # Errors
    /// [`Error::NoUblk`] where the kernel cannot do it, [`Error::Path`] without the right to, [`Error::Protocol`] when
    /// the size is not a positive whole number of sectors.
    pub fn start(block: Arc<dyn Block>, read_only: bool, ended: impl FnOnce() + Send + 'static) -> Result<Self> {
        let size_bytes = block.size_bytes();
        if size_bytes == 0 || !size_bytes.is_multiple_of(control::SECTOR) {
            return Err(Error::Protocol(format!("a block device cannot have {size_bytes} bytes: no whole sectors")));
        }
        let mut control = Control::open()?;
        let number = control.add(size_bytes, read_only)?;
        let started = character_device(number).and_then(|device| {
            let queue = spawn(device, Arc::clone(&block), ended)?;
            control.start(number)?;
            control.unlock()?;
            Ok(queue)
        });
        match started {
            Ok(queue) => Ok(Device { control, number, block, queue }),
            Err(error) => {
                // The first error is the one to report.
                let _ = control.delete(number);
                Err(error)
            }
        }
    }

    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.number).into()
    }

    /// Takes the device away once the requests under way are answered, and flushes. Returns the number answered.
    ///
    /// # Errors
    /// Errors of the kernel or of the flush.
    pub fn stop(mut self) -> io::Result<u64> {
        self.control.stop(self.number)?;
        let answered = self.queue.join().unwrap_or_else(|_| Err(io::Error::other("the queue's thread panicked")));
        self.control.delete(self.number)?;
        self.block.flush()?;
        answered
    }
}

/// Opens the character device of a number as soon as it exists.
fn character_device(number: u32) -> Result<File> {
    let path = format!("/dev/ublkc{number}");
    let patience = Instant::now() + NODE_PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(true).open(Path::new(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return Ok(opened.map_err(|error| PathError::system(path, error))?),
        }
    }
}

/// Starts the thread of a device's only queue, and waits until the queue awaits requests.
fn spawn(
    device: File,
    block: Arc<dyn Block>,
    ended: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<io::Result<u64>>> {
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::Builder::new().name("ublk queue".into()).spawn(move || {
        let served = queue::serve(device, control::DEPTH, block, &ready);
        ended();
        served
    })?;
    is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the queue's thread ended")))?;
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBlock;

    #[test]
    fn a_kernel_without_ublk_is_told_of() {
        if Path::new("/dev/ublk-control").exists() {
            return entresol_skip::skipped!("kernel", "this kernel has ublk");
        }
        let block = Arc::new(MemoryBlock::new(1 << 20));
        let Err(error) = Device::start(block, false, || {}) else { panic!("there is no driver") };
        assert!(matches!(&error, Error::NoUblk(why) if why.contains("/dev/ublk-control is not there")), "{error}");
    }

    #[test]
    fn half_a_sector_is_no_block_device() {
        let Err(error) = Device::start(Arc::new(MemoryBlock::new(1000)), false, || {}) else { panic!("1000 bytes") };
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }
}
