//! The decoder beside the engine: both find the same pages, in sound stores and in others.

#[path = "../../cache/tests/common/hostile.rs"]
mod hostile;

use entresol_cache::BlockCache;
use entresol_core::Random;
use entresol_fsck::{Bytes, survey};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// A store in memory.
struct Image<'a>(&'a [u8]);

impl Bytes for Image<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let from = usize::try_from(at).map_err(|_| beyond())?;
        let to = from.checked_add(bytes.len()).ok_or_else(beyond)?;
        bytes.copy_from_slice(self.0.get(from..to).ok_or_else(beyond)?);
        Ok(())
    }
}

/// The pages of a store by the decoder, and whether each is dirty.
fn surveyed(image: &[u8]) -> Option<BTreeMap<u64, bool>> {
    let found = survey(&Image(image), true).ok()?;
    Some(found.pages.iter().map(|(&page, version)| (page, version.dirty)).collect())
}

/// The pages of a store by the engine.
fn served(image: &[u8]) -> Option<BTreeMap<u64, bool>> {
    let disks = hostile::disks(image);
    let cache = BlockCache::open(disks[0].clone(), disks[1].clone(), hostile::ID, &hostile::config()).ok()?;
    Some(cache.held_pages().expect("no thread panicked").into_iter().collect())
}

/// Stores whose superblocks, tables, journals and commit records have correct checksums but false contents.
#[test]
fn two_thousand_hostile_stores_are_read_or_refused() {
    let sound = hostile::sound();
    for image in &sound {
        assert_eq!(surveyed(image).expect("in order"), served(image).expect("in order"));
    }
    let (mut read, mut alike) = (0, 0);
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut image = sound[random.below(sound.len() as u64) as usize].clone();
        let what = hostile::mutate(&mut image, &mut random);
        let started = Instant::now();
        let found = std::panic::catch_unwind(|| surveyed(&image));
        let found = found.unwrap_or_else(|_| panic!("seed {seed}, changed{what}: a panic"));
        assert!(started.elapsed() < Duration::from_secs(5), "seed {seed}, changed{what}");
        read += u64::from(found.is_some());
        alike += u64::from(found.is_some() == served(&image).is_some());
    }
    println!("{read} of 2000 were read, {alike} were opened or refused by both");
    assert!(read > 200 && alike > 1900, "{read} were read, {alike} alike");
}

/// One bit that flips anywhere: both readers find the same pages.
#[test]
fn one_flipped_bit_is_seen_alike_by_both_readers() {
    let sound = hostile::sound();
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut image = sound[random.below(sound.len() as u64) as usize].clone();
        let bit = random.below(8 * image.len() as u64);
        image[bit as usize / 8] ^= 1 << (bit % 8);
        let found = surveyed(&image).unwrap_or_else(|| panic!("seed {seed}, bit {bit}: refused"));
        let opened = served(&image).unwrap_or_else(|| panic!("seed {seed}, bit {bit}: not opened"));
        assert_eq!(found, opened, "seed {seed}, bit {bit}");
    }
}

/// Dependencies of the decoder are none of ours: a mistake of the engine cannot be in the decoder too.
#[test]
fn the_decoder_is_made_without_the_engine() {
    let manifest = include_str!("../Cargo.toml");
    let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let dependencies = dependencies.expect("a table of dependencies");
    assert!(dependencies.contains("thiserror") && !dependencies.contains("entresol"), "{dependencies}");
}
