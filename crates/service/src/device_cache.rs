//! A cache for a file or block device, opened to be served.

use super::cache_options::CacheOptions;
use super::guard::Guard;
use super::holder::Holder;
use super::lost::{Opened, without_backing};
use super::serve::{DeviceOptions, open};
use super::served::Served;
use anyhow::Result;
use std::path::PathBuf;

/// A cache for a file or block device.
pub struct DeviceCache {
    /// Path of the cache.
    pub path: PathBuf,
    /// Path of its backing store.
    pub backing: PathBuf,
    /// Options of the cache.
    pub options: CacheOptions,
    /// Options of the backing store.
    pub devices: DeviceOptions,
}

impl DeviceCache {
    /// Opens the cache with its control socket, and reports what the open found. From then on other processes that
    /// write to the backing store are reported, also without the cache.
    ///
    /// # Errors
    /// If another process uses one of them, the cache is not that of the backing store, or one is damaged.
    pub fn serve(&self, holder: Option<&Holder>, quiet: bool) -> Result<Opened<Served>> {
        let DeviceCache { path, backing, options, devices } = self;
        let guard = Guard::check(backing, options.writers_ok, quiet);
        let guard = guard.map_err(|error| without_backing(path, error))?;
        Ok(match open(path, backing, options, devices, holder)? {
            Opened::Cached(held) => {
                let served = held.serve(quiet);
                guard.watch(&served);
                Opened::Cached(served)
            }
            Opened::Bypassed(bypass) => {
                guard.watch_without(bypass.tell(path, options.log, quiet));
                Opened::Bypassed(bypass)
            }
        })
    }
}
