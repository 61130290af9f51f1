//! Seek time by distance, from a measured table.

use super::parameters::SeekPoint;
use crate::io::Nanos;

/// Seek times in nanoseconds for every distance, so that a scheduler reads one word per candidate.
#[derive(Clone, Debug)]
pub(super) struct SeekTable {
    by_distance: Vec<u32>,
}

impl SeekTable {
    /// The times for all distances on a disk of so many cylinders.
    pub(super) fn new(points: &[SeekPoint], cylinders: u32) -> Self {
        let time = |distance| match distance {
            0 => 0,
            _ => (Self::milliseconds(points, distance) * 1e6).round() as u32,
        };
        SeekTable { by_distance: (0..cylinders).map(time).collect() }
    }

    /// Linear between the points, which ascend from one cylinder; the line through the last two goes on beyond them.
    pub(super) fn milliseconds(points: &[SeekPoint], distance: u32) -> f64 {
        let above = points.partition_point(|point| point.cylinders < distance);
        let far = points[above.clamp(1.min(points.len() - 1), points.len() - 1)];
        let near = points[above.clamp(1, (points.len() - 1).max(1)) - 1];
        let slope = (far.ms - near.ms) / f64::from((far.cylinders - near.cylinders).max(1));
        near.ms + slope * (f64::from(distance) - f64::from(near.cylinders))
    }

    /// Time to move by a number of cylinders; 0 for none.
    #[inline]
    pub(super) fn time(&self, distance: u32) -> Nanos {
        Nanos::from(self.by_distance[distance as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_points_and_the_lines_between_them() {
        let points = [(1, 0.5), (11, 1.5), (21, 2.0)].map(|(cylinders, ms)| SeekPoint { cylinders, ms });
        let table = SeekTable::new(&points, 42);
        for (distance, ns) in [(0, 0), (1, 500_000), (6, 1_000_000), (11, 1_500_000), (16, 1_750_000), (41, 3_000_000)]
        {
            assert_eq!(table.time(distance), ns, "{distance} cylinders");
        }
    }

    #[test]
    fn one_point_is_a_constant() {
        let table = SeekTable::new(&[SeekPoint { cylinders: 1, ms: 2.0 }], 10);
        assert_eq!([table.time(0), table.time(1), table.time(9)], [0, 2_000_000, 2_000_000]);
    }
}
