//! Errors of a buffer manager.

use crate::pool::PoolError;
use entresol_core::Address;
use entresol_policy::BuildError;
use std::io;

/// Why a buffer manager cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The policy cannot be built.
    #[error(transparent)]
    Policy(#[from] BuildError),
    /// The policy manages more than one tier.
    #[error("policy '{policy}' manages the tiers {tiers:?}; a buffer pool is one tier")]
    Tiers {
        /// The policy.
        policy: &'static str,
        /// Its tiers.
        tiers: &'static [&'static str],
    },
    /// The policy does not manage DRAM and NVM.
    #[error("policy '{policy}' manages the tiers {tiers:?}; a tiered buffer needs two")]
    NotTwoTiers {
        /// The policy.
        policy: &'static str,
        /// Its tiers.
        tiers: &'static [&'static str],
    },
    /// The policy needs to know the future.
    #[error("policy '{0}' needs to know the future and can only be simulated")]
    Future(&'static str),
    /// An option is out of its range.
    #[error("{name} is {value}: it must be {range}")]
    Option {
        /// The option.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Values that are allowed.
        range: &'static str,
    },
    /// There is no memory for the frames.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no memory for the descriptors of the frames.
    #[error("no memory for the descriptors of the frames: {0}")]
    Memory(io::Error),
}

/// Why a page cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The page table cannot hold the page.
    #[error("page {} of object {} is beyond what the page table covers", .0.block, .0.object.0)]
    OutOfRange(Address),
    /// The page could not be read from storage.
    #[error("reading page {} of object {}: {source}", at.block, at.object.0)]
    Read {
        /// The page.
        at: Address,
        /// Error of the storage.
        source: io::Error,
    },
    /// A dirty page, not always the requested one, could not be written to storage. The page stays dirty in memory.
    #[error("writing page {} of object {}: {source}", at.block, at.object.0)]
    Write {
        /// The page.
        at: Address,
        /// Error of the storage.
        source: io::Error,
    },
    /// The log could not be made durable up to the newest record of a dirty page. The page stays dirty in memory.
    #[error("flushing the log to {lsn} before page {} of object {}: {source}", at.block, at.object.0)]
    Wal {
        /// The page.
        at: Address,
        /// The newest log record that changed it.
        lsn: u64,
        /// Error of the log.
        source: io::Error,
    },
    /// The storage could not be synced: pages written since the last flush may be lost.
    #[error("syncing the storage: {0}")]
    Sync(io::Error),
    /// Every frame of the page's shard is pinned, or holds a dirty page that cannot be written.
    #[error("all {frames} frames of a shard are pinned or cannot be cleaned")]
    Exhausted {
        /// Frames of the shard, spare ones included.
        frames: usize,
    },
}
