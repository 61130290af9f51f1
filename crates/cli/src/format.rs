//! `entresol format`: makes a cache.

use anyhow::Result;
use entresol_service::format::{FormatArgs, format};
use entresol_service::memory;
use entresol_store::{Geometry, Layout};
use std::path::Path;

/// Runs the command.
pub fn run(arguments: &FormatArgs, quiet: bool) -> Result<()> {
    let name = arguments.cache.display();
    let geometry = format(arguments)?;
    if !quiet {
        let Geometry { page_bytes, segment_pages, segments, layout } = geometry;
        let of_slots = if layout == Layout::Slots { "a journal and slots in " } else { "" };
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
