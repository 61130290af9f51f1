//! The control device: makes, starts, recovers and stops block devices.

use crate::abi::{ANY_DEVICE, Command, DEAD, DeviceInfo, PARTS, Parameters, attribute, control, feature};
use crate::driver::{Driver, PATH};
use crate::mutant::{self, Mutant};
use crate::{DeviceOptions, Error, Result};
use entresol_cache::PathError;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Requests under way at a time.
pub const DEPTH: u16 = 64;
/// Bytes of one request.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Commands go to the device, not to one of its queues.
const NO_QUEUE: u16 = u16::MAX;
/// Time that the kernel may take to close what a killed server had open.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// The control device.
pub struct Control<D> {
    pub driver: D,
}

impl<D: Driver> Control<D> {
    /// Checks that the driver has the necessary features, also those of devices that outlive their server if these are
    /// asked for.
    pub fn new(driver: D, outlives: bool) -> Result<Self> {
        let mut control = Control { driver };
        let mut features = 0_u64;
        let asked = control.exchange(control::GET_FEATURES, ANY_DEVICE, &mut features);
        if asked.is_err() || features & feature::ALL != feature::ALL {
            return Err(Error::NoUblk("its ublk driver is older than that of Linux 6.5".to_owned()));
        }
        if outlives && features & feature::RECOVERY != feature::RECOVERY {
            return Err(Error::NoRecovery);
        }
        Ok(control)
    }

    /// A command without a buffer.
    fn order(&mut self, operation: u32, device: u32, data: u64) -> io::Result<()> {
        let command = Command { device, queue: NO_QUEUE, data, ..Command::default() };
        self.driver.command(operation, command, &mut [])
    }

    /// A command with a buffer that the driver reads or fills.
    fn exchange<T: IntoBytes + FromBytes + Immutable>(
        &mut self,
        operation: u32,
        device: u32,
        buffer: &mut T,
    ) -> io::Result<()> {
        let command = Command { device, queue: NO_QUEUE, ..Command::default() };
        self.driver.command(operation, command, buffer.as_mut_bytes())
    }

    /// Makes a device of `size_bytes`; returns its number.
    pub fn add(&mut self, size_bytes: u64, options: &DeviceOptions) -> Result<u32> {
        self.sweep();
        let recovery = match options.outlives {
            true if mutant::is(Mutant::NotSentAgain) => feature::USER_RECOVERY,
            true => feature::RECOVERY,
            false => 0,
        };
        let mut info = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            device: ANY_DEVICE,
            flags: feature::ALL | recovery,
            server_flags: options.identity,
            ..DeviceInfo::default()
        };
        let refused = |error| PathError::system(PATH, error);
        self.exchange(control::ADD, ANY_DEVICE, &mut info).map_err(refused)?;
        let described =
            self.exchange(control::SET_PARAMETERS, info.device, &mut parameters(size_bytes, options.read_only));
        if let Err(error) = described {
            self.delete(info.device)?;
            return Err(refused(error).into());
        }
        Ok(info.device)
    }

    /// Devices of this front-end.
    fn ours(&mut self) -> io::Result<Vec<DeviceInfo>> {
        let mut found = Vec::new();
        for device in self.driver.numbers()? {
            let mut info = DeviceInfo::default();
            let is_known = self.exchange(control::GET_INFO, device, &mut info).is_ok();
            if is_known && info.flags & feature::ALL == feature::ALL && info.queues == 1 {
                found.push(info);
            }
        }
        Ok(found)
    }

    /// Devices that killed servers of a backing store have left, and that wait for another one.
    pub fn left(&mut self, identity: u64) -> io::Result<Vec<DeviceInfo>> {
        let is_of = |info: &DeviceInfo| info.server_flags == identity || mutant::is(Mutant::IdentityIgnored);
        let waits = |info: &DeviceInfo| info.state != DEAD && info.flags & feature::USER_RECOVERY != 0;
        Ok(self.ours()?.into_iter().filter(|info| is_of(info) && waits(info)).collect())
    }

    /// Removes devices that killed servers of this front-end have left behind, and that no other server can take over.
    /// Their block devices are gone, but not their numbers.
    fn sweep(&mut self) {
        let is_over = |info: &DeviceInfo| info.state == DEAD || mutant::is(Mutant::LeftSwept);
        for info in self.ours().into_iter().flatten().filter(is_over) {
            // A character device is opened by one process at a time.
            if info.depth == DEPTH && self.driver.open(info.device).is_ok() {
                // A device that cannot be removed takes up only a number.
                let _ = self.delete(info.device);
            }
        }
    }

    /// Begins to take over the device of a killed server, once the kernel has closed all that this had open.
    pub fn begin_recovery(&mut self, device: u32) -> io::Result<()> {
        let patience = Instant::now() + CLOSE_PATIENCE;
        loop {
            match self.order(control::START_RECOVERY, device, 0) {
                Err(error)
                    if Errno::from_io_error(&error) == Some(Errno::BUSY)
                        && Instant::now() < patience
                        && !mutant::is(Mutant::BusyNotAwaited) =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                begun => return begun,
            }
        }
    }

    /// Ends that, once all tags are awaited: the kernel sends the requests again that were not answered.
    pub fn end_recovery(&mut self, device: u32) -> io::Result<()> {
        self.order(control::END_RECOVERY, device, std::process::id().into())
    }

    /// Shows the device to the system. The requests of its first readers are answered meanwhile.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.order(control::START, device, std::process::id().into())
    }

    /// Takes the device away from the system once the requests under way are answered.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.order(control::STOP, device, 0)
    }

    /// Removes the device, and waits until nobody has it open.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        self.order(control::DELETE, device, 0)
    }

    /// Removes a device that was left: its requests fail, and so does all that its users ask for from now on.
    pub fn remove_left(&mut self, device: u32) -> io::Result<()> {
        self.order(control::DELETE_SOON, device, 0)
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
