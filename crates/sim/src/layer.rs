//! A policy driven over requests: the inner loop of the simulator.

use crate::addresses::Addresses;
use crate::row::PartCounts;
use entresol_core::{Address, Hint, Movement, ObjectId, Op, Outcome, Page, Request, Tier, Verb, prefetch};
use entresol_policy::catalogue::Visitor;
use entresol_policy::extension::Pooled;
use entresol_policy::{Counts, Driver, Info, Log, Mode, Policy, Streams};
use std::ops::Range;

/// Requests ahead of the current one at which the loop asks the policy to prefetch: about as many as fit into the
/// latency of main memory.
pub(crate) const PREFETCH_AHEAD: usize = 16;

/// A request that one layer of a stack sends to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRequest {
    /// Position of the causing request in the trace.
    pub at: u32,
    /// The request.
    pub request: Request,
    /// True if the request completes a partial write, or is one: a hit counts as found for a write of the host.
    pub for_write: bool,
}

/// A policy of any kind in its loop: one virtual call per range of requests.
pub trait Layer {
    /// Drives the policy over requests of the trace.
    fn run(&mut self, range: Range<usize>);
    /// Drives the policy over requests from the layer above.
    fn run_requests(&mut self, requests: &[LayerRequest]);
    /// Drives the policy over one request and appends its movements, for a simulation with time. `for_write` as in
    /// [`LayerRequest`].
    fn decide(&mut self, at: usize, request: Request, for_write: bool, movements: &mut Vec<Movement>) -> Outcome;
    /// Passes a hint on and appends the movements it causes.
    fn hint_decide(&mut self, at: usize, hint: Hint, movements: &mut Vec<Movement>);
    /// Loads the policy's state of a page into the processor's cache, some requests before it is needed.
    fn prefetch(&self, page: Page);
    /// Takes the requests sent to the level below since the last call.
    fn take_sent(&mut self) -> Vec<LayerRequest>;
    /// Passes a hint on, at this position of the trace.
    fn hint(&mut self, hint: Hint, at: usize);
    /// The counts since the last reset.
    fn counts(&self) -> Counts;
    /// Read hits that answer a partial write of the host.
    fn hits_for_write(&self) -> u64;
    /// Sets all counts to zero: the end of the warm-up.
    fn reset(&mut self);
    /// Counts per object and per query, if they are kept.
    fn parts(&self) -> Option<&PartCounts>;
    /// Counts per page, by page id, if they are kept.
    fn pages(&self) -> &[PageCounts];
    /// Pages held in a tier.
    fn occupancy(&self, tier: Tier) -> usize;
    /// Visits the policy's gauges.
    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64));
    /// The value of one of the policy's tunables, by its index in [`Info::tunables`].
    fn tunable(&self, at: usize) -> f64;
    /// Sets one of the policy's tunables.
    fn tune(&mut self, at: usize, value: f64);
    /// Pages that are dirty now, ascending by page id.
    fn dirty_pages(&self) -> Vec<Page>;
    /// Bytes of the policy's state.
    fn memory_bytes(&self) -> usize;
    /// Pages of a segment of the log in the last tier; `None` without one.
    fn segment_pages(&self) -> Option<u32>;
    /// Takes the segments that the log has opened since the last call, in order.
    fn take_opened(&mut self, visit: &mut dyn FnMut(u32));
    /// Handling of writes.
    fn mode(&self) -> Mode;
    /// Description of the policy.
    fn info(&self) -> &'static Info;
    /// Number of tiers, a pool above the policy included.
    fn tiers(&self) -> usize;
}

/// Options of a layer besides counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerMode {
    /// True to keep the requests sent below for [`Layer::take_sent`].
    pub forward: bool,
    /// True to count per object and per query.
    pub parts: bool,
    /// True to count per page.
    pub pages: bool,
    /// True to keep movements for [`Layer::decide`].
    pub log: bool,
    /// Pages of a sequential stream after which the rest of it bypasses the layer; `None` to leave all requests to the
    /// policy.
    pub cutoff_pages: Option<u64>,
    /// Handling of writes.
    pub writes: Mode,
}

/// Builds a layer around a policy of the catalogue.
pub(crate) struct LayerBuilder<'w> {
    pub addresses: &'w Addresses<'w>,
    pub mode: LayerMode,
    /// Pages of a pool above the policy, if there is one.
    pub pool: Option<usize>,
    /// Log in the layer's last tier; `None` for a tier that is written in place.
    pub log: Option<Log>,
}

impl<'w> Visitor for LayerBuilder<'w> {
    type Output = Box<dyn Layer + 'w>;

    fn visit<P: Policy>(mut self, policy: P) -> Self::Output {
        let needs = &P::INFO;
        let policy = Pooled::over(policy, self.pool, self.addresses.trace.footprint());
        if let Some(log) = self.log.as_mut().filter(|_| self.mode.log) {
            log.keep_opened();
        }
        let mut driver = Counting {
            addresses: self.addresses,
            next_use: if needs.future { self.addresses.next_use() } else { &[] },
            at: 0,
            writing: false,
            for_write: false,
            mode: self.mode.writes,
            counts: Counts::default(),
            tap: None,
            log: self.log.map(Box::new),
        };
        let streams = self.mode.cutoff_pages.map(|pages| Box::new(Streams::new(pages)));
        if !self.mode.forward && !self.mode.parts && !self.mode.pages && !self.mode.log {
            return Box::new(Driven { policy, driver, streams, watch: Watch { parts: None, hits_for_write: 0 } });
        }
        let pages = if self.mode.pages { self.addresses.trace.footprint() } else { 0 };
        driver.tap = (self.mode.forward || self.mode.log || self.mode.pages).then(|| Tap {
            log: self.mode.log,
            forward: self.mode.forward,
            pages: vec![PageCounts::default(); pages],
            ..Tap::default()
        });
        let parts = self.mode.parts.then(|| PartCounts::new(self.addresses.trace));
        Box::new(Driven { policy, driver, streams, watch: Watch { parts, hits_for_write: 0 } })
    }
}

/// The simulator's driver: carries movements out by counting them.
struct Counting<'w> {
    addresses: &'w Addresses<'w>,
    next_use: &'w [u32],
    at: usize,
    writing: bool,
    for_write: bool,
    /// Handling of writes. Unless it is write-back, a write-back of the policy has nothing to write.
    mode: Mode,
    counts: Counts,
    tap: Option<Tap>,
    log: Option<Box<Log>>,
}

/// Counts of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Requests.
    pub requests: u64,
    /// Requests that no tier of the layer answered.
    pub misses: u64,
    /// Writes of the page to the level below.
    pub written: u64,
}

/// Record of movements, of the requests that they cause at the level below, or of the counts per page.
#[derive(Default)]
struct Tap {
    /// True to keep the movements themselves.
    log: bool,
    /// True to keep the requests sent below.
    forward: bool,
    /// Counts by page id; empty unless they are kept.
    pages: Vec<PageCounts>,
    movements: Vec<Movement>,
    sent: Vec<LayerRequest>,
}

impl Counting<'_> {
    /// Records the requests that a movement causes at the level below, or with `log` the movement itself.
    fn send(&mut self, movement: Movement) {
        let request = |page, op| Request { page, op, sequential: movement.joined };
        let Some(tap) = &mut self.tap else { return };
        if let Some(page) = tap.pages.get_mut(movement.page.index()) {
            let writes =
                matches!(movement.verb, Verb::WriteBack { .. }) || (movement.verb == Verb::Bypass && self.writing);
            page.written += u64::from(writes);
        }
        if tap.log {
            tap.movements.push(movement);
        }
        if !tap.forward || tap.log {
            return;
        }
        let sent = &mut tap.sent;
        let mut push = |request, for_write| sent.push(LayerRequest { at: self.at as u32, request, for_write });
        match movement.verb {
            Verb::Fetch { .. } => push(request(movement.page, Op::Read), self.for_write),
            Verb::WriteBack { .. } => push(request(movement.page, Op::Write), false),
            Verb::Bypass if self.writing => push(request(movement.page, Op::Write), false),
            Verb::Bypass => push(request(movement.page, Op::Read), self.for_write),
            Verb::FetchObject { object, .. } => {
                for page in (0..self.addresses.trace.footprint() as u32).map(Page) {
                    if self.addresses.address(page).object == object {
                        push(Request { page, op: Op::Read, sequential: true }, false);
                    }
                }
            }
            _ => {}
        }
    }

    fn take_movements(&mut self, into: &mut Vec<Movement>) {
        let Some(tap) = &mut self.tap else { return };
        if into.is_empty() {
            std::mem::swap(into, &mut tap.movements);
        } else {
            into.append(&mut tap.movements);
        }
    }

    /// Sends the read that completes a partial write without a copy, before all other requests that the write causes.
    fn send_completion(&mut self, request: Request, before: usize) {
        let Some(tap) = self.tap.as_mut().filter(|tap| tap.forward) else { return };
        let read = Request { op: Op::Read, sequential: false, ..request };
        tap.sent.insert(before, LayerRequest { at: self.at as u32, request: read, for_write: true });
    }
}

impl Driver for Counting<'_> {
    #[inline(always)]
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    #[inline(always)]
    fn emit(&mut self, movement: Movement) {
        if self.mode.is_clean() && matches!(movement.verb, Verb::WriteBack { .. }) {
            return;
        }
        self.counts.movement(movement, self.writing);
        if self.tap.is_some() {
            self.send(movement);
        }
        if let Some(log) = &mut self.log {
            log.movement(movement);
        }
    }

    #[inline(always)]
    fn now_us(&self) -> u64 {
        self.addresses.now_us(self.at)
    }

    #[inline(always)]
    fn next_use(&self) -> u32 {
        self.next_use[self.at]
    }

    #[inline(always)]
    fn address(&self, page: Page) -> Address {
        self.addresses.address(page)
    }

    #[inline(always)]
    fn successor(&self, page: Page) -> Option<Page> {
        self.addresses.neighbour(page, 1)
    }

    #[inline(always)]
    fn predecessor(&self, page: Page) -> Option<Page> {
        self.addresses.neighbour(page, 0)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.addresses.object_pages(object)
    }
}

/// Counts of outcomes beside those of the driver.
struct Watch {
    parts: Option<PartCounts>,
    hits_for_write: u64,
}

struct Driven<'w, P> {
    policy: Pooled<P>,
    driver: Counting<'w>,
    streams: Option<Box<Streams>>,
    watch: Watch,
}

impl<P: Policy> Driven<'_, P> {
    #[inline(always)]
    fn step(&mut self, at: usize, request: Request) -> Outcome {
        self.driver.at = at;
        self.driver.writing = request.op.is_write();
        let passes = self.streams.is_some() && self.passes(request.page);
        let outcome = if self.driver.mode.is_clean() && self.driver.writing {
            self.write_clean(request, passes)
        } else if passes {
            self.driver.bypass(request)
        } else {
            self.policy.access(request, &mut self.driver)
        };
        self.driver.counts.outcome(request, outcome);
        if self.driver.log.is_some() {
            self.settle_log(request);
        }
        outcome
    }

    /// Decides on a write that the backing store gets at once. A write that bypasses the layer goes there by that.
    fn write_clean(&mut self, request: Request, passes: bool) -> Outcome {
        if self.driver.mode == Mode::WriteAround && self.policy.state(request.page).tiers.is_empty() {
            self.driver.counts.write_arounds += 1;
            return Outcome::BYPASSED;
        }
        if passes {
            return self.driver.bypass(request);
        }
        let bypasses = self.driver.counts.write_bypasses;
        let outcome = self.policy.access(request, &mut self.driver);
        self.driver.counts.write_throughs += u64::from(self.driver.counts.write_bypasses == bypasses);
        outcome
    }

    fn settle_log(&mut self, request: Request) {
        let now_us = self.driver.now_us();
        let Some(mut log) = self.driver.log.take() else { return };
        log.settle(request.op.is_write(), now_us, self.policy.ranked(), |movement| self.driver.emit(movement));
        self.driver.log = Some(log);
    }

    /// True if the request bypasses: part of a long stream, for a page that no tier holds, in an object that is not
    /// placed.
    fn passes(&mut self, page: Page) -> bool {
        let at = self.driver.address(page);
        let long = self.streams.as_mut().is_some_and(|streams| streams.passes(at));
        long && self.policy.state(page).tiers.is_empty() && self.policy.placed(at.object) == 0
    }

    /// One step with recording or extra counts: exact, but not the fast path.
    fn step_watched(&mut self, at: usize, request: Request, for_write: bool) {
        self.driver.for_write = for_write;
        let before = self.driver.tap.as_ref().map_or(0, |tap| tap.sent.len());
        let at_once = self.driver.counts.write_throughs + self.driver.counts.write_arounds;
        let outcome = self.step(at, request);
        let at_once = self.driver.counts.write_throughs + self.driver.counts.write_arounds - at_once;
        if let Some(page) = self.driver.tap.as_mut().and_then(|tap| tap.pages.get_mut(request.page.index())) {
            page.requests += 1;
            page.misses += u64::from(!outcome.is_hit());
            page.written += at_once;
        }
        self.watch.hits_for_write += u64::from(for_write && outcome.is_hit() && !request.op.is_write());
        if request.op == Op::Update && !outcome.is_hit() {
            self.driver.send_completion(request, before);
        }
        if let Some(parts) = &mut self.watch.parts {
            parts.outcome(self.driver.addresses.trace, at, request, outcome);
        }
    }
}

impl<P: Policy> Layer for Driven<'_, P> {
    fn run(&mut self, range: Range<usize>) {
        let trace = self.driver.addresses.trace;
        if self.driver.tap.is_some() || self.watch.parts.is_some() {
            range.for_each(|at| self.step_watched(at, trace.request(at), false));
            return;
        }
        // One bound for the pages ahead keeps the check out of the loop's body.
        let ahead = range.end.min(trace.len().saturating_sub(PREFETCH_AHEAD)).max(range.start);
        for at in range.start..ahead {
            let coming = Page(trace.pages[at + PREFETCH_AHEAD]);
            self.policy.prefetch(coming);
            if P::INFO.addresses {
                prefetch(&trace.page_block, coming.index());
                prefetch(&trace.page_object, coming.index());
            }
            self.step(at, trace.request(at));
        }
        for at in ahead..range.end {
            self.step(at, trace.request(at));
        }
    }

    fn run_requests(&mut self, requests: &[LayerRequest]) {
        for r in requests {
            self.step_watched(r.at as usize, r.request, r.for_write);
        }
    }

    fn take_sent(&mut self) -> Vec<LayerRequest> {
        self.driver.tap.as_mut().map(|tap| std::mem::take(&mut tap.sent)).unwrap_or_default()
    }

    fn decide(&mut self, at: usize, request: Request, for_write: bool, movements: &mut Vec<Movement>) -> Outcome {
        let outcome = self.step(at, request);
        self.watch.hits_for_write += u64::from(for_write && outcome.is_hit() && !request.op.is_write());
        if let Some(parts) = &mut self.watch.parts {
            parts.outcome(self.driver.addresses.trace, at, request, outcome);
        }
        self.driver.take_movements(movements);
        outcome
    }

    fn prefetch(&self, page: Page) {
        self.policy.prefetch(page);
    }

    fn hint_decide(&mut self, at: usize, hint: Hint, movements: &mut Vec<Movement>) {
        self.hint(hint, at);
        self.driver.take_movements(movements);
    }

    fn hint(&mut self, hint: Hint, at: usize) {
        self.driver.at = at;
        self.driver.writing = false;
        self.driver.for_write = false;
        self.policy.hint(hint, &mut self.driver);
        if let Some(parts) = &mut self.watch.parts {
            parts.hint(hint);
        }
    }

    fn counts(&self) -> Counts {
        self.driver.counts
    }

    fn hits_for_write(&self) -> u64 {
        self.watch.hits_for_write
    }

    fn reset(&mut self) {
        self.driver.counts = Counts::default();
        self.watch.hits_for_write = 0;
        if let Some(parts) = &mut self.watch.parts {
            parts.reset();
        }
        if let Some(tap) = &mut self.driver.tap {
            tap.pages.fill(PageCounts::default());
        }
    }

    fn parts(&self) -> Option<&PartCounts> {
        self.watch.parts.as_ref()
    }

    fn pages(&self) -> &[PageCounts] {
        self.driver.tap.as_ref().map_or(&[], |tap| &tap.pages)
    }

    fn occupancy(&self, tier: Tier) -> usize {
        self.policy.occupancy(tier)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.policy.gauges(visit);
        if let Some(log) = &self.driver.log {
            log.gauges(visit);
        }
    }

    fn tunable(&self, at: usize) -> f64 {
        self.policy.tunable(at)
    }

    fn tune(&mut self, at: usize, value: f64) {
        self.policy.tune(at, value);
    }

    fn dirty_pages(&self) -> Vec<Page> {
        if self.driver.mode.is_clean() {
            return Vec::new();
        }
        let pages = 0..self.driver.addresses.trace.footprint() as u32;
        pages.map(Page).filter(|&page| self.policy.state(page).dirty).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.policy.memory_bytes() + self.driver.log.as_ref().map_or(0, |log| log.memory_bytes())
    }

    fn segment_pages(&self) -> Option<u32> {
        self.driver.log.as_ref().map(|log| log.segment_pages())
    }

    fn take_opened(&mut self, visit: &mut dyn FnMut(u32)) {
        if let Some(log) = &mut self.driver.log {
            log.take_opened(visit);
        }
    }

    fn mode(&self) -> Mode {
        self.driver.mode
    }

    fn info(&self) -> &'static Info {
        &P::INFO
    }

    fn tiers(&self) -> usize {
        self.policy.tiers()
    }
}
