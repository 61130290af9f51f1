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
        /// After a kill: a change of the cache's own under way is taken for somebody else's.
        UnderWayUnsaid,
        /// After a crash: cached pages stay of a file that somebody else has changed since.
        LastChangeIgnored,
        /// After a kill: a stamp that a former process left is not compared.
        FormerStampIgnored,
        /// After a kill: the time of the last write to the cache is not in the file's times.
        WriteTimeUnsaid,
        /// After a kill: the time of modification that a write-back was to restore is not restored.
        TimeNotRestored,
        /// After a kill: what a former process changed below and did not sync counts as synced.
        UnsyncedUnsaid,
        /// After a kill: a file without a name that programs have open counts as gone.
        NamelessGone,
        /// After a kill: such a file is written before the record that it may be missing is durable.
        NamelessUnsaid,
        /// After a kill: a file that a former process made and did not sync is missed when it is not there.
        FormerUnbornUnsaid,
        /// After a kill: a file from before the kill that gets its first region after it counts as durable.
        StartedAnew,
        /// After a kill: the end of pages beyond the end of a file counts as durable.
        EndInherited,
        /// After a kill: the removals of a former process count as durable.
        FormerNamesUnsynced,
        /// After a kill: a sync of the whole file system that fails is not heeded where files were written.
        WholeSyncUnheeded,
        /// After a kill: a file that was only read loses its name before the record that says so is durable, though the
        /// cache may have taken its pages for dirty.
        InheritedNotHeeded,
        /// After a kill: pages that are in the arena alone are not looked at where the files are.
        SurvivorsUnseen,
    }
}

#[cfg(test)]
impl Mutant {
    /// The faults of conflicts, which runs of their own find.
    pub(crate) const CONFLICTS: [Mutant; 4] =
        [Mutant::ConflictUnsynced, Mutant::ResolvedEarly, Mutant::AsideUnsynced, Mutant::CleanNotDropped];
    /// The faults of a start after a kill of the process alone, which runs of their own find.
    pub(crate) const KILLS: [Mutant; 15] = [
        Mutant::LastChangeIgnored,
        Mutant::UnderWayUnsaid,
        Mutant::FormerStampIgnored,
        Mutant::WriteTimeUnsaid,
        Mutant::TimeNotRestored,
        Mutant::UnsyncedUnsaid,
        Mutant::NamelessGone,
        Mutant::NamelessUnsaid,
        Mutant::FormerUnbornUnsaid,
        Mutant::StartedAnew,
        Mutant::EndInherited,
        Mutant::FormerNamesUnsynced,
        Mutant::WholeSyncUnheeded,
        Mutant::InheritedNotHeeded,
        Mutant::SurvivorsUnseen,
    ];
}
