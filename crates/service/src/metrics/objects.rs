//! Limit on the number of series: the busiest objects have their own, the others share one.
//!
//! A series that comes and goes with every change of rank is of no use. An object therefore keeps its own series as
//! long as it exists. The shared series is the sum of its objects' increases from one reading to the next, so that it
//! never falls when objects join or leave.

use crate::figures::Figures;
use crate::objects::{ObjectFigures, REST, busiest};
use std::collections::{HashMap, HashSet};

/// Name of the shared series of all other objects; no path begins like this.
pub const OTHER: &str = "(other)";

/// Counts of a cache's objects from earlier readings, and the choice of those with a series of their own.
pub struct Bounded {
    objects_max: usize,
    /// The process whose counts these are.
    process: u32,
    known: HashMap<String, Known>,
    /// Counts of the other objects: their increases, summed over the readings.
    other: ObjectFigures,
}

struct Known {
    has_own: bool,
    last: ObjectFigures,
}

impl Bounded {
    /// With at most this many series, besides the shared one.
    pub fn new(objects_max: usize) -> Self {
        Bounded { objects_max, process: 0, known: HashMap::new(), other: ObjectFigures::default() }
    }

    /// The objects of a reading that have series of their own, and the sum of the others, if any. Pages of no existing
    /// file are left out, because their account grows by whole files.
    pub fn take(&mut self, figures: &Figures) -> Vec<ObjectFigures> {
        if std::mem::replace(&mut self.process, figures.process) != figures.process {
            // Another process counts from zero.
            self.known.clear();
            self.other = ObjectFigures::default();
        }
        let mut now = busiest(&figures.objects, &[]);
        now.retain(|object| object.label() != REST);
        let there: HashSet<&str> = now.iter().map(ObjectFigures::label).collect();
        self.known.retain(|label, _| there.contains(label.as_str()));
        let mut free = self.objects_max - self.known.values().filter(|known| known.has_own).count();
        let mut other = ObjectFigures::default();
        let mut shown = Vec::new();
        for object in &now {
            let before = self.known.remove(object.label());
            let had = before.as_ref().is_some_and(|known| known.has_own);
            let has_own = had || free > 0;
            free -= usize::from(has_own && !had);
            if has_own {
                shown.push(object.clone());
            } else {
                let since = before.map_or_else(|| object.clone(), |known| object.since(&known.last));
                self.other.count(&since);
                other.hold(object);
            }
            self.known.insert(object.label().to_owned(), Known { has_own, last: object.clone() });
        }
        if shown.len() < now.len() {
            other.count(&self.other);
            shown.push(ObjectFigures { name: Some(OTHER.to_owned()), kind: Some("other".to_owned()), ..other });
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::text::tests::figures;
    use entresol_core::Random;

    fn reading(process: u32, objects: &[(&str, u64)]) -> Figures {
        let object = |(number, &(path, reads)): (usize, &(&str, u64))| ObjectFigures {
            object: number as u32,
            path: path.to_owned(),
            reads,
            dirty: 1,
            ..ObjectFigures::default()
        };
        Figures { process, objects: objects.iter().enumerate().map(object).collect(), ..figures() }
    }

    fn shown(bounded: &mut Bounded, process: u32, objects: &[(&str, u64)]) -> Vec<(String, u64, u64)> {
        let taken = bounded.take(&reading(process, objects));
        taken.into_iter().map(|object| (object.label().to_owned(), object.reads, object.dirty)).collect()
    }

    fn is(shown: &[(String, u64, u64)], wanted: &[(&str, u64, u64)]) {
        let shown: Vec<_> = shown.iter().map(|(label, reads, dirty)| (label.as_str(), *reads, *dirty)).collect();
        assert_eq!(shown, wanted);
    }

    #[test]
    fn who_has_a_series_keeps_it_and_what_the_others_have_never_falls() {
        let mut bounded = Bounded::new(2);
        is(
            &shown(&mut bounded, 1, &[("a", 5), ("b", 9), ("c", 1), ("", 99)]),
            &[("b", 9, 1), ("a", 5, 1), ("(other)", 1, 1)],
        );
        // c has more now, and stays with the others; d joins them.
        let second = shown(&mut bounded, 1, &[("a", 5), ("b", 9), ("c", 50), ("d", 3)]);
        is(&second, &[("b", 9, 1), ("a", 5, 1), ("(other)", 53, 2)]);
        // a goes: c gets a series; its earlier counts stay in the shared one.
        is(&shown(&mut bounded, 1, &[("b", 9), ("c", 51), ("d", 4)]), &[("c", 51, 1), ("b", 9, 1), ("(other)", 54, 1)]);
        is(&shown(&mut bounded, 2, &[("b", 1)]), &[("b", 1, 1)]);
    }

    #[test]
    fn no_counter_falls_and_no_request_is_left_out() {
        let seed = 7;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut bounded = Bounded::new(3);
        let mut counts: Vec<(String, u64)> = Vec::new();
        let (mut before, mut told, mut asked): (HashMap<String, u64>, u64, u64) = (HashMap::new(), 0, 0);
        for step in 0..500 {
            if random.chance(0.2) {
                counts.push((format!("f{step}"), 0));
            }
            if counts.len() > 6 && random.chance(0.3) {
                counts.remove(random.below(counts.len() as u64) as usize);
            }
            for (_, reads) in &mut counts {
                let more = random.below(20);
                *reads += more;
                asked += more;
            }
            let objects: Vec<(&str, u64)> = counts.iter().map(|(path, reads)| (path.as_str(), *reads)).collect();
            let mut now = HashMap::new();
            for (label, reads, _) in shown(&mut bounded, 1, &objects) {
                // A rate is the increase of a series; a new series grows from its first value, if the object was in
                // none before.
                match before.get(&label) {
                    Some(&last) => {
                        assert!(reads >= last, "step {step}: {label} fell from {last} to {reads}");
                        told += reads - last;
                    }
                    None => told += reads,
                }
                now.insert(label, reads);
            }
            assert!(now.len() <= 4, "step {step}: {now:?}");
            if !now.contains_key(OTHER) {
                before.get(OTHER).map(|&last| now.insert(OTHER.to_owned(), last));
            }
            before = now;
        }
        assert!(told >= asked, "{told} told of {asked}");
    }
}
