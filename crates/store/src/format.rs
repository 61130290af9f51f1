//! Making a store on a device, and reading the sizes of the one that is there.

use super::error::StoreError;
use super::generation::{Generation, Generations};
use super::geometry::{Geometry, Tables};
use super::log_end::LogEnd;
use super::superblock::{Identity, State, Superblock};
use crate::mutant::{self, Mutant};
use entresol_disk::Disk;

/// Makes an empty store on a device, of this generation. Earlier contents are invalidated.
///
/// # Errors
/// When the device is too small, or fails.
pub fn format<D: Disk>(
    disk: &D,
    geometry: Geometry,
    identity: Identity,
    generation: Generation,
) -> Result<(), StoreError> {
    format_as(disk, geometry, identity, generation, Tables::V3)
}

/// Makes a store of version 2, as programs before version 3 did.
///
/// # Errors
/// As [`format`].
#[cfg(any(test, feature = "mutants"))]
pub fn format_before<D: Disk>(disk: &D, geometry: Geometry, identity: Identity) -> Result<(), StoreError> {
    format_as(disk, geometry, identity, Generation::default(), Tables::V2)
}

/// Marks the superblock as in use, as a program leaves it that ends without closing the store.
///
/// # Errors
/// The error that the device returned, or that of reading the superblock.
#[cfg(any(test, feature = "mutants"))]
pub fn leave_open<D: Disk>(disk: &D) -> Result<(), StoreError> {
    let superblock = Superblock::read(disk)?;
    Ok(Superblock { state: State::Open, writes: superblock.writes + 1, ..superblock }.write(disk)?)
}

fn format_as<D: Disk>(
    disk: &D,
    geometry: Geometry,
    identity: Identity,
    generation: Generation,
    tables: Tables,
) -> Result<(), StoreError> {
    geometry.check()?;
    let (needed, found) = (tables.size_bytes(&geometry), disk.size_bytes());
    if found < needed {
        return Err(StoreError::TooSmall { needed, found });
    }
    // More writes than any earlier superblock has: if the second copy is lost, the first counts.
    let earlier = Superblock::read(disk).ok();
    let counted = earlier.filter(|_| !mutant::is(Mutant::FormatForgetsWrites));
    let writes = counted.map_or(1, |earlier| earlier.writes.saturating_add(1));
    let superblock = Superblock {
        geometry,
        identity,
        state: State::Closed,
        writes,
        epoch: 0,
        end: LogEnd { address: 0, slot: 0, tail: 0, chain: 0 },
        tables,
        before: tables == Tables::V2,
        generations: Generations::settled(generation),
        clock: 0,
        copy: earlier.map_or(0, |earlier| earlier.copy),
    };
    Ok(superblock.write(disk)?)
}

/// Capacity in pages, for a policy, of the store on a device.
///
/// # Errors
/// When there is no valid superblock.
pub fn room_pages<D: Disk>(disk: &D) -> Result<u64, StoreError> {
    let Superblock { geometry, tables, .. } = Superblock::read(disk)?;
    Ok(tables.capacity_pages(&geometry))
}

/// Page size of the store on a device, in bytes, from its superblock.
///
/// # Errors
/// When there is no valid superblock.
pub fn page_bytes<D: Disk>(disk: &D) -> Result<u64, StoreError> {
    Ok(u64::from(Superblock::read(disk)?.geometry.page_bytes))
}

/// Sizes of the store on a device, from its superblock, known before a cache is opened.
///
/// # Errors
/// When there is no valid superblock.
pub fn geometry<D: Disk>(disk: &D) -> Result<Geometry, StoreError> {
    Ok(Superblock::read(disk)?.geometry)
}
