//! Faults that the tests put into the files' layer, one at a time, to see whether the crash suite finds them: see
//! [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// One step of the rules of `docs/file-map.md` and `docs/SEMANTICS.md` that is left out.
    pub(crate) enum Mutant {
        /// Rule 1: a region is used before its record is durable.
        RegionUnsynced,
        /// Rule 3: the cached pages of a removed file are forgotten before the directory was synced.
        DirectoryUnsynced,
        /// Rule 3, at a start: the cached pages of a missing file are forgotten before the file system was synced.
        StartUnsynced,
        /// Rule 4: a range is cut off or zeroed before the record that says so is durable.
        VoidUnsynced,
        /// Rule 8: a name goes before the record that says so is durable.
        LeavingUnsynced,
        /// Rule 8: a file that is written between the record and the removal of its name does not wait for the record.
        LeavingNotHeeded,
        /// Rule 8: a file whose dirty pages were cut off loses its name before the record that says so is durable.
        ForgottenNotHeeded,
        /// A file is renamed over another without a sync.
        ReplacingUnsynced,
        /// A flush does not sync the backing files.
        FilesUnsynced,
        /// A sync does not make the size durable.
        SizeUnsynced,
        /// A file that grows does not forget pages from beyond its end.
        EndNotForgotten,
        /// A file that grows keeps in its last page the bytes that were beyond its end.
        TailNotCleared,
        /// A file grows before the zeroes of its last page are durable.
        TailUnsynced,
        /// A file grows after a write that failed to lengthen it, before the end of that write's pages is durable.
        FailedGrowthUnsynced,
        /// A close does not sync the backing files.
        CloseUnsynced,
        /// A file that was made since the start and not synced is missed when it is not there.
        UnbornUnsaid,
        /// A map that could not be synced is appended to as if nothing were missing in it.
        MapNotRenewed,
        /// A change of size that failed half way leaves the size that the file had before.
        SizeNotLookedAt,
        /// Rule 10: a page of a file in conflict is kept aside before the record that says so is durable.
        ConflictUnsynced,
        /// Rule 10: a conflict is over before the bytes that count are durable in the file.
        ResolvedEarly,
        /// A page that was kept aside counts as clean before it is durable there.
        AsideUnsynced,
        /// Clean pages of a file in conflict stay in the cache.
        CleanNotDropped,
    }
}

#[cfg(test)]
impl Mutant {
    /// The faults of conflicts, which runs of their own find.
    pub(crate) const CONFLICTS: [Mutant; 4] =
        [Mutant::ConflictUnsynced, Mutant::ResolvedEarly, Mutant::AsideUnsynced, Mutant::CleanNotDropped];
}
