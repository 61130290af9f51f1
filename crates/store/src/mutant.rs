//! Faults that tests put into the engine, one at a time, to see whether the crash suite finds them: see
//! [`entresol_core::fault_points`].

#[cfg(any(test, feature = "mutants"))]
use crate::geometry::Layout;

entresol_core::fault_points! {
    /// A step of the protocol of `docs/cache-format.md` that is left out.
    pub enum Mutant {
        /// A flush does not sync the store.
        NoLogSync,
        /// Rule 8: a flush does not sync the backing store.
        NoBackingSync,
        /// Recovery does not check the pages of unsynced batches.
        NoPageCheck,
        /// Tables are believed without their CRC.
        NoTableCheck,
        /// The UUID of a table is not compared.
        NoUuidCheck,
        /// Neither the epoch nor the chain of a table is compared. (Either alone catches the faults that the other
        /// lets pass, except batches that repeat one another to the byte.)
        NoLineageCheck,
        /// A page read from the store is not checked.
        NoReadCheck,
        /// Rule 1: writes below do not wait for the store.
        BelowOvertakes,
        /// Rule 2: a page read from below before its last write there was durable is entered as clean.
        CleanTooEarly,
        /// Rules 3 and 4: obsolete copies are not declared gone.
        NoGone,
        /// Rule 4: a dirty copy is declared gone before the newer version is durable.
        GoneTooEarly,
        /// Rule 5: a dirty copy is dropped as soon as the policy gives the page up.
        DirtyNotKept,
        /// Rule 6: a slot is written again before the new tail is durable.
        ReuseTooEarly,
        /// Rule 6: the tail moves before the backing store was synced.
        TailTooEarly,
        /// Rule 7: forgotten pages are not remembered as changed below.
        ForgottenNotSynced,
        /// Rule 7: pages that are being invalidated are queued when the policy gives them up meanwhile.
        VoidQueued,
        /// Rule 7: a page that is yet to be invalidated keeps its log address until its part of the range is reached.
        VoidAwaited,
        /// The device goes on calling pages dirty after a drain, or a close, that it may call clean.
        CleanUnsaid,
        /// A page that is written during a drain is not sent below at once.
        DrainedBehind,
        /// Rule 10: a change of policy counts copies as cached that newer versions on their way below have superseded.
        SupersededShown,
        /// Rule 10: a frame of the previous policy is shown to the next although its page was written since.
        LeftNotVoided,
        /// A frame left of the previous policy counts as cached in the store although the new one holds the page
        /// elsewhere.
        LeftShownTwice,
        /// Rule 10: a change of policy drops pages that only frames hold.
        FramesDropped,
        /// A version in the open batch is replaced although the bytes sent below count as the version at its address.
        RewriteCovered,
        /// Growth: the superblock names segments before the device has them durably.
        GrownTooEarly,
        /// Growth: segments are used that the superblock does not name.
        GrownUnsaid,
        /// A slot is written again when the entry that frees it is durable, though no durable block states so yet.
        FreedUnsaid,
        /// A block of the journal is written again before a durable block states that it is dead.
        BlockTooEarly,
        /// A block of the journal is given up without repeating the entries that still hold.
        NotRenewed,
        /// A repair forgets damaged dirty copies as if they were clean.
        RepairForgets,
        /// Rule 9: the cache device is synced before it has all batches that the sync is to cover.
        SyncBeforeBatches,
        /// Rule 2: a page that is cleaned ahead is declared clean before it is durable below.
        CleanedTooEarly,
        /// Rule 1: a part of the queue is written below without waiting for the store.
        UnripeTaken,
        /// A version in the open batch is replaced although the batch states that it was cleaned.
        RewriteCleaned,
        /// Rule 4: a dirty copy becomes clean while a newer version that bypasses it is on its way below.
        SupersededCleaned,
        /// Rule 3: a write that bypasses the store does not wait until `gone` of the clean copy is durable.
        GoneNotAwaited,
        /// Pages that went below bypassing the store are not written again after a failed sync.
        PastNotKept,
        /// Pages read together, as those of a prefetched table are, come from below even where a newer version exists.
        TogetherFromBelow,
        /// Pages between two reads below are read with them though they are dirty, and their CRC is not compared.
        BridgeUnchecked,
        /// Bytes that disagree with their CRC are not read again.
        ReadOnce,
        /// No commit record is written.
        CommitUnwritten,
        /// Commit records are believed without their CRC.
        CommitUnchecked,
        /// Recovery looks for nothing beyond the apparent end of the log.
        NothingBeyond,
        /// Beyond the apparent end of the log, a segment is looked at only where its first table can be read.
        AnnouncedUnread,
        /// A format does not continue the write count of the superblocks that it finds.
        FormatForgetsWrites,
        /// Both superblocks are written before either is synced.
        SuperblocksTogether,
        /// A table that cannot be read is not looked for elsewhere.
        CopyIgnored,
        /// Tables that an earlier epoch left of a segment are taken for the segment's own where it has fewer tables.
        VoidNotTried,
        /// Queued bytes of a page are read although the store had a newer version, which is lost.
        OlderQueuedServed,
        /// Rule 3: a write that bypasses the store does not wait until the tail is durable.
        TailNotAwaited,
        /// A flush checks for pages that bypassed the store only after the store is durable.
        FlushAskedAfter,
        /// A version that the index no longer has is still read without it.
        HitOutlivesVersion,
        /// A page in memory is read without the core's lock after its frame has got other bytes.
        HitOutlivesFrame,
        /// A batch is written to the device before all of its blocks are filled.
        BatchBeforeBytes,
        /// A block in memory is read before it is filled.
        ReadBeforeBytes,
        /// A version in memory is queued before its block is filled.
        QueuedBeforeBytes,
        /// A block is reserved again before it is filled: the older version may come after the newer one.
        ReservedAgain,
        /// A page is loaded although its bytes could not be read.
        LoadErrorSwallowed,
        /// A page is loaded without its lock, over what a write has brought meanwhile.
        LoadedUnlocked,
        /// Arena: the memory of batches is of the process alone, without a word.
        ArenaBatchPrivate,
        /// Arena: a slot counts before its bytes are in it.
        ArenaStateEarly,
        /// Arena: a block counts as filled before its bytes are in it.
        ArenaFilledEarly,
        /// Arena: a block that has an answered version is overwritten in place.
        ArenaOverwritten,
        /// Arena: a block that is being overwritten counts, though its new bytes are kept by the process alone.
        ArenaTornCounts,
        /// Arena: a block that was never filled is repeated.
        UnfilledRepeated,
        /// Arena: pages that no batch has are in memory of the process alone.
        ArenaPagePrivate,
        /// Arena: nothing says that a page was changed below which the store has dirty.
        ArenaVoidUnsaid,
        /// Arena: queued versions of pages that are about to be invalidated do not count until they are invalid.
        ArenaQueuedFreed,
        /// Arena: writes below of a former process are not synced.
        InheritedNotSynced,
        /// Arena: a version that is appended again stands in for a newer one in a slot.
        ArenaOlderSettles,
        /// Arena: a version counts on while its block is still to be filled, though a slot has a newer one.
        ArenaOlderForgotten,
        /// Arena: nothing says that the store's version of a page is obsolete.
        ArenaGoneUnsaid,
        /// Arena: nothing says that something is in memory of the process alone.
        ArenaMissingUnsaid,
        /// Arena: what a process notes while it repeats counts at once.
        ArenaRepeatCounts,
        /// Arena: a process that is killed at its start leaves the epoch that the one before it had found.
        ArenaEpochOld,
        /// Arena: nothing says that a sync below has failed that no flush has reported.
        ArenaFailureUnsaid,
        /// Arena: nothing says that a sync below is under way whose failure could not be repeated.
        ArenaSyncUnsaid,
        /// Arena: a start settles no failed sync, so that a flush fails though nothing was lost.
        ArenaNotSettled,
        /// Arena: a failed sync is settled anew after a kill meanwhile, by a descriptor that has told of the failure.
        ArenaSettledTwice,
        /// Arena: a failed sync counts as settled though the sync that was to settle it has failed.
        ArenaSettledAnyway,
        /// Neither the identity nor the size of the backing store is compared.
        OwnerUnchecked,
        /// A cache whose device failed is not marked as retired.
        RetireUnmarked,
        /// After a failure of the cache device the store is read before the frames in memory.
        FramesAfterLog,
        /// A proposed generation is not written before the proposal returns.
        GenerationUnwritten,
        /// The generation of the backing store is not compared.
        GenerationUncompared,
        /// An overwritten dirty page counts as dirty since the overwrite only.
        AgeRefreshed,
        /// Ages are not written to the device.
        AgeUnwritten,
        /// Cache time is not written to the device while nothing else is written.
        ClockUnwritten,
        /// Old pages are looked for only when a request comes.
        AgeOnlyOnAccess,
        /// Old pages count as durable below once written, without a sync.
        AgeNotSynced,
        /// Dirty pages that only memory holds have no age.
        AgeNotOfFrames,
        /// Write-back begins when the oldest page has already reached the bound.
        AgeBegunLate,
        /// Writes do not wait where the rate cannot keep the bound.
        AgeNobodyWaits,
    }
}

#[cfg(any(test, feature = "mutants"))]
impl Mutant {
    /// Faults that cost no durable byte; the tests of the bound on ages find them.
    pub const OF_AGES: [Mutant; 8] = [
        Mutant::AgeRefreshed,
        Mutant::AgeUnwritten,
        Mutant::ClockUnwritten,
        Mutant::AgeOnlyOnAccess,
        Mutant::AgeNotSynced,
        Mutant::AgeNotOfFrames,
        Mutant::AgeBegunLate,
        Mutant::AgeNobodyWaits,
    ];

    /// Faults of loading; no policy of the catalogue fetches another page than the requested one.
    pub const OF_LOADING: [Mutant; 2] = [Mutant::LoadErrorSwallowed, Mutant::LoadedUnlocked];

    /// Mutants that kills of the process alone detect.
    pub const OF_ARENA: [Mutant; 21] = [
        Mutant::ArenaTornCounts,
        Mutant::ArenaOlderForgotten,
        Mutant::ArenaOlderSettles,
        Mutant::ArenaBatchPrivate,
        Mutant::ArenaStateEarly,
        Mutant::ArenaFilledEarly,
        Mutant::ArenaOverwritten,
        Mutant::UnfilledRepeated,
        Mutant::ArenaPagePrivate,
        Mutant::ArenaVoidUnsaid,
        Mutant::ArenaQueuedFreed,
        Mutant::InheritedNotSynced,
        Mutant::ArenaGoneUnsaid,
        Mutant::ArenaMissingUnsaid,
        Mutant::ArenaRepeatCounts,
        Mutant::ArenaEpochOld,
        Mutant::ArenaFailureUnsaid,
        Mutant::ArenaSyncUnsaid,
        Mutant::ArenaNotSettled,
        Mutant::ArenaSettledTwice,
        Mutant::ArenaSettledAnyway,
    ];

    /// True if a layout has the step.
    pub fn is_of(self, layout: Layout) -> bool {
        match self {
            Mutant::FreedUnsaid | Mutant::BlockTooEarly | Mutant::NotRenewed => layout.has_slots(),
            Mutant::GrownTooEarly | Mutant::GrownUnsaid => layout == Layout::Log,
            // Elsewhere maintenance notes too little while a start repeats.
            Mutant::ArenaRepeatCounts => layout == Layout::Segments,
            // The arena is the same for all layouts, and one life in a thousand comes to this.
            Mutant::ArenaTornCounts => layout == Layout::Log,
            // Slots are not reclaimed by copies.
            Mutant::ArenaOlderSettles => layout != Layout::Slots,
            // A journal is read whole before its end is known; reclaim of slots drops no segment.
            Mutant::NothingBeyond | Mutant::AnnouncedUnread => layout == Layout::Log,
            Mutant::TailNotAwaited | Mutant::VoidNotTried => layout == Layout::Log,
            // Over slots only the end of a drain enters `cleaned` of a page that the policy does not hold, as it never
            // holds this one, and by then the newer version is below.
            Mutant::SupersededCleaned => layout == Layout::Log,
            _ => true,
        }
    }
}
