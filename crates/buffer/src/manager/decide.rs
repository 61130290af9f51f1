//! A shard's policy at work: requests go in, and work on frames comes out.
//!
//! The policy is chosen at run time. A batch of hits, or a miss, costs one virtual call; the loop inside is compiled
//! for each policy, as in the simulator.

use super::directory::{Directory, NO_FRAME};
use super::stats::{Decided, ObjectStats};
use crate::frame::{Frame, Key, NO_HANDLE, Parking};
use crate::ring::Hit;
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Page, Request, Tier, Verb};
use entresol_policy::catalogue::Visitor;
use entresol_policy::{Config, Driver, Options, Policy};
use std::io;

/// Context that the policy needs while it decides. The caller holds the lock of the shard.
pub(super) struct Desk<'a> {
    pub frames: &'a [Frame],
    pub parking: &'a Parking,
    pub object_pages: &'a dyn Fn(ObjectId) -> u64,
    /// Microseconds since the start. `None` when each request counts as a microsecond, or the policy never asks.
    pub now_us: Option<u64>,
    pub plan: &'a mut Plan,
}

/// Work on frames that a decision asks for.
#[derive(Default)]
pub(super) struct Plan {
    /// Frames in state evicting, and whether they are dirty.
    pub evictions: Vec<(u32, bool)>,
    /// Frames to be cleaned.
    pub write_backs: Vec<u32>,
    /// Frames whose pages the policy gave up while they were in use.
    pub orphans: Vec<u32>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.evictions.is_empty() && self.write_backs.is_empty() && self.orphans.is_empty()
    }
}

/// A policy of any type, with its directory.
pub(super) trait Decider: Send {
    /// True if the policy asks for the time.
    fn clock(&self) -> bool;

    /// Tells the policy of hits. Hits of pages that have left since are skipped.
    fn hits(&mut self, batch: &[Hit], desk: &mut Desk);

    /// Tells the policy of a request whose page has no frame. Returns the page's handle if the policy now holds the
    /// page, so that the frame is the policy's. Otherwise the page leaves after use.
    fn miss(&mut self, key: Key, op: Op, desk: &mut Desk) -> Option<u32>;

    /// Records that the page of a handle is in this frame.
    fn install(&mut self, handle: u32, frame: u32);

    /// Records that the page of a handle is in no frame after all.
    fn displace(&mut self, handle: u32);

    /// Frames whose pages the policy holds.
    fn residents(&self) -> Vec<(Key, u32)>;

    /// Starts the policy again with these pages, in this order. Pages that the policy does not take become orphans.
    fn adopt(&mut self, residents: &[(Key, u32)], desk: &mut Desk);

    fn decided(&self) -> Decided;

    /// Takes over the counts of a predecessor.
    fn set_counts(&mut self, decided: Decided, objects: Vec<ObjectStats>);

    fn objects(&self) -> &[ObjectStats];

    fn memory_bytes(&self) -> usize;
}

/// Builds a decider around the policy that it visits.
pub(super) struct Build<'a> {
    pub config: &'a Config,
    pub options: &'a Options,
}

impl Visitor for Build<'_> {
    type Output = io::Result<Box<dyn Decider>>;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        Ok(Box::new(Core {
            policy,
            config: self.config.clone(),
            options: self.options.clone(),
            directory: Directory::new(self.config.pages)?,
            claims: Vec::new(),
            decided: Decided::default(),
            objects: vec![ObjectStats::default(); self.config.objects],
        }))
    }
}

struct Core<P> {
    policy: P,
    config: Config,
    options: Options,
    directory: Directory,
    /// Frames owned since the driver allowed the policy to evict them.
    claims: Vec<Claim>,
    decided: Decided,
    /// By object. Objects beyond the end are counted in the last.
    objects: Vec<ObjectStats>,
}

struct Claim {
    page: Page,
    frame: u32,
    dropped: bool,
    write_back: bool,
}

impl<P: Policy> Core<P> {
    #[inline(always)]
    fn access(&mut self, page: Page, key: Key, op: Op, desk: &mut Desk) {
        let request = Request { page, op, sequential: false };
        let mut carrier = Carrier {
            now_us: desk.now_us.unwrap_or(self.decided.requests),
            writing: op.is_write(),
            moved: false,
            directory: &mut self.directory,
            claims: &mut self.claims,
            decided: &mut self.decided,
            desk,
        };
        let outcome = self.policy.access(request, &mut carrier);
        let moved = carrier.moved;
        self.decided.outcome(request, outcome);
        let object = key.address().object.index().min(self.objects.len() - 1);
        self.objects[object].outcome(request, outcome);
        // Most hits move nothing.
        if moved || !self.claims.is_empty() {
            self.settle(page, desk);
        }
        debug_assert!(self.directory.frame(page).is_none() || !self.policy.state(page).tiers.is_empty());
    }

    /// Carries out on the frames what a decision asked for.
    #[inline(never)]
    fn settle(&mut self, page: Page, desk: &mut Desk) {
        self.settle_claims(desk);
        // A policy may let go of the current page without a drop, when the page bypasses it.
        if let Some(frame) = self.directory.frame(page).filter(|_| self.policy.state(page).tiers.is_empty()) {
            self.directory.set_frame(page, NO_FRAME);
            desk.frames[frame as usize].set_handle(NO_HANDLE);
            desk.plan.orphans.push(frame);
        }
    }

    /// Evicts the claimed frames or releases them.
    fn settle_claims(&mut self, desk: &mut Desk) {
        for claim in self.claims.drain(..) {
            let frame = &desk.frames[claim.frame as usize];
            if claim.dropped {
                frame.set_handle(NO_HANDLE);
                desk.plan.evictions.push((claim.frame, frame.word.begin_evict()));
                continue;
            }
            desk.parking.wake(claim.frame, frame.word.release_unchanged());
            if claim.write_back {
                desk.plan.write_backs.push(claim.frame);
            }
        }
    }

    fn give(&mut self, key: Key) -> Option<Page> {
        let policy = &self.policy;
        self.directory.give(key, |page| policy.state(page).known)
    }
}

impl<P: Policy> Decider for Core<P> {
    fn clock(&self) -> bool {
        P::INFO.clock
    }

    fn hits(&mut self, batch: &[Hit], desk: &mut Desk) {
        // The batch is the future: the policy's data for all of it is prefetched before the first hit is processed. The
        // descriptors were read by the hitting threads a moment ago.
        for page in batch.iter().map(|hit| Page(hit.handle())).filter(|page| page.index() < self.config.pages) {
            self.policy.prefetch(page);
        }
        let frames = desk.frames;
        for hit in batch {
            // The descriptor agrees with the directory: both are changed under the lock that is held here.
            let frame = &frames[hit.frame() as usize];
            if frame.handle() == hit.handle() && hit.handle() != NO_HANDLE {
                self.access(Page(hit.handle()), frame.key(), hit.op(), desk);
            } else {
                self.decided.stale_hits += 1;
            }
        }
    }

    fn miss(&mut self, key: Key, op: Op, desk: &mut Desk) -> Option<u32> {
        let found = self.directory.find(key).or_else(|| self.give(key));
        let page = match found {
            Some(page) => page,
            // The policy still knows the page of every handle: it starts again with the pages that it holds now.
            None => {
                self.decided.restarts += 1;
                let residents = self.directory.residents();
                self.adopt(&residents, desk);
                self.give(key)?
            }
        };
        self.access(page, key, op, desk);
        (!self.policy.state(page).tiers.is_empty()).then_some(page.0)
    }

    fn install(&mut self, handle: u32, frame: u32) {
        self.directory.set_frame(Page(handle), frame);
    }

    fn displace(&mut self, handle: u32) {
        self.directory.set_frame(Page(handle), NO_FRAME);
    }

    fn residents(&self) -> Vec<(Key, u32)> {
        self.directory.residents()
    }

    fn adopt(&mut self, residents: &[(Key, u32)], desk: &mut Desk) {
        let (decided, objects) = (self.decided, self.objects.clone());
        self.policy = P::new(&self.config, &self.options).expect("what was built once can be built again");
        self.directory.clear();
        for &(key, frame) in residents {
            let dirty = desk.frames[frame as usize].word.snapshot().state() != crate::frame::FrameState::Clean;
            let op = if dirty { Op::Update } else { Op::Read };
            let page = self.give(key);
            if let Some(page) = page {
                self.access(page, key, op, desk);
            }
            let taken = page.filter(|&page| !self.policy.state(page).tiers.is_empty());
            match taken {
                Some(page) => self.directory.set_frame(page, frame),
                None => desk.plan.orphans.push(frame),
            }
            desk.frames[frame as usize].set_handle(taken.map_or(NO_HANDLE, |page| page.0));
        }
        self.set_counts(decided, objects);
    }

    fn decided(&self) -> Decided {
        self.decided
    }

    fn set_counts(&mut self, decided: Decided, objects: Vec<ObjectStats>) {
        self.decided = decided;
        self.objects = objects;
    }

    fn objects(&self) -> &[ObjectStats] {
        &self.objects
    }

    fn memory_bytes(&self) -> usize {
        self.policy.memory_bytes() + self.directory.memory_bytes() + self.objects.len() * size_of::<ObjectStats>()
    }
}

/// The driver of one request.
struct Carrier<'a, 'd> {
    now_us: u64,
    writing: bool,
    /// True once something was emitted.
    moved: bool,
    directory: &'a mut Directory,
    claims: &'a mut Vec<Claim>,
    decided: &'a mut Decided,
    desk: &'a mut Desk<'d>,
}

impl Carrier<'_, '_> {
    /// The claim on a frame, made now if there is none and the frame is not in use.
    fn claim(&mut self, page: Page, frame: u32) -> Option<&mut Claim> {
        // The claim asked about is usually the latest, except for policies that gather a group first.
        let known = self.claims.iter().rposition(|claim| claim.frame == frame);
        let at = match known {
            Some(at) => at,
            None if self.desk.frames[frame as usize].word.try_exclusive() => {
                self.claims.push(Claim { page, frame, dropped: false, write_back: false });
                self.claims.len() - 1
            }
            None => return None,
        };
        let claim = &mut self.claims[at];
        debug_assert_eq!(claim.page, page);
        Some(claim)
    }

    fn drop_page(&mut self, page: Page) {
        // A page whose load failed has no frame.
        let Some(frame) = self.directory.frame(page) else { return };
        self.directory.set_frame(page, NO_FRAME);
        match self.claim(page, frame) {
            Some(claim) => claim.dropped = true,
            // The page of the current request may be dropped without `may_evict`, and be in use.
            None => {
                self.desk.frames[frame as usize].set_handle(NO_HANDLE);
                self.desk.plan.orphans.push(frame);
            }
        }
    }

    fn write_back(&mut self, page: Page) {
        let Some(frame) = self.directory.frame(page) else { return };
        match self.claims.iter_mut().rfind(|claim| claim.frame == frame) {
            Some(claim) => claim.write_back = true,
            None => self.desk.plan.write_backs.push(frame),
        }
    }
}

impl Driver for Carrier<'_, '_> {
    fn may_evict(&mut self, page: Page, _tier: Tier) -> bool {
        self.directory.frame(page).is_none_or(|frame| self.claim(page, frame).is_some())
    }

    fn emit(&mut self, movement: Movement) {
        self.moved = true;
        self.decided.movement(movement, self.writing);
        match movement.verb {
            Verb::Drop { .. } => self.drop_page(movement.page),
            Verb::WriteBack { .. } => self.write_back(movement.page),
            // The manager's caller writes the bytes. The policy's state tells afterwards if the page keeps its frame.
            Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass | Verb::Requeue { .. } => {}
            Verb::Copy { .. } | Verb::Supersede { .. } | Verb::Reclaim { .. } => {
                unreachable!("{movement:?} of a policy with one tier")
            }
            Verb::FetchObject { .. } | Verb::DropObject { .. } => unreachable!("{movement:?} without a query"),
        }
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, page: Page) -> Address {
        self.directory.key(page).address()
    }

    fn successor(&self, page: Page) -> Option<Page> {
        let at = self.address(page);
        self.directory.find(Key::pack(Address { block: at.block + 1, ..at })?)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        let at = self.address(page);
        self.directory.find(Key::pack(Address { block: at.block.checked_sub(1)?, ..at })?)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        (self.desk.object_pages)(object)
    }
}
