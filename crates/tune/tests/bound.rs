//! Tests of the bound on a tuner's cost that `src/guard.rs` states, against an adversary.

mod common;

use common::{BEAT, EPOCH, probabilities, run_epoch, searches, worth};
use entresol_tune::{Guarded, Limits, Objective, Role};
use proptest::prelude::*;

/// A phase of the workload: the start has one speed, and every other setting its own.
#[derive(Clone, Debug)]
struct Phase {
    epochs: u32,
    start_speed: f64,
    seed: u64,
    /// Other settings are up to this many times slower than the start.
    slower: f64,
    /// Or up to this many times faster.
    faster: f64,
}

impl Phase {
    fn speed(&self, values: &[f64]) -> f64 {
        self.start_speed * worth(self.seed, values, self.slower, self.faster)
    }
}

fn phases(slower_max: f64, speed_change: f64) -> impl Strategy<Value = Vec<Phase>> {
    let phase = (1..120u32, 1.0..=speed_change, any::<u64>(), 1.0..=slower_max, 1.0..1.5f64);
    let phase = phase.prop_map(|(epochs, change, seed, slower, faster)| {
        let start_speed = 1000.0 * change;
        Phase { epochs, start_speed, seed, slower, faster }
    });
    prop::collection::vec(phase, 1..8)
}

/// Time lost over all epochs, in epochs of the start of each epoch's phase, and the number of epochs by their requests.
fn play(tuner: &mut Guarded, phases: &[Phase]) -> (f64, f64) {
    let (mut lost, mut epochs) = (0.0, 0.0);
    for phase in phases {
        for _ in 0..phase.epochs {
            let run = run_epoch(tuner, |values, _| phase.speed(values));
            lost += (run.epoch.seconds * phase.start_speed - run.epoch.requests as f64) / EPOCH as f64;
            epochs += 1.0;
        }
    }
    (lost, epochs)
}

fn check(phases: &[Phase], seed: u64, per_change: impl Fn(&Limits, f64) -> f64) -> Result<(), TestCaseError> {
    let (space, start) = probabilities();
    for (name, search) in searches(&space, &start, seed) {
        let limits = Limits::default();
        let mut tuner = Guarded::new(space.clone(), start.clone(), search, Objective::Throughput, limits, EPOCH);
        let (lost, epochs) = play(&mut tuner, phases);
        let slowest = phases.iter().map(|phase| phase.slower).fold(1.0, f64::max);
        let beat = BEAT as f64 / EPOCH as f64 * slowest;
        let allowed =
            limits.bound * epochs + limits.credit_max + beat + per_change(&limits, slowest) * phases.len() as f64;
        prop_assert!(lost <= allowed, "{name}, seed {seed}: lost {lost} of {epochs}, allowed {allowed}; {phases:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A steady workload: the loss stays within the share and the credit.
    #[test]
    fn a_steady_workload_loses_the_bound_at_most(phases in phases(50.0, 1.0), seed in any::<u64>()) {
        check(&phases[..1], seed, |_, _| 0.0)?;
    }

    /// Changes that leave the start's speed as it was: any setting that becomes slow is seen within two epochs at the
    /// start.
    #[test]
    fn a_change_that_can_be_seen_costs_a_few_stakes(phases in phases(50.0, 1.0), seed in any::<u64>()) {
        check(&phases, seed, |limits, slowest| {
            // The losses until the start was better twice: epochs of the incumbent and of a trial, each ended early but
            // for a beat.
            5.0 * (limits.stake + BEAT as f64 / EPOCH as f64 * slowest)
        })?;
    }

    /// Changes of the start's own speed, up or down by up to 4: a faster start is seen when it is next run.
    #[test]
    fn a_change_that_cannot_be_seen_costs_until_the_start_is_run(phases in phases(10.0, 4.0), seed in any::<u64>()) {
        check(&phases, seed, |limits, slowest| {
            let unseen = f64::from(limits.gap_max + 2);
            // The tuner believes the start to be up to 4 times slower than it is.
            unseen * (4.0 - 1.0 + 4.0 * (limits.stake + BEAT as f64 / EPOCH as f64 * slowest))
        })?;
    }
}

/// A machine with a memory: every setting is as fast as the start, but after any other one the start is slower for an
/// epoch. A trial loses nothing itself; all of its loss comes after it.
#[test]
fn what_a_trial_does_to_the_epochs_after_it_is_paid_for() {
    for (seed, slowdown) in (0..20).flat_map(|seed| [1.3, 2.0].map(|slowdown| (seed, slowdown))) {
        let (space, start) = probabilities();
        for (name, search) in searches(&space, &start, seed) {
            let limits = Limits::default();
            let mut tuner = Guarded::new(space.clone(), start.clone(), search, Objective::Throughput, limits, EPOCH);
            let (mut ruined, mut lost, mut trials) = (false, 0.0, 0u32);
            for _ in 0..600 {
                let run = run_epoch(&mut tuner, |values, _| {
                    let is_start = values == [1.0; 4];
                    let speed = if is_start && ruined { 1000.0 / slowdown } else { 1000.0 };
                    ruined = !is_start;
                    speed
                });
                trials += u32::from(run.proposal.role == Role::Trial);
                lost += (run.epoch.seconds * 1000.0 - run.epoch.requests as f64) / EPOCH as f64;
            }
            // The trial under way when the credit ends may take the credit below 0.
            let allowed = limits.bound * 600.0 + limits.credit_max + (slowdown - 1.0);
            assert!(lost <= allowed, "{name}, seed {seed}, {slowdown}: lost {lost}, allowed {allowed}");
            assert!(trials > 15, "{name}, seed {seed}: what costs little is still tried, {trials} times");
        }
    }
}

/// An adversary that observes the tuner: every adopted setting becomes 20 times slower at once.
#[test]
fn an_adversary_who_punishes_every_adoption_is_left() {
    let (space, start) = probabilities();
    for (name, search) in searches(&space, &start, 3) {
        let limits = Limits::default();
        let mut tuner = Guarded::new(space.clone(), start.clone(), search, Objective::Throughput, limits, EPOCH);
        let (mut lost, mut adoptions, mut punished): (f64, u32, Vec<Vec<f64>>) = (0.0, 0, Vec::new());
        for _ in 0..3000 {
            let run = run_epoch(&mut tuner, |values, role| {
                let is_start = values == [1.0; 4];
                if role == Role::Hold && !is_start && !punished.iter().any(|p| p == values) {
                    punished.push(values.to_vec());
                    adoptions += 1;
                }
                let slow = punished.iter().any(|p| p == values);
                1000.0
                    * if is_start {
                        1.0
                    } else if slow {
                        0.05
                    } else {
                        1.3
                    }
            });
            lost += (run.epoch.seconds * 1000.0 - run.epoch.requests as f64) / EPOCH as f64;
        }
        let beat = BEAT as f64 / EPOCH as f64 * 20.0;
        let allowed = limits.bound * 3000.0 + limits.credit_max + f64::from(adoptions) * 5.0 * (limits.stake + beat);
        assert!(adoptions > 0 && lost <= allowed, "{name}: lost {lost}, allowed {allowed}, {adoptions} adoptions");
    }
}

/// Without limits the same searches cost what the settings they try cost; that is the reason for the limits.
#[test]
fn without_limits_the_papers_annealing_loses_more_than_the_bound() {
    use entresol_tune::search::{Annealing, Schedule, Search};
    let (space, start) = probabilities();
    let search = Search::Annealing(Annealing::new(Schedule::PAPER, &start, 1));
    let mut tuner = entresol_tune::Plain::new(space, start, search, Objective::Throughput);
    let phase = Phase { epochs: 300, start_speed: 1000.0, seed: 5, slower: 50.0, faster: 1.2 };
    let mut lost = 0.0;
    for _ in 0..phase.epochs {
        let run = run_epoch(&mut tuner, |values, _| phase.speed(values));
        lost += (run.epoch.seconds * phase.start_speed - run.epoch.requests as f64) / EPOCH as f64;
    }
    assert!(lost > 300.0, "lost {lost} of 300");
}
