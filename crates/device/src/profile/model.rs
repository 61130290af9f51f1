//! The kinds of devices that a profile can have. A new kind is a line in the list below.

use super::array::ArrayParameters;
use crate::device::Device;
use crate::disk::{Disk, DiskParameters};
use crate::dram::{Dram, DramParameters};
use crate::fixed::{Fixed, FixedParameters};
use crate::io::DeviceError;
use crate::link::{Link, LinkParameters};
use crate::nand::{NandParameters, Ssd};
use crate::nvm_block::{NvmBlock, NvmBlockParameters};
use crate::nvm_dimm::{NvmDimm, NvmDimmParameters};
use crate::queued::Queued;
use crate::raid::Level;
use crate::section::parameters;
use crate::shared_fs::{SharedFs, SharedFsParameters};
use serde::Serialize;

/// From `"kind" => Variant(Parameters): constructor` makes the enum, its reader and its builder. A constructor takes
/// the parameters, a capacity in bytes and a seed. A device with a capacity of its own ignores the requested one;
/// [`Profile::build`](super::Profile::build) compares them.
macro_rules! models {
    ($($(#[$doc:meta])* $kind:literal => $variant:ident($parameters:ty): $build:expr;)*) => {
        /// A device's kind and numbers.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "kind")]
        pub enum Model {
            $($(#[$doc])* #[serde(rename = $kind)] $variant($parameters),)*
        }

        impl Model {
            /// The kinds, as a profile names them.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// The kind, as a profile names it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Model::$variant(_) => $kind,)*
                }
            }

            /// Reads and checks the section `[device]`.
            pub(super) fn parse(mut section: toml::Table) -> Result<Self, String> {
                match section.remove("kind").as_ref().and_then(toml::Value::as_str) {
                    $(Some($kind) => parameters(section).map(Model::$variant),)*
                    Some(other) => Err(format!("key `kind` is \"{other}\", expected {}", Self::KINDS.join(", "))),
                    None => Err(format!("key `kind` is missing or no text, expected {}", Self::KINDS.join(", "))),
                }
            }

            /// A device of this capacity, or of its own.
            pub(super) fn build(&self, capacity_bytes: u64, seed: u64) -> Result<Box<dyn Device + Send>, DeviceError> {
                Ok(match self {
                    $(Model::$variant(parameters) => Box::new($build(parameters, capacity_bytes, seed)?),)*
                })
            }
        }
    };
}

/// Wraps a model whose construction cannot fail once its parameters have passed their check.
fn ok<D>(device: D) -> Result<D, DeviceError> {
    Ok(device)
}

models! {
    /// DRAM.
    "dram" => Dram(DramParameters): |p, capacity, _| ok(Queued::new(Dram::new(p, capacity)));
    /// NVM on the memory bus.
    "nvm-dimm" => NvmDimm(NvmDimmParameters): |p, capacity, _| ok(Queued::new(NvmDimm::new(p, capacity)));
    /// NVM behind a block interface.
    "nvm-block" => NvmBlock(NvmBlockParameters): |p, capacity, seed| ok(Queued::new(NvmBlock::new(p, capacity, seed)));
    /// A network link.
    "link" => Link(LinkParameters): |p, capacity, _| ok(Queued::new(Link::new(p, capacity)));
    /// A shared parallel file system.
    "shared-fs" => SharedFs(SharedFsParameters): |p, capacity, _| ok(SharedFs::new(p, capacity));
    /// A device of fixed latency.
    "fixed" => Fixed(FixedParameters): |p, capacity, _| ok(Queued::new(Fixed::new(p, capacity)));
    /// A flash drive. A drive scaled down has fewer blocks in each die.
    "nand" => Nand(NandParameters): Ssd::of_profile;
    /// A hard disk.
    "disk" => Disk(DiskParameters): |p: &DiskParameters, _, seed| Disk::new(p.clone(), seed);
    /// Striped disks.
    "raid0" => Raid0(ArrayParameters): |p: &ArrayParameters, _, seed| p.build(Level::Raid0, seed);
    /// Striped disks with rotated parity.
    "raid5" => Raid5(ArrayParameters): |p: &ArrayParameters, _, seed| p.build(Level::Raid5, seed);
}
