//! Faults that tests can put into the live half, one at a time, to see whether simulated schedules find them: see
//! [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// One step of the live half that is left out.
    pub(crate) enum Mutant {
        /// A file gets its name before its bytes are synced.
        RenamedUnsynced,
        /// The directory of a renamed file is not synced.
        NamesUnsynced,
        /// A writer is told that its bytes are replicated before the copy is written.
        AcknowledgedUncopied,
        /// The space of a piece is free before the piece is durable.
        FreedUndrained,
        /// A piece is readable before all of its bytes were written.
        ReadUnstored,
        /// The checksums of a part are written after the part.
        ChecksumsLate,
        /// The PFS is asked for parts before the nodes are, so that a part that is drained meanwhile is missed.
        PfsAskedFirst,
        /// A drain that failed is not tried again.
        DrainNotRepeated,
        /// The manifest is written when a rank is missing.
        ManifestEarly,
        /// A writer waits for a silent node as long as it takes.
        PatienceEndless,
        /// A node takes a grant without comparing its seal.
        SealNotCompared,
        /// The job of a ticket is not compared with that of a request.
        JobNotCompared,
        /// Space is free before it is zeroed.
        SpaceNotZeroed,
    }
}
