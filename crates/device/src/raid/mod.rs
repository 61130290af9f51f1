//! RAID-0 and RAID-5 over any devices, as the `md` driver of Linux lays them out, with an optional controller.
//!
//! The levels are those of Patterson, Gibson and Katz, "A case for redundant arrays of inexpensive disks (RAID)"
//! (SIGMOD 1988).

mod array;
mod controller;
mod plan;
mod raid0;
mod raid5;

pub use array::Raid;
pub use controller::Controller;

/// RAID level: the scheme by which an array spreads its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Striping.
    Raid0,
    /// Striping with rotated parity, left-symmetric.
    Raid5,
}

/// Parameters of an array, besides its members.
#[derive(Clone, Debug, PartialEq)]
pub struct RaidParameters {
    /// Name, for messages.
    pub name: String,
    /// Scheme by which the array spreads its bytes.
    pub level: Level,
    /// Bytes on one member before the next one is used; the default of `mdadm` is 512 KiB.
    pub stripe_unit_bytes: u32,
    /// Limits of the controller in front of the members; `None` for no limit but the members' own.
    pub controller: Option<Controller>,
}
