//! Faults that the tests put into the engine itself, one at a time, to see whether the crash suite finds them out: see
//! [`entresol_core::fault_points`].

#[cfg(test)]
use crate::store::Layout;

entresol_core::fault_points! {
    /// One step of the protocol of `docs/cache-format.md` that is left out.
    pub(crate) enum Mutant {
        /// A flush does not sync the log.
        NoLogSync,
        /// A flush does not sync the backing store.
        NoBackingSync,
        /// Pages of batches that were not synced are not checked at recovery.
        NoPageCheck,
        /// Tables are believed without their CRC.
        NoTableCheck,
        /// The UUID of a table is not compared.
        NoUuidCheck,
        /// Neither the epoch nor the chain of a table is compared. (Either alone catches what the other lets pass, but for
        /// batches that repeat one another to the byte.)
        NoLineageCheck,
        /// A page read from the log is not checked.
        NoReadCheck,
        /// Rule 1: writes below do not wait for the log.
        BelowOvertakes,
        /// Rule 2: what was read from below before it was durable there is entered as clean.
        CleanTooEarly,
        /// Rules 3 and 4: obsolete copies are not declared gone.
        NoGone,
        /// Rule 4: a dirty copy is declared gone before the newer version is durable.
        GoneTooEarly,
        /// Rule 5: a dirty copy dies with the policy's interest in it.
        DirtyNotKept,
        /// Rule 6: a slot is written again before the new tail is durable.
        ReuseTooEarly,
        /// Rule 6: the tail moves before the backing store was synced.
        TailTooEarly,
        /// Pages that were forgotten are not remembered as changed below.
        ForgottenNotSynced,
        /// Pages that are being made void are queued when the policy gives them up meanwhile.
        VoidQueued,
        /// A page that is about to be made void keeps its place until its turn comes.
        VoidAwaited,
        /// A page that is written during a drain is not sent below at once.
        DrainedBehind,
        /// A change of the policy takes copies for cached that newer versions on their way below have superseded.
        SupersededShown,
        /// A frame of the policy before is shown to the one after it although its page was written since.
        LeftNotVoided,
        /// A frame that is left of the policy before counts as cached in the log though the new policy has put the page elsewhere.
        LeftShownTwice,
        /// A change of the policy drops what only frames have.
        FramesDropped,
        /// A version in the open batch is replaced although what was sent below is taken for the version at its place.
        RewriteCovered,
        /// Growth: the superblock speaks of segments before the device has them durably.
        GrownTooEarly,
        /// Growth: segments are used of which the superblock does not speak.
        GrownUnsaid,
        /// A slot is written again when the entry that frees it is durable, though no durable block says so yet.
        FreedUnsaid,
        /// A block of the journal is written again before a durable block says that it is dead.
        BlockTooEarly,
        /// A block of the journal is given up without repeating what still holds.
        NotRenewed,
        /// A repair forgets damaged dirty copies as if they were clean.
        RepairForgets,
        /// The log's device is synced before it has all batches that the sync is to cover.
        SyncBeforeBatches,
        /// Rule 2: a page that is cleaned ahead is declared so before it is durable below.
        CleanedTooEarly,
        /// Rule 1: a part of the queue that is written below does not wait for the log.
        UnripeTaken,
        /// A version in the open batch is replaced although the batch says of it that it was cleaned.
        RewriteCleaned,
        /// Rule 4: a dirty copy becomes clean while a newer version is on its way past it.
        SupersededCleaned,
        /// Rule 3: what is written past the log does not wait for the word that the clean copy is gone.
        GoneNotAwaited,
        /// Pages that went below past the log are not written again after a sync that failed.
        PastNotKept,
        /// Pages that are read together, as those of a table that is brought, are read from below, whatever is newer.
        TogetherFromBelow,
        /// Bytes that disagree with their CRC are not read again.
        ReadOnce,
        /// No commit record is written.
        CommitUnwritten,
        /// Commit records are believed without their CRC.
        CommitUnchecked,
        /// Nothing is looked for beyond what seems to be the end of the log.
        NothingBeyond,
        /// Beyond what seems to be the end of the log a segment is looked at only where its first table can be read.
        AnnouncedUnread,
        /// A format does not count on from the superblocks that it finds.
        FormatForgetsWrites,
        /// Both superblocks are written before either is synced.
        SuperblocksTogether,
        /// A table that cannot be read is not looked for elsewhere.
        CopyIgnored,
        /// Tables that an earlier epoch left of a segment are not told from the segment where it has fewer tables.
        VoidNotTried,
        /// Queued bytes of a page are read although the log has had something newer, which is lost.
        OlderQueuedServed,
        /// Rule 3: what is written past the log does not wait for the word of its tail.
        TailNotAwaited,
        /// A flush asks only after the log is durable whether anything went past it.
        FlushAskedAfter,
        /// Whose cache it is is not compared.
        OwnerUnchecked,
        /// A cache whose device failed is not marked.
        RetireUnmarked,
        /// Of a cache whose device failed the log is read before what memory has.
        FramesAfterLog,
        /// A proposed generation is not written when that returns.
        GenerationUnwritten,
        /// The generation of the backing store is not compared.
        GenerationUncompared,
        /// An overwritten dirty page counts as dirty since then.
        AgeRefreshed,
        /// The device is not told of ages.
        AgeUnwritten,
        /// The device is not told of cache time while nothing is written.
        ClockUnwritten,
        /// Old pages are looked for only when a request comes.
        AgeOnlyOnAccess,
        /// Old pages count as below when they were written, without a sync.
        AgeNotSynced,
        /// Dirty pages that only memory has have no age.
        AgeNotOfFrames,
        /// Write-back begins when the oldest page is as old as may be.
        AgeBegunLate,
        /// Nobody waits where the rate cannot keep the bound.
        AgeNobodyWaits,
    }
}

#[cfg(test)]
impl Mutant {
    /// Those that cost no durable byte and are found by the tests of the bound on ages.
    pub(crate) const OF_AGES: [Mutant; 8] = [
        Mutant::AgeRefreshed,
        Mutant::AgeUnwritten,
        Mutant::ClockUnwritten,
        Mutant::AgeOnlyOnAccess,
        Mutant::AgeNotSynced,
        Mutant::AgeNotOfFrames,
        Mutant::AgeBegunLate,
        Mutant::AgeNobodyWaits,
    ];

    /// Is there such a step in a layout?
    pub(crate) fn is_of(self, layout: Layout) -> bool {
        match self {
            Mutant::FreedUnsaid | Mutant::BlockTooEarly | Mutant::NotRenewed => layout == Layout::Slots,
            Mutant::GrownTooEarly | Mutant::GrownUnsaid => layout == Layout::Log,
            // A journal is read whole before it is known where it ends; reclaim drops nothing of slots.
            Mutant::NothingBeyond | Mutant::AnnouncedUnread => layout == Layout::Log,
            Mutant::TailNotAwaited | Mutant::VoidNotTried => layout == Layout::Log,
            // Over slots no word says that a page became clean which the policy does not hold, as this one never is.
            Mutant::SupersededCleaned => layout == Layout::Log,
            _ => true,
        }
    }
}
