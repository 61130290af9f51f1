//! Fault points: steps of a crate's protocol that tests leave out, one at a time, to see whether they notice.
//! (FreeBSD's `fail(9)` and the crate `fail` name points in the code. Here a step is a variant, so that a test can
//! visit all of them.)

/// Declares the enum `Mutant` of a crate's steps, and the switch that leaves one of them out.
///
/// To be called once in a crate, in a module named `mutant`. The crate's Cargo.toml has the feature `mutants`, which tests of other crates
/// may enable and no program that is shipped does. The macro makes:
///
/// - `Mutant::ALL`, for tests and with the feature.
/// - `is(Mutant) -> bool`, the test at the place of the step. Without tests and without the feature it is the constant
///   `false`, and nothing of the switch is compiled.
/// - `activate(Option<Mutant>)`, for tests and with the feature: leaves a step out on the calling thread, or none.
/// - `leave_out(&str) -> bool`, with the feature: leaves out the named step on all threads until the process ends.
///   False if there is no such step, or one is left out already.
#[macro_export]
macro_rules! fault_points {
    ($(#[$about:meta])* $visible:vis enum Mutant { $($(#[$left_out:meta])* $step:ident),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum Mutant {
            $($(#[$left_out])* $step),+
        }

        #[cfg(any(test, feature = "mutants"))]
        impl Mutant {
            /// All steps.
            $visible const ALL: [Mutant; [$(Mutant::$step),+].len()] = [$(Mutant::$step),+];
        }

        #[cfg(any(test, feature = "mutants"))]
        ::std::thread_local! {
            static ON_THIS_THREAD: ::std::cell::Cell<Option<Mutant>> = const { ::std::cell::Cell::new(None) };
        }

        #[cfg(feature = "mutants")]
        static IN_THIS_PROCESS: ::std::sync::OnceLock<Mutant> = ::std::sync::OnceLock::new();

        /// True if this step is left out.
        #[cfg(not(any(test, feature = "mutants")))]
        #[inline(always)]
        $visible const fn is(_mutant: Mutant) -> bool {
            false
        }

        /// True if this step is left out.
        #[cfg(any(test, feature = "mutants"))]
        $visible fn is(mutant: Mutant) -> bool {
            if ON_THIS_THREAD.get() == Some(mutant) {
                return true;
            }
            #[cfg(feature = "mutants")]
            if IN_THIS_PROCESS.get() == Some(&mutant) {
                return true;
            }
            false
        }

        /// Leaves a step out on this thread, or none.
        #[cfg(any(test, feature = "mutants"))]
        $visible fn activate(mutant: Option<Mutant>) {
            ON_THIS_THREAD.set(mutant);
        }

        /// Leaves out the named step until the process ends; false if there is no such step, or one is left out
        /// already.
        #[cfg(feature = "mutants")]
        pub fn leave_out(name: &str) -> bool {
            let named = Mutant::ALL.into_iter().find(|mutant| ::std::format!("{mutant:?}") == name);
            named.is_some_and(|mutant| IN_THIS_PROCESS.set(mutant).is_ok())
        }
    };
}

#[cfg(test)]
mod tests {
    mod mutant {
        crate::fault_points! {
            /// Two steps.
            pub(crate) enum Mutant {
                /// The first is left out.
                First,
                /// The second is left out.
                Second,
            }
        }
    }

    use mutant::{Mutant, activate, is};

    #[test]
    fn a_step_is_left_out_on_the_thread_that_says_so_and_on_no_other() {
        assert_eq!(Mutant::ALL, [Mutant::First, Mutant::Second]);
        assert!(!is(Mutant::First) && !is(Mutant::Second));
        activate(Some(Mutant::Second));
        assert!(!is(Mutant::First) && is(Mutant::Second));
        assert!(!std::thread::spawn(|| is(Mutant::Second)).join().expect("a thread"));
        activate(None);
        assert!(!is(Mutant::Second));
        #[cfg(feature = "mutants")]
        assert!(!mutant::leave_out("Third"));
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_step_that_is_left_out_by_name_is_left_out_on_all_threads() {
        // A switch of its own, because it cannot be reset.
        mod named {
            crate::fault_points! {
                /// One step.
                pub(crate) enum Mutant {
                    /// The step is left out.
                    Only,
                }
            }
        }
        named::activate(None);
        assert!(!named::leave_out("Other") && !named::is(named::Mutant::Only));
        assert!(named::leave_out("Only") && !named::leave_out("Only"));
        assert!(std::thread::spawn(|| named::is(named::Mutant::Only)).join().expect("a thread"));
    }
}
