//! Faults that the tests put into the files' layer itself, one at a time, to see whether the crash suite finds them out.
//! In a build without tests every question is answered no by a constant.

/// One step of the rules of `docs/file-map.md` and `docs/SEMANTICS.md` that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Rule 1: a region is used before its record is durable.
    RegionUnsynced,
    /// Rule 3: what the cache has of a removed file is forgotten before the directory was synced.
    DirectoryUnsynced,
    /// Rule 3, at a start: what the cache has of a file that is gone is forgotten before the file system was synced.
    StartUnsynced,
    /// Rule 4: a range is cut off or made zeroes before the record that says so is durable.
    VoidUnsynced,
    /// Rule 8: a name goes before the record that says so is durable.
    LeavingUnsynced,
    /// Rule 8: a file that is written between the record and the removal of its name does not wait for the record.
    LeavingNotHeeded,
    /// Rule 8: a file whose dirty pages were cut off loses its name before the record that says so is durable.
    ForgottenNotHeeded,
    /// A file is renamed over another without a sync.
    ReplacingUnsynced,
    /// A flush does not sync files below.
    FilesUnsynced,
    /// A sync does not make the size durable.
    SizeUnsynced,
    /// A file that grows does not forget pages of beyond its end.
    EndNotForgotten,
    /// A file that grows has in its last page what was there beyond its end.
    TailNotCleared,
    /// A close does not sync files below.
    CloseUnsynced,
    /// A file that was made since the start and not synced is missed when it is not there.
    UnbornUnsaid,
    /// Rule 10: a page of a file in conflict is kept aside before the record that says so is durable.
    ConflictUnsynced,
    /// Rule 10: a conflict is over before the bytes that count are durable in the file.
    ResolvedEarly,
    /// A page that was kept aside counts as clean before it is durable there.
    AsideUnsynced,
    /// Clean pages of a file in conflict stay in the cache.
    CleanNotDropped,
    /// A map that could not be synced is appended to as if nothing were missing in it.
    MapNotRenewed,
}

#[cfg(test)]
impl Mutant {
    /// Those of conflicts, which lives of their own find.
    pub const CONFLICTS: [Mutant; 4] =
        [Mutant::ConflictUnsynced, Mutant::ResolvedEarly, Mutant::AsideUnsynced, Mutant::CleanNotDropped];
    /// All others.
    pub const ALL: [Mutant; 15] = [
        Mutant::RegionUnsynced,
        Mutant::DirectoryUnsynced,
        Mutant::StartUnsynced,
        Mutant::VoidUnsynced,
        Mutant::LeavingUnsynced,
        Mutant::LeavingNotHeeded,
        Mutant::ForgottenNotHeeded,
        Mutant::ReplacingUnsynced,
        Mutant::FilesUnsynced,
        Mutant::SizeUnsynced,
        Mutant::EndNotForgotten,
        Mutant::TailNotCleared,
        Mutant::CloseUnsynced,
        Mutant::UnbornUnsaid,
        Mutant::MapNotRenewed,
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
