//! Capacity of a store: the sizes that it can have, those that fit a device, and the pages that it holds for a policy.
//! It depends on the entries that a table or a block of the journal takes.

use super::areas::Areas;
use super::error::StoreError;
use super::geometry::{Geometry, Layout, Tables};
use super::table;

/// Blocks of a ring are counted in 32 bits, and one number stands for none.
const BLOCKS_MAX: u64 = u32::MAX as u64 - 1;

impl Geometry {
    /// Default sizes for a device of so many bytes: segments of 1 MiB, of 256 KiB in the layout of that name, or
    /// smaller ones where fewer than 64 of those would fit, or 128.
    ///
    /// # Errors
    /// If the device is too small for any store.
    pub fn for_device(size_bytes: u64, page_bytes: u32, layout: Layout) -> Result<Self, StoreError> {
        let (segment_bytes, least) = if layout == Layout::Segments { (256 << 10, 128) } else { (1 << 20, 64) };
        let space = |segment_pages: u32| {
            let geometry = Geometry { page_bytes, segment_pages, segments: 0, layout };
            let segments = size_bytes.saturating_sub(geometry.base()) / geometry.segment_bytes();
            let segments = segments.min(BLOCKS_MAX / u64::from(segment_pages)) as u32;
            Geometry { segments, ..geometry }
        };
        let pages = (segment_bytes / page_bytes).max(16);
        let sizes = std::iter::successors(Some(pages), |&pages| (pages > 16).then_some(pages / 2));
        let geometry = sizes.map(space).find(|geometry| geometry.segments >= least).unwrap_or_else(|| space(16));
        geometry.check()?;
        Ok(geometry)
    }

    /// The same store with as many segments as fit into so many bytes, at least one more than now.
    ///
    /// # Errors
    /// `TooSmall` if no segment can be added, `Geometry` for the slots layout.
    pub fn grown_to(&self, size_bytes: u64) -> Result<Self, StoreError> {
        if self.layout.has_slots() {
            let why = "a cache with a journal does not grow: the journal lies before the pages; drain it and format \
                       it anew";
            return Err(StoreError::Geometry { geometry: *self, why });
        }
        let fit = size_bytes.saturating_sub(self.base()) / self.segment_bytes();
        let segments = fit.min(BLOCKS_MAX / u64::from(self.segment_pages)) as u32;
        if segments <= self.segments {
            return Err(StoreError::TooSmall { needed: self.size_bytes() + self.segment_bytes(), found: size_bytes });
        }
        Ok(Geometry { segments, ..*self })
    }

    /// Checks that a store can have these sizes.
    ///
    /// # Errors
    /// `Geometry` with the fault.
    pub fn check(&self) -> Result<(), StoreError> {
        Tables::V3.check(self)
    }

    fn check_sizes(&self) -> Result<(), StoreError> {
        let why = if !self.page_bytes.is_power_of_two() || !(512..=65536).contains(&self.page_bytes) {
            "the page size is not a power of two from 512 to 65536"
        } else if self.segment_pages < 4 || self.segment_pages > 1 << 16 {
            "a segment has fewer than 4 or more than 65536 pages"
        } else if self.segments < 8 {
            "there are fewer than 8 segments"
        } else if u64::from(self.segments) * u64::from(self.segment_pages) > BLOCKS_MAX {
            "there are 2^32 - 1 or more blocks"
        } else {
            return Ok(());
        };
        Err(StoreError::Geometry { geometry: *self, why })
    }

    /// Capacity of a new store for a policy, in pages. Four segments are left to reclaim. A quarter of the rest stays
    /// free for dead versions between live ones. A segment counts with one table more than it needs, for batches cut
    /// short by a flush or reclaim. (The slots layout has no dead versions between live ones, and holds more.)
    pub fn capacity_pages(&self) -> u64 {
        Tables::V3.capacity_pages(self)
    }
}

impl Tables {
    /// Capacity for a policy, in pages.
    pub(super) fn capacity_pages(self, geometry: &Geometry) -> u64 {
        if geometry.layout.has_slots() {
            return Areas::of(geometry, self).capacity_pages();
        }
        let entries = table::entries_max(self, geometry.page_bytes as usize) as u64;
        let pages = u64::from(geometry.segment_pages);
        // A table of many entries has a copy at the end of its batch.
        let copied = self == Tables::V3 && pages > table::carried_max(geometry.page_bytes as usize) as u64;
        let tables = if copied { 2 * pages.div_ceil(entries + 2) } else { pages.div_ceil(entries + 1) };
        let full = pages.saturating_sub(tables + 1) * u64::from(geometry.segments - 4);
        full - full / 4
    }

    /// Checks that a store of this form can have these sizes.
    pub(super) fn check(self, geometry: &Geometry) -> Result<(), StoreError> {
        geometry.check_sizes()?;
        if self.capacity_pages(geometry) == 0 {
            let why = match geometry.layout {
                Layout::Slots | Layout::Segments => "the journal leaves no room for pages",
                Layout::Log => "the tables leave no room for pages",
            };
            return Err(StoreError::Geometry { geometry: *geometry, why });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_geometry_fits_its_device() {
        let geometry = Geometry::for_device(10 << 30, 4096, Layout::Log).expect("10 GiB");
        assert_eq!((geometry.segment_pages, geometry.segments), (256, 10239));
        let small = Geometry::for_device(4 << 20, 4096, Layout::Log).expect("4 MiB");
        assert_eq!(small.segment_pages, 16);
        assert!(small.size_bytes() <= 4 << 20);
        let segments = Geometry::for_device(40 << 20, 8192, Layout::Segments).expect("40 MiB");
        assert_eq!((segments.segment_pages, segments.layout), (32, Layout::Segments));
        Geometry::for_device(100_000, 4096, Layout::Log).expect_err("too small");
        let huge = Geometry::for_device(1 << 60, 4096, Layout::Log).expect("as much of it as can be numbered");
        assert_eq!(huge.segments, u32::MAX / 256);
        Geometry { segments: 1 << 24, ..huge }.check().expect_err("too many blocks");
        assert_eq!(Geometry { segments: 12, ..geometry }.capacity_pages(), 253 * 6);
        assert_eq!(Geometry { page_bytes: 512, segments: 12, ..geometry }.capacity_pages(), (256 - 17) * 6);
    }
}
