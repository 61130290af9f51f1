//! The ublk front-end: a block device of the kernel (`/dev/ublkb0`) whose requests this process answers.
//!
//! Needs Linux 6.5 with `CONFIG_BLK_DEV_UBLK`, io_uring, and the right to administer the system. The kernel's
//! `Documentation/block/ublk.rst` describes the interface. Data is copied by pread and pwrite on the character device,
//! so that any thread may carry out a request.
//!
//! A device may outlive its server (`docs/ublk-recovery.md`): the next one takes it over, and the kernel sends the
//! requests again that were not answered.

mod abi;
mod control;
mod driver;
mod error;
#[cfg(test)]
#[path = "../../../cache/tests/common/memory.rs"]
mod memory;
mod mutant;
mod queue;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod simulated;

pub use error::{Error, Result};
#[cfg(feature = "mutants")]
pub use mutant::leave_out;

use control::Control;
use driver::{Driver, Kernel, Ring};
use entresol_cache::{Block, PathError};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that the system may take to show the character device of a new number.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// Options of a block device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// True if the system is to send no writes.
    pub read_only: bool,
    /// Number of the backing store, which this process alone uses. By it a device is found that a killed server left.
    pub identity: u64,
    /// True if the device outlives this process when that is killed: requests wait for a server that takes it over.
    pub outlives: bool,
    /// True if a device is taken over that a killed server of this backing store left. Else it is removed, and its
    /// requests fail.
    pub takes_over: bool,
}

/// A block device at work; [`stop`](Device::stop) ends it. When this process is killed and the device does not outlive
/// it, the kernel takes the device away and its requests fail. A user of the device must not go on then as if unflushed
/// writes still existed.
pub struct Device(Served<Kernel>);

impl Device {
    /// Makes a block device of `block`, or takes over the one that a killed server of the same backing store left.
    /// `ended` is called when the device goes away for any reason.
    ///
    /// # Errors
    /// [`Error::NoUblk`] where the kernel cannot do it, [`Error::NoRecovery`] where it has no devices that outlive
    /// their server, [`Error::Path`] without the right to, [`Error::Protocol`] when the size is not a positive whole
    /// number of sectors. A device that cannot be taken over is removed.
    pub fn start(
        block: Arc<dyn Block>,
        options: &DeviceOptions,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        check_size(&*block)?;
        Served::start(Kernel::open()?, block, options, ended).map(Device)
    }

    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.0.number).into()
    }

    /// Takes the device away once the requests under way are answered, and flushes. Returns the number answered.
    ///
    /// # Errors
    /// Errors of the kernel or of the flush.
    pub fn stop(self) -> io::Result<u64> {
        self.0.stop()
    }
}

fn check_size(block: &dyn Block) -> Result<()> {
    let size_bytes = block.size_bytes();
    if size_bytes == 0 || !size_bytes.is_multiple_of(control::SECTOR) {
        return Err(Error::Protocol(format!("a block device cannot have {size_bytes} bytes: no whole sectors")));
    }
    Ok(())
}

/// A block device of a driver.
struct Served<D> {
    control: Control<D>,
    number: u32,
    block: Arc<dyn Block>,
    queue: JoinHandle<io::Result<u64>>,
}

impl<D: Driver> Served<D> {
    fn start(
        driver: D,
        block: Arc<dyn Block>,
        options: &DeviceOptions,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let mut control = Control::new(driver, options.outlives)?;
        let mut left = control.left(options.identity)?;
        let taken = if options.takes_over { left.pop() } else { None };
        for info in left {
            control.remove_left(info.device)?;
        }
        let (number, depth) = match &taken {
            Some(info) => (info.device, info.depth),
            None => (control.add(block.size_bytes(), options)?, control::DEPTH),
        };
        match Self::begin(&mut control, number, depth, taken.is_some(), &block, ended) {
            Ok(queue) => Ok(Served { control, number, block, queue }),
            Err(error) => {
                // The first error is the one to report.
                let _ = if taken.is_some() { control.remove_left(number) } else { control.delete(number) };
                Err(error)
            }
        }
    }

    /// Serves the queue of a device that was made just now, or that was left.
    fn begin(
        control: &mut Control<D>,
        number: u32,
        depth: u16,
        was_left: bool,
        block: &Arc<dyn Block>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<io::Result<u64>>> {
        if was_left {
            control.begin_recovery(number)?;
        }
        let device = character_device(&control.driver, number)?;
        let ring = control.driver.ring(number, &device, depth)?;
        let queue = spawn(device, ring, depth, Arc::clone(block), ended)?;
        if was_left {
            control.end_recovery(number)?
        } else {
            control.start(number)?
        }
        control.driver.unlock()?;
        Ok(queue)
    }

    fn stop(mut self) -> io::Result<u64> {
        self.control.stop(self.number)?;
        let answered = self.queue.join().unwrap_or_else(|_| Err(io::Error::other("the queue's thread panicked")));
        self.control.delete(self.number)?;
        self.block.flush()?;
        answered
    }
}

/// Opens the character device of a number as soon as it exists.
fn character_device(driver: &impl Driver, number: u32) -> Result<File> {
    let patience = Instant::now() + NODE_PATIENCE;
    loop {
        match driver.open(number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return Ok(opened.map_err(|error| PathError::system(format!("/dev/ublkc{number}"), error))?),
        }
    }
}

/// Starts the thread of a device's only queue, and waits until the queue awaits requests.
fn spawn<R: Ring + Send + 'static>(
    device: File,
    ring: R,
    depth: u16,
    block: Arc<dyn Block>,
    ended: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<io::Result<u64>>> {
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::Builder::new().name("ublk queue".into()).spawn(move || {
        let served = queue::serve(device, ring, depth, block, &ready);
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
    use std::path::Path;

    const OPTIONS: DeviceOptions = DeviceOptions { read_only: false, identity: 1, outlives: true, takes_over: true };

    #[test]
    fn a_kernel_without_ublk_is_told_of() {
        if Path::new("/dev/ublk-control").exists() {
            return entresol_skip::skipped!("kernel", "this kernel has ublk");
        }
        let block = Arc::new(MemoryBlock::new(1 << 20));
        let Err(error) = Device::start(block, &OPTIONS, || {}) else { panic!("there is no driver") };
        assert!(matches!(&error, Error::NoUblk(why) if why.contains("/dev/ublk-control is not there")), "{error}");
    }

    #[test]
    fn half_a_sector_is_no_block_device() {
        let Err(error) = Device::start(Arc::new(MemoryBlock::new(1000)), &OPTIONS, || {}) else { panic!("1000 bytes") };
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }
}
