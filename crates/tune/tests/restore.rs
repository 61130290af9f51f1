//! A tuner's state survives a restart.

mod common;

use common::{probabilities, run_epoch, searches};
use entresol_tune::search::{Annealing, Schedule, Search};
use entresol_tune::{Guarded, Knob, Limits, Objective, Plain, RestoreError, Saved, Space, Tuner};

fn speed(values: &[f64]) -> f64 {
    1000.0 * (2.0 - values[0]) * (1.0 + values[3])
}

fn guarded(search: Search) -> Guarded {
    let (space, start) = probabilities();
    Guarded::new(space, start, search, Objective::Throughput, Limits::default(), common::EPOCH)
}

/// A search that is saved and restored at any epoch goes on from there and ends at the same result.
#[test]
fn a_restart_at_any_epoch_loses_a_measurement_and_nothing_else() {
    let (space, start) = probabilities();
    for (name, search) in searches(&space, &start, 9) {
        let mut undisturbed = guarded(search.clone());
        (0..400).for_each(|_| _ = run_epoch(&mut undisturbed, |values, _| speed(values)));
        for restart in [1, 2, 3, 10, 33, 50, 121, 400] {
            let mut tuner = guarded(search.clone());
            (0..restart).for_each(|_| _ = run_epoch(&mut tuner, |values, _| speed(values)));
            let (held, credit) = (tuner.held(), tuner.credit());
            let saved = Saved::from_text(tuner.save().text());
            let mut tuner = Guarded::restore(&saved, &space).expect("what was saved");
            assert_eq!((tuner.held(), tuner.credit()), (held, credit), "{name} at {restart}");
            (0..400).for_each(|_| _ = run_epoch(&mut tuner, |values, _| speed(values)));
            assert_eq!(tuner.held(), undisturbed.held(), "{name} at {restart}");
        }
    }
}

/// A tuner that does not measure neighbours again is unchanged by a restart.
#[test]
fn a_plain_tuner_goes_on_bit_by_bit() {
    let (space, start) = probabilities();
    let search = Search::Annealing(Annealing::new(Schedule::PAPER, &start, 4));
    let mut tuner = Plain::new(space.clone(), start, search, Objective::Weighted { lambda: 3.0 });
    (0..77).for_each(|_| _ = run_epoch(&mut tuner, |values, _| speed(values)));
    let mut twin = Plain::restore(&tuner.save(), &space).expect("what was saved");
    for _ in 0..500 {
        let a = run_epoch(&mut tuner, |values, _| speed(values));
        let b = run_epoch(&mut twin, |values, _| speed(values));
        assert_eq!((a.proposal, a.epoch), (b.proposal, b.epoch));
    }
    assert_eq!(tuner, twin);
}

#[test]
fn what_is_no_state_of_this_tuner_is_refused() {
    let (space, start) = probabilities();
    let (_, search) = searches(&space, &start, 1).swap_remove(2);
    let text = guarded(search).save().text().to_owned();
    let restored = |text: &str, space: &Space| Guarded::restore(&Saved::from_text(text), space);
    assert!(restored(&text, &space).is_ok());
    for broken in ["", "{}", "[1]", &text[..text.len() - 2], &text.replace("\"credit\"", "\"debit\"")] {
        assert!(matches!(restored(broken, &space), Err(RestoreError::Malformed(_))), "{broken}");
    }
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert!(matches!(restored(&newer, &space), Err(RestoreError::Version { found: 2 })));
    // Arms and start of the search, each with a level that no knob has.
    for broken in [text.replacen("\"point\":[", "\"point\":[9", 1), text.replacen("\"start\":[5", "\"start\":[6", 1)] {
        assert_ne!(broken, text);
        assert!(matches!(restored(&broken, &space), Err(RestoreError::Outside { .. })), "{broken}");
    }
    let other = Knob { name: "tolerance".to_owned(), levels: vec![0.0, 1.0], value: 1.0 };
    let (other, _) = Space::new([other]).expect("a space");
    assert!(matches!(restored(&text, &other), Err(RestoreError::Knobs { .. })));
}
