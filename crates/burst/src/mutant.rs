//! Faults that tests can put into the protocol, one at a time, to see whether random schedules find them: see
//! [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// One step of the protocol that is left out.
    pub enum Mutant {
        /// A node admits a write whose lease has ended.
        LeaseIgnored,
        /// A node does not compare the epoch of a grant with its own.
        EpochNotCompared,
        /// The coordinator does not remove granted bytes from the free space.
        ReserveForgotten,
        /// A node drains the newest piece first.
        FifoBroken,
        /// The coordinator frees an ended lease without asking the node.
        FreedUnasked,
        /// A node admits a write under a lease that it has given back.
        RevokedAdmitted,
        /// A node admits a write that was granted on an earlier start of its own.
        StartNotCompared,
        /// A node forgets which writes it dropped when their leases ended.
        LateForgotten,
        /// A node drains the first piece where the oldest is asked for.
        OldestBroken,
        /// A node does not drain a copy whose primary is lost.
        PromoteIgnored,
        /// The coordinator orders the drain of a copy once, and only if the copy is whole by then.
        PromoteOnce,
        /// The coordinator orders back no reservation of an earlier attempt at an object.
        AttemptKept,
        /// The coordinator says of each reservation that it orders back that its bytes are on the PFS.
        ReclaimSaysDurable,
        /// The coordinator cuts no chunks.
        ChunkIgnored,
        /// The coordinator grants from a node whose connection is lost.
        AbsentGranted,
        /// A piece joins a parity on a node whose connection is lost.
        AbsentJoined,
        /// A piece joins a parity that has lost a member.
        BereavedJoined,
        /// A piece that is lost before its guard's node has reported stays a member of the guard.
        UnknownGuardKept,
        /// The coordinator frees a piece when a part of it is drained.
        PartFreesAll,
        /// The coordinator commits an object whose copy is not stored.
        CopyNotAwaited,
        /// The coordinator drops the orders that were due with an event that it refuses.
        RefusalDropsOrders,
        /// A new coordinator gives back a parity of an earlier epoch with the last member that it knows.
        OldParityFreed,
        /// A new coordinator gives back a parity that has no member, though a lost piece may need it.
        OrphanParityFreed,
        /// The coordinator counts no copies among the bytes of an owner.
        ShareCopiesUncounted,
        /// The coordinator counts bytes of an owner after they were drained.
        ShareNotReturned,
        /// The coordinator grants beyond the share of an owner.
        ShareIgnored,
    }
}
