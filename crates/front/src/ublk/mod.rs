//! The fast block door: a block device of the kernel (`/dev/ublkb0`) whose requests this process answers.
//!
//! It needs Linux 6.5 with `CONFIG_BLK_DEV_UBLK`, io_uring, and the right to administer the system. The ublk interface is
//! described in the kernel's `Documentation/block/ublk.rst`; data is copied by pread and pwrite on the character device, so
//! that any thread may carry a request out.

mod abi;
mod control;
mod queue;

use crate::{Error, Result};
use control::Control;
use entresol_engine::Block;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the system may take to show the character device of a new number.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// A block device at work; [`stop`](Device::stop) ends it. Dropped without that, it stays in the system and its requests
/// wait, as if this process had been killed.
pub struct Device {
    control: Control,
    number: u32,
    block: Arc<dyn Block>,
    queue: JoinHandle<io::Result<u64>>,
}

impl Device {
    /// Makes a block device of `block`. With `take_over` the number of one whose server has died: its requests are answered
    /// from here on, those under way then included. `ended` is called when the device goes away, whoever took it away.
    ///
    /// # Errors
    /// [`Error::NoUblk`] where the kernel cannot do it, [`Error::Path`] without the right to, [`Error::Protocol`] when the
    /// device to be taken over is another one.
    pub fn start(
        block: Arc<dyn Block>,
        read_only: bool,
        take_over: Option<u32>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let size_bytes = block.size_bytes();
        if size_bytes == 0 || !size_bytes.is_multiple_of(control::SECTOR) {
            return Err(Error::Protocol(format!("a block device cannot have {size_bytes} bytes: no whole sectors")));
        }
        let mut control = Control::open()?;
        let number = match take_over {
            None => control.add(size_bytes, read_only)?,
            Some(number) => control.recover(number, size_bytes).map(|()| number)?,
        };
        let started = character_device(number).and_then(|device| {
            let queue = spawn(device, Arc::clone(&block), ended)?;
            match take_over {
                None => control.start(number)?,
                Some(_) => control.recovered(number)?,
            }
            Ok(queue)
        });
        match started {
            Ok(queue) => Ok(Device { control, number, block, queue }),
            Err(error) => {
                if take_over.is_none() {
                    // The first error is the one to tell of.
                    let _ = control.delete(number);
                }
                Err(error)
            }
        }
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.number).into()
    }

    /// Takes the device away once what is under way is answered, and flushes; the number of requests answered.
    ///
    /// # Errors
    /// What the kernel or the flush answers.
    pub fn stop(mut self) -> io::Result<u64> {
        self.control.stop(self.number)?;
        let answered = self.queue.join().unwrap_or_else(|_| Err(io::Error::other("the queue's thread panicked")));
        self.control.delete(self.number)?;
        self.block.flush()?;
        answered
    }
}

/// Opens the character device of a number as soon as it is there.
fn character_device(number: u32) -> Result<File> {
    let path = format!("/dev/ublkc{number}");
    let patience = Instant::now() + NODE_PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(true).open(Path::new(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.map_err(|error| Error::path(path, error)),
        }
    }
}

/// Starts the thread of a device's only queue, and waits until it awaits requests.
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
    use crate::MemoryBlock;

    #[test]
    fn a_kernel_without_ublk_is_told_of() {
        if Path::new("/dev/ublk-control").exists() {
            return println!("skipped: this kernel has ublk");
        }
        let block = Arc::new(MemoryBlock::new(1 << 20));
        let Err(error) = Device::start(block, false, None, || {}) else { panic!("there is no driver") };
        assert!(matches!(&error, Error::NoUblk(why) if why.contains("/dev/ublk-control is not there")), "{error}");
    }

    #[test]
    fn half_a_sector_is_no_block_device() {
        let Err(error) = Device::start(Arc::new(MemoryBlock::new(1000)), false, None, || {}) else {
            panic!("1000 bytes")
        };
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }
}
