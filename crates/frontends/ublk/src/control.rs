//! The control device: makes, starts and stops block devices.

use crate::abi::{ANY_DEVICE, Command, DEAD, DeviceInfo, PARTS, Parameters, attribute, control, feature};
use crate::{Error, Result};
use entresol_cache::PathError;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const PATH: &str = "/dev/ublk-control";
/// Requests under way at a time.
pub const DEPTH: u16 = 64;
/// Bytes of one request.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Commands go to the device, not to one of its queues.
const NO_QUEUE: u16 = u16::MAX;
/// Device numbers that are searched for devices left behind by killed servers.
const SWEPT: u32 = 64;

/// The control device with a ring of its own.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: File,
}

impl Control {
    /// Opens the control device and locks it for this process until [`unlock`](Control::unlock). Checks that the driver
    /// has the necessary features.
    pub fn open() -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(PATH);
        let device = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoUblk(format!("{PATH} is not there (`modprobe ublk_drv` may help)")),
            _ => PathError::system(PATH, error).into(),
        })?;
        rustix::fs::flock(&device, FlockOperation::LockExclusive).map_err(|error| PathError::system(PATH, error))?;
        let ring = IoUring::builder().build(4);
        let ring = ring.map_err(|error| Error::NoUblk(format!("io_uring is refused here: {error}")))?;
        let mut control = Control { ring, device };
        let mut features = 0_u64;
        let asked = control.exchange(control::GET_FEATURES, ANY_DEVICE, &mut features, 0);
        if asked.is_err() || features & feature::ALL != feature::ALL {
            return Err(Error::NoUblk("its ublk driver is older than that of Linux 6.5".to_owned()));
        }
        Ok(control)
    }

    fn command(&mut self, operation: u32, command: &Command) -> io::Result<()> {
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation).cmd(bytes).build();
        // SAFETY: the caller borrows the memory that the command points to until the completion below.
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

    /// A command without a buffer.
    fn order(&mut self, operation: u32, device: u32, data: u64) -> io::Result<()> {
        self.command(operation, &Command { device, queue: NO_QUEUE, data, ..Command::default() })
    }

    /// A command with a buffer that the driver reads or fills.
    fn exchange<T: IntoBytes + FromBytes + Immutable>(
        &mut self,
        operation: u32,
        device: u32,
        buffer: &mut T,
        data: u64,
    ) -> io::Result<()> {
        let (bytes, address) = (size_of::<T>() as u16, std::ptr::from_mut(buffer) as u64);
        self.command(operation, &Command { device, queue: NO_QUEUE, bytes, address, data, ..Command::default() })
    }

    /// Makes a device of `size_bytes`; returns its number.
    pub fn add(&mut self, size_bytes: u64, read_only: bool) -> Result<u32> {
        self.sweep();
        let mut info = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            device: ANY_DEVICE,
            flags: feature::ALL,
            ..DeviceInfo::default()
        };
        let refused = |error| PathError::system(PATH, error);
        self.exchange(control::ADD, ANY_DEVICE, &mut info, 0).map_err(refused)?;
        let described = self.exchange(control::SET_PARAMETERS, info.device, &mut parameters(size_bytes, read_only), 0);
        if let Err(error) = described {
            self.delete(info.device)?;
            return Err(refused(error).into());
        }
        Ok(info.device)
    }

    /// Removes devices that killed servers of this front-end have left behind. Their block devices are gone, but not
    /// their numbers.
    fn sweep(&mut self) {
        for device in 0..SWEPT {
            let mut info = DeviceInfo::default();
            let known = self.exchange(control::GET_INFO, device, &mut info, 0).is_ok();
            let ours = info.flags & feature::ALL == feature::ALL && (info.queues, info.depth) == (1, DEPTH);
            // A character device is opened by one process at a time.
            let unused = || OpenOptions::new().read(true).open(format!("/dev/ublkc{device}")).is_ok();
            if known && ours && info.state == DEAD && unused() {
                // A device that cannot be removed takes up only a number.
                let _ = self.delete(device);
            }
        }
    }

    /// Lets other processes start devices again.
    pub fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.device, FlockOperation::Unlock)?)
    }

    /// Shows the device to the system. The requests of its first readers are answered meanwhile.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.order(control::START, device, std::process::id().into())
    }

    /// Takes the device away from the system once the requests under way are answered.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.order(control::STOP, device, 0)
    }

    /// Removes the device.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        self.order(control::DELETE, device, 0)
    }
}

/// Bytes of a sector, the kernel's unit of positions.
pub const SECTOR: u64 = 512;

/// Parameters of a disk with a volatile cache that takes FUA and discards, in blocks of 4 KiB where its size allows.
fn parameters(size_bytes: u64, read_only: bool) -> Parameters {
    let block_shift = if size_bytes.is_multiple_of(4096) { 12 } else { 9 };
    let attributes = attribute::VOLATILE_CACHE | attribute::FUA | if read_only { attribute::READ_ONLY } else { 0 };
    let sectors_max = REQUEST_BYTES_MAX / SECTOR as u32;
    Parameters {
        bytes: size_of::<Parameters>() as u32,
        parts: PARTS,
        attributes,
        logical_block_shift: block_shift,
        physical_block_shift: 12,
        optimal_shift: 12,
        minimal_shift: 12,
        sectors_max,
        device_sectors: size_bytes / SECTOR,
        discard_granularity: 4096,
        discard_sectors_max: u32::MAX >> 9,
        zeroes_sectors_max: sectors_max,
        discard_segments_max: 1,
        ..Parameters::default()
    }
}
