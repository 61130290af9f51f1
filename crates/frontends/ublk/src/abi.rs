//! Interface to the kernel's ublk driver: numbers and layouts of `linux/ublk_cmd.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Device numbers: the kernel picks a free one.
pub const ANY_DEVICE: u32 = u32::MAX;

/// Features that this front-end needs.
pub mod feature {
    /// Commands are numbered as ioctls are.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// Data moves by pread and pwrite on the character device, in any thread.
    pub const USER_COPY: u64 = 1 << 7;
    /// Both of them; Linux 6.5 is the first kernel that has them.
    pub const ALL: u64 = IOCTL_ENCODE | USER_COPY;
    /// The device outlives its server. Requests that come meanwhile wait.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// Requests that a killed server had not answered are sent again, where they would fail.
    const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Both of these, as devices have them that outlive their server.
    pub const RECOVERY: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE;
}

const READ: u32 = 2 << 30;
const READ_WRITE: u32 = 3 << 30;

/// A number as `_IOR` and `_IOWR` make it.
const fn encode(direction: u32, number: u32, bytes: usize) -> u32 {
    direction | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

/// Commands to the control device.
pub mod control {
    use super::{Command, READ, READ_WRITE, encode};
    const BYTES: usize = size_of::<Command>();
    /// Makes a device.
    pub const ADD: u32 = encode(READ_WRITE, 0x04, BYTES);
    /// Removes a device and waits until it is no longer in use.
    pub const DELETE: u32 = encode(READ_WRITE, 0x05, BYTES);
    /// Shows a device to the system once all its tags are awaited.
    pub const START: u32 = encode(READ_WRITE, 0x06, BYTES);
    /// Takes the device away again.
    pub const STOP: u32 = encode(READ_WRITE, 0x07, BYTES);
    /// Sets the device's parameters.
    pub const SET_PARAMETERS: u32 = encode(READ_WRITE, 0x08, BYTES);
    /// Begins the recovery of a device whose server was killed.
    pub const START_RECOVERY: u32 = encode(READ_WRITE, 0x10, BYTES);
    /// Ends it, once all tags are awaited.
    pub const END_RECOVERY: u32 = encode(READ_WRITE, 0x11, BYTES);
    /// Removes a device, and does not wait for those who use it. Linux 6.9 is the first kernel that has it.
    pub const DELETE_SOON: u32 = encode(READ, 0x14, BYTES);
    /// Asks for the state of a device.
    pub const GET_INFO: u32 = encode(READ, 0x02, BYTES);
    /// Asks for the driver's features.
    pub const GET_FEATURES: u32 = encode(READ, 0x13, BYTES);
}

/// Commands to a device's character device.
pub mod io {
    use super::{IoCommand, READ_WRITE, encode};
    /// Awaits the first request of a tag.
    pub const FETCH: u32 = encode(READ_WRITE, 0x20, size_of::<IoCommand>());
    /// Answers a request and awaits the next one of its tag.
    pub const COMMIT_AND_FETCH: u32 = encode(READ_WRITE, 0x21, size_of::<IoCommand>());
}

/// Operation that a request asks for: the low byte of [`IoDescriptor::operation_flags`].
pub mod operation {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 2;
    pub const DISCARD: u32 = 3;
    pub const WRITE_ZEROES: u32 = 5;
    /// A flag above that byte: durable before it is answered.
    pub const FUA: u32 = 1 << 13;
}

/// A command to the control device.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct Command {
    pub device: u32,
    pub queue: u16,
    pub bytes: u16,
    pub address: u64,
    pub data: u64,
    pub path_bytes: u16,
    pub padding: u16,
    pub reserved: u32,
}

/// `ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    pub queues: u16,
    pub depth: u16,
    pub state: u16,
    pub padding0: u16,
    pub request_bytes_max: u32,
    pub device: u32,
    pub server_pid: i32,
    pub padding1: u32,
    pub flags: u64,
    pub server_flags: u64,
    pub owner_uid: u32,
    pub owner_gid: u32,
    pub reserved: [u64; 2],
}

/// [`DeviceInfo::state`]: the device was not started yet, or its server has died, which it does not outlive.
pub const DEAD: u16 = 0;
/// [`DeviceInfo::state`]: the device is served, or its server has died just now.
#[cfg(test)]
pub const LIVE: u16 = 1;
/// [`DeviceInfo::state`]: requests wait for another server.
#[cfg(test)]
pub const QUIESCED: u16 = 2;

/// `ublk_params` with its first two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Parameters {
    pub bytes: u32,
    pub parts: u32,
    pub attributes: u32,
    pub logical_block_shift: u8,
    pub physical_block_shift: u8,
    pub optimal_shift: u8,
    pub minimal_shift: u8,
    pub sectors_max: u32,
    pub chunk_sectors: u32,
    pub device_sectors: u64,
    pub virtual_boundary: u64,
    pub discard_alignment: u32,
    pub discard_granularity: u32,
    pub discard_sectors_max: u32,
    pub zeroes_sectors_max: u32,
    pub discard_segments_max: u16,
    pub reserved: u16,
    pub padding: u32,
}

/// [`Parameters::parts`]: basic and discard.
pub const PARTS: u32 = 1 | 2;

/// [`Parameters::attributes`].
pub mod attribute {
    pub const READ_ONLY: u32 = 1;
    pub const VOLATILE_CACHE: u32 = 4;
    pub const FUA: u32 = 8;
}

/// `ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct IoCommand {
    pub queue: u16,
    pub tag: u16,
    pub result: i32,
    pub address: u64,
}

/// `ublksrv_io_desc`: the request of a tag, in memory that the driver shares.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoDescriptor {
    pub operation_flags: u32,
    pub sectors: u32,
    pub start_sector: u64,
    pub address: u64,
}

/// Offset on the character device, in bytes, of the data of a tag of the first queue.
pub fn data_at(tag: u16) -> u64 {
    const BUFFERS: u64 = 0x8000_0000;
    const TAG_SHIFT: u32 = 25;
    BUFFERS + (u64::from(tag) << TAG_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_and_numbers_are_those_of_the_kernel() {
        let sizes = (size_of::<Command>(), size_of::<DeviceInfo>(), size_of::<IoCommand>(), size_of::<IoDescriptor>());
        assert_eq!(sizes, (32, 64, 16, 24));
        // As `strace` shows them for a working server.
        assert_eq!((control::ADD, control::GET_FEATURES), (0xc020_7504, 0x8020_7513));
        // `UBLK_U_CMD_START_USER_RECOVERY`, `UBLK_U_CMD_END_USER_RECOVERY` and `UBLK_U_CMD_DEL_DEV_ASYNC`.
        let recovery = (control::START_RECOVERY, control::END_RECOVERY, control::DELETE_SOON);
        assert_eq!(recovery, (0xc020_7510, 0xc020_7511, 0x8020_7514));
        assert_eq!((io::FETCH, io::COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(std::mem::offset_of!(Parameters, device_sectors), 24);
        assert_eq!(std::mem::offset_of!(Parameters, discard_alignment), 40);
    }
}
