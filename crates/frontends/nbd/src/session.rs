//! The transmission: one thread reads requests, others carry them out, replies leave in any order.
//!
//! The thread that read a request carries it out if it is likely to be quick, because waking another thread costs more
//! than a hit. For a small read the block tells. For the others the times of earlier requests tell, of reads and of
//! writes separately. A request that overlaps with others goes to a worker unless the mean is below the cost of waking
//! one, so that misses do not hold up the requests behind them.

use crate::budget::{Budget, KEPT_BYTES_MAX, Need, SMALL_BYTES_MAX};
use crate::handshake::Agreed;
use crate::wire::{self, Command, REQUEST_BYTES, Request, chunk, errno, flag};
use crate::{Error, Export, Limits, Result};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// If the last request took longer than this, even a request that is alone goes to a worker.
const LAST_QUICK_MAX: Duration = Duration::from_micros(50);

/// Cost of handing a request to a worker: a wait and a wake-up in the kernel, and the cold caches of another CPU.
const HAND_OVER: Duration = Duration::from_micros(8);

/// The newest time counts for one part in this many of the mean.
const MEAN_SHARE: u64 = 64;

/// Size in bytes of the pieces in which zeroes are written.
const ZEROES_BYTES: usize = 1 << 20;

/// Serves requests until the client leaves, and waits for those in flight. Returns the number of requests answered.
///
/// `hang_up` is called once when the client cannot be answered any more. It must make `reader` end.
pub(super) fn run<R: Read, W: Write + Send>(
    mut reader: BufReader<R>,
    writer: W,
    export: &Export,
    limits: &Limits,
    budget: &Budget,
    agreed: Agreed,
    hang_up: &(dyn Fn() + Sync),
) -> Result<u64> {
    let queue = Mutex::default();
    // Runs in any case, also after half a write or a panic.
    let _settled = Settled { queue: &queue, budget };
    let session = Session {
        export,
        limits,
        budget,
        agreed,
        hang_up,
        queue: &queue,
        work: Condvar::new(),
        space: Condvar::new(),
        replies: Mutex::new(Replies { writer, kept: Vec::new(), answered: 0, failure: None }),
        pace_of_reads: Pace::default(),
        pace_of_writes: Pace::default(),
    };
    let ended = std::thread::scope(|scope| {
        let ended = session.receive(&mut reader, scope);
        lock(&queue).closing = true;
        session.work.notify_all();
        ended
    });
    ended?;
    let replies = session.replies.into_inner().unwrap_or_else(PoisonError::into_inner);
    replies.failure.map_or(Ok(replies.answered), |failure| Err(failure.into()))
}

struct Session<'a, W> {
    export: &'a Export,
    limits: &'a Limits,
    budget: &'a Budget,
    agreed: Agreed,
    hang_up: &'a (dyn Fn() + Sync),
    queue: &'a Mutex<Queue>,
    /// Signalled when a request waits for a worker, or the session closes.
    work: Condvar,
    /// Signalled when a request has been answered.
    space: Condvar,
    replies: Mutex<Replies<W>>,
    pace_of_reads: Pace,
    pace_of_writes: Pace,
}

/// Time of small requests in nanoseconds: of the last one, and the mean. Threads may overwrite each other's updates,
/// which only changes the quality of a guess.
#[derive(Default)]
struct Pace {
    last_ns: AtomicU64,
    mean_ns: AtomicU64,
}

impl Pace {
    fn note(&self, time: Duration) {
        let time_ns = time.as_nanos() as u64;
        self.last_ns.store(time_ns, Relaxed);
        let mean_ns = self.mean_ns.load(Relaxed);
        self.mean_ns.store(mean_ns - mean_ns / MEAN_SHARE + time_ns / MEAN_SHARE, Relaxed);
    }

    /// True if the thread that reads should carry out a small request itself. For a request that is `alone` the last
    /// time counts, otherwise the mean.
    fn is_quick(&self, alone: bool) -> bool {
        let (time, max) = if alone { (&self.last_ns, LAST_QUICK_MAX) } else { (&self.mean_ns, HAND_OVER) };
        u128::from(time.load(Relaxed)) < max.as_nanos()
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Requests read but not answered, and their bytes.
    in_flight: usize,
    bytes: usize,
    /// Bytes of the request that waits for memory.
    coming: usize,
    /// Bytes borrowed from the budget's rest.
    borrowed: usize,
    workers: usize,
    idle: usize,
    closing: bool,
}

/// Gives back, at the end, the memory that the session's requests still hold.
struct Settled<'a> {
    queue: &'a Mutex<Queue>,
    budget: &'a Budget,
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        let mut queue = lock(self.queue);
        queue.waiting.clear();
        self.budget.discount(queue.bytes);
        self.budget.give_back(queue.borrowed);
    }
}

struct Replies<W> {
    writer: W,
    /// Replies kept back, to be sent together.
    kept: Vec<u8>,
    answered: u64,
    /// The error after which the client cannot be answered any more.
    failure: Option<io::Error>,
}

struct Job {
    request: Request,
    payload: Vec<u8>,
}

/// Locks a mutex, also after a panic: no lock here is held over code that can leave its data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Write + Send> Session<'_, W> {
    /// Reads requests until the client leaves or breaks the protocol.
    fn receive<'scope>(
        &'scope self,
        reader: &mut BufReader<impl Read>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<()> {
        let mut buffer = Vec::new();
        while !reader.fill_buf()?.is_empty() {
            let mut header = [0; REQUEST_BYTES];
            reader.read_exact(&mut header)?;
            let request = Request::decode(&header)?;
            if request.command == Command::Disconnect || lock(&self.replies).failure.is_some() {
                return Ok(());
            }
            if let Err(refusal) = self.check(&request) {
                self.refuse(&request, &refusal, reader)?;
                continue;
            }
            // A reply may wait for the next one if that is certain to come at once.
            let more = is_small_and_whole(reader.buffer());
            if self.answer_at_once(&request, &mut buffer, more) {
                continue;
            }
            if request.command == Command::Read {
                // Replies to hits must not wait for a miss.
                self.send_kept();
            }
            let Some(idle) = self.admit(&request) else {
                self.refuse(&request, &NO_MEMORY, reader)?;
                continue;
            };
            let mut payload = Vec::new();
            if request.command == Command::Write {
                payload.resize(request.length as usize, 0);
                reader.read_exact(&mut payload)?;
            }
            let mut job = Some(Job { request, payload });
            if !is_small(&request) || !self.pace(&request).is_quick(idle && reader.buffer().is_empty()) {
                self.send_kept();
                job = job.and_then(|job| self.hand_over(job, scope));
            }
            if let Some(job) = job {
                self.carry_out(job, &mut buffer, idle && is_small_and_whole(reader.buffer()));
            }
        }
        Ok(())
    }

    /// Answers a small read if the block has the bytes at once. True if it did.
    fn answer_at_once(&self, request: &Request, buffer: &mut Vec<u8>, keep: bool) -> bool {
        if request.command != Command::Read || !is_small(request) {
            return false;
        }
        buffer.resize(request.length as usize, 0);
        let found = self.export.block.read_now(request.offset, buffer);
        if found {
            self.reply_data(request, buffer, keep);
        }
        found
    }

    fn pace(&self, request: &Request) -> &Pace {
        if request.command == Command::Read { &self.pace_of_reads } else { &self.pace_of_writes }
    }

    /// Checks a request before any work is done for it. The error is the refusal to answer with.
    fn check(&self, request: &Request) -> std::result::Result<(), Refusal<'static>> {
        let invalid = |text| Err(Refusal { errno: errno::EINVAL, text });
        let allowed = match request.command {
            Command::Read if self.agreed.structured => flag::FUA | flag::DF,
            Command::WriteZeroes => flag::FUA | flag::NO_HOLE,
            Command::Other(_) => return invalid("a command that was not offered"),
            _ => flag::FUA,
        };
        if request.flags & !allowed != 0 {
            return invalid("a flag that this command does not have");
        }
        let writes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if writes && self.export.read_only {
            return Err(Refusal { errno: errno::EPERM, text: "the export is read-only" });
        }
        let carries = matches!(request.command, Command::Read | Command::Write);
        if carries && request.length > self.limits.request_bytes_max {
            return invalid("longer than the largest request");
        }
        let end = request.offset.checked_add(u64::from(request.length));
        if request.command != Command::Flush && end.is_none_or(|end| end > self.export.block.size_bytes()) {
            let errno = if writes { errno::ENOSPC } else { errno::EINVAL };
            return Err(Refusal { errno, text: "beyond the end of the export" });
        }
        Ok(())
    }

    /// Answers a request that is not carried out, and drops its payload.
    fn refuse(&self, request: &Request, refusal: &Refusal, reader: &mut impl Read) -> Result<()> {
        if request.command == Command::Write {
            if request.length > self.limits.request_bytes_max {
                self.reply_error(request, refusal, false);
                return Err(Error::Protocol(format!("a write of {} bytes, which was not offered", request.length)));
            }
            let dropped = io::copy(&mut reader.take(request.length.into()), &mut io::sink())?;
            if dropped < request.length.into() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        self.reply_error(request, refusal, false);
        Ok(())
    }

    /// Waits until the limits admit the request. True if it is the only one in flight; `None` if memory is lacking.
    fn admit(&self, request: &Request) -> Option<bool> {
        let bytes = bytes_held(request);
        let full = |queue: &mut Queue| queue.in_flight >= self.limits.requests_max.max(1);
        let mut queue = lock(self.queue);
        if full(&mut queue) {
            drop(queue);
            self.send_kept();
            queue = self.space.wait_while(lock(self.queue), full).unwrap_or_else(PoisonError::into_inner);
        }
        let mut borrowed = 0;
        let need = self.need(&queue, bytes);
        if !matches!(need, Need::Rest { bytes: 0, .. }) {
            queue.coming = bytes;
            drop(queue);
            let found = self.find_memory(need, bytes);
            queue = lock(self.queue);
            queue.coming = 0;
            borrowed = found?;
        }
        queue.in_flight += 1;
        queue.bytes += bytes;
        queue.borrowed += borrowed;
        self.budget.count(bytes);
        Some(queue.in_flight == 1)
    }

    /// The memory that a request of this many bytes lacks. Only the reading thread adds requests; others reduce it.
    fn need(&self, queue: &Queue, bytes: usize) -> Need {
        let after = queue.bytes + bytes;
        if queue.in_flight > 0 && after > self.limits.bytes_max {
            return Need::Answers;
        }
        let beyond = after.saturating_sub(self.budget.share + queue.borrowed);
        Need::Rest { bytes: beyond, alone: queue.in_flight == 0 }
    }

    /// Borrows the memory that a request of this many bytes lacks, now or later; `None` when there is none.
    fn find_memory(&self, need: Need, bytes: usize) -> Option<usize> {
        if let Need::Rest { bytes: beyond, alone: false } = need
            && self.budget.borrow(beyond)
        {
            return Some(beyond);
        }
        self.send_kept();
        self.budget.wait(|| self.need(&lock(self.queue), bytes), self.limits.memory_patience)
    }

    /// Queues a job for the workers; gives the job back when there is no worker and none can be started.
    fn hand_over<'scope>(&'scope self, job: Job, scope: &'scope Scope<'scope, '_>) -> Option<Job> {
        let mut queue = lock(self.queue);
        if queue.waiting.len() >= queue.idle && queue.workers < self.limits.workers_max.max(1) {
            let worker = Builder::new().name("nbd worker".into()).spawn_scoped(scope, || self.work());
            if worker.is_ok() {
                queue.workers += 1;
            } else if queue.workers == 0 {
                return Some(job);
            }
        }
        queue.waiting.push_back(job);
        drop(queue);
        self.work.notify_one();
        None
    }

    /// A worker: carries out jobs until the session closes and no job is left.
    fn work(&self) {
        let _guard = HangUpOnPanic(self);
        let mut buffer = Vec::new();
        let mut queue = lock(self.queue);
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                drop(queue);
                self.carry_out(job, &mut buffer, false);
                queue = lock(self.queue);
            } else if queue.closing {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }

    /// Carries out an admitted request, answers it and releases its memory. With `keep`, the answer waits for the next.
    fn carry_out(&self, job: Job, buffer: &mut Vec<u8>, keep: bool) {
        let start = Instant::now();
        let result = self.transfer(&job, buffer);
        if is_small(&job.request) {
            self.pace(&job.request).note(start.elapsed());
        }
        match result {
            Ok(()) if job.request.command == Command::Read => self.reply_data(&job.request, buffer, keep),
            Ok(()) => self.reply_done(&job.request, keep),
            Err(error) => {
                let refusal = Refusal { errno: errno_of(&error), text: &error.to_string() };
                self.reply_error(&job.request, &refusal, keep);
            }
        }
        self.give_back(&job.request, job.payload, buffer);
    }

    /// Releases an answered request: its buffers first, then its part of the limits.
    fn give_back(&self, request: &Request, payload: Vec<u8>, buffer: &mut Vec<u8>) {
        drop(payload);
        if buffer.capacity() > self.budget.spare {
            *buffer = Vec::new();
        }
        let bytes = bytes_held(request);
        let mut queue = lock(self.queue);
        queue.in_flight -= 1;
        queue.bytes -= bytes;
        let needed = (queue.bytes + queue.coming).saturating_sub(self.budget.share);
        let borrowed = queue.borrowed.min(needed);
        let returned = std::mem::replace(&mut queue.borrowed, borrowed) - borrowed;
        drop(queue);
        // Only the reading thread waits on `space`.
        self.space.notify_one();
        self.budget.discount(bytes);
        self.budget.give_back(returned);
    }

    /// Moves the bytes; a read leaves them in `buffer`.
    fn transfer(&self, job: &Job, buffer: &mut Vec<u8>) -> io::Result<()> {
        let Request { command, flags, offset, length, .. } = job.request;
        let block = &*self.export.block;
        let fua = flags & flag::FUA != 0;
        match command {
            Command::Read => {
                buffer.resize(length as usize, 0);
                block.read(offset, buffer)
            }
            Command::Write => block.write(offset, &job.payload, fua),
            Command::Flush => block.flush(),
            Command::Trim => {
                block.discard(offset, length.into())?;
                if fua { block.flush() } else { Ok(()) }
            }
            Command::WriteZeroes => {
                let zeroes = vec![0; ZEROES_BYTES.min(length as usize)];
                let end = offset + u64::from(length);
                for start in (offset..end).step_by(ZEROES_BYTES) {
                    let piece = &zeroes[..zeroes.len().min((end - start) as usize)];
                    block.write(start, piece, false)?;
                }
                if fua { block.flush() } else { Ok(()) }
            }
            Command::Disconnect | Command::Other(_) => unreachable!("refused before they are queued"),
        }
    }

    fn reply_data(&self, request: &Request, data: &[u8], keep: bool) {
        if data.is_empty() {
            return self.reply_done(request, keep);
        }
        let mut head = Vec::with_capacity(28);
        if self.agreed.structured {
            structured_head(&mut head, chunk::OFFSET_DATA, request.cookie, request.length + 8);
            head.extend(request.offset.to_be_bytes());
        } else {
            simple_head(&mut head, 0, request.cookie);
        }
        self.send(&head, data, keep);
    }

    fn reply_done(&self, request: &Request, keep: bool) {
        let mut head = Vec::with_capacity(20);
        if self.agreed.structured && request.command == Command::Read {
            structured_head(&mut head, chunk::NONE, request.cookie, 0);
        } else {
            simple_head(&mut head, 0, request.cookie);
        }
        self.send(&head, b"", keep);
    }

    fn reply_error(&self, request: &Request, refusal: &Refusal, keep: bool) {
        let mut head = Vec::with_capacity(26);
        if !self.agreed.structured {
            simple_head(&mut head, refusal.errno, request.cookie);
            return self.send(&head, b"", keep);
        }
        let mut kept = refusal.text.len().min(ERROR_TEXT_MAX);
        while !refusal.text.is_char_boundary(kept) {
            kept -= 1;
        }
        let text = &refusal.text.as_bytes()[..kept];
        structured_head(&mut head, chunk::ERROR, request.cookie, 6 + text.len() as u32);
        head.extend(refusal.errno.to_be_bytes());
        head.extend((text.len() as u16).to_be_bytes());
        self.send(&head, text, keep);
    }

    fn send(&self, head: &[u8], data: &[u8], keep: bool) {
        let mut replies = lock(&self.replies);
        replies.answered += 1;
        self.attempt(&mut replies, head, data, keep);
    }

    /// Sends the kept replies, before work that may take long.
    fn send_kept(&self) {
        self.attempt(&mut lock(&self.replies), b"", b"", false);
    }

    fn attempt(&self, replies: &mut Replies<W>, head: &[u8], data: &[u8], keep: bool) {
        if replies.failure.is_some() {
            return;
        }
        if let Err(failure) = replies.send(head, data, keep) {
            replies.failure = Some(failure);
            (self.hang_up)();
        }
    }
}

impl<W: Write> Replies<W> {
    fn send(&mut self, head: &[u8], data: &[u8], keep: bool) -> io::Result<()> {
        if keep && self.kept.len() + head.len() + data.len() <= KEPT_BYTES_MAX {
            self.kept.extend_from_slice(head);
            self.kept.extend_from_slice(data);
            return Ok(());
        }
        if self.kept.is_empty() {
            return write_both(&mut self.writer, head, data);
        }
        self.kept.extend_from_slice(head);
        let sent = write_both(&mut self.writer, &self.kept, data);
        self.kept.clear();
        sent
    }
}

/// The longest error text that is sent.
const ERROR_TEXT_MAX: usize = 1024;

/// The error with which a request is refused.
struct Refusal<'a> {
    errno: u32,
    text: &'a str,
}

/// Refusal of a request larger than a share while other connections hold the memory.
const NO_MEMORY: Refusal<'static> =
    Refusal { errno: errno::ENOMEM, text: "no memory for a request larger than the size that was offered" };

/// Ends the connection if a worker panics: its request is never answered, and the client must not wait for it.
struct HangUpOnPanic<'a, 'b, W: Write + Send>(&'a Session<'b, W>);

impl<W: Write + Send> Drop for HangUpOnPanic<'_, '_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0.hang_up)();
        }
    }
}

/// True for requests that a cache may answer at once.
fn is_small(request: &Request) -> bool {
    let hit = matches!(request.command, Command::Read | Command::Write);
    hit && request.flags & flag::FUA == 0 && request.length <= SMALL_BYTES_MAX
}

/// True if the bytes start with a small request that has arrived as a whole.
fn is_small_and_whole(bytes: &[u8]) -> bool {
    let next = bytes.first_chunk().and_then(|header| Request::decode(header).ok());
    next.is_some_and(|next| {
        let payload = if next.command == Command::Write { next.length as usize } else { 0 };
        is_small(&next) && bytes.len() >= REQUEST_BYTES + payload
    })
}

/// Memory in bytes that a request holds while it is in flight.
fn bytes_held(request: &Request) -> usize {
    match request.command {
        Command::Read | Command::Write => request.length as usize,
        Command::WriteZeroes => ZEROES_BYTES,
        _ => 0,
    }
}

fn simple_head(head: &mut Vec<u8>, errno: u32, cookie: u64) {
    head.extend(wire::SIMPLE_REPLY.to_be_bytes());
    head.extend(errno.to_be_bytes());
    head.extend(cookie.to_be_bytes());
}

fn structured_head(head: &mut Vec<u8>, kind: u16, cookie: u64, length: u32) {
    head.extend(wire::STRUCTURED_REPLY.to_be_bytes());
    head.extend(chunk::DONE.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    head.extend(length.to_be_bytes());
}

/// Writes all of two buffers, in one call where the system takes both.
fn write_both(writer: &mut impl Write, mut head: &[u8], mut data: &[u8]) -> io::Result<()> {
    while !head.is_empty() {
        let written = match writer.write_vectored(&[IoSlice::new(head), IoSlice::new(data)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        data = &data[written.saturating_sub(head.len())..];
        head = &head[written.min(head.len())..];
    }
    writer.write_all(data)?;
    writer.flush()
}

/// The protocol's number for an error of the storage.
fn errno_of(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::InvalidInput => errno::EINVAL,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => errno::ENOSPC,
        io::ErrorKind::OutOfMemory => errno::ENOMEM,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => errno::EPERM,
        _ => errno::EIO,
    }
}
