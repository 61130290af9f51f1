//! File maps: the file of each region of a cache.

use entresol_cache::CacheConfig;
use entresol_crashtest::{Power, SimDisk};
use entresol_files::{Backing, CachedFiles, HIDDEN};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::fs;

/// Bytes of a record, including its checksum.
const RECORD: usize = 64;
const PAGE: usize = 512;

fn seal(record: &mut [u8]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &record[..RECORD - 4]) as u32;
    record[RECORD - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// Opens a map of a directory with two files, with the cache that it was made for. The first byte chooses which parts
/// of the header and the checksums are corrected.
pub(crate) fn map(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    // Files in memory, where there is such a directory.
    let place = [std::path::Path::new("/dev/shm"), &std::env::temp_dir()]
        .into_iter()
        .find_map(|place| tempfile::tempdir_in(place).ok());
    let directory = place.expect("a directory for files");
    for name in ["a", "b"] {
        fs::write(directory.path().join(name), [7; 3 * PAGE]).expect("a file");
    }
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 34, layout: Layout::Log };
    let cache = SimDisk::new(geometry.size_bytes(), &Power::steady());
    Backing::format(directory.path(), &cache, geometry, [1; 16], [2; 16]).expect("room");
    let path = directory.path().join(HIDDEN).join("map");
    let mut image = fs::read(&path).expect("a map");
    let from = if choice & 1 == 0 { RECORD } else { 0 };
    let header = image[..RECORD].to_vec();
    image.truncate(from);
    image.extend(bytes);
    // The header of this directory and cache; otherwise the map is refused as another's.
    if choice & 2 == 0 && image.len() >= RECORD {
        image[..8].copy_from_slice(&header[..8]);
        image[16..48].copy_from_slice(&header[16..48]);
    }
    if choice & 4 == 0 {
        image.chunks_exact_mut(RECORD).for_each(seal);
    }
    fs::write(&path, &image).expect("a map");
    let opened = Backing::needs_its_cache(directory.path());
    let Ok(backing) = Backing::open(directory.path()) else { return };
    assert!(opened.is_ok(), "what can be opened can be looked at");
    let backing = backing.dropping_gone(choice & 8 != 0);
    let config = CacheConfig::new(catalogue::info("lru").expect("lru"), &[12]);
    if let Ok((files, _)) = CachedFiles::open(backing, cache, &config, Vec::new()) {
        let _counts = files.counts();
        files.close().expect("a cache without dirty pages can be closed");
    }
}
