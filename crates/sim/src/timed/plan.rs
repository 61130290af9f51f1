//! From movements to I/Os: the foreground of a request, and its background.

use super::frames::{Frames, Order};
use super::work::Op;
use crate::addresses::Addresses;
use crate::cell::Run;
use crate::layer::PREFETCH_AHEAD;
use entresol_core::{Hint, Movement, ObjectId, Op as RequestOp, Outcome, Page, Request, Tier, Verb, prefetch};

/// I/O size of whole objects in bytes.
const OBJECT_IO_BYTES: u64 = 1 << 20;

/// The I/Os of one request.
#[derive(Default)]
pub(super) struct Plan {
    /// I/Os in order; the requester waits for all of them.
    pub foreground: Vec<Op>,
    /// Chains that no requester waits for.
    pub background: Chains,
}

impl Plan {
    pub fn clear(&mut self) {
        self.foreground.clear();
        self.background.clear();
    }
}

/// Chains of I/Os, one after the other in one vector, so that none of them allocates.
#[derive(Default)]
pub(super) struct Chains {
    ops: Vec<Op>,
    /// End of each chain: the index in `ops` after its last I/O.
    ends: Vec<usize>,
}

impl Chains {
    fn clear(&mut self) {
        self.ops.clear();
        self.ends.clear();
    }

    fn push(&mut self, chain: impl IntoIterator<Item = Op>) {
        self.ops.extend(chain);
        self.ends.push(self.ops.len());
    }

    fn append(&mut self, other: &Chains) {
        other.iter().for_each(|chain| self.push(chain.iter().copied()));
    }

    /// Adds a read and a write that depends on it. A joined transfer whose write continues the last chain's is added to
    /// that chain.
    fn transfer(&mut self, read: Op, write: Op, joined: bool) {
        if joined
            && let (Some(end), Some(last)) = (self.ends.last_mut(), self.ops.last_mut())
            && last.device == write.device
            && last.io.end() == write.io.offset
        {
            last.io.bytes += write.io.bytes;
            *end += 1;
            self.ops.insert(self.ops.len() - 1, read);
            return;
        }
        self.push([read, write]);
    }

    /// The chains, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &[Op]> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.ops[begin..end])
    }
}

/// The segment of a log that is being filled in the host's memory: the reads that bring its pages there, and the one
/// write that will put it on the device.
#[derive(Default)]
struct Segment {
    reads: Vec<Op>,
    write: Option<Op>,
}

/// The cause of a movement.
#[derive(Clone, Copy)]
struct Cause {
    /// Position in the trace.
    at: usize,
    /// The request to the deciding layer; `None` for a hint.
    request: Option<Request>,
    /// True if the host is writing: reads complete a partial write.
    for_write: bool,
    /// True if the deciding layer had the page.
    found: bool,
}

impl Cause {
    fn reads(self) -> bool {
        self.request.is_none_or(|request| request.op == RequestOp::Read)
    }

    /// True if a part of a held page is modified.
    fn updates_in_place(self) -> bool {
        self.found && self.request.is_some_and(|request| request.op == RequestOp::Update)
    }
}

/// Policies, the frames of their tiers and the addresses below.
pub(super) struct Planner<'w> {
    pub run: Run<'w>,
    addresses: &'w Addresses<'w>,
    frames: Vec<Frames>,
    /// Bytes of a page that a request reads or updates in place, for each tier.
    touched: Vec<u32>,
    /// First tier of each layer among all tiers.
    first_tier: Vec<usize>,
    /// Offset of each object below, in bytes.
    object_base: Vec<u64>,
    movements: Vec<Vec<Movement>>,
    /// The open segment of each tier that is a log. It is written when the next one begins. In a ring that is at a
    /// movement that is not joined to the one before it, in the same request or another.
    segments: Vec<Segment>,
}

impl<'w> Planner<'w> {
    /// `tiers` holds the capacities of each layer's tiers, `slots` the slots of each tier that is in the slots layout;
    /// for `touched` see `TimedOptions`.
    pub fn new(
        addresses: &'w Addresses<'w>,
        run: Run<'w>,
        tiers: &[Vec<usize>],
        slots: &[Option<u32>],
        touched: &[u32],
    ) -> Self {
        let trace = addresses.trace;
        let mut frames = Vec::new();
        let mut first_tier = Vec::new();
        for (layer, capacities) in run.layers.iter().zip(tiers) {
            first_tier.push(frames.len());
            for (t, &capacity) in capacities.iter().enumerate() {
                let order = match layer.segment_pages() {
                    Some(pages) if t + 1 == capacities.len() => Order::Segments(pages),
                    None if layer.info().log && t + 1 == capacities.len() => Order::Ring,
                    _ => slots.get(frames.len()).copied().flatten().map_or(Order::InPlace, Order::Slots),
                };
                frames.push(Frames::new(trace.footprint(), capacity, trace.page_bytes, order));
            }
        }
        let mut next = 0;
        let base = |object: &entresol_trace::Object| {
            let start = next;
            next += object.pages * u64::from(trace.page_bytes);
            start
        };
        let object_base = trace.objects.iter().map(base).collect();
        let movements = run.layers.iter().map(|_| Vec::new()).collect();
        let segments = frames.iter().map(|_| Segment::default()).collect();
        let of_page = |tier: usize| touched.get(tier).map_or(trace.page_bytes, |&bytes| bytes.min(trace.page_bytes));
        let touched = (0..frames.len()).map(of_page).collect();
        Planner { run, addresses, frames, touched, first_tier, object_base, movements, segments }
    }

    /// Bytes that the level below must hold.
    pub fn backing_bytes(&self) -> u64 {
        let pages: u64 = self.addresses.trace.objects.iter().map(|object| object.pages).sum();
        pages * u64::from(self.addresses.trace.page_bytes)
    }

    /// The number of tiers, which is the index of the device below them.
    pub fn below(&self) -> usize {
        self.frames.len()
    }

    fn bytes(&self) -> u32 {
        self.addresses.trace.page_bytes
    }

    /// Puts a page into a tier: at once, or into the open segment of a log. `read` is the I/O that brings the page, if
    /// one is needed.
    fn put(&mut self, tier: usize, page: Page, read: Option<Op>, joined: bool, plan: &mut Plan) {
        let write = Op::write(tier, self.frames[tier].place(page), self.bytes());
        if !self.frames[tier].is_log() {
            match read {
                Some(read) => plan.background.transfer(read, write, joined),
                None => plan.background.push([write]),
            }
            return;
        }
        let joined = joined || self.frames[tier].has_segments();
        let segment = &mut self.segments[tier];
        match &mut segment.write {
            Some(open) if joined && open.io.end() == write.io.offset => open.io.bytes += write.io.bytes,
            open => {
                if let Some(full) = open.replace(write) {
                    plan.background.push(segment.reads.drain(..).chain([full]));
                }
            }
        }
        segment.reads.extend(read);
    }

    /// Offset of a page in a tier's device, in bytes: that of its frame, or that at which the page came with its whole
    /// object.
    fn offset(&self, tier: usize, page: Page) -> u64 {
        let frames = &self.frames[tier];
        if frames.holds(page) { frames.offset(page) } else { frames.wrapped(self.backing_offset(page)) }
    }

    /// The I/O that reads a page from the lowest tier, if that has it.
    pub fn lowest(&self, page: Page) -> Option<Op> {
        let tier = self.below().checked_sub(1)?;
        let frames = self.frames.get(tier).filter(|frames| frames.holds(page))?;
        Some(Op::read(tier, frames.offset(page), self.bytes()))
    }

    /// Offset of a page in the level below, in bytes.
    pub fn backing_offset(&self, page: Page) -> u64 {
        let address = self.addresses.address(page);
        self.object_base[address.object.index()] + address.block * u64::from(self.bytes())
    }

    /// Passes the segments that a layer's log has opened to the frames of its last tier.
    fn note_opened(&mut self, depth: usize) {
        let next = self.first_tier.get(depth + 1).copied().unwrap_or(self.frames.len());
        self.run.layers[depth].take_opened(&mut |segment| self.frames[next - 1].open([segment]));
    }

    /// Decides on a request of the trace; returns the tier of the hit, or `below()`.
    pub fn request(&mut self, at: usize, plan: &mut Plan) -> usize {
        self.layer(0, at, self.addresses.trace.request(at), false, plan)
    }

    /// Loads the state for a request [`PREFETCH_AHEAD`] positions after `at` into the processor's cache.
    #[inline(always)]
    pub fn prefetch_behind(&self, at: usize) {
        let Some(&page) = self.addresses.trace.pages.get(at + PREFETCH_AHEAD) else { return };
        self.run.layers.iter().for_each(|layer| layer.prefetch(Page(page)));
        self.prefetch(Page(page));
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        let trace = self.addresses.trace;
        self.frames.iter().for_each(|frames| frames.prefetch(page));
        prefetch(&trace.page_block, page.index());
        prefetch(&trace.page_object, page.index());
    }

    /// Passes a hint to all layers.
    pub fn hint(&mut self, at: usize, hint: Hint, plan: &mut Plan) {
        for depth in 0..self.run.layers.len() {
            let mut movements = std::mem::take(&mut self.movements[depth]);
            self.run.layers[depth].hint_decide(at, hint, &mut movements);
            self.note_opened(depth);
            for movement in movements.drain(..) {
                self.movement(depth, Cause { at, request: None, for_write: false, found: false }, movement, plan);
            }
            self.movements[depth] = movements;
        }
    }

    fn layer(&mut self, depth: usize, at: usize, request: Request, for_write: bool, plan: &mut Plan) -> usize {
        let first = self.first_tier[depth];
        let page = request.page;
        let mut movements = std::mem::take(&mut self.movements[depth]);
        let outcome = self.run.layers[depth].decide(at, request, for_write, &mut movements);
        self.note_opened(depth);
        // The victims are known now; their state is loaded all at once rather than one after the other.
        movements.iter().filter(|movement| movement.page != page).for_each(|movement| self.prefetch(movement.page));
        let mut place = self.below();
        match outcome {
            Outcome::Hit(tier) => {
                place = first + tier.index();
                let promoted = movements.iter().any(|movement| is_promotion(movement, page, tier));
                let reads = request.op == RequestOp::Read
                    || request.op == RequestOp::Update && self.run.layers[depth].info().log;
                if reads && !promoted {
                    // The read uses the offset before any movement, because a movement may change it.
                    plan.foreground.push(Op::read(place, self.offset(place, page), self.touched[place]));
                }
            }
            Outcome::Miss { .. } if request.op == RequestOp::Update => {
                place = self.read_below(depth, at, page, true, plan);
            }
            Outcome::Miss { .. } => {}
        }
        let found = matches!(outcome, Outcome::Hit(_));
        let cause = Cause { at, request: Some(request), for_write, found };
        let at_once = request.op.is_write() && self.run.layers[depth].mode().is_clean();
        let sent = at_once && movements.iter().all(|movement| movement.verb != Verb::Bypass);
        for movement in movements.drain(..) {
            if let Some(found) = self.movement(depth, cause, movement, plan) {
                place = found;
            }
        }
        self.movements[depth] = movements;
        if sent {
            plan.foreground.push(Op::write(self.below(), self.backing_offset(page), self.bytes()));
        }
        place
    }

    fn read_below(&mut self, depth: usize, at: usize, page: Page, for_write: bool, plan: &mut Plan) -> usize {
        if depth + 1 < self.run.layers.len() {
            return self.layer(depth + 1, at, Request::read(page.0), for_write, plan);
        }
        plan.foreground.push(Op::read(self.below(), self.backing_offset(page), self.bytes()));
        self.below()
    }

    /// Adds the I/Os of a movement. Returns the place of the read when the movement read from the level below.
    fn movement(&mut self, depth: usize, cause: Cause, movement: Movement, plan: &mut Plan) -> Option<usize> {
        let Movement { page, verb, joined } = movement;
        let Cause { at, request, for_write, .. } = cause;
        let bytes = self.bytes();
        let device = |tier: Tier| self.first_tier[depth] + tier.index();
        match verb {
            Verb::Fetch { to } => {
                let to = device(to);
                let found = self.read_below(depth, at, page, for_write, plan);
                self.put(to, page, None, joined, plan);
                return Some(found);
            }
            Verb::Install { to } => {
                let to = device(to);
                if self.frames[to].is_log() {
                    self.put(to, page, None, joined, plan);
                } else {
                    let bytes = if cause.updates_in_place() { self.touched[to] } else { bytes };
                    plan.foreground.push(Op::write(to, self.frames[to].place(page), bytes));
                }
            }
            Verb::Copy { from, to } => {
                let awaited = request.is_some_and(|request| request.page == page) && to < from;
                let (from, to) = (device(from), device(to));
                let read = Op::read(from, self.frames[from].offset(page), bytes);
                if awaited {
                    plan.foreground.extend([read, Op::write(to, self.frames[to].place(page), bytes)]);
                } else {
                    self.put(to, page, Some(read), joined, plan);
                }
            }
            Verb::WriteBack { from } => {
                let from = device(from);
                let read = Op::read(from, self.offset(from, page), bytes);
                self.write_below(depth, at, page, read, joined, plan);
            }
            Verb::Requeue { tier } => {
                let tier = device(tier);
                let read = Op::read(tier, self.frames[tier].offset(page), bytes);
                self.put(tier, page, Some(read), joined, plan);
            }
            Verb::Drop { from } | Verb::Supersede { tier: from } => {
                let from = device(from);
                if self.frames[from].holds(page) {
                    self.frames[from].release(page);
                }
            }
            Verb::Reclaim { .. } | Verb::DropObject { .. } => {}
            Verb::Bypass => return Some(self.bypass(depth, cause, page, plan)),
            Verb::FetchObject { object, pages, to } => self.fetch_object(device(to), object, pages, plan),
        }
        None
    }

    fn bypass(&mut self, depth: usize, cause: Cause, page: Page, plan: &mut Plan) -> usize {
        if cause.reads() {
            return self.read_below(depth, cause.at, page, cause.for_write, plan);
        }
        if depth + 1 < self.run.layers.len() {
            return self.layer(depth + 1, cause.at, Request::write(page.0), false, plan);
        }
        plan.foreground.push(Op::write(self.below(), self.backing_offset(page), self.bytes()));
        self.below()
    }

    /// Writes a page back: to the layer below as a write of its own, or to the backing store.
    fn write_below(&mut self, depth: usize, at: usize, page: Page, read: Op, joined: bool, plan: &mut Plan) {
        if depth + 1 == self.run.layers.len() {
            plan.background.transfer(read, Op::write(self.below(), self.backing_offset(page), self.bytes()), joined);
            return;
        }
        let mut caused = Plan::default();
        self.layer(depth + 1, at, Request::write(page.0), false, &mut caused);
        plan.background.push([read].into_iter().chain(caused.foreground));
        plan.background.append(&caused.background);
    }

    fn fetch_object(&mut self, to: usize, object: ObjectId, pages: u32, plan: &mut Plan) {
        let (base, total) = (self.object_base[object.index()], u64::from(pages) * u64::from(self.bytes()));
        let mut chain = Vec::new();
        let mut done = 0;
        while done < total {
            let bytes = OBJECT_IO_BYTES.min(total - done) as u32;
            chain.push(Op::read(self.below(), base + done, bytes));
            chain.push(Op::write(to, done, bytes));
            done += u64::from(bytes);
        }
        plan.background.push(chain);
    }
}

/// True if this movement reads the page from the tier of its hit, for the requester.
fn is_promotion(movement: &Movement, page: Page, found: Tier) -> bool {
    movement.page == page && matches!(movement.verb, Verb::Copy { from, to } if from == found && to < from)
}
