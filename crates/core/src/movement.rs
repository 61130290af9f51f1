//! Movements: the answers of a policy.

use crate::request::{ObjectId, Page, Tier};

/// One step that a driver carries out, in the order in which the policy emits them.
///
/// Every copy leaves its source in place; only [`Verb::Drop`] and [`Verb::Reclaim`] free a frame. No step is
/// implied: a dirty page that leaves the layer is written back by a [`Verb::WriteBack`] that precedes its drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The page that moves.
    pub page: Page,
    /// Operation on the page.
    pub verb: Verb,
    /// True if this movement shares one I/O with the movement before it: the next page of a contiguous run being
    /// written back, or the next page of a batch written to a log. False starts a new I/O.
    pub joined: bool,
}

/// Operation of a movement on its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read from the level below into a frame of tier `to`.
    Fetch {
        /// The tier that gets the page.
        to: Tier,
    },
    /// The bytes of the current write go into a frame of tier `to`, new or already held. When the request is an
    /// `Update`, the driver completes the page from its newest copy, which it fetches if no tier has one.
    Install {
        /// The tier that gets the page.
        to: Tier,
    },
    /// Copied between tiers: a promotion when `to` is the faster one, else a demotion. A frame that `to` already
    /// holds for this page is overwritten.
    Copy {
        /// The tier that has the page.
        from: Tier,
        /// The tier that gets it.
        to: Tier,
    },
    /// The copy in `from` is written to the level below and stays. It is usually the newest one, and clean from here
    /// on. The exception is an older version, while a newer one in a faster tier is still to be written.
    WriteBack {
        /// The tier the bytes are taken from.
        from: Tier,
    },
    /// The frame is freed. If its contents were the newest, they were copied or written back before.
    Drop {
        /// The tier that gives up its frame.
        from: Tier,
    },
    /// The copy is read from its frame in a log and appended to the log again (a second chance). This costs one read
    /// and one write of the device; the set of held pages does not change.
    Requeue {
        /// The tier whose device is used.
        tier: Tier,
    },
    /// The copy in `tier` is out of date but its frame stays in use until it is reclaimed (the older versions in
    /// a multi-version FIFO). An update in the same request is still completed from it.
    Supersede {
        /// The tier that keeps the obsolete frame.
        tier: Tier,
    },
    /// The oldest superseded frame of this page is freed.
    Reclaim {
        /// The tier that gives up the frame.
        tier: Tier,
    },
    /// The request bypasses every tier: the level below serves the read or takes the write.
    Bypass,
    /// A whole object is read from the level below into tier `to`, whether or not its pages have handles. `page` is any
    /// page of it. From here on its pages are found there.
    FetchObject {
        /// The object.
        object: ObjectId,
        /// Length of the object in pages.
        pages: u32,
        /// The tier that gets it.
        to: Tier,
    },
    /// The frames of a whole object are freed. The policy does not ask the driver before; the driver waits for pins to
    /// go.
    DropObject {
        /// The object.
        object: ObjectId,
        /// Length of the object in pages.
        pages: u32,
        /// The tier that gives up the frames.
        from: Tier,
    },
}
