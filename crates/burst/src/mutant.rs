//! Faults that tests can put into the protocol, one at a time, to see whether random schedules find them. Every question is
//! answered no by a constant.

/// One step of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A node admits a write whose lease has ended.
    LeaseIgnored,
    /// A node does not compare the epoch of a grant with its own.
    EpochNotCompared,
    /// The coordinator does not take what it grants from the free space.
    ReserveForgotten,
    /// A node drains the newest piece first.
    FifoBroken,
    /// The coordinator frees an ended lease without asking the node.
    FreedUnasked,
    /// A node admits a write under a lease that it has given back.
    RevokedAdmitted,
}

#[cfg(test)]
impl Mutant {
    pub(crate) const ALL: [Mutant; 6] = [
        Mutant::LeaseIgnored,
        Mutant::EpochNotCompared,
        Mutant::ReserveForgotten,
        Mutant::FifoBroken,
        Mutant::FreedUnasked,
        Mutant::RevokedAdmitted,
    ];
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Is this step left out?
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is(_mutant: Mutant) -> bool {
    false
}

/// Is this step left out on this thread?
#[cfg(test)]
pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Leaves a step out on this thread, or none.
#[cfg(test)]
pub(crate) fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
