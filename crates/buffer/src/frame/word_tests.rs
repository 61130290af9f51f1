//! The word against a plain model, step by step; and under loom against every interleaving of a few threads.

use super::word::*;

#[cfg(not(loom))]
mod model {
    use super::*;
    use proptest::prelude::*;

    /// The same frame as a struct of plain fields.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Model {
        state: FrameState,
        pins: u64,
        exclusive: bool,
        referenced: bool,
        waited: bool,
        version: u64,
    }

    impl Model {
        fn of(word: Snapshot) -> Self {
            Model {
                state: word.state(),
                pins: word.pins(),
                exclusive: word.exclusive(),
                referenced: word.referenced(),
                waited: word.waited_for(),
                version: word.version(),
            }
        }

        fn end(&mut self, state: FrameState, exclusive: bool, changed: bool) -> bool {
            self.state = state;
            self.exclusive = exclusive;
            self.version += u64::from(changed);
            std::mem::take(&mut self.waited)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pin,
        Unpin,
        Exclusive,
        Load(bool, bool),
        Release(bool),
        Evict(u8),
        WriteBack,
        EndWriteBack(bool),
        TakeReferenced,
        Wait(Need),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Pin),
            3 => Just(Step::Unpin),
            2 => Just(Step::Exclusive),
            4 => (any::<bool>(), any::<bool>()).prop_map(|(fail, pin)| Step::Load(fail, pin)),
            3 => any::<bool>().prop_map(Step::Release),
            1 => (0u8..3).prop_map(Step::Evict),
            2 => Just(Step::WriteBack),
            2 => any::<bool>().prop_map(Step::EndWriteBack),
            1 => Just(Step::TakeReferenced),
            2 => prop_oneof![Just(Need::Shared), Just(Need::Exclusive), Just(Need::Settled)].prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// Takes a step on both where the state allows it; the answers must agree.
    fn take(step: Step, word: &FrameWord, m: &mut Model) {
        use FrameState::*;
        let resident = matches!(m.state, Clean | Dirty);
        match step {
            Step::Pin => {
                let can = !m.exclusive && m.pins < MAX_PINS;
                assert_eq!(word.try_pin(), can);
                m.pins += u64::from(can);
                m.referenced |= can;
            }
            Step::Unpin if m.pins > 0 => {
                m.pins -= 1;
                let woken = m.pins == 0 && std::mem::take(&mut m.waited);
                assert_eq!(word.unpin(), Wake(woken));
            }
            Step::Exclusive => {
                let can = !m.exclusive && m.pins == 0 && m.state != WriteBack;
                assert_eq!(word.try_exclusive(), can);
                m.exclusive |= can;
            }
            Step::Load(fail, pin) if m.state == Free => {
                word.begin_load();
                assert!(word.begin_read().is_none());
                m.end(Loading, true, false);
                let woken = if fail {
                    (word.abort_load(), m.end(Free, true, true))
                } else {
                    m.referenced = true;
                    m.pins = u64::from(pin);
                    let hold = if pin { Hold::Pin } else { Hold::Exclusive };
                    (word.end_load(hold), m.end(Clean, !pin, true))
                };
                assert_eq!(woken.0, Wake(woken.1));
            }
            Step::Release(changed) if m.exclusive && resident => {
                if changed {
                    let was_dirty = m.state == Dirty;
                    let woken = Wake(m.end(Dirty, false, true));
                    assert_eq!(word.release_dirty(), (woken, was_dirty));
                } else {
                    let woken = Wake(m.end(m.state, false, false));
                    assert_eq!(word.release_unchanged(), woken);
                }
            }
            Step::Evict(end) if m.exclusive && resident => {
                let dirty = m.state == Dirty;
                assert_eq!(word.begin_evict(), dirty);
                assert_eq!(word.snapshot().state(), Evicting);
                assert_eq!(word.snapshot().waited_for(), m.waited);
                let woken = if end == 0 {
                    (word.abort_evict(dirty), m.end(m.state, false, false))
                } else {
                    m.referenced = false;
                    (word.end_evict(), m.end(Free, true, true))
                };
                assert_eq!(woken.0, Wake(woken.1));
            }
            Step::WriteBack => {
                let can = !m.exclusive && m.state == Dirty;
                assert_eq!(word.try_begin_write_back(), can);
                if can {
                    m.state = WriteBack;
                }
            }
            Step::EndWriteBack(done) if m.state == WriteBack => {
                let woken = Wake(m.end(if done { Clean } else { Dirty }, false, false));
                assert_eq!(word.end_write_back(done), woken);
            }
            Step::TakeReferenced => assert_eq!(word.take_referenced(), std::mem::take(&mut m.referenced)),
            Step::Wait(need) => {
                let blocked = match need {
                    Need::Shared => m.exclusive || m.pins == MAX_PINS,
                    Need::Exclusive => m.exclusive || m.pins > 0 || m.state == WriteBack,
                    Need::Settled => m.exclusive || m.state == WriteBack,
                };
                let waits = blocked && m.state != Free;
                assert_eq!(word.announce_wait(need), waits);
                m.waited |= waits;
            }
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn the_word_does_what_the_model_does(steps in steps()) {
            let word = FrameWord::new();
            let mut model = Model::of(word.snapshot());
            for step in steps {
                let stamp = word.begin_read();
                prop_assert_eq!(stamp.is_some(), !model.exclusive);
                let version = model.version;
                take(step, &word, &mut model);
                prop_assert_eq!(&Model::of(word.snapshot()), &model, "after {:?}", step);
                if let Some(stamp) = stamp {
                    prop_assert_eq!(word.validate(stamp), model.version == version && !model.exclusive);
                }
            }
        }
    }

    #[test]
    fn pins_stop_at_their_field_and_do_not_run_into_the_version() {
        let word = FrameWord::new();
        word.begin_load();
        let _ = word.end_load(Hold::Pin);
        let version = word.snapshot().version();
        for _ in 1..MAX_PINS {
            assert!(word.try_pin());
        }
        assert!(!word.try_pin());
        assert_eq!((word.snapshot().pins(), word.snapshot().version()), (MAX_PINS, version));
        assert!(word.announce_wait(Need::Shared), "one more reader waits");
        assert_eq!(word.unpin(), Wake(true));
        assert!(word.try_pin());
    }

    #[test]
    fn a_hit_is_marked_once() {
        let word = FrameWord::new();
        word.begin_load();
        let _ = word.end_load(Hold::Pin);
        let _ = word.unpin();
        assert!(word.take_referenced());
        word.touch(word.begin_read().expect("a readable frame"));
        let marked = word.begin_read().expect("a readable frame");
        assert!(word.take_referenced());
        // The stamp still has the mark, so nothing is written.
        word.touch(marked);
        assert!(!word.take_referenced());
    }
}

#[cfg(loom)]
mod interleavings {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::thread;

    /// A frame of two words of data that every writer keeps equal.
    struct Shared {
        word: FrameWord,
        data: [AtomicU64; 2],
    }

    impl Shared {
        fn resident() -> Arc<Self> {
            let shared = Shared { word: FrameWord::new(), data: [AtomicU64::new(0), AtomicU64::new(0)] };
            shared.word.begin_load();
            let _ = shared.word.end_load(Hold::Pin);
            let _ = shared.word.unpin();
            Arc::new(shared)
        }

        fn read(&self) -> [u64; 2] {
            [self.data[0].load(Ordering::Relaxed), self.data[1].load(Ordering::Relaxed)]
        }

        fn write(&self, value: u64) {
            self.data[0].store(value, Ordering::Relaxed);
            self.data[1].store(value, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_optimistic_read_that_validates_was_not_torn() {
        loom::model(|| {
            let shared = Shared::resident();
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for value in 1..=2 {
                        if shared.word.try_exclusive() {
                            shared.write(value);
                            let _ = shared.word.release_dirty();
                        }
                    }
                })
            };
            if let Some(stamp) = shared.word.begin_read() {
                let [a, b] = shared.read();
                if shared.word.validate(stamp) {
                    assert_eq!(a, b, "a torn read was taken for a good one");
                }
            }
            writer.join().expect("the writer ends");
        });
    }

    #[test]
    fn pins_and_owners_exclude_each_other() {
        loom::model(|| {
            let shared = Shared::resident();
            let owners: Vec<_> = (1..=2)
                .map(|value| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        if shared.word.try_exclusive() {
                            shared.write(value);
                            let _ = shared.word.release_dirty();
                        }
                    })
                })
                .collect();
            if shared.word.try_pin() {
                let [a, b] = shared.read();
                assert_eq!(a, b, "the bytes changed under a pin");
                assert_eq!(shared.read(), [a, b], "the bytes changed under a pin");
                let _ = shared.word.unpin();
            }
            owners.into_iter().for_each(|owner| owner.join().expect("the owner ends"));
        });
    }

    #[test]
    fn a_page_that_is_read_optimistically_while_it_is_evicted_is_not_taken_for_its_successor() {
        loom::model(|| {
            let shared = Shared::resident();
            let evictor = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.word.try_exclusive() {
                        assert!(!shared.word.begin_evict());
                        let _ = shared.word.end_evict();
                        shared.word.begin_load();
                        shared.write(7);
                        let _ = shared.word.end_load(Hold::Pin);
                        let _ = shared.word.unpin();
                    }
                })
            };
            if let Some(stamp) = shared.word.begin_read() {
                let [a, b] = shared.read();
                if shared.word.validate(stamp) {
                    assert_eq!(a, b);
                }
            }
            evictor.join().expect("the evictor ends");
        });
    }

    #[test]
    fn a_change_during_a_write_back_is_never_taken_for_clean() {
        loom::model(|| {
            let shared = Shared::resident();
            assert!(shared.word.try_exclusive());
            shared.write(1);
            let _ = shared.word.release_dirty();
            let cleaner = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if !shared.word.try_begin_write_back() {
                        return None;
                    }
                    let written = shared.read();
                    let _ = shared.word.end_write_back(true);
                    Some(written)
                })
            };
            let changed = shared.word.try_exclusive();
            if changed {
                shared.write(2);
                let _ = shared.word.release_dirty();
            }
            let written = cleaner.join().expect("the cleaner ends");
            let state = shared.word.snapshot().state();
            if let Some([a, b]) = written {
                assert_eq!(a, b, "torn bytes were written below");
                let stale = a != shared.read()[0];
                assert_eq!(state, if stale { FrameState::Dirty } else { FrameState::Clean });
            } else {
                assert_eq!(state, FrameState::Dirty);
            }
        });
    }

    #[test]
    fn whoever_announces_a_wait_is_reported_to_the_one_who_ends_it() {
        loom::model(|| {
            let shared = Shared::resident();
            assert!(shared.word.try_exclusive());
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || shared.word.announce_wait(Need::Shared))
            };
            let (Wake(woken), _) = shared.word.release_dirty();
            let waits = waiter.join().expect("the waiter ends");
            assert_eq!(waits, woken, "(the waiter sleeps, it is woken)");
        });
    }
}
