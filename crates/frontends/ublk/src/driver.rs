//! The ublk driver as this front-end uses it: the kernel's, or a simulated one in tests.

use crate::abi::{Command, IoCommand};
use crate::{Error, Result};
use entresol_cache::PathError;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions, read_dir};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::IntoBytes;

/// Path of the control device.
pub const PATH: &str = "/dev/ublk-control";
/// User data of the event's poll, whose completion belongs to no tag.
const WAKE: u64 = u64::MAX;
/// Poll flag: readable.
const POLL_IN: u32 = 1;

/// The driver, for one process.
pub trait Driver {
    /// Exchange about the tags of a queue.
    type Ring: Ring + Send + 'static;

    /// A command to the control device, with a buffer that the driver reads or fills; it may be empty.
    fn command(&mut self, operation: u32, command: Command, buffer: &mut [u8]) -> io::Result<()>;

    /// Numbers of the devices that there are.
    fn numbers(&self) -> io::Result<Vec<u32>>;

    /// The character device of a number. One process has it open at a time.
    fn open(&self, number: u32) -> io::Result<File>;

    /// An exchange about the tags of the only queue of a device.
    fn ring(&self, number: u32, device: &File, depth: u16) -> io::Result<Self::Ring>;

    /// Lets other processes make devices again.
    fn unlock(&self) -> io::Result<()>;
}

/// An exchange about the tags of a queue, by one thread from the first submission on.
pub trait Ring {
    /// An event that ends a wait.
    fn event(&self) -> io::Result<OwnedFd>;

    /// Adds a command to those that are sent next.
    fn push(&mut self, operation: u32, command: IoCommand);

    /// Sends the commands, and adds the tags of those that have ended, with their results.
    fn submit(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()>;

    /// As [`submit`](Self::submit), and waits until a command has ended or the event came.
    fn wait(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()>;
}

/// The kernel's driver: its control device with a ring.
pub struct Kernel {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: File,
}

impl Kernel {
    /// Opens the control device and locks it for this process until [`unlock`](Driver::unlock).
    pub fn open() -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(PATH);
        let device = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoUblk(format!("{PATH} is not there (`modprobe ublk_drv` may help)")),
            _ => PathError::system(PATH, error).into(),
        })?;
        rustix::fs::flock(&device, FlockOperation::LockExclusive).map_err(|error| PathError::system(PATH, error))?;
        let ring = IoUring::builder().build(4);
        let ring = ring.map_err(|error| Error::NoUblk(format!("io_uring is refused here: {error}")))?;
        Ok(Kernel { ring, device })
    }
}

impl Driver for Kernel {
    type Ring = KernelRing;

    fn command(&mut self, operation: u32, command: Command, buffer: &mut [u8]) -> io::Result<()> {
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let command = Command { bytes: buffer.len() as u16, address, ..command };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation).cmd(bytes).build();
        // SAFETY: the buffer that the command points to is borrowed until the completion below.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring is empty between commands");
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            }
        }
    }

    fn numbers(&self) -> io::Result<Vec<u32>> {
        let number = |entry: io::Result<std::fs::DirEntry>| {
            entry.ok()?.file_name().to_str()?.strip_prefix("ublkc")?.parse::<u32>().ok()
        };
        let mut numbers: Vec<u32> = read_dir("/dev")?.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn open(&self, number: u32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/dev/ublkc{number}"))
    }

    fn ring(&self, _number: u32, device: &File, depth: u16) -> io::Result<KernelRing> {
        let ring = IoUring::new(u32::from(depth).next_power_of_two() * 2)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut ring = KernelRing { ring, device: device.try_clone()?, event };
        ring.await_event();
        Ok(ring)
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.device, FlockOperation::Unlock)?)
    }
}

/// A ring of the kernel's, before the character device and the event that its commands name.
pub struct KernelRing {
    ring: IoUring,
    device: File,
    event: OwnedFd,
}

impl KernelRing {
    fn await_event(&mut self) {
        let entry = opcode::PollAdd::new(types::Fd(self.event.as_raw_fd()), POLL_IN).build().user_data(WAKE);
        // SAFETY: a poll holds no pointer; the event stays open as long as the ring.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring has room for every tag and the event");
    }

    fn take(&mut self, ended: &mut Vec<(u16, i32)>) {
        let mut is_woken = false;
        for completion in self.ring.completion() {
            match completion.user_data() {
                WAKE => is_woken = true,
                tag => ended.push((tag as u16, completion.result())),
            }
        }
        if is_woken {
            // What the event tells of is looked for in any case.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            self.await_event();
        }
    }
}

impl Ring for KernelRing {
    fn event(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    fn push(&mut self, operation: u32, command: IoCommand) {
        let bytes = command.as_bytes().try_into().expect("16 bytes");
        let device = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(device, operation).cmd(bytes).build().user_data(command.tag.into());
        // SAFETY: the command holds no pointer; the device stays open as long as the ring.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring has room for every tag and the event");
    }

    fn submit(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()> {
        self.ring.submit()?;
        self.take(ended);
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<(u16, i32)>) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.take(ended);
        Ok(())
    }
}
