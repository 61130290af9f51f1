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

use serde::Deserialize;

/// How an array spreads its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Striping.
    Raid0,
    /// Striping with rotated parity, left-symmetric.
    Raid5,
}

/// What an array is made of, besides its members.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaidParameters {
    /// Name, for messages.
    pub name: String,
    /// How it spreads its bytes.
    pub level: Level,
    /// Bytes on one member before the next one is used; `mdadm` makes it 512 KiB unless told otherwise.
    #[serde(default = "RaidParameters::default_stripe_unit")]
    pub stripe_unit_bytes: u32,
    /// What the controller in front of the members lets through; `None` is as much as they can take.
    #[serde(default)]
    pub controller: Option<Controller>,
}

impl RaidParameters {
    /// The 16-disk RAID-0 of FaCE's testbed (FaCE, table 1), over [`face_disk`](crate::disk::DiskParameters::face_disk).
    /// Sixteen such disks could read more than was measured, and the measured random reads and writes are equal where
    /// those of the disk are not: a controller stands in front.
    pub fn face_raid0x16() -> Self {
        RaidParameters {
            name: "face-raid0x16".into(),
            level: Level::Raid0,
            stripe_unit_bytes: Self::default_stripe_unit(),
            controller: Some(Controller {
                random_iops: 5168.0,
                read_megabytes_per_second: 1723.0,
                write_megabytes_per_second: 1645.0,
            }),
        }
    }

    /// A RAID-5 of six with a stripe unit of 64 KiB and no controller: the array of the DiskSim runs that the model is
    /// validated with, which had six [`cheetah_15k5`](crate::disk::DiskParameters::cheetah_15k5).
    pub fn sas_raid5x6() -> Self {
        RaidParameters {
            name: "sas-raid5x6".into(),
            level: Level::Raid5,
            stripe_unit_bytes: 64 << 10,
            controller: None,
        }
    }

    const fn default_stripe_unit() -> u32 {
        512 << 10
    }
}
