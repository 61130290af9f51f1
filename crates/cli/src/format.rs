//! `entresol format`: makes a cache.

use crate::arguments::keyword;
use anyhow::Result;
use clap::Args;
use entresol_cache::Mode;
use entresol_policy::Wear;
use entresol_service::format::{Bound, FormatOptions, Formatted, format};
use entresol_service::identity::{self, Identity};
use entresol_service::memory;
use entresol_service::server_pages::ServerPages;
use entresol_service::values::{bytes, layout};
use entresol_store::{Geometry, Layout};
use std::path::PathBuf;

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
    /// Bytes of a page, a power of two from 512 to 65536 [default: those of the pages of PostgreSQL or InnoDB in the
    /// backing directory, else 4096]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub page_size: Option<u64>,
    /// Bytes of a segment, a multiple of the page size [default: 1MiB, 256KiB in the layout segments, less in a small
    /// cache]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub segment_size: Option<u64>,
    /// Layout of the pages: slots, which gives each page a slot of its own; segments, a log whose segments are emptied in
    /// any order, by what their pages are worth to the policy, for flash that is to last; log, which overwrites the oldest
    /// and can grow [default: slots; segments with --wear]
    #[arg(long, value_name = "log|slots|segments", value_parser = layout)]
    pub layout: Option<Layout>,
    /// The bound on what is written to the cache that `mount`, `run` and `serve` use unless given another: 1DWPD (times its
    /// size a day), 200GB (a day), amplification=1.8 (bytes for each byte that users write), or unbounded. A cache in
    /// segments keeps it [default: amplification=1.8+0.04 in segments, none in slots and in a log]
    #[arg(long, value_name = "BOUND")]
    pub wear: Option<Wear>,
    /// The policy that `mount`, `run` and `serve` use for it unless given another [default: reuse;
    /// face-gsc over the layout log]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// The mode that `mount`, `run` and `serve` use unless given another, or used another last [default: write-through]
    #[arg(long, value_parser = keyword::<Mode>())]
    pub mode: Option<Mode>,
    /// Overwrite an existing cache, including dirty pages that only it may have
    #[arg(long)]
    pub force: bool,
}

impl FormatArgs {
    fn options(&self) -> FormatOptions {
        let FormatArgs { cache, backing, policy, .. } = self;
        let FormatArgs { identity, size, page_size, segment_size, layout, wear, mode, force, .. } = *self;
        let (cache, backing, policy) = (cache.clone(), backing.clone(), policy.clone());
        FormatOptions { cache, backing, identity, size, page_size, segment_size, layout, wear, policy, mode, force }
    }
}

/// Says what was chosen for a bound on wear, and that it is not kept where that is so.
fn say_bound(arguments: &FormatArgs, &Bound { wear, policy, is_kept }: &Bound) {
    let name = arguments.cache.display();
    match (arguments.layout, arguments.wear) {
        (None, _) if is_kept => say!("{name}: layout segments, which keeps the bound {wear} (--wear)"),
        (None, _) => say!("{name}: layout segments, as no other keeps a bound on wear (--wear)"),
        (Some(_), None) if is_kept => say!("{name}: bound {wear}, the default over segments (--wear)"),
        (Some(_), _) => {}
    }
    if !is_kept {
        say!(
            "{name}: policy {policy} does not rank its pages, so what is written to the cache may exceed {wear}; the \
             policy reuse keeps the bound (--policy)"
        );
    }
}

/// Runs the command.
pub fn run(arguments: &FormatArgs, quiet: bool) -> Result<()> {
    let name = arguments.cache.display();
    let Formatted { geometry, server, bound } = format(&arguments.options())?;
    if !quiet {
        let Geometry { page_bytes, segment_pages, segments, layout } = geometry;
        let of_slots = if layout == Layout::Log { "" } else { "a journal and slots in " };
        say!(
            "{name}: {of_slots}{segments} segments of {segment_pages} pages of {page_bytes} B, room for {} pages, for {}",
            geometry.capacity_pages(),
            arguments.backing.display()
        );
        if let Some(bound) = bound {
            say_bound(arguments, &bound);
        }
        if let Some(ServerPages { server, page_bytes: own }) = server {
            if own == page_bytes && arguments.page_size.is_none() {
                say!("{name}: page size {own}, {server}'s (--page-size)");
            } else if own != page_bytes {
                say!(
                    "entresol: {server} writes pages of {own} B; a cache with `--page-size {own}` has pages of that size and needs \
                     less memory"
                );
            }
        }
        say!("{name}: {}", memory::needs(&geometry));
    }
    Ok(())
}
