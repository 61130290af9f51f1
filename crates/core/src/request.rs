//! Pages, requests and hints: the input of a policy.

/// A page as a policy sees it: a small integer *handle* from the driver's directory.
///
/// In the simulator it is the trace's own dense page id; in the engine it is a recycled slot of a fixed table
/// that holds resident pages and ghosts. A policy indexes its arrays with it and never hashes a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Page(pub u32);

impl Page {
    /// The handle as an array index.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table, index, file or device that pages belong to, numbered densely from 0 by the driver's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjectId(pub u32);

impl ObjectId {
    /// The number as an array index.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Address of a page in the backing store, below the hierarchy: the `block`-th page of an object. Pages are
/// neighbours when they belong to one object and their blocks differ by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The object.
    pub object: ObjectId,
    /// Page number within the object, in pages.
    pub block: u64,
}

/// Operation of a request on its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// The page is read.
    Read = 0,
    /// The whole page is written; its old contents are not needed.
    Write = 1,
    /// Part of the page is written: on a miss the rest of it must be fetched (read-modify-write).
    Update = 2,
}

impl Op {
    /// True for [`Op::Write`] and [`Op::Update`]: the page is dirty afterwards.
    #[inline(always)]
    pub const fn is_write(self) -> bool {
        !matches!(self, Op::Read)
    }
}

/// One reference to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The page.
    pub page: Page,
    /// Operation on the page.
    pub op: Op,
    /// True if the request continues a sequential run of its stream (read-ahead, scan), as far as the driver can tell.
    pub sequential: bool,
}

impl Request {
    /// A read that is not part of a sequential run.
    pub const fn read(page: u32) -> Self {
        Request { page: Page(page), op: Op::Read, sequential: false }
    }

    /// A whole-page write that is not part of a sequential run.
    pub const fn write(page: u32) -> Self {
        Request { page: Page(page), op: Op::Write, sequential: false }
    }
}

/// Number of a request that never comes: the driver's answer when there is no next use.
pub const NEVER: u32 = u32::MAX;

/// Information for a policy that is not a reference to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint<'a> {
    /// A query starts and will use these objects.
    QueryBegin {
        /// Number of the query, unique among those running.
        query: u32,
        /// Every table and index it will touch.
        objects: &'a [ObjectId],
    },
    /// A query ended.
    QueryEnd {
        /// Number of the query.
        query: u32,
    },
    /// A user wants this object held whole until further notice. Policies that place no objects ignore this hint.
    Place {
        /// The object.
        object: ObjectId,
    },
    /// A user does not want the object held any more.
    Unplace {
        /// The object.
        object: ObjectId,
    },
}

/// A tier of a layer, the fastest is 0. Two-tier policies manage 0 and 1; the level below a layer is no tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Tier(pub u8);

impl Tier {
    /// The first tier: the only one of a plain cache, DRAM of a two-tier policy.
    pub const TOP: Tier = Tier(0);
    /// The second tier of a two-tier policy: flash, NVM or NVRAM.
    pub const SECOND: Tier = Tier(1);

    /// The tier as an array index.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Outcome of a request: a hit in a tier, or a miss that did or did not admit the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The page was in this tier when the request came.
    Hit(Tier),
    /// The page was in no tier of the layer.
    Miss {
        /// True if the page is in a tier now.
        admitted: bool,
    },
}

impl Outcome {
    /// A miss after which the page is in the layer.
    pub const ADMITTED: Outcome = Outcome::Miss { admitted: true };
    /// A miss that bypassed the layer.
    pub const BYPASSED: Outcome = Outcome::Miss { admitted: false };

    /// True when the page was in some tier of the layer.
    #[inline(always)]
    pub const fn is_hit(self) -> bool {
        matches!(self, Outcome::Hit(_))
    }
}
