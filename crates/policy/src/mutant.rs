//! Rules of policies that tests leave out, one at a time, to see whether they notice: see
//! [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// A rule of [`Reuse`](crate::learned::Reuse) that is left out.
    pub enum Mutant {
        /// A read that misses is admitted whatever its rank.
        EveryReadAdmitted,
        /// A write that misses is admitted whatever its rank and value.
        EveryWriteAdmitted,
        /// A write is a benefit of a clean page too.
        WritesAsReads,
        /// A dirty page's read is worth no more than its write.
        DirtyReadsAsWrites,
        /// Pages that are forgotten are not counted.
        ForgottenNotCounted,
        /// Pages that wait are not counted.
        WaitingNotCounted,
        /// Ages are not clamped.
        AgesWrap,
        /// Blocks are not looked at in turn.
        NoLookInTurn,
        /// A block's minimum is believed although its page was accessed since.
        StaleMinimum,
        /// Events keep their weight for ever.
        NoDecay,
        /// The tables are first built after a whole period.
        LateBuild,
        /// In write-through, writes count as accesses.
        WritesCounted,
        /// The price is not asked for.
        NoPrice,
        /// Mean gaps are rounded down.
        GapsRoundedDown,
        /// The oldest ghost is forgotten, whatever its rank.
        AnyGhostForgotten,
        /// Objects are not told apart.
        OneObject,
        /// A build is done within one request.
        BuiltAtOnce,
        /// The search for the coldest page ends only when it is found.
        EndlessSearch,
    }
}
