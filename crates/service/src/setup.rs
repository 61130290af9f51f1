//! The part of an open that is the same over every kind of backing store.

use super::backing_record::Paired;
use super::backing_store::Below;
use super::cache_options::CacheOptions;
use super::chosen::Chosen;
use super::config::config;
use super::doubt::{self, Doubt};
use super::holder::Holder;
use super::open_cache::{Dropped, Found, Inherited, OpenCache};
use super::settings::Settings;
use super::translation::geometry;
use anyhow::Result;
use entresol_cache::{BlockCache, CacheConfig};
use entresol_disk::FileDisk;
use entresol_fsck::Superblock;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A start of a cache, before its store is opened.
pub(crate) struct Setup<'a> {
    pub(crate) path: &'a Path,
    pub(crate) backing: &'a Path,
    pub(crate) options: &'a CacheOptions,
    pub(crate) holder: Option<&'a Holder>,
    /// Settings that were changed while a former server ran.
    pub(crate) settings: Option<Settings>,
    pub(crate) chosen: Chosen,
    /// Message that the cache was lost and recreated; none if it was not.
    pub(crate) recreated: Option<String>,
    pub(crate) started: Instant,
}

/// A store and its backing store, open.
pub(crate) struct Parts {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) below: Below,
    pub(crate) pair: Arc<dyn Paired>,
    /// Dirty pages that the open dropped.
    pub(crate) dropped: Dropped,
}

impl Setup<'_> {
    /// Opens the cache. `open` opens the store and its backing store with a configuration, and may return more.
    ///
    /// # Errors
    /// Those of `open`; options that this geometry or this policy does not allow; memory that is not to be had.
    pub(crate) fn open<T>(
        self,
        store: FileDisk,
        superblock: &Superblock,
        open: impl FnOnce(FileDisk, &CacheConfig) -> Result<(Parts, T)>,
    ) -> Result<(OpenCache, T)> {
        let Setup { path, backing, options, holder, settings, chosen, recreated, started } = self;
        let (executor, geometry) = (store.executor(), geometry(superblock));
        let arena = holder.map(|holder| doubt::arena(holder, &geometry)).transpose()?;
        let config = CacheConfig { arena, ..config(options, &chosen, geometry, settings.as_ref())? };
        let (Parts { cache, below, pair, dropped }, more) = open(store, &config)?;
        if let Err(error) = options.adjust(&cache, settings.as_ref()) {
            return Err(pair.close().err().map_or(error, anyhow::Error::from));
        }
        let held = OpenCache {
            path: path.to_owned(),
            backing: backing.to_owned(),
            below,
            pair,
            found: Found::new(&cache, started, executor, dropped),
            cache,
            geometry,
            policy: config.policy,
            chosen,
            recreated,
            log: options.log,
            sync_after: options.sync_after,
            sequential_cutoff: settings.as_ref().map_or(options.sequential_cutoff, |set| set.sequential_cutoff),
            inherited: Inherited { holder: holder.cloned(), settings, doubt: Doubt::left(holder)? },
        };
        Ok((held, more))
    }
}
