//! `entresol format`: makes a cache.

use crate::arguments::keyword;
use anyhow::Result;
use clap::Args;
use entresol_cache::Mode;
use entresol_service::format::{FormatOptions, format};
use entresol_service::identity::{self, Identity};
use entresol_service::memory;
use entresol_service::values::{bytes, layout};
use entresol_store::{Geometry, Layout};
use std::path::{Path, PathBuf};

/// Make a cache for a backing store
///
/// Anything that exists at the cache's path stays unless --force is given.
#[derive(Args)]
pub struct FormatArgs {
    /// The file or block device to make a cache of
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file or block device to be cached, or the directory of files
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// A UUID for a backing block device that has no serial number; every later command needs the same
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// Size of the cache in bytes [default: that of the existing file or device]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub size: Option<u64>,
    /// Bytes of a page, a power of two from 512 to 65536
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "4096")]
    pub page_size: u64,
    /// Bytes of a segment, a multiple of the page size [default: 1MiB, less if fewer than 64 of those fit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub segment_size: Option<u64>,
    /// Layout of the pages: log, which appends many at a time; slots, which gives each page a slot, for devices that write
    /// single pages well; segments, a log whose segments are emptied in any order, by what their pages are worth to the
    /// policy (new in 0.2)
    #[arg(long, value_name = "log|slots|segments", value_parser = layout, default_value = "log")]
    pub layout: Layout,
    /// The policy that `mount`, `run` and `serve` use for it unless given another [default: face-gsc]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// The mode that these commands use unless given another, or used another last [default: write-through]
    #[arg(long, value_parser = keyword::<Mode>())]
    pub mode: Option<Mode>,
    /// Overwrite an existing cache, including dirty pages that only it may have
    #[arg(long)]
    pub force: bool,
}

impl FormatArgs {
    fn options(&self) -> FormatOptions {
        let FormatArgs { cache, backing, policy, .. } = self;
        let FormatArgs { identity, size, page_size, segment_size, layout, mode, force, .. } = *self;
        let (cache, backing, policy) = (cache.clone(), backing.clone(), policy.clone());
        FormatOptions { cache, backing, identity, size, page_size, segment_size, layout, policy, mode, force }
    }
}

/// Runs the command.
pub fn run(arguments: &FormatArgs, quiet: bool) -> Result<()> {
    let name = arguments.cache.display();
    let geometry = format(&arguments.options())?;
    if !quiet {
        let Geometry { page_bytes, segment_pages, segments, layout } = geometry;
        let of_slots = if layout == Layout::Log { "" } else { "a journal and slots in " };
        say!(
            "{name}: {of_slots}{segments} segments of {segment_pages} pages of {page_bytes} B, room for {} pages, for {}",
            geometry.capacity_pages(),
            arguments.backing.display()
        );
        say!("{name}: {}", memory::needs(&geometry));
        if let Some((server, own)) = pages_of_server(&arguments.backing).filter(|&(_, own)| own != page_bytes) {
            say!(
                "entresol: {server} writes pages of {own} B; a cache with `--page-size {own}` has pages of that size and needs \
                 less memory"
            );
        }
    }
    Ok(())
}

/// The database server whose data directory this is or contains, and the bytes of its pages.
fn pages_of_server(backing: &Path) -> Option<(&'static str, u32)> {
    let below = std::fs::read_dir(backing).ok()?.flatten().map(|entry| entry.path());
    std::iter::once(backing.to_owned()).chain(below).find_map(|place| {
        if place.join("PG_VERSION").is_file() {
            return Some(("PostgreSQL", 8192));
        }
        place.join("ibdata1").is_file().then_some(("InnoDB", 16384))
    })
}
