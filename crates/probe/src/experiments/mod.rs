//! List of the experiments. One file per experiment; each says which section of which paper it follows.

mod buffer;
mod disk;
mod disturb;
mod durable;
mod fill;
mod flash;
mod lab;
mod latency;
mod load;
mod mixed;
mod overwrite;
mod pressure;
mod replay;
mod steady;
mod sweep;
mod tail;
mod threads;
mod unaligned;
mod write_buffer;

use crate::experiment::Experiment;

/// All experiments, each after those that it names in [`Experiment::after`]. Each finds the state that it needs; the
/// ones that wear a flash drive come last.
pub fn experiments() -> &'static [Experiment] {
    const ALL: &[Experiment] = &[
        fill::EXPERIMENT,
        latency::EXPERIMENT,
        flash::EXPERIMENT,
        buffer::EXPERIMENT,
        disturb::EXPERIMENT,
        threads::EXPERIMENT,
        load::EXPERIMENT,
        write_buffer::EXPERIMENT,
        unaligned::EXPERIMENT,
        durable::EXPERIMENT,
        disk::EXPERIMENT,
        tail::EXPERIMENT,
        replay::EXPERIMENT,
        mixed::EXPERIMENT,
        pressure::EXPERIMENT,
        sweep::EXPERIMENT,
        overwrite::EXPERIMENT,
        steady::EXPERIMENT,
    ];
    ALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Setup;

    #[test]
    fn names_differ_and_what_comes_before_stands_before() {
        let names: Vec<&str> = experiments().iter().map(|experiment| experiment.name).collect();
        for (i, experiment) in experiments().iter().enumerate() {
            assert!(!names[..i].contains(&experiment.name), "two experiments are called {}", experiment.name);
            assert!(experiment.after.iter().all(|name| names[..i].contains(name)), "{} stands too early", names[i]);
        }
    }

    #[test]
    fn more_effort_costs_more() {
        let sum = |setup: &Setup| experiments().iter().map(|e| (e.plan)(setup)).fold(Default::default(), |a, b| a + b);
        let (less, more): (crate::Cost, crate::Cost) =
            (sum(&Setup::new(1 << 30)), sum(&Setup::new(1 << 30).scaled(2.0)));
        assert!(more.seconds > less.seconds && more.read_bytes > less.read_bytes);
        assert!(more.written_bytes > less.written_bytes && less.written_bytes > 1 << 30);
    }
}
