//! An array as a profile states it: with its members, which may be given by the name of another profile.

use super::{Model, load};
use crate::check::{self, Parameters};
use crate::disk::{Disk, DiskParameters};
use crate::io::DeviceError;
use crate::raid::{Controller, Level, Raid, RaidParameters};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The disk that an array is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Member {
    /// A profile of kind `disk`, by name or path.
    Named(String),
    /// Its numbers, in a section of their own.
    Inline(Box<DiskParameters>),
}

/// The numbers of an array; a profile's kind says its level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayParameters {
    /// Number of members.
    pub members: u32,
    /// The disk of which every member is a copy.
    pub member: Member,
    /// Bytes on one member before the next one is used; the default of `mdadm` is 512 KiB.
    #[serde(default = "default_stripe_unit")]
    pub stripe_unit_bytes: u32,
    /// Limits of the controller in front of the members; `None` for no limit but the members' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
}

const fn default_stripe_unit() -> u32 {
    512 << 10
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("the name of a disk's profile, or a section with a disk's numbers")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Member, E> {
                Ok(Member::Named(name.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Member, A::Error> {
                let numbers = DiskParameters::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Member::Inline(Box::new(numbers)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Member {
    /// The member's numbers.
    fn disk(&self) -> Result<DiskParameters, String> {
        let name = match self {
            Member::Inline(numbers) => return Ok((**numbers).clone()),
            Member::Named(name) => name,
        };
        let profile = load(name).map_err(|error| format!("key `member`: {error}"))?;
        match profile.device {
            Model::Disk(_) if profile.host.is_some() => {
                Err(format!("key `member` is \"{name}\", which has a section [host], expected a disk without"))
            }
            Model::Disk(numbers) => Ok(numbers),
            other => Err(format!("key `member` is \"{name}\" of kind {}, expected kind disk", other.kind())),
        }
    }
}

impl ArrayParameters {
    /// Parameters of the array itself, without its members.
    fn raid(&self, level: Level) -> RaidParameters {
        RaidParameters {
            name: String::new(),
            level,
            stripe_unit_bytes: self.stripe_unit_bytes,
            controller: self.controller,
        }
    }

    /// The array with its members, each with its own speed and position.
    ///
    /// # Errors
    /// When there are too few members for the level, or they are smaller than a stripe unit.
    pub(super) fn build(&self, level: Level, seed: u64) -> Result<Raid<Disk>, DeviceError> {
        let fail = |what| DeviceError::Profile { device: String::new(), what };
        let disks = Disk::batch(self.member.disk().map_err(fail)?, self.members as usize, seed)?;
        Raid::new(self.raid(level), disks)
    }
}

impl Parameters for ArrayParameters {
    fn check(&self) -> Result<(), String> {
        check::within("members", self.members.into(), 1, 1024)?;
        check::within("stripe_unit_bytes", self.stripe_unit_bytes.into(), 512, 1 << 30)?;
        if let Some(controller) = &self.controller {
            let numbers = [
                ("random_iops", controller.random_iops),
                ("read_megabytes_per_second", controller.read_megabytes_per_second),
                ("write_megabytes_per_second", controller.write_megabytes_per_second),
            ];
            numbers.into_iter().try_for_each(|(key, value)| check::number(key, value, 1e-3, 1e12))?;
        }
        self.member.disk()?.check().map_err(|what| format!("the member disk: {what}"))
    }
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
        let parameters = match load(name).map(|profile| profile.device) {
            Ok(Model::Raid0(array)) => array.raid(Level::Raid0),
            Ok(Model::Raid5(array)) => array.raid(Level::Raid5),
            other => unreachable!("the array {name} comes with the program: {other:?}"),
        };
        RaidParameters { name: name.into(), ..parameters }
    }
}
