//! Options for opening block devices.

use clap::Args;
use entresol_service::identity::{self, Identity};
use entresol_service::serve::DeviceOptions;

/// Options for opening block devices
#[derive(Args)]
pub struct DeviceArgs {
    /// With --cache: the UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", requires = "cache", value_parser = identity::uuid)]
    identity: Option<Identity>,
    /// With --cache: open both with O_DIRECT, bypassing the kernel's page cache; the page size and both sizes must be
    /// multiples of 4096 bytes
    #[arg(long, requires = "cache")]
    direct: bool,
}

impl DeviceArgs {
    /// The options that were given.
    pub fn options(&self) -> DeviceOptions {
        DeviceOptions { identity: self.identity, direct: self.direct, ..DeviceOptions::default() }
    }
}
