//! The drive: controller, link, buffer, read-ahead, translation and flash as one [`Device`].
//!
//! A command passes the controller, one at a time. A read collects its pages, from the buffer, from reads under way or
//! from a die, and sends them over the link. A write comes over the link and fetches the part of a unit that it does
//! not fill (read-modify-write). The write is done when the buffer has taken its pages; if that is full of
//! unprogrammed ones, the write waits until a die has programmed some. Pages leave the buffer in groups that fill a
//! few programs, to one die after the other. Link and controller serve in order of request.

use super::buffer::Buffer;
use super::geometry::UNIT_BYTES;
use super::parameters::{NandParameters, nanos, transfer};
use super::readahead::ReadAhead;
use super::timing::{Flash, Outcome, ReadTimes};
use super::translation::{Layout, Translation, next_die};
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, IoKind, Latency, Nanos, Wear};
use entresol_core::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The controller has taken up a command.
    Dispatched(u32),
    /// A read of flash has been decoded.
    Decoded(u32),
    /// The data of a write is in the drive.
    Arrived(u32),
    Completed(u32),
}

/// An I/O in the drive.
#[derive(Clone, Debug)]
struct Request {
    io: Io,
    submitted: Nanos,
    latency: Latency,
    /// Start of its current wait.
    since: Nanos,
    /// Reads of flash that the request waits for.
    reads: u32,
    /// Pages of a write that are not yet in the buffer.
    left: Range<u32>,
    /// True if a unit of a write had to be merged.
    merged: bool,
}

/// A read of flash: its pages, and the request that waits for it; none for read-ahead.
#[derive(Clone, Debug)]
struct Fetch {
    request: Option<u32>,
    pages: Range<u32>,
    /// Parts of the read's time, once the die is done.
    times: ReadTimes,
}

/// A NAND drive in virtual time.
#[derive(Clone, Debug)]
pub struct Ssd {
    p: NandParameters,
    pages: u32,
    per_program: u32,
    layout: Layout,
    translation: Translation,
    flash: Flash,
    buffer: Buffer,
    ahead: ReadAhead,
    random: Random,
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    outstanding: u32,
    fetches: Vec<Fetch>,
    free_fetches: Vec<u32>,
    /// Pages being read ahead, with the requests that wait for them.
    coming: HashMap<u32, Vec<u32>>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    numbered: u64,
    controller_free: Nanos,
    link_free: Nanos,
    /// Writes whose pages wait for space in the buffer, in order.
    admission: VecDeque<u32>,
    /// Pages of the next programs.
    group: Vec<u32>,
    last_die: u32,
    /// Pages of the programs that dies have been given.
    programs: BTreeMap<u64, Vec<u32>>,
    programs_issued: u64,
    /// Flushes, each with the bound of the programs that it waits for: all with lower numbers.
    flushes: VecDeque<(u64, u32)>,
    /// Reads of each logical page since it was last written; empty where disturbance is not modelled.
    disturbed: Vec<u16>,
    done: VecDeque<Completion>,
    wear: Wear,
    /// Erasures during preconditioning.
    erased_before: u64,
}

impl Ssd {
    /// A drive that was never written; `seed` seeds its random choices.
    ///
    /// # Errors
    /// When a parameter is impossible.
    pub fn new(p: NandParameters, seed: u64) -> Result<Self, DeviceError> {
        p.check_named()?;
        let pages = p.capacity_bytes.div_ceil(UNIT_BYTES) as u32;
        Ok(Ssd {
            pages,
            per_program: p.units_per_program(),
            layout: Layout { per_program: p.units_per_program() as usize, stripe: p.stripe_units as usize },
            translation: Translation::new(&p, seed),
            flash: Flash::new(&p),
            buffer: Buffer::new((p.buffer_bytes / UNIT_BYTES) as usize, p.write_buffer_bytes / UNIT_BYTES),
            ahead: ReadAhead::new((p.read_ahead_bytes / UNIT_BYTES) as u32, p.read_ahead_after),
            random: Random::new(seed),
            requests: Vec::new(),
            free_requests: Vec::new(),
            outstanding: 0,
            fetches: Vec::new(),
            free_fetches: Vec::new(),
            coming: HashMap::new(),
            events: BinaryHeap::new(),
            numbered: 0,
            controller_free: 0,
            link_free: 0,
            admission: VecDeque::new(),
            group: Vec::new(),
            last_die: 0,
            programs: BTreeMap::new(),
            programs_issued: 0,
            flushes: VecDeque::new(),
            disturbed: if p.disturb_reads > 0 { vec![0; pages as usize] } else { Vec::new() },
            done: VecDeque::new(),
            wear: Wear::default(),
            erased_before: 0,
            p,
        })
    }

    /// A drive of a profile, with this capacity, as used as the profile says.
    ///
    /// # Errors
    /// When a parameter is impossible or `capacity_bytes` exceeds the whole drive.
    pub(crate) fn of_profile(p: &NandParameters, capacity_bytes: u64, seed: u64) -> Result<Self, DeviceError> {
        let own = p.capacity_bytes;
        if capacity_bytes > own {
            let what = format!("holds {own} B, and {capacity_bytes} B are asked of it");
            return Err(DeviceError::Profile { device: p.name.clone(), what });
        }
        let mut ssd = Ssd::new(p.clone().scaled_to(capacity_bytes), seed)?;
        if let Some(overwrites) = p.precondition_overwrites {
            ssd.precondition(overwrites, seed);
        }
        Ok(ssd)
    }

    /// Parameters of the drive.
    pub fn parameters(&self) -> &NandParameters {
        &self.p
    }

    /// Brings the drive into a steady state outside time: writes every page in order, then `overwrites` times the
    /// capacity in random pages. Its wear counts from there. A drive whose amplification is a curve is always in that
    /// state.
    pub fn precondition(&mut self, overwrites: f64, seed: u64) {
        self.translation.precondition(overwrites, self.layout, seed);
        self.erased_before = self.translation.erases();
        self.wear = Wear::default();
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.numbered, event)));
        self.numbered += 1;
    }

    fn next_internal(&self) -> Option<Nanos> {
        let own = self.events.peek().map(|Reverse(event)| event.0);
        own.into_iter().chain(self.flash.next_event()).min()
    }

    /// Runs all events up to `until`.
    fn run(&mut self, until: Nanos) {
        while let Some(now) = self.next_internal().filter(|&now| now <= until) {
            if self.flash.next_event() == Some(now) {
                match self.flash.step() {
                    Some(Outcome::Read(fetch, times)) => {
                        let decode = nanos(self.p.decode_us);
                        self.fetches[fetch as usize].times = ReadTimes { media: times.media + decode, ..times };
                        self.schedule(now + decode, Event::Decoded(fetch));
                    }
                    Some(Outcome::Programmed(number)) => self.programmed(now, number),
                    None => {}
                }
                continue;
            }
            let Some(Reverse((_, _, event))) = self.events.pop() else { return };
            match event {
                Event::Dispatched(number) => self.dispatch(now, number),
                Event::Decoded(fetch) => self.fetched(now, fetch),
                Event::Arrived(number) => self.arrived(now, number),
                Event::Completed(number) => {
                    let Request { io, submitted, latency, .. } = self.requests[number as usize];
                    debug_assert_eq!(submitted + latency.total(), now);
                    self.done.push_back(Completion { tag: io.tag, submitted, finished: now, latency });
                    self.free_requests.push(number);
                    self.outstanding -= 1;
                }
            }
        }
    }

    fn dispatch(&mut self, now: Nanos, number: u32) {
        let io = self.requests[number as usize].io;
        let pages = pages_of(&io);
        let alone = self.outstanding == 1;
        let ahead = match io.kind {
            IoKind::Read | IoKind::Write => self.ahead.observe(&io, &pages, alone, self.pages),
            IoKind::Flush | IoKind::Discard => 0..0,
        };
        self.requests[number as usize].since = now;
        match io.kind {
            IoKind::Read => {
                self.wear.host_read_bytes += u64::from(io.bytes);
                self.collect(now, number, pages);
                self.read_ahead(now, ahead);
            }
            IoKind::Write => {
                self.wear.host_written_bytes += u64::from(io.bytes);
                let reads = (self.fetches.len() - self.free_fetches.len()) as f64;
                let firmware = nanos(self.p.write_per_read_us * reads);
                self.requests[number as usize].latency.queue += firmware;
                let arrival = self.over_link(now, number) + firmware;
                self.schedule(arrival, Event::Arrived(number));
            }
            IoKind::Flush => self.flush(now, number),
            IoKind::Discard => {
                self.discard(&io);
                self.schedule(now, Event::Completed(number));
            }
        }
    }

    /// Reserves the link for a request's bytes and gives the time when they are across.
    fn over_link(&mut self, now: Nanos, number: u32) -> Nanos {
        let request = &mut self.requests[number as usize];
        let begin = now.max(self.link_free);
        let moving = transfer(request.io.bytes.into(), self.p.link_mb_s);
        request.latency.queue += begin - now;
        request.latency.transfer += moving;
        self.link_free = begin + moving;
        self.link_free
    }

    /// Gathers the pages of a read.
    fn collect(&mut self, now: Nanos, number: u32, pages: Range<u32>) {
        let mut from = pages.start;
        while from < pages.end {
            if let Some(waiting) = self.coming.get_mut(&from) {
                waiting.push(number);
                self.requests[number as usize].reads += 1;
                from += 1;
                continue;
            }
            let run = self.run_of(from..pages.end);
            from = run.end;
            self.fetch(now, Some(number), run);
        }
        if self.requests[number as usize].reads == 0 {
            self.deliver(now, number);
        }
    }

    /// The longest run at the start of a range that one sense brings, or one page.
    fn run_of(&mut self, pages: Range<u32>) -> Range<u32> {
        let mut end = pages.start + 1;
        let present = self.buffer.holds(pages.start) || self.coming.contains_key(&pages.start);
        let Some((_, first)) = self.translation.locate(pages.start).filter(|_| !present) else {
            return pages.start..end;
        };
        while end < pages.end
            && !self.buffer.holds(end)
            && !self.coming.contains_key(&end)
            && self.translation.locate(end).is_some_and(|(_, physical)| {
                physical == first + (end - pages.start) && physical / self.per_program == first / self.per_program
            })
        {
            end += 1;
        }
        pages.start..end
    }

    /// Reads pages that one sense brings, unless the first (and then only) one is in the buffer or was never written.
    fn fetch(&mut self, now: Nanos, request: Option<u32>, pages: Range<u32>) {
        let Some((die, _)) = self.translation.locate(pages.start).filter(|_| !self.buffer.hit(pages.start)) else {
            return;
        };
        if let Some(number) = request {
            self.requests[number as usize].reads += 1;
        }
        let refresh = if self.disturb(now, pages.clone()) { nanos(self.p.refresh_us) } else { 0 };
        let (units, sense) = (pages.len() as u32, self.sense());
        let token = self.new_fetch(request, pages);
        self.flash.read(now, die, token, units, sense, refresh);
    }

    fn new_fetch(&mut self, request: Option<u32>, pages: Range<u32>) -> u32 {
        let fetch = Fetch { request, pages, times: ReadTimes::default() };
        match self.free_fetches.pop() {
            Some(token) => {
                self.fetches[token as usize] = fetch;
                token
            }
            None => {
                self.fetches.push(fetch);
                self.fetches.len() as u32 - 1
            }
        }
    }

    /// Counts a read of these pages and rewrites those that were read too often. True if there was one.
    fn disturb(&mut self, now: Nanos, pages: Range<u32>) -> bool {
        let mut any = false;
        if !self.disturbed.is_empty() {
            for page in pages {
                let reads = &mut self.disturbed[page as usize];
                *reads = reads.saturating_add(1);
                if u32::from(*reads) >= self.p.disturb_reads {
                    *reads = 0;
                    any = true;
                    self.buffer_page(now, page);
                }
            }
        }
        any
    }

    /// A sense time from its distribution.
    fn sense(&mut self) -> Nanos {
        let points = &self.p.sense_us;
        if let [(_, us)] = points[..] {
            return nanos(us);
        }
        let share = self.random.next_f64();
        let above = points.partition_point(|point| point.0 <= share).min(points.len() - 1);
        let (high, low) = (points[above], points[above.saturating_sub(1)]);
        if share < low.0 || high.0 == low.0 {
            return nanos(low.1);
        }
        nanos(low.1 + (high.1 - low.1) * (share - low.0) / (high.0 - low.0))
    }

    fn read_ahead(&mut self, now: Nanos, pages: Range<u32>) {
        let mut from = pages.start;
        while from < pages.end {
            let run = self.run_of(from..pages.end);
            from = run.end;
            let absent = !self.buffer.holds(run.start) && !self.coming.contains_key(&run.start);
            if absent && self.translation.locate(run.start).is_some() {
                run.clone().for_each(|page| drop(self.coming.insert(page, Vec::new())));
                self.fetch(now, None, run);
            }
        }
    }

    /// Handles the end of a read of flash.
    fn fetched(&mut self, now: Nanos, token: u32) {
        self.free_fetches.push(token);
        let Fetch { request, pages, times } = self.fetches[token as usize].clone();
        for page in pages {
            self.buffer.insert(page);
            if request.is_none() {
                for number in self.coming.remove(&page).into_iter().flatten() {
                    let waited = now - self.requests[number as usize].since;
                    self.one_read_less(now, number, ReadTimes { media: waited, ..ReadTimes::default() });
                }
            }
        }
        if let Some(number) = request {
            self.one_read_less(now, number, times);
        }
    }

    /// Counts one read of flash less for a request. The times of the last one are attributed to the request.
    fn one_read_less(&mut self, now: Nanos, number: u32, times: ReadTimes) {
        let request = &mut self.requests[number as usize];
        request.reads -= 1;
        if request.reads > 0 {
            return;
        }
        let latency = &mut request.latency;
        latency.queue += times.queue;
        latency.gc += times.gc;
        latency.media += times.media;
        latency.transfer += times.transfer;
        latency.refresh += times.refresh;
        match request.io.kind {
            IoKind::Read => self.deliver(now, number),
            _ => self.enqueue(now, number),
        }
    }

    /// Sends a read's data to the host.
    fn deliver(&mut self, now: Nanos, number: u32) {
        let across = self.over_link(now, number);
        let fixed = nanos(self.p.fixed_read_us);
        self.requests[number as usize].latency.fixed += fixed;
        self.schedule(across + fixed, Event::Completed(number));
    }

    /// Handles the arrival of a write's data: fetches the parts of the first and last unit that it does not fill.
    fn arrived(&mut self, now: Nanos, number: u32) {
        let io = self.requests[number as usize].io;
        let pages = pages_of(&io);
        let capacity = self.p.capacity_bytes;
        let partial = |page: u32| {
            let begin = u64::from(page) * UNIT_BYTES;
            io.offset > begin || io.end() < (begin + UNIT_BYTES).min(capacity)
        };
        let request = &mut self.requests[number as usize];
        request.left = pages.clone();
        request.since = now;
        let last = pages.end.saturating_sub(1);
        let ends = [pages.start, last];
        for &page in &ends[..if last == pages.start { 1 } else { 2 }] {
            if pages.is_empty() || !partial(page) {
                continue;
            }
            self.requests[number as usize].merged = true;
            if let Some((die, _)) = self.translation.locate(page).filter(|_| !self.buffer.hit(page)) {
                self.requests[number as usize].reads += 1;
                let token = self.new_fetch(Some(number), page..page + 1);
                let sense = nanos(self.p.merge_read_us);
                self.flash.read(now, die, token, 1, sense, 0);
            }
        }
        if self.requests[number as usize].reads == 0 {
            self.enqueue(now, number);
        }
    }

    /// Queues a write whose pages are ready for the buffer.
    fn enqueue(&mut self, now: Nanos, number: u32) {
        self.requests[number as usize].since = now;
        self.admission.push_back(number);
        self.admit(now);
    }

    /// Takes pages of waiting writes into the buffer while it has space.
    fn admit(&mut self, now: Nanos) {
        while let Some(&number) = self.admission.front() {
            let Request { since, left, merged, .. } = self.requests[number as usize].clone();
            for page in left.clone() {
                if !self.buffer.has_room() && !self.group.contains(&page) {
                    self.requests[number as usize].left = page..left.end;
                    return;
                }
                self.buffer_page(now, page);
            }
            self.admission.pop_front();
            let gc = self.flash.blame_cleaning(now - since);
            let fixed = nanos(self.p.fixed_write_us) + if merged { nanos(self.p.merge_us) } else { 0 };
            let latency = &mut self.requests[number as usize].latency;
            latency.gc += gc;
            latency.queue += now - since - gc;
            latency.fixed += fixed;
            self.schedule(now + fixed, Event::Completed(number));
        }
    }

    /// Buffers a page until its program, in place of an older version that still waits.
    fn buffer_page(&mut self, now: Nanos, page: u32) {
        if self.group.contains(&page) {
            self.buffer.insert(page);
            return;
        }
        self.buffer.soil(page);
        self.group.push(page);
        self.translation.expect_write(page);
        if self.group.len() == self.layout.group() {
            self.program(now);
        }
    }

    /// Sends the gathered pages to the next dies.
    fn program(&mut self, now: Nanos) {
        for pages in self.layout.programs(&std::mem::take(&mut self.group)) {
            let die = next_die(self.last_die, self.p.dies(), |die| self.translation.has_room(die));
            self.last_die = die;
            let (mut moves, mut erases) = (0, 0);
            let mut written = Vec::with_capacity(self.per_program as usize);
            for &page in pages {
                let work = self.translation.write(page, die);
                moves += work.moves;
                erases += work.erases;
                if let Some(reads) = self.disturbed.get_mut(page as usize) {
                    *reads = 0;
                }
                written.push(page);
            }
            let units = written.len() as u32;
            self.wear.media_written_bytes += u64::from(units + moves) * UNIT_BYTES;
            self.flash.program(now, die, self.programs_issued, units, moves, erases);
            self.programs.insert(self.programs_issued, written);
            self.programs_issued += 1;
        }
    }

    /// Handles the end of a die's program: the pages no longer take buffer space, and a flush may be done.
    fn programmed(&mut self, now: Nanos, number: u64) {
        for page in self.programs.remove(&number).expect("a program that was issued") {
            self.buffer.clean(page);
        }
        let oldest = self.programs.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(&(before, flush)) = self.flushes.front().filter(|flush| flush.0 <= oldest) {
            debug_assert!(before <= self.programs_issued);
            self.flushes.pop_front();
            let request = &mut self.requests[flush as usize];
            let wait = now - request.since;
            let gc = self.flash.blame_cleaning(wait);
            request.latency.gc += gc;
            request.latency.media += wait - gc;
            self.schedule(now, Event::Completed(flush));
        }
        self.admit(now);
    }

    fn flush(&mut self, now: Nanos, number: u32) {
        if !self.p.power_loss_protection {
            if !self.group.is_empty() {
                self.program(now);
            }
            if !self.programs.is_empty() {
                self.flushes.push_back((self.programs_issued, number));
                return;
            }
        }
        self.schedule(now, Event::Completed(number));
    }

    /// Forgets the units that a range covers whole.
    fn discard(&mut self, io: &Io) {
        let whole = io.offset.div_ceil(UNIT_BYTES) as u32..(io.end() / UNIT_BYTES) as u32;
        for page in whole {
            if let Some(at) = self.group.iter().position(|&other| other == page) {
                self.group.remove(at);
                self.buffer.clean(page);
            }
            self.translation.discard(page);
        }
    }
}

/// The pages that an I/O touches.
fn pages_of(io: &Io) -> Range<u32> {
    if io.bytes == 0 {
        return 0..0;
    }
    (io.offset / UNIT_BYTES) as u32..io.end().div_ceil(UNIT_BYTES) as u32
}

impl Device for Ssd {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let capacity = self.p.capacity_bytes;
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        self.run(now);
        let command = nanos(self.p.command_us);
        let begin = now.max(self.controller_free);
        self.controller_free = begin + command;
        let latency = Latency { queue: begin - now, fixed: command, ..Latency::default() };
        let request = Request { io, submitted: now, latency, since: now, reads: 0, left: 0..0, merged: false };
        let number = match self.free_requests.pop() {
            Some(number) => {
                self.requests[number as usize] = request;
                number
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        self.outstanding += 1;
        self.schedule(self.controller_free, Event::Dispatched(number));
        Ok(())
    }

    /// `None` also while the only work under way is work that no I/O waits for, as programs of buffered pages. Such
    /// work is caught up with when time passes.
    fn next_event(&self) -> Option<Nanos> {
        match self.done.front() {
            Some(completion) => Some(completion.finished),
            None if self.outstanding == 0 => None,
            None => self.next_internal(),
        }
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        self.run(until);
        done.extend(self.done.drain(..));
    }

    fn capacity_bytes(&self) -> u64 {
        self.p.capacity_bytes
    }

    fn wear(&self) -> Wear {
        let erases = self.translation.erases() - self.erased_before;
        let endured = f64::from(self.p.geometry().blocks()) * f64::from(self.p.endurance_cycles);
        let worn = if endured > 0.0 { (erases as f64 / endured).min(1.0) } else { 0.0 };
        Wear { erases, worn, ..self.wear }
    }

    fn amplification(&self) -> Option<&'static str> {
        Some(self.p.amplification.label())
    }
}

#[cfg(test)]
#[path = "ssd_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "p3700_tests.rs"]
mod p3700_tests;
