//! Stores: superblocks, tables, journals, commit records and pages of both layouts.

use crate::Bytes;
use crate::hostile::{self, BACKING_PAGES, Chance, ID, PAGE, config, disks};
use entresol_engine::Block;
use entresol_engine::cache::BlockCache;
use entresol_engine::store::repair;
use std::sync::OnceLock;

fn sound() -> &'static [Vec<u8>] {
    static SOUND: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SOUND.get_or_init(hostile::sound)
}

/// A store in order of which some bytes are others, with checksums made right or left wrong. It is repaired, opened and used.
pub(crate) fn store(data: &[u8]) {
    let mut choices = Bytes(data);
    let mut image = sound()[choices.below(sound().len() as u64) as usize].clone();
    if choices.chance(0.25) {
        // Whatever stands there instead, as it is.
        let at = (choices.below(image.len() as u64) as usize).min(image.len() - 1);
        let len = choices.0.len().min(image.len() - at);
        image[at..at + len].copy_from_slice(&choices.0[..len]);
    } else {
        hostile::mutate(&mut image, &mut choices);
    }
    drop(repair(disks(&image)[0].clone(), ID, BACKING_PAGES));
    use_as_owner(&image);
}

/// Uses a cache as its owner would, if it can be opened. Damage may be an error of each call.
fn use_as_owner(image: &[u8]) {
    let disks = disks(image);
    let Ok(cache) = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config()) else { return };
    let mut bytes = [0; PAGE];
    for page in 0..BACKING_PAGES {
        let at = page * PAGE as u64;
        let _damaged = cache.read(at, &mut bytes);
        if page % 3 == 0 {
            let _damaged = cache.write(at, &[page as u8; PAGE], page % 6 == 0);
        }
    }
    let _damaged = cache.flush();
    let _damaged = cache.drain();
    let _damaged = cache.close();
}
