//! Settings that can be tuned: knobs with levels, and the space of their combinations.

use serde::{Deserialize, Serialize};

/// A number that can be changed while a cache runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    /// Name of the knob.
    pub name: String,
    /// Values worth trying, ascending. The declaring policy knows the scale: a probability acts over decades, a share
    /// over tenths.
    pub levels: Vec<f64>,
    /// Current value. A value that is no level is added as one.
    pub value: f64,
}

impl Knob {
    /// A knob of this name with these levels, at a value.
    pub fn new(name: impl Into<String>, levels: &[f64], value: f64) -> Self {
        Knob { name: name.into(), levels: levels.to_vec(), value }
    }
}

/// Why knobs cannot be tuned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// There is nothing to tune.
    #[error("there is no number to tune")]
    NoKnobs,
    /// The levels of a knob, its value included, are fewer than two, do not ascend, or are not finite.
    #[error("knob '{name}': its levels {levels:?} with its value {value} must be two or more ascending numbers")]
    Levels {
        /// The knob.
        name: String,
        /// Its levels.
        levels: Vec<f64>,
        /// Its value.
        value: f64,
    },
}

/// Position in a [`Space`]: an index into the levels of each knob.
pub type Point = Vec<usize>;

/// All combinations of the levels of some knobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space {
    knobs: Vec<Knob>,
}

impl Space {
    /// Returns the space of these knobs, and the point of their values.
    ///
    /// # Errors
    /// When there is no knob, or one has fewer than two levels, its value included, or levels that do not ascend.
    pub fn new(knobs: impl IntoIterator<Item = Knob>) -> Result<(Space, Point), SpaceError> {
        let mut space = Space { knobs: knobs.into_iter().collect() };
        if space.knobs.is_empty() {
            return Err(SpaceError::NoKnobs);
        }
        let mut start = Point::new();
        for knob in &mut space.knobs {
            let at = knob.levels.partition_point(|&level| level < knob.value);
            if knob.levels.get(at) != Some(&knob.value) {
                knob.levels.insert(at, knob.value);
            }
            let ascending = knob.levels.windows(2).all(|pair| pair[0] < pair[1]);
            if knob.levels.len() < 2 || !ascending || knob.levels.iter().any(|level| !level.is_finite()) {
                let Knob { name, levels, value } = knob.clone();
                return Err(SpaceError::Levels { name, levels, value });
            }
            start.push(at);
        }
        Ok((space, start))
    }

    /// The knobs.
    pub fn knobs(&self) -> &[Knob] {
        &self.knobs
    }

    /// Number of levels of a knob.
    pub fn levels(&self, knob: usize) -> usize {
        self.knobs[knob].levels.len()
    }

    /// The values at a point.
    pub fn values(&self, point: &[usize]) -> Vec<f64> {
        self.knobs.iter().zip(point).map(|(knob, &level)| knob.levels[level]).collect()
    }

    /// The neighbour one level up or down at one knob; `None` at the edge.
    pub fn step(&self, point: &[usize], knob: usize, up: bool) -> Option<Point> {
        let level = if up { point[knob] + 1 } else { point[knob].checked_sub(1)? };
        let mut beside = point.to_vec();
        beside[knob] = level;
        (level < self.levels(knob)).then_some(beside)
    }

    /// True if this is a point of the space.
    pub(crate) fn contains(&self, point: &[usize]) -> bool {
        point.len() == self.knobs.len() && point.iter().enumerate().all(|(knob, &level)| level < self.levels(knob))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob(levels: &[f64], value: f64) -> Knob {
        Knob::new("k", levels, value)
    }

    #[test]
    fn a_value_between_levels_is_one_of_its_own() {
        let (space, start) = Space::new([knob(&[0.0, 0.1, 1.0], 0.5), knob(&[0.0, 1.0], 1.0)]).expect("a space");
        assert_eq!((space.levels(0), space.levels(1)), (4, 2));
        assert_eq!(space.values(&start), [0.5, 1.0]);
        assert_eq!(space.step(&start, 0, true), Some(vec![3, 1]));
        assert_eq!(space.step(&start, 0, false), Some(vec![1, 1]));
        assert_eq!(space.step(&start, 1, true), None);
        assert_eq!(space.step(&[0, 0], 0, false), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Space::new([]), Err(SpaceError::NoKnobs));
        for (levels, value) in
            [(&[][..], 1.0), (&[1.0], 1.0), (&[1.0, 0.0], 1.0), (&[0.0, 1.0], f64::NAN), (&[0.0, f64::INFINITY], 0.0)]
        {
            let refused = Space::new([knob(levels, value)]);
            assert!(matches!(refused, Err(SpaceError::Levels { .. })), "{levels:?} {value}: {refused:?}");
        }
    }
}
