//! A file that takes as long as a device.
//!
//! The device has no thread of its own. Of the threads that wait for a completion one is the *watcher*: it alone lets
//! the model's time pass. The watcher sleeps until shortly before the next event, spins the rest, and wakes the others
//! when their I/Os are done. A single caller thus has the precision of its own spinning, with no switch between
//! threads.

use super::accuracy::Accuracy;
use super::clock::Clock;
use super::storage::Storage;
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, IoKind, Nanos, Wear};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Thread};

/// Largest single I/O; longer ones are split, as on real devices.
const BYTES_MAX: usize = 1 << 30;

/// A completed I/O of the queue.
#[derive(Debug)]
pub struct Done {
    /// The I/O that was submitted.
    pub io: Io,
    /// The buffer that was submitted with the I/O; filled by a read.
    pub buffer: Vec<u8>,
    /// The storage's result.
    pub result: io::Result<()>,
    /// Completion according to the model; its tag is that of `io`.
    pub completion: Completion,
    /// Time of handing over, by the device's clock: `completion.finished` or later.
    pub given: Nanos,
}

/// One of several reads and writes that are handed over together.
#[derive(Debug)]
pub enum Part<'a> {
    /// Fills the bytes from this offset on.
    Read(u64, &'a mut [u8]),
    /// Writes the bytes from this offset on.
    Write(u64, &'a [u8]),
}

/// An I/O of the queue with its buffer and the storage's result, kept until the model's time.
#[derive(Debug)]
struct Parcel {
    io: Io,
    buffer: Vec<u8>,
    result: io::Result<()>,
    ready: Nanos,
}

/// An I/O that the model is serving or has completed, and that no caller has taken.
#[derive(Debug, Default)]
struct UnderWay {
    completion: Option<Completion>,
    /// The bytes of an I/O of the queue, once the storage is done with them.
    parcel: Option<Parcel>,
}

/// Completion that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Its own I/O.
    Own(u64),
    /// Any I/O of the queue.
    Queue,
}

#[derive(Debug)]
struct Watcher {
    thread: Thread,
    /// True if the watcher must look at the state before the next event.
    poked: bool,
}

#[derive(Debug)]
struct State<M> {
    model: M,
    submitted: u64,
    under_way: HashMap<u64, UnderWay>,
    /// I/Os of the queue that no caller has taken.
    queued: usize,
    /// Completed I/Os of the queue, in order of time.
    finished: VecDeque<(Parcel, Completion)>,
    watcher: Option<Watcher>,
    parked: Vec<(Wanted, Thread)>,
    accuracy: Accuracy,
    completions: Vec<Completion>,
}

/// Real bytes in `S`, the time of the model `M`, measured by the clock `C`. Several threads may call.
///
/// Two interfaces: [`read`](Self::read), [`write`](Self::write), [`flush`](Self::flush) and [`discard`](Self::discard)
/// return when the I/O is done; [`submit`](Self::submit) and [`reap`](Self::reap) are a completion queue.
///
/// The submitting thread performs the I/O on the storage as soon as the model has it. Overlapping I/Os that are under
/// way together have no order, as on a real device.
#[derive(Debug)]
pub struct EmulatedDevice<S, M, C> {
    storage: S,
    clock: C,
    size_bytes: u64,
    state: Mutex<State<M>>,
    /// Time until which the watcher waits: the model's next event, or 0 when the watcher was poked. `Nanos::MAX` when
    /// the model has no event to come.
    deadline: AtomicU64,
}

impl<S: Storage, M: Device, C: Clock> EmulatedDevice<S, M, C> {
    /// A device whose first bytes are those of `storage`.
    ///
    /// # Errors
    /// `InvalidInput` when the storage is empty or larger than the model; else the error of the storage.
    pub fn new(storage: S, model: M, clock: C) -> io::Result<Self> {
        let (size_bytes, capacity) = (storage.size_bytes()?, model.capacity_bytes());
        if size_bytes == 0 || size_bytes > capacity {
            let what = format!("a device of {capacity} B over a file of {size_bytes} B; it may have 1 to {capacity} B");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let state = State {
            model,
            submitted: 0,
            under_way: HashMap::new(),
            queued: 0,
            finished: VecDeque::new(),
            watcher: None,
            parked: Vec::new(),
            accuracy: Accuracy::default(),
            completions: Vec::new(),
        };
        Ok(EmulatedDevice {
            storage,
            clock,
            size_bytes,
            state: Mutex::new(state),
            deadline: AtomicU64::new(Nanos::MAX),
        })
    }

    /// Size in bytes: that of the storage.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The clock of the completions' times.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Accuracy so far: the times of completions against the model's.
    pub fn accuracy(&self) -> Accuracy {
        self.lock().accuracy.clone()
    }

    /// Wear of the model.
    pub fn wear(&self) -> Wear {
        self.lock().model.wear()
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end, at once; else the error of the storage, at the model's time.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset, bytes.len() as u64)?;
        let mut at = offset;
        for piece in bytes.chunks_mut(BYTES_MAX) {
            let io = Io::read(at, piece.len() as u32);
            at = io.end();
            self.perform(io, |storage| storage.read_at(io.offset, piece))?;
        }
        Ok(())
    }

    /// Writes `bytes` from `offset` on; with `fua` (force unit access) a flush follows before it returns.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.check(offset, bytes.len() as u64)?;
        let mut at = offset;
        for piece in bytes.chunks(BYTES_MAX) {
            let io = Io::write(at, piece.len() as u32);
            at = io.end();
            self.perform(io, |storage| storage.write_at(io.offset, piece))?;
        }
        if fua { self.flush() } else { Ok(()) }
    }

    /// Performs reads and writes that do not depend on each other; the model receives all of them at once.
    ///
    /// # Errors
    /// As [`read`](Self::read); one of the errors if there are several.
    pub fn perform_all(&self, parts: &mut [Part]) -> io::Result<()> {
        let io = |part: &Part| match part {
            Part::Read(at, bytes) => Io::read(*at, u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Part::Write(at, bytes) => Io::write(*at, u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        };
        parts.iter().map(io).try_for_each(|io| self.check(io.offset, u64::from(io.bytes)))?;
        let started = parts.iter().map(|part| self.start(io(part), false)).collect::<io::Result<Vec<u64>>>()?;
        let perform = |part: &mut Part| match part {
            Part::Read(at, bytes) => self.storage.read_at(*at, bytes),
            Part::Write(at, bytes) => self.storage.write_at(*at, bytes),
        };
        let done: Vec<_> = parts.iter_mut().map(|part| (perform(part), self.clock.now())).collect();
        let (results, ready): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let of = |number| self.wait(Wanted::Own(number), |state| state.take(number));
        let finished: Vec<Nanos> = started.into_iter().map(|number| of(number).finished).collect();
        // The caller has all parts when it has the last one, so that no earlier part is late by that.
        let over = self.clock.now() - finished.iter().copied().max().unwrap_or_default();
        let accuracy = &mut self.lock().accuracy;
        finished.into_iter().zip(ready).for_each(|(asked, ready)| accuracy.record(asked, ready, asked + over));
        results.into_iter().fold(Ok(()), io::Result::and)
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The error of the storage.
    pub fn flush(&self) -> io::Result<()> {
        self.perform(Io { kind: IoKind::Flush, ..Io::read(0, 0) }, S::sync)
    }

    /// Declares a range no longer needed: later reads of it give zeroes or the old bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(offset, bytes)?;
        let end = offset + bytes;
        for at in (offset..end).step_by(BYTES_MAX) {
            let piece = (end - at).min(BYTES_MAX as u64);
            let io = Io { kind: IoKind::Discard, ..Io::read(at, piece as u32) };
            self.perform(io, |storage| storage.punch(at, piece))?;
        }
        Ok(())
    }

    /// Hands over an I/O whose completion [`reap`](Self::reap) returns. The caller chooses the tag; `buffer` has
    /// `io.bytes` bytes for a read or write, any number otherwise. Returns when the storage has done its part.
    ///
    /// # Errors
    /// `InvalidInput` when the I/O reaches beyond the end or the buffer does not fit.
    pub fn submit(&self, io: Io, mut buffer: Vec<u8>) -> io::Result<()> {
        self.check(io.offset, u64::from(io.bytes))?;
        if matches!(io.kind, IoKind::Read | IoKind::Write) && buffer.len() != io.bytes as usize {
            let what = format!("an I/O of {} B with a buffer of {} B", io.bytes, buffer.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let number = self.start(io, true)?;
        let result = match io.kind {
            IoKind::Read => self.storage.read_at(io.offset, &mut buffer),
            IoKind::Write => self.storage.write_at(io.offset, &buffer),
            IoKind::Flush => self.storage.sync(),
            IoKind::Discard => self.storage.punch(io.offset, u64::from(io.bytes)),
        };
        let parcel = Parcel { io, buffer, result, ready: self.clock.now() };
        let mut state = self.lock();
        state.under_way.get_mut(&number).expect("an I/O without its bytes stays").parcel = Some(parcel);
        self.settle(&mut state, number);
        Ok(())
    }

    /// The next completion of the queue, when it is due; `None` when no I/O of the queue is under way.
    pub fn reap(&self) -> Option<Done> {
        self.wait(Wanted::Queue, |state| {
            let Some((parcel, mut completion)) = state.finished.pop_front() else {
                return (state.queued == 0).then_some(None);
            };
            state.queued -= 1;
            if state.queued == 0 {
                // The other reaping threads have nothing left to wait for.
                while state.wake_parked(Wanted::Queue) {}
            }
            completion.tag = parcel.io.tag;
            let given = self.clock.now();
            state.accuracy.record(completion.finished, parcel.ready, given);
            Some(Some(Done { io: parcel.io, buffer: parcel.buffer, result: parcel.result, completion, given }))
        })
    }

    /// The next completion of the queue that is due already, if there is one. Its lateness is the caller's, not the
    /// device's, and is not counted.
    pub fn reap_due(&self) -> Option<Done> {
        let mut state = self.lock();
        if state.watcher.is_none() {
            self.advance(&mut state);
        }
        let (parcel, mut completion) = state.finished.pop_front()?;
        state.queued -= 1;
        if state.queued == 0 {
            while state.wake_parked(Wanted::Queue) {}
        }
        completion.tag = parcel.io.tag;
        Some(Done { io: parcel.io, buffer: parcel.buffer, result: parcel.result, completion, given: self.clock.now() })
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().expect("no thread has panicked with the state in its hands")
    }

    fn check(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.size_bytes) {
            let what = format!("an I/O of {bytes} B at {offset} reaches beyond the device's {} B", self.size_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }

    /// Gives an I/O to the model under a number of its own.
    fn start(&self, io: Io, queued: bool) -> io::Result<u64> {
        let mut state = self.lock();
        let state = &mut *state;
        let number = state.submitted;
        let refused = |error: DeviceError| io::Error::new(io::ErrorKind::InvalidInput, error);
        state.model.submit(self.clock.now(), Io { tag: number, ..io }).map_err(refused)?;
        state.submitted += 1;
        state.queued += usize::from(queued);
        state.under_way.insert(number, UnderWay::default());
        self.publish(state);
        if state.watcher.is_none() {
            state.wake_any();
        }
        Ok(number)
    }

    /// Gives an I/O to the model, performs it and waits for the model's time.
    fn perform(&self, io: Io, action: impl FnOnce(&S) -> io::Result<()>) -> io::Result<()> {
        let number = self.start(io, false)?;
        let result = action(&self.storage);
        let ready = self.clock.now();
        self.wait_for(number, ready);
        result
    }

    /// Waits for the model's time of an I/O that is not of the queue, whose bytes were ready at `ready`.
    fn wait_for(&self, number: u64, ready: Nanos) {
        self.wait(Wanted::Own(number), |state| {
            let completion = state.take(number)?;
            state.accuracy.record(completion.finished, ready, self.clock.now());
            Some(())
        });
    }

    /// Waits until `take` returns a value. Watches the clock for all waiting threads, if no other thread does.
    fn wait<T>(&self, wanted: Wanted, mut take: impl FnMut(&mut State<M>) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                if state.watcher.is_none() {
                    state.wake_any();
                }
                return taken;
            }
            let watched = state.watcher.is_some();
            if !watched && self.advance(&mut state) {
                continue;
            }
            if !watched && state.model.next_event().is_some() {
                state.watcher = Some(Watcher { thread: thread::current(), poked: false });
                self.publish(&mut state);
                drop(state);
                let spun = self.clock.wait_until(&self.deadline);
                state = self.lock();
                state.accuracy.spun_ns += spun;
                state.watcher = None;
            } else {
                state.parked.push((wanted, thread::current()));
                drop(state);
                thread::park();
                state = self.lock();
                // A waking thread removes the one that it wakes from the list; a thread that wakes by itself is still
                // on it.
                let this = thread::current().id();
                state.parked.retain(|(_, thread)| thread.id() != this);
            }
        }
    }

    /// Lets the model's time pass until now and wakes the threads whose I/Os complete. True if any completed.
    fn advance(&self, state: &mut State<M>) -> bool {
        let mut completions = std::mem::take(&mut state.completions);
        state.model.advance(self.clock.now(), &mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            let number = completion.tag;
            let under_way = state.under_way.get_mut(&number).expect("a model completes what it was given, once");
            under_way.completion = Some(completion);
            state.wake_parked(Wanted::Own(number));
            self.settle(state, number);
        }
        state.completions = completions;
        any
    }

    /// Moves an I/O of the queue to `finished` once its time has come and its bytes are ready.
    fn settle(&self, state: &mut State<M>, number: u64) {
        let under_way = state.under_way.get_mut(&number).expect("an I/O that nobody has taken");
        let (Some(completion), Some(_)) = (under_way.completion, &under_way.parcel) else {
            return;
        };
        let parcel = state.under_way.remove(&number).and_then(|done| done.parcel).expect("it was seen");
        state.finished.push_back((parcel, completion));
        if !state.wake_parked(Wanted::Queue)
            && let Some(watcher) = &mut state.watcher
        {
            // The watcher may be the thread that reaps.
            watcher.poked = true;
            self.publish(state);
        }
    }

    /// Tells the watcher when to look at the state next.
    fn publish(&self, state: &mut State<M>) {
        let poked = state.watcher.as_ref().is_some_and(|watcher| watcher.poked);
        let next = if poked { 0 } else { state.model.next_event().unwrap_or(Nanos::MAX) };
        let before = self.deadline.swap(next, Ordering::AcqRel);
        if let Some(watcher) = &state.watcher
            && next < before
        {
            watcher.thread.unpark();
        }
    }
}

impl<M> State<M> {
    /// Takes the completion of an I/O that is not of the queue, once its time has come.
    fn take(&mut self, number: u64) -> Option<Completion> {
        let completion = self.under_way[&number].completion?;
        self.under_way.remove(&number);
        Some(completion)
    }

    /// Wakes a thread that waits for `wanted`. True if there was one.
    fn wake_parked(&mut self, wanted: Wanted) -> bool {
        let found = self.parked.iter().position(|(parked, _)| *parked == wanted);
        found.map(|place| self.parked.swap_remove(place).1.unpark()).is_some()
    }

    /// Wakes a thread that can become the watcher.
    fn wake_any(&mut self) {
        if let Some((_, thread)) = self.parked.pop() {
            thread.unpark();
        }
    }
}
