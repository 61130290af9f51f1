//! The requesters of a live buffer, with a check of every page that they read.

use super::Below;
use crate::tune::Plan;
use anyhow::{Result, ensure};
use entresol_buffer::{PageRead, Prepared, TieredBuffer, Tuning};
use entresol_core::{Op, Request};
use entresol_device::emulated::Clock as DeviceClock;
use entresol_policy::miniature::Miniatures;
use entresol_trace::Trace;
use entresol_tune::{EpochRow, Tuner};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Requests after which epochs are taken; the buffer keeps the epochs of at least so many.
const TAKE_EVERY: usize = 1024;

type Buffer<C> = TieredBuffer<Arc<Below<C>>, C>;

/// The run of a trace through a buffer.
pub struct Drive<'a, C: DeviceClock> {
    buffer: &'a Buffer<C>,
    below: &'a Below<C>,
    trace: &'a Trace,
    plan: &'a Plan<'a>,
    warm: usize,
    course: Mutex<Course>,
    /// Stamp of each page: the number of the request that wrote it last, plus one; 0 if none did.
    stamps: Vec<AtomicU64>,
}

struct Course {
    /// Number of the next request.
    next: usize,
    /// A tuner that starts after the warm-up.
    tuner: Option<Box<dyn Tuner + Send>>,
    /// Miniature caches of the tuner, which warm up together with the buffer until the tuner starts.
    shadows: Option<Miniatures>,
    epochs: Vec<EpochRow>,
}

impl<'a, C: DeviceClock + 'static> Drive<'a, C> {
    pub fn new(
        buffer: &'a Buffer<C>,
        below: &'a Below<C>,
        trace: &'a Trace,
        plan: &'a Plan,
        (tuner, mut shadows): (Box<dyn Tuner + Send>, Option<Miniatures>),
    ) -> Result<Self> {
        for (&at, value) in plan.tunables.iter().zip(tuner.held()) {
            buffer.tune(at, value)?;
        }
        if let Some(shadows) = &mut shadows {
            shadows.arrange(&tuner.shadowed());
        }
        let warm = (trace.len() as f64 * plan.cell_options.warmup) as usize;
        let course = Mutex::new(Course { next: 0, tuner: Some(tuner), shadows, epochs: Vec::new() });
        let stamps = (0..trace.footprint()).map(|_| AtomicU64::new(0)).collect();
        Ok(Drive { buffer, below, trace, plan, warm, course, stamps })
    }

    /// Takes the number of the next request.
    fn next(&self) -> Result<Option<usize>> {
        let course = &mut *self.course.lock().expect("nobody panics there");
        let at = course.next;
        if at == self.trace.len() {
            return Ok(None);
        }
        course.next += 1;
        if at >= self.warm
            && let Some(tuner) = course.tuner.take()
        {
            let (tunables, shadows) = (self.plan.tunables.clone(), course.shadows.take());
            self.buffer.start_tuning(Tuning { tuner, tunables, epoch_requests: self.plan.epoch, shadows })?;
        }
        if let Some(shadows) = &mut course.shadows {
            let request = self.trace.request(at);
            shadows.told(Request { sequential: false, ..request }, self.trace.address(request.page), || at as u64);
        }
        if at.is_multiple_of(TAKE_EVERY) {
            course.epochs.extend(self.buffer.take_epochs());
        }
        Ok(Some(at))
    }

    /// Makes a request and checks the page read. With one requester the contents of a page are known exactly. With
    /// several, the page must hold a stamp that some request wrote there.
    fn make(&self, at: usize, bytes: &mut [u8], alone: bool) -> Result<()> {
        let request = self.trace.request(at);
        let (address, stamp) = (self.trace.address(request.page), &self.stamps[request.page.index()]);
        if request.op == Op::Read {
            let before = stamp.load(Ordering::Acquire);
            self.buffer.read(address, 0, bytes)?;
            let found = u64::from_le_bytes(*bytes.first_chunk().expect("a page has eight bytes"));
            let right = found == before || (!alone && found > 0 && self.writes(found as usize - 1, request));
            ensure!(right, "request {at}: {address:?} has contents that were not written there");
        } else {
            let number = at as u64 + 1;
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let len = if request.op == Op::Update { bytes.len() / 2 } else { bytes.len() };
            self.buffer.write(address, 0, &bytes[..len])?;
            stamp.store(number, Ordering::Release);
        }
        Ok(())
    }

    /// True if the request with this number writes the page of `other`.
    fn writes(&self, at: usize, other: Request) -> bool {
        at < self.trace.len() && {
            let request = self.trace.request(at);
            request.op != Op::Read && request.page == other.page
        }
    }

    fn page(&self) -> Vec<u8> {
        vec![0; self.trace.page_bytes as usize]
    }

    fn requesters(&self) -> usize {
        self.plan.timed.clients.max(1) as usize
    }

    /// Runs the trace with a thread for each requester.
    pub fn in_threads(&self) -> Result<()> {
        let (requesters, failed) = (self.requesters(), AtomicBool::new(false));
        let requester = || -> Result<()> {
            let mut bytes = self.page();
            while let Some(at) = self.next()?
                && !failed.load(Ordering::Relaxed)
            {
                self.make(at, &mut bytes, requesters == 1).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..requesters).map(|_| scope.spawn(requester)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no requester panics"))
        })
    }

    /// Runs the trace with requesters that share a processor: while one waits for the backing store another runs.
    /// Requesters whose pages have arrived go first. `each` is called for every request.
    pub fn one_by_one(&self, each: impl Fn()) -> Result<()> {
        let mut requesters =
            Requesters { drive: self, bytes: self.page(), reading: HashMap::new(), parked: HashMap::new() };
        let mut idle = self.requesters();
        let mut next = self.next()?;
        loop {
            let wait = idle == 0 || next.is_none();
            if let Some(ready) = requesters.arrived(wait)? {
                for at in ready {
                    idle += usize::from(requesters.serve(at, &each)?);
                }
            } else if let Some(at) = next.filter(|_| idle > 0) {
                idle -= usize::from(!requesters.serve(at, &each)?);
                next = self.next()?;
            } else {
                ensure!(requesters.parked.is_empty(), "a request waits for a page that no request reads");
                return Ok(());
            }
        }
    }

    /// Ends the run; returns the epochs from the end of the warm-up on.
    pub fn end(self) -> Result<Vec<EpochRow>> {
        self.buffer.stop_tuning();
        let mut epochs = self.course.into_inner().expect("nobody panics there").epochs;
        epochs.extend(self.buffer.take_epochs());
        Ok(epochs)
    }
}

/// Requesters that share a processor.
struct Requesters<'d, 'a, C: DeviceClock> {
    drive: &'d Drive<'a, C>,
    bytes: Vec<u8>,
    /// Requests with a page read under way, by their numbers.
    reading: HashMap<usize, PageRead<'a, Arc<Below<C>>, C>>,
    /// Requests that wait for a page which another request reads, by the page.
    parked: HashMap<u32, VecDeque<usize>>,
}

impl<C: DeviceClock + 'static> Requesters<'_, '_, C> {
    /// Makes a request if its page is resident, else begins to wait; true if the request was made.
    fn serve(&mut self, at: usize, each: &impl Fn()) -> Result<bool> {
        let request = self.drive.trace.request(at);
        let address = self.drive.trace.address(request.page);
        match self.drive.buffer.prepare(address, request.op)? {
            Prepared::Ready => {
                each();
                self.drive.make(at, &mut self.bytes, true)?;
                return Ok(true);
            }
            Prepared::Read(read) => {
                self.drive.below.start_read(at as u64, address)?;
                self.reading.insert(at, read);
            }
            Prepared::UnderWay => self.parked.entry(request.page.0).or_default().push_back(at),
        }
        Ok(false)
    }

    /// The requests whose page has arrived; with `wait`, waits for one under way.
    fn arrived(&mut self, wait: bool) -> Result<Option<Vec<usize>>> {
        if self.reading.is_empty() {
            return Ok(None);
        }
        let Some((at, page)) = self.drive.below.read_ended(wait) else { return Ok(None) };
        let at = at as usize;
        let read = self.reading.remove(&at).expect("only what was started ends");
        read.arrived(page.as_deref().map_err(|error| error.kind().into()));
        let parked = self.parked.remove(&self.drive.trace.request(at).page.0).unwrap_or_default();
        Ok(Some(std::iter::once(at).chain(parked).collect()))
    }
}
