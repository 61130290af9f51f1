//! RAID-0 and RAID-5 over any devices, as the `md` driver of Linux lays them out, with an optional controller.
//!
//! The levels are those of Patterson, Gibson and Katz, "A case for redundant arrays of inexpensive disks (RAID)"
//! (SIGMOD 1988).

mod array;
mod controller;
mod parameters;
mod plan;
mod raid0;
mod raid5;

pub use array::Raid;
pub use controller::Controller;
pub use parameters::{ArrayParameters, Member};

use crate::profile::{self, Model};

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

impl RaidParameters {
    /// The 16-disk RAID-0 of FaCE's testbed, over [`face_disk`](crate::disk::DiskParameters::face_disk): the profile
    /// `face-raid0x16`.
    pub fn face_raid0x16() -> Self {
        Self::of_profile("face-raid0x16")
    }

    /// A RAID-5 of six with a stripe unit of 64 KiB and no controller, over
    /// [`cheetah_15k5`](crate::disk::DiskParameters::cheetah_15k5): the profile `sas-raid5x6`.
    pub fn sas_raid5x6() -> Self {
        Self::of_profile("sas-raid5x6")
    }

    fn of_profile(name: &str) -> Self {
        let parameters = match profile::load(name).map(|profile| profile.device) {
            Ok(Model::Raid0(array)) => array.raid(Level::Raid0),
            Ok(Model::Raid5(array)) => array.raid(Level::Raid5),
            other => unreachable!("the array {name} comes with the program: {other:?}"),
        };
        RaidParameters { name: name.into(), ..parameters }
    }
}
