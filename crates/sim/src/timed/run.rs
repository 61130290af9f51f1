//! The event loop: requesters, chains of I/Os, devices.

use super::behind::{Behind, Queue, spare_slots};
use super::plan::{Plan, Planner};
use super::processors::{Processors, Work};
use super::report::{DeviceRow, LatencyRow, TimedRow};
use super::tuning::{Tuned, Tuning};
use super::work::{Done, Op, Owner, Station, Works, histogram, record};
use crate::addresses::Addresses;
use crate::cell::{CellError, CellOptions, Recording, Run, Stack, Totals, thread_cpu_time};
use crate::row::{Interval, Row};
use crate::spec::LayerSpec;
use crate::sweep::Cell;
use entresol_core::{Hint, ObjectId};
use entresol_device::{Completion, Device, DeviceError, Nanos};
use entresol_trace::EventKind;
use entresol_tune::EpochRow;
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A device and its name.
pub type NamedDevice = (String, Box<dyn Device>);

/// The devices under the tiers of a stack, all layers' tiers in order, and the level below.
pub struct Hierarchy {
    /// Name and device of each tier.
    pub tiers: Vec<NamedDevice>,
    /// Name and device of the level below.
    pub backing: NamedDevice,
}

/// Options of a simulation with time: the arrival of requests, and the limits on background I/O.
#[derive(Clone, Debug)]
pub struct TimedOptions {
    /// Concurrent requesters, each with one request at a time; 0 to use the trace's own times.
    pub clients: u32,
    /// Think time in nanoseconds: from the completion of a request, and the work after it, to the next request of the
    /// same requester.
    pub think_ns: Nanos,
    /// Work of a requester between the completion of a request and the think time. Work waits for a processor; think
    /// time waits for nothing. Work is not part of a request's latency, and does not delay requests that come by the
    /// trace's own times.
    pub work: Work,
    /// Most background chains under way; while there are as many, no new request starts.
    pub background: usize,
    /// Thread that writes below, for one layer in write-back; `None` to start each write-back at once. Pages that wait for
    /// the thread are not in `background`, and pages that wait at the end of the trace are not written.
    pub behind: Option<Behind>,
    /// Bytes of a page that a request reads or updates in place, for each tier in order. The default beyond the end,
    /// and the maximum, is the whole page. Pages move between tiers whole. For tiers that a processor addresses by the
    /// byte.
    pub touched_bytes: Vec<u32>,
}

impl Default for TimedOptions {
    fn default() -> Self {
        TimedOptions {
            clients: 1,
            think_ns: 0,
            work: Work::NONE,
            background: 256,
            behind: None,
            touched_bytes: Vec::new(),
        }
    }
}

/// Why a simulation with time cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TimedError {
    /// The cell itself cannot be run.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// The number of devices is not the number of tiers.
    #[error("{given} devices for {needed} tiers: {names}")]
    Devices {
        /// Devices given.
        given: usize,
        /// Number of tiers.
        needed: usize,
        /// Names of the tiers.
        names: String,
    },
    /// A device is too small.
    #[error("'{device}' has {capacity} B and must hold {needed} B")]
    TooSmall {
        /// The device.
        device: String,
        /// Capacity of the device in bytes.
        capacity: u64,
        /// Capacity that it needs, in bytes.
        needed: u64,
    },
    /// A device refused an I/O.
    #[error("'{device}': {error}")]
    Refused {
        /// The device.
        device: String,
        /// Error of the device.
        error: DeviceError,
    },
    /// The trace has no times.
    #[error("the trace has no times; give a number of clients")]
    NoTimes,
}

/// Drives a stack over a trace with time. `size` is the label of the row.
///
/// # Errors
/// When the stack, the devices or the trace do not fit together; see [`TimedError`].
pub fn run_timed(
    addresses: &Addresses,
    layers: &[LayerSpec],
    size: String,
    hierarchy: Hierarchy,
    options: &CellOptions,
    timed: &TimedOptions,
) -> Result<(Row, TimedRow), TimedError> {
    let stack = Stack::new(layers, size, addresses)?;
    run_timed_stack(addresses, &stack, hierarchy, options, timed, None).map(|(row, timed, _)| (row, timed))
}

impl Cell {
    /// Bytes needed on each device: the tiers of all layers in order, then the level below.
    pub fn needs(&self, addresses: &Addresses) -> Vec<u64> {
        let page_bytes = u64::from(addresses.trace.page_bytes);
        let tiers = self.stack.layers.iter().flat_map(|placed| &placed.tiers);
        let below: u64 = addresses.trace.objects.iter().map(|object| object.pages).sum();
        tiers.map(|&pages| pages as u64).chain([below]).map(|pages| pages * page_bytes).collect()
    }

    /// Bytes of spare slots on each device of [`Cell::needs`], if it is a flash drive: a tier in the slots layout has as
    /// many as a live cache. On a drive without them its pages are written in place.
    pub fn spare(&self, addresses: &Addresses, options: &CellOptions) -> Vec<u64> {
        let page_bytes = addresses.trace.page_bytes;
        let mut spare = vec![0; self.needs(addresses).len()];
        if let Some((tier, pages)) = slots_tier(&self.stack, options) {
            spare[tier] = spare_slots(pages, page_bytes) * u64::from(page_bytes);
        }
        spare
    }

    /// Runs this cell like [`run_timed`].
    ///
    /// # Errors
    /// When the devices or the trace do not fit; see [`TimedError`].
    pub fn run_timed(
        &self,
        addresses: &Addresses,
        hierarchy: Hierarchy,
        options: &CellOptions,
        timed: &TimedOptions,
    ) -> Result<(Row, TimedRow), TimedError> {
        run_timed_stack(addresses, &self.stack, hierarchy, options, timed, None).map(|(row, timed, _)| (row, timed))
    }

    /// Runs this cell with settings that a tuner changes; also returns the epochs, from the end of the warm-up on.
    ///
    /// # Errors
    /// When the devices or the trace do not fit; see [`TimedError`].
    pub fn run_tuned<'a>(
        &self,
        addresses: &'a Addresses<'a>,
        hierarchy: Hierarchy,
        options: &CellOptions,
        timed: &'a TimedOptions,
        tuning: Tuning<'a>,
    ) -> Result<(Row, TimedRow, Vec<EpochRow>), TimedError> {
        run_timed_stack(addresses, &self.stack, hierarchy, options, timed, Some(tuning))
    }
}

fn run_timed_stack<'a>(
    addresses: &'a Addresses<'a>,
    stack: &Stack,
    hierarchy: Hierarchy,
    options: &CellOptions,
    timed: &'a TimedOptions,
    tuning: Option<Tuning<'a>>,
) -> Result<(Row, TimedRow, Vec<EpochRow>), TimedError> {
    if timed.clients == 0 && addresses.trace.times_us.is_none() {
        return Err(TimedError::NoTimes);
    }
    let began = thread_cpu_time();
    let run = Run::build(addresses, stack, options, Recording { log: true, ..Recording::default() })?;
    let tiers: Vec<Vec<usize>> = stack.layers.iter().map(|placed| placed.tiers.clone()).collect();
    let slots = slots(stack, &hierarchy, options, addresses.trace.page_bytes);
    let planner = Planner::new(addresses, run, &tiers, &slots, &timed.touched_bytes);
    let stations = stations(&planner, stack, &tiers, hierarchy, addresses.trace.page_bytes)?;
    let mut simulation = Simulation::new(addresses, planner, stations, timed);
    simulation.tuned = tuning.map(|tuning| Tuned::new(tuning, addresses.trace.page_bytes, &mut simulation.planner.run));
    simulation.history.step = options.interval.map(|step| step.max(1) as usize);
    let started = simulation.run((addresses.trace.len() as f64 * options.warmup) as usize)?;
    let mut timed_row = simulation.timed_row(stack, started);
    let mut row = simulation.planner.run.row(stack, options);
    timed_row.read_cache_latency_us = timed_row.read_cache_latency(&row);
    row.series = simulation.history.series;
    row.cpu_seconds = (thread_cpu_time() - began).as_secs_f64();
    let epochs = simulation.tuned.map(|tuned| tuned.epochs).unwrap_or_default();
    Ok((row, timed_row, epochs))
}

/// The tier in the slots layout, counted over the tiers of all layers, and its pages: the last one, unless it is a log.
fn slots_tier(stack: &Stack, options: &CellOptions) -> Option<(usize, u64)> {
    let lowest = stack.layers.last().filter(|placed| !placed.spec.info.log && options.log.is_none())?;
    let tiers: usize = stack.layers.iter().map(|placed| placed.tiers.len()).sum();
    Some((tiers - 1, *lowest.tiers.last()? as u64))
}

/// Slots of each tier that is in the slots layout, as far as its device has them. It has to be a flash drive. Other
/// devices are written in place: that changes no count of theirs.
fn slots(stack: &Stack, hierarchy: &Hierarchy, options: &CellOptions, page_bytes: u32) -> Vec<Option<u32>> {
    let mut slots = vec![None; hierarchy.tiers.len()];
    if let Some((tier, pages)) = slots_tier(stack, options)
        && let Some((_, device)) = hierarchy.tiers.get(tier)
        && device.amplification().is_some()
    {
        let fit = device.capacity_bytes() / u64::from(page_bytes);
        slots[tier] = Some((pages + spare_slots(pages, page_bytes)).min(fit).max(pages) as u32);
    }
    slots
}

fn stations(
    planner: &Planner,
    stack: &Stack,
    tiers: &[Vec<usize>],
    hierarchy: Hierarchy,
    page_bytes: u32,
) -> Result<Vec<Station>, TimedError> {
    let names = tier_names(stack);
    if hierarchy.tiers.len() != names.len() {
        let (given, needed) = (hierarchy.tiers.len(), names.len());
        return Err(TimedError::Devices { given, needed, names: names.join(", ") });
    }
    let held = tiers.iter().flatten().map(|&pages| pages as u64 * u64::from(page_bytes));
    let needs = held.chain([planner.backing_bytes()]);
    let named = names.into_iter().chain(["below".to_owned()]);
    let devices = hierarchy.tiers.into_iter().chain([hierarchy.backing]);
    let mut stations = Vec::new();
    for ((tier, (name, device)), needed) in named.zip(devices).zip(needs) {
        let capacity = device.capacity_bytes();
        let name = format!("{tier} ({name})");
        if capacity < needed {
            return Err(TimedError::TooSmall { device: name, capacity, needed });
        }
        stations.push(Station::new(name, device));
    }
    Ok(stations)
}

fn tier_names(stack: &Stack) -> Vec<String> {
    let single = stack.layers.len() == 1;
    let names = stack.layers.iter().flat_map(|placed| {
        let prefix = if single { String::new() } else { format!("{}.", placed.spec.info.name) };
        placed.tier_names().into_iter().map(move |tier| format!("{prefix}{tier}"))
    });
    names.collect()
}

/// An arrived request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Nanos,
    client: u32,
}

/// Counts of each interval, and the state of the current one.
#[derive(Default)]
struct History {
    /// Requests per interval.
    step: Option<usize>,
    /// Requests before the current interval, and the counts at its begin.
    begin: usize,
    before: Totals,
    series: Vec<Interval>,
}

impl History {
    /// Ends the interval at request `end` if it is full, or in any case if it is the last.
    fn note(&mut self, run: &Run, end: usize, last: bool) {
        let Some(step) = self.step else { return };
        if end - self.begin == step || last && end > self.begin {
            self.series.push(run.interval(end, self.before));
            self.begin = end;
            self.before = run.totals();
        }
    }
}

struct Simulation<'w> {
    addresses: &'w Addresses<'w>,
    planner: Planner<'w>,
    stations: Vec<Station>,
    options: &'w TimedOptions,
    works: Works,
    background: usize,
    queue: Option<Queue>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    processors: Processors,
    /// Requests that arrived while no request could start.
    waiting: VecDeque<Arrival>,
    /// Index of the next request to start, and of the next to arrive by the trace's times.
    next_request: usize,
    next_arrival: usize,
    next_event: usize,
    now: Nanos,
    plan: Plan,
    completions: Vec<Completion>,
    latencies: Vec<Histogram<u64>>,
    history: History,
    tuned: Option<Tuned<'w>>,
}

impl<'w> Simulation<'w> {
    fn new(
        addresses: &'w Addresses<'w>,
        planner: Planner<'w>,
        stations: Vec<Station>,
        options: &'w TimedOptions,
    ) -> Self {
        let latencies = stations.iter().map(|_| histogram()).collect();
        let arrivals = (0..options.clients).map(|client| Reverse(Arrival { at: 0, client })).collect();
        Simulation {
            addresses,
            planner,
            stations,
            options,
            works: Works::default(),
            background: 0,
            queue: options.behind.map(Queue::new),
            arrivals,
            processors: Processors::new(options.work),
            waiting: VecDeque::new(),
            next_request: 0,
            next_arrival: 0,
            next_event: 0,
            now: 0,
            plan: Plan::default(),
            completions: Vec::new(),
            latencies,
            history: History::default(),
            tuned: None,
        }
    }

    /// Runs the whole trace; returns the time at which the warm-up ended.
    fn run(&mut self, warm: usize) -> Result<Nanos, TimedError> {
        let mut started = (warm == 0).then_some(0);
        if let Some(tuned) = self.tuned.as_mut().filter(|_| warm == 0) {
            tuned.begin(0, 0, &self.stations, &mut self.planner.run);
        }
        while let Some(next) = self.next_time() {
            self.now = next;
            self.complete_io()?;
            self.start_requests()?;
            self.write_behind()?;
            if started.is_none() && self.next_request >= warm {
                self.end_warm_up();
                started = Some(self.now);
            }
        }
        self.history.note(&self.planner.run, self.next_request, true);
        if let Some(tuned) = &mut self.tuned {
            tuned.end(self.next_request, self.now, &self.stations);
        }
        Ok(started.unwrap_or(self.now))
    }

    fn end_warm_up(&mut self) {
        self.planner.run.layers.iter_mut().for_each(|layer| layer.reset());
        self.stations.iter_mut().for_each(|station| station.reset(self.now));
        self.latencies.iter_mut().for_each(|latency| latency.reset());
        self.history = History { step: self.history.step, begin: self.next_request, ..History::default() };
        if let Some(tuned) = &mut self.tuned {
            tuned.begin(self.next_request, self.now, &self.stations, &mut self.planner.run);
        }
    }

    /// Time of the next event; `None` when the run is over.
    fn next_time(&self) -> Option<Nanos> {
        let devices = self.stations.iter().map(|station| station.next_event).min().filter(|&next| next < Nanos::MAX);
        let exhausted = self.next_request >= self.addresses.trace.len();
        let client = self.arrivals.peek().filter(|_| !exhausted).map(|arrival| arrival.0.at);
        devices.into_iter().chain(client).chain(self.clock_arrival()).min().map(|next| next.max(self.now))
    }

    /// Time of the next arrival by the trace's times.
    fn clock_arrival(&self) -> Option<Nanos> {
        if self.options.clients > 0 {
            return None;
        }
        let times = self.addresses.trace.times_us.as_ref()?;
        times.get(self.next_arrival).map(|us| us * 1000)
    }

    fn complete_io(&mut self) -> Result<(), TimedError> {
        for device in 0..self.stations.len() {
            if self.stations[device].next_event > self.now {
                continue;
            }
            // I/Os that these completions start on the same device are left to the next step, even if they take no
            // time.
            let foreseen = self.stations[device].foreseen();
            if foreseen > 0 {
                while let Some((finished, done)) = self.stations[device].pop(self.now, foreseen) {
                    self.proceed(device, finished, done)?;
                }
                continue;
            }
            let mut completions = std::mem::take(&mut self.completions);
            self.stations[device].advance(self.now, &mut completions);
            for completion in completions.drain(..) {
                self.proceed(device, completion.finished, Done::from(completion))?;
            }
            self.completions = completions;
        }
        Ok(())
    }

    /// Handles the completion of an I/O: submits the next one of its chain, or finishes the chain.
    fn proceed(&mut self, device: usize, finished: Nanos, done: Done) -> Result<(), TimedError> {
        let Done { slot, latency_ns } = done;
        self.stations[device].complete(finished, latency_ns, self.works.direction(slot));
        if let Some(op) = self.works.next(slot) {
            return self.submit(finished, op);
        }
        let owner = self.works.finish(slot);
        self.finish(owner, finished);
        Ok(())
    }

    #[inline]
    fn submit(&mut self, now: Nanos, Op { device, io }: Op) -> Result<(), TimedError> {
        let station = &mut self.stations[device];
        station.submit(now, io).map_err(|error| TimedError::Refused { device: station.name.clone(), error })
    }

    /// Submits the first I/O of a chain; an empty chain is finished at once.
    fn start_chain(&mut self, owner: Owner, chain: &[Op]) -> Result<(), TimedError> {
        let Some((&first, rest)) = chain.split_first() else {
            self.finish(owner, self.now);
            return Ok(());
        };
        let op = self.works.start(owner, first, rest);
        self.submit(self.now, op)
    }

    fn finish(&mut self, owner: Owner, now: Nanos) {
        match owner {
            Owner::Background => self.background -= 1,
            Owner::Behind => self.queue.as_mut().expect("it was taken from there").landed(),
            Owner::Client { client, since, place } => self.answer(client, since, place, now),
        }
    }

    /// Completes a request; its requester works, thinks and sends the next.
    fn answer(&mut self, client: u32, since: Nanos, place: usize, now: Nanos) {
        record(&mut self.latencies[place], now - since);
        if self.options.clients > 0 {
            let worked = self.processors.work(now);
            self.arrivals.push(Reverse(Arrival { at: worked + self.options.think_ns, client }));
        }
    }

    fn start_requests(&mut self) -> Result<(), TimedError> {
        while self.clock_arrival().is_some_and(|at| at <= self.now) {
            self.waiting.push_back(Arrival { at: self.clock_arrival().expect("just seen"), client: 0 });
            self.next_arrival += 1;
        }
        while self.arrivals.peek().is_some_and(|arrival| arrival.0.at <= self.now) {
            let Reverse(arrival) = self.arrivals.pop().expect("just seen");
            self.waiting.push_back(arrival);
        }
        while self.has_room() && self.next_request < self.addresses.trace.len() {
            let Some(arrival) = self.waiting.pop_front() else { break };
            self.start_request(arrival)?;
        }
        Ok(())
    }

    /// True if a request may start.
    fn has_room(&self) -> bool {
        self.background < self.options.background && !self.queue.as_ref().is_some_and(Queue::is_full)
    }

    /// Lets the write-back thread take its next chains, if the last are done.
    fn write_behind(&mut self) -> Result<(), TimedError> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let taken = queue.take();
        if taken.is_empty() {
            return Ok(());
        }
        taken.iter().try_for_each(|chain| self.start_chain(Owner::Behind, chain))?;
        // A request that waited for a free position in the queue may start now.
        self.start_requests()
    }

    fn start_request(&mut self, arrival: Arrival) -> Result<(), TimedError> {
        let at = self.next_request;
        self.next_request += 1;
        if let Some(tuned) = &mut self.tuned {
            tuned.before_request(at, self.now, &self.stations, &mut self.planner.run);
            tuned.shadow(at, self.addresses);
        }
        self.planner.prefetch_behind(at);
        let mut plan = std::mem::take(&mut self.plan);
        plan.clear();
        self.pass_events(at, &mut plan);
        let place = self.planner.request(at, &mut plan);
        self.history.note(&self.planner.run, self.next_request, false);
        let owner = Owner::Client { client: arrival.client, since: arrival.at, place };
        let below = self.planner.below();
        if let Some(queue) = &mut self.queue {
            let request = self.addresses.trace.request(at);
            let past = plan.foreground.iter().any(|op| op.writes_to(below));
            if let Some(read) = self.planner.lowest(request.page).filter(|_| request.op.is_write() && !past) {
                queue.note_dirty(self.planner.backing_offset(request.page), read);
            }
            queue.keep(below, &mut plan.foreground);
        }
        self.start_chain(owner, &plan.foreground)?;
        for chain in plan.background.iter() {
            let writes_below = chain.last().is_some_and(|op| op.writes_to(below));
            match self.queue.as_mut().filter(|_| writes_below) {
                Some(queue) => queue.push(chain),
                None => {
                    self.background += 1;
                    self.start_chain(Owner::Background, chain)?;
                }
            }
        }
        self.plan = plan;
        Ok(())
    }

    fn pass_events(&mut self, at: usize, plan: &mut Plan) {
        let addresses = self.addresses;
        while let Some(event) = addresses.trace.events.get(self.next_event).filter(|event| event.at as usize <= at) {
            self.next_event += 1;
            match &event.kind {
                EventKind::QueryBegin { query, objects, .. } => {
                    let objects: Vec<ObjectId> = objects.iter().copied().map(ObjectId).collect();
                    self.planner.hint(at, Hint::QueryBegin { query: *query, objects: &objects }, plan);
                }
                EventKind::QueryEnd { query } => self.planner.hint(at, Hint::QueryEnd { query: *query }, plan),
            }
        }
    }

    fn timed_row(&self, stack: &Stack, started: Nanos) -> TimedRow {
        let mut all = histogram();
        for latency in &self.latencies {
            all.add(latency).expect("histograms of one kind");
        }
        let names = tier_names(stack).into_iter().chain(["below".to_owned()]);
        let each = names.zip(&self.latencies).map(|(name, latency)| LatencyRow::new(&name, latency));
        let elapsed_seconds = (self.now - started) as f64 / 1e9;
        TimedRow {
            elapsed_seconds,
            requests: all.len(),
            requests_per_second: if elapsed_seconds > 0.0 { all.len() as f64 / elapsed_seconds } else { 0.0 },
            clients: self.options.clients,
            read_cache_latency_us: 0.0,
            latencies: [LatencyRow::new("all", &all)].into_iter().chain(each).collect(),
            devices: self.stations.iter().map(|station| DeviceRow::new(station, started, self.now)).collect(),
        }
    }
}
