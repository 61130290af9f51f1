//! Geometry of a disk: the map from a sector to its cylinder and its angle on the platter.

use super::parameters::DiskParameters;

/// A zone with the numbers that are needed to find a sector in it.
#[derive(Clone, Copy, Debug)]
struct Region {
    first_sector: u64,
    first_track: u64,
    first_cylinder: u32,
    cylinders: u32,
    sectors_per_track: u32,
    /// Angle at which the first track starts, in 2^-32 turns.
    start: u32,
}

/// The map from sectors to places.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    regions: Vec<Region>,
    surfaces: u32,
    band_cylinders: u32,
    /// Skews in 2^-32 turns, where sums wrap as angles do.
    track_skew: u32,
    surface_skew: u32,
    band_skew: u32,
}

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Its number along the disk.
    pub(super) number: u64,
    /// Its cylinder.
    pub(super) cylinder: u32,
    /// Sectors on it.
    pub(super) sectors: u32,
    /// Angle at which its first sector begins, in 2^-32 turns.
    pub(super) start: u32,
}

/// A sector on its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The track.
    pub(super) track: Track,
    /// The sector's position along it, from 0.
    pub(super) sector: u32,
}

impl Geometry {
    /// The map of a disk whose parameters have been checked.
    pub(super) fn new(parameters: &DiskParameters) -> Self {
        let fixed = |turns: f64| (turns * 2f64.powi(32)) as u32;
        let mut geometry = Geometry {
            regions: Vec::with_capacity(parameters.zones.len()),
            surfaces: parameters.surfaces,
            band_cylinders: parameters.band_cylinders,
            track_skew: fixed(parameters.track_skew),
            surface_skew: fixed(parameters.surface_skew),
            band_skew: fixed(parameters.band_skew),
        };
        let ends = parameters.zones.iter().skip(1).map(|zone| zone.first_cylinder).chain([parameters.cylinders]);
        let (mut first_sector, mut first_track, mut start) = (0, 0, 0);
        for (zone, end) in parameters.zones.iter().zip(ends) {
            let cylinders = end - zone.first_cylinder;
            let region = Region {
                first_sector,
                first_track,
                first_cylinder: zone.first_cylinder,
                cylinders,
                sectors_per_track: zone.sectors_per_track,
                start,
            };
            let tracks = u64::from(cylinders) * u64::from(parameters.surfaces);
            first_sector += tracks * u64::from(zone.sectors_per_track);
            first_track += tracks;
            // A zone starts like a band: its first track follows the last one of the zone before it.
            start = geometry.track_in(&region, tracks as u32 - 1).start.wrapping_add(geometry.band_skew);
            geometry.regions.push(region);
        }
        geometry
    }

    /// The place of a sector, which must be on the disk.
    pub(super) fn place(&self, sector: u64) -> Place {
        let zone = self.regions.partition_point(|region| region.first_sector <= sector) - 1;
        let region = &self.regions[zone];
        let within = sector - region.first_sector;
        let track = (within / u64::from(region.sectors_per_track)) as u32;
        let sector = (within - u64::from(track) * u64::from(region.sectors_per_track)) as u32;
        Place { track: self.track_in(region, track), sector }
    }

    /// A track by its number; `None` beyond the last.
    pub(super) fn track(&self, number: u64) -> Option<Track> {
        let zone = self.regions.partition_point(|region| region.first_track <= number) - 1;
        let region = &self.regions[zone];
        let within = number - region.first_track;
        (within < u64::from(region.cylinders) * u64::from(self.surfaces)).then(|| self.track_in(region, within as u32))
    }

    /// A track of a zone by its number within it.
    fn track_in(&self, region: &Region, number: u32) -> Track {
        let per_band = self.band_cylinders * self.surfaces;
        let band = number / per_band;
        let within = number - band * per_band;
        // The last band of a zone may be lower.
        let height = self.band_cylinders.min(region.cylinders - band * self.band_cylinders);
        let surface = within / height;
        let along = within - surface * height;
        let row = if surface.is_multiple_of(2) { along } else { height - 1 - along };
        let per_surface = |height: u32| (height - 1).wrapping_mul(self.track_skew);
        let full_band = per_surface(self.band_cylinders)
            .wrapping_mul(self.surfaces)
            .wrapping_add(self.surface_skew.wrapping_mul(self.surfaces - 1))
            .wrapping_add(self.band_skew);
        let start = region
            .start
            .wrapping_add(full_band.wrapping_mul(band))
            .wrapping_add(per_surface(height).wrapping_add(self.surface_skew).wrapping_mul(surface))
            .wrapping_add(self.track_skew.wrapping_mul(along));
        Track {
            number: region.first_track + u64::from(number),
            cylinder: region.first_cylinder + band * self.band_cylinders + row,
            sectors: region.sectors_per_track,
            start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sector of a small disk in order, by walking rather than by division.
    fn walk(p: &DiskParameters) -> Vec<(u32, u32, f64)> {
        let mut places = Vec::new();
        let mut start = 0.0;
        for (i, zone) in p.zones.iter().enumerate() {
            let end = p.zones.get(i + 1).map_or(p.cylinders, |next| next.first_cylinder);
            let cylinders: Vec<u32> = (zone.first_cylinder..end).collect();
            for band in cylinders.chunks(p.band_cylinders as usize) {
                for surface in 0..p.surfaces {
                    let mut rows = band.to_vec();
                    if surface % 2 == 1 {
                        rows.reverse();
                    }
                    for (along, &cylinder) in rows.iter().enumerate() {
                        if !places.is_empty() {
                            start += match (along, surface) {
                                (0, 0) => p.band_skew,
                                (0, _) => p.surface_skew,
                                _ => p.track_skew,
                            };
                        }
                        places.extend((0..zone.sectors_per_track).map(|sector| (cylinder, sector, start)));
                    }
                }
            }
        }
        places
    }

    #[test]
    fn places_are_those_of_a_walk_over_the_tracks() {
        let mut p = DiskParameters::cheetah_15k5();
        (p.cylinders, p.surfaces, p.band_cylinders) = (37, 3, 5);
        p.zones.truncate(3);
        (p.zones[1].first_cylinder, p.zones[2].first_cylinder) = (11, 26);
        for (zone, sectors) in p.zones.iter_mut().zip([9, 7, 4]) {
            zone.sectors_per_track = sectors;
        }
        let geometry = Geometry::new(&p);
        let expected = walk(&p);
        assert_eq!(expected.len() as u64, p.physical_sectors());
        for (sector, &(cylinder, along, start)) in expected.iter().enumerate() {
            let place = geometry.place(sector as u64);
            assert_eq!((place.track.cylinder, place.sector), (cylinder, along), "sector {sector}");
            let turns = f64::from(place.track.start) / 2f64.powi(32);
            let off = (turns - start).rem_euclid(1.0);
            assert!(off.min(1.0 - off) < 1e-6, "sector {sector}: {turns} for {start}");
            assert_eq!(geometry.track(place.track.number), Some(place.track));
        }
        assert_eq!(geometry.track(37 * 3), None);
    }
}
