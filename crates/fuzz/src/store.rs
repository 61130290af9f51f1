//! Stores: superblocks, tables, journals, commit records and pages of both layouts.

use crate::Bytes;
use crate::hostile::{self, BACKING_PAGES, Chance, ID, disks};
use entresol_store::repair;
use std::sync::OnceLock;

fn sound() -> &'static [Vec<u8>] {
    static SOUND: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SOUND.get_or_init(hostile::sound)
}

/// A sound store with some bytes changed, and checksums corrected or left wrong. The store is repaired, opened and
/// used.
pub(crate) fn store(data: &[u8]) {
    let mut choices = Bytes(data);
    let mut image = sound()[choices.below(sound().len() as u64) as usize].clone();
    if choices.chance(0.25) {
        // Raw input overwrites the bytes there.
        let at = (choices.below(image.len() as u64) as usize).min(image.len() - 1);
        let len = choices.0.len().min(image.len() - at);
        image[at..at + len].copy_from_slice(&choices.0[..len]);
    } else {
        hostile::mutate(&mut image, &mut choices);
    }
    drop(repair(disks(&image)[0].clone(), ID, BACKING_PAGES));
    hostile::is_served(&image);
}
