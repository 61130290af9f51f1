//! The drive: a queue, a head and a platter.

use super::geometry::{Geometry, Place};
use super::parameters::DiskParameters;
use super::scheduler::{Candidate, Discipline, least};
use super::seek::SeekTable;
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, IoKind, Latency, Nanos, Wear};
use entresol_core::Random;
use std::collections::VecDeque;
use std::sync::Arc;

/// Parameters and tables that all drives of a kind share. Times outside `parameters` are in nanoseconds.
#[derive(Debug)]
struct Mechanics {
    parameters: DiskParameters,
    geometry: Geometry,
    seek: SeekTable,
    head_switch: Nanos,
    write_settle: u32,
    read_overhead: Nanos,
    write_overhead: Nanos,
    after_write: Nanos,
}

/// A command that waits or is being served.
#[derive(Clone, Copy, Debug)]
struct Command {
    io: Io,
    submitted: Nanos,
    place: Place,
    sectors: u32,
}

/// Passage of the heads over the sectors of an I/O: its times, and the cylinder where it ends.
#[derive(Clone, Copy, Debug)]
struct Passage {
    /// From the first sector to the last, in nanoseconds.
    elapsed: Nanos,
    /// The part of it that is spent moving between tracks.
    switching: Nanos,
    cylinder: u32,
}

/// Read-ahead behind a read.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The sector after the last one that the host asked for, and when the heads pass it.
    next: u64,
    passed: Nanos,
    /// The sector before which read-ahead stops, because the buffer is full.
    limit: u64,
}

/// A disk drive. Writes are durable when they complete: its write cache is off.
#[derive(Clone, Debug)]
pub struct Disk {
    mechanics: Arc<Mechanics>,
    /// Nanoseconds of a turn, with this drive's error.
    turn: u32,
    /// The platter's position at time 0, in nanoseconds of a turn.
    phase: u32,
    /// The oldest commands that wait, at most `window`; `candidates[i]` describes `commands[i]`.
    candidates: Vec<Candidate>,
    commands: Vec<Command>,
    /// Younger commands, in order of arrival.
    beyond_window: VecDeque<(Candidate, Command)>,
    arrivals: u64,
    /// True if the youngest command that needs the medium is a write.
    after_write: bool,
    /// The command being served, already in its final form.
    serving: Option<Completion>,
    /// Completions that need no medium access (flush, discard), in order of time.
    immediate: VecDeque<Completion>,
    /// Completions that a submission has overtaken, in order of time.
    overtaken: VecDeque<Completion>,
    /// Cylinder of the heads when the command being served is done.
    cylinder: u32,
    /// Sector after the last one of the latest command served. C-LOOK continues from there.
    last_sector: u64,
    stream: Option<Stream>,
    wear: Wear,
}

impl Disk {
    /// A drive. The seed gives its speed within the error and the position of its platter at time 0.
    ///
    /// # Errors
    /// When the parameters are impossible.
    pub fn new(parameters: DiskParameters, seed: u64) -> Result<Self, DeviceError> {
        Ok(Self::batch(parameters, 1, seed)?.remove(0))
    }

    /// Drives of one kind, which share their tables and differ in speed and position.
    ///
    /// # Errors
    /// When the parameters are impossible.
    pub fn batch(mut parameters: DiskParameters, drives: usize, seed: u64) -> Result<Vec<Self>, DeviceError> {
        parameters.check_named()?;
        if parameters.discipline == Discipline::Fcfs {
            parameters.window = 1;
        }
        let ns = |ms: f64| (ms * 1e6).round() as Nanos;
        let mechanics = Arc::new(Mechanics {
            geometry: Geometry::new(&parameters),
            seek: SeekTable::new(&parameters.seek, parameters.cylinders),
            head_switch: ns(parameters.head_switch_ms),
            write_settle: ns(parameters.write_settle_ms) as u32,
            read_overhead: ns(parameters.read_overhead_ms),
            write_overhead: ns(parameters.write_overhead_ms),
            after_write: ns(parameters.after_write_ms),
            parameters,
        });
        let mut random = Random::new(seed);
        Ok((0..drives).map(|_| Self::of(Arc::clone(&mechanics), &mut random)).collect())
    }

    fn of(mechanics: Arc<Mechanics>, random: &mut Random) -> Self {
        let parameters = &mechanics.parameters;
        let error = (2.0 * random.next_f64() - 1.0) * parameters.rpm_error;
        let turn = (60e9 / (parameters.rpm * (1.0 + error))).round() as u32;
        let window = parameters.window.min(1024);
        Disk {
            turn,
            phase: random.below(u64::from(turn)) as u32,
            candidates: Vec::with_capacity(window),
            commands: Vec::with_capacity(window),
            beyond_window: VecDeque::new(),
            arrivals: 0,
            after_write: false,
            serving: None,
            immediate: VecDeque::new(),
            overtaken: VecDeque::new(),
            cylinder: 0,
            last_sector: 0,
            stream: None,
            wear: Wear::default(),
            mechanics,
        }
    }

    /// The parameters that the drive was made of.
    pub fn parameters(&self) -> &DiskParameters {
        &self.mechanics.parameters
    }

    /// Number of waiting commands, without the one being served.
    pub fn waiting(&self) -> usize {
        self.commands.len() + self.beyond_window.len()
    }

    /// Position of the platter at time `now`, in nanoseconds of a turn.
    fn phase_at(&self, now: Nanos) -> u32 {
        ((now + Nanos::from(self.phase)) % Nanos::from(self.turn)) as u32
    }

    /// Time from the start of a turn until a sector of a track begins to pass. Rounding is down for every sector, so
    /// that the end of one is the beginning of the next to the nanosecond.
    fn along(&self, place: &Place) -> u32 {
        (u64::from(place.sector) * u64::from(self.turn) / u64::from(place.track.sectors)) as u32
    }

    fn angle(&self, place: &Place) -> u32 {
        let start = (u64::from(place.track.start) * u64::from(self.turn)) >> 32;
        let angle = start as u32 + self.along(place);
        if angle >= self.turn { angle - self.turn } else { angle }
    }

    /// From phase `from` to phase `to`.
    fn wait(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.turn - from }
    }

    /// Passage of the heads over `sectors` sectors from `place` on, moving between tracks included.
    fn pass(&self, place: Place, sectors: u64) -> Passage {
        let mut left = sectors;
        let mut at = place;
        let mut passage = Passage { elapsed: 0, switching: 0, cylinder: place.track.cylinder };
        loop {
            let here = left.min(u64::from(at.track.sectors - at.sector));
            let end = Place { sector: at.sector + here as u32, ..at };
            passage.elapsed += Nanos::from(self.along(&end) - self.along(&at));
            left -= here;
            if left == 0 {
                return passage;
            }
            let next = self.mechanics.geometry.track(at.track.number + 1).expect("an I/O ends within the disk");
            let next = Place { track: next, sector: 0 };
            let moving = match next.track.cylinder.abs_diff(at.track.cylinder) {
                0 => self.mechanics.head_switch,
                distance => self.mechanics.seek.time(distance),
            };
            let from = (u64::from(self.angle(&Place { sector: 0, ..at })) + u64::from(self.along(&end)) + moving)
                % u64::from(self.turn);
            let switching = moving + Nanos::from(self.wait(from as u32, self.angle(&next)));
            passage.elapsed += switching;
            passage.switching += switching;
            passage.cylinder = next.track.cylinder;
            at = next;
        }
    }

    /// Queues a command that needs the medium.
    fn enqueue(&mut self, now: Nanos, io: Io) {
        let mechanics = &self.mechanics;
        let sector_bytes = u64::from(mechanics.parameters.sector_bytes);
        let first = io.offset / sector_bytes;
        let reads = io.kind == IoKind::Read;
        let place = mechanics.geometry.place(first);
        let command = Command { io, submitted: now, place, sectors: (io.end().div_ceil(sector_bytes) - first) as u32 };
        let overhead = if reads { mechanics.read_overhead } else { mechanics.write_overhead }
            + if self.after_write { mechanics.after_write } else { 0 };
        let candidate = Candidate {
            number: self.arrivals,
            ready: now + overhead,
            first,
            cylinder: place.track.cylinder,
            angle: self.angle(&place),
            settle: if reads { 0 } else { mechanics.write_settle },
            reads,
        };
        self.arrivals += 1;
        self.after_write = !reads;
        if self.candidates.len() < mechanics.parameters.window {
            self.candidates.push(candidate);
            self.commands.push(command);
        } else {
            self.beyond_window.push_back((candidate, command));
        }
    }

    /// Time to move the heads to the candidate's cylinder.
    #[inline]
    fn seek(&self, candidate: &Candidate) -> Nanos {
        self.mechanics.seek.time(self.cylinder.abs_diff(candidate.cylinder))
    }

    /// From `now` until the heads are at the candidate's first sector.
    #[inline]
    fn positioning(&self, now: Nanos, phase: u32, candidate: &Candidate) -> Nanos {
        let settle = if self.cylinder == candidate.cylinder { 0 } else { candidate.settle };
        let moving = candidate.ready.saturating_sub(now) + self.seek(candidate) + Nanos::from(settle);
        let arrival = (moving as u32 + phase) % self.turn;
        moving + Nanos::from(self.wait(arrival, candidate.angle))
    }

    /// The command to serve next.
    fn choose(&self, now: Nanos) -> usize {
        match self.mechanics.parameters.discipline {
            Discipline::Fcfs => 0,
            Discipline::CLook => least(&self.candidates, |_| 0, |c| c.first.wrapping_sub(self.last_sector)),
            Discipline::Sstf => least(&self.candidates, |_| 0, |c| u64::from(self.cylinder.abs_diff(c.cylinder))),
            Discipline::Sptf => {
                let phase = self.phase_at(now);
                if let Some(next) = self.stream.map(|stream| stream.next)
                    && let Some(hit) = self.candidates.iter().position(|c| c.first == next && c.reads)
                {
                    return hit;
                }
                least(&self.candidates, |c| self.seek(c), |c| self.positioning(now, phase, c))
            }
        }
    }

    /// Starts the next command, if one waits, at a time when the heads are free.
    fn start(&mut self, now: Nanos) {
        if self.candidates.is_empty() {
            return;
        }
        let index = self.choose(now);
        let candidate = self.candidates.swap_remove(index);
        let command = self.commands.swap_remove(index);
        if let Some((candidate, command)) = self.beyond_window.pop_front() {
            self.candidates.push(candidate);
            self.commands.push(command);
        }
        let latency = self.read_on(now, &candidate, &command).unwrap_or_else(|| self.access(now, &candidate, &command));
        let finished = command.submitted + latency.total();
        self.last_sector = candidate.first + u64::from(command.sectors);
        self.serving = Some(Completion { tag: command.io.tag, submitted: command.submitted, finished, latency });
    }

    /// Serves a read from the sectors read ahead behind the last read; `None` when the read is not among them.
    fn read_on(&mut self, now: Nanos, candidate: &Candidate, command: &Command) -> Option<Latency> {
        let stream = self.stream.filter(|stream| candidate.reads && candidate.first == stream.next)?;
        let next = stream.next + u64::from(command.sectors);
        if next > stream.limit {
            return None;
        }
        let passage = self.pass(command.place, u64::from(command.sectors));
        let passed = stream.passed + passage.elapsed;
        let begin = now.max(candidate.ready);
        let ahead = self.pass(command.place, stream.limit - stream.next);
        // The sectors taken out leave free buffer space, unless read-ahead has stopped already.
        let limit = if begin <= stream.passed + ahead.elapsed { self.read_on_limit(next) } else { stream.limit };
        self.stream = Some(Stream { next, passed, limit });
        self.cylinder = passage.cylinder;
        Some(Latency {
            fixed: candidate.ready - command.submitted,
            queue: begin - candidate.ready,
            transfer: passed.saturating_sub(begin),
            ..Latency::default()
        })
    }

    /// Serves a command from the medium.
    fn access(&mut self, now: Nanos, candidate: &Candidate, command: &Command) -> Latency {
        let begin = now.max(candidate.ready);
        let position = self.positioning(begin, self.phase_at(begin), candidate);
        let passage = self.pass(command.place, u64::from(command.sectors));
        let next = candidate.first + u64::from(command.sectors);
        self.cylinder = passage.cylinder;
        self.stream = candidate.reads.then(|| Stream {
            next,
            passed: begin + position + passage.elapsed,
            limit: self.read_on_limit(next),
        });
        Latency {
            fixed: candidate.ready - command.submitted,
            queue: begin - candidate.ready,
            media: position + passage.switching,
            transfer: passage.elapsed - passage.switching,
            ..Latency::default()
        }
    }

    fn read_on_limit(&self, next: u64) -> u64 {
        let parameters = &self.mechanics.parameters;
        (next + u64::from(parameters.read_ahead_sectors)).min(parameters.sectors)
    }

    /// Lets time pass and hands out completions, except those that a submission has overtaken.
    fn run(&mut self, until: Nanos, mut done: impl FnMut(Completion)) {
        loop {
            let served = self.serving.as_ref().map_or(Nanos::MAX, |completion| completion.finished);
            let immediate = self.immediate.front().map_or(Nanos::MAX, |completion| completion.finished);
            let at = served.min(immediate);
            if at == Nanos::MAX || at > until {
                return;
            }
            if served <= immediate {
                done(self.serving.take().expect("a command is being served"));
                self.start(served);
            } else {
                done(self.immediate.pop_front().expect("a command is due"));
            }
        }
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let capacity = self.capacity_bytes();
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        if self.next_event().is_some_and(|at| at <= now) {
            let mut overtaken = std::mem::take(&mut self.overtaken);
            self.run(now, |completion| overtaken.push_back(completion));
            self.overtaken = overtaken;
        }
        match io.kind {
            IoKind::Read => self.wear.host_read_bytes += u64::from(io.bytes),
            IoKind::Write => {
                self.wear.host_written_bytes += u64::from(io.bytes);
                self.wear.media_written_bytes += u64::from(io.bytes);
            }
            IoKind::Flush | IoKind::Discard => {}
        }
        if matches!(io.kind, IoKind::Flush | IoKind::Discard) || io.bytes == 0 {
            let latency = Latency { fixed: self.mechanics.write_overhead, ..Latency::default() };
            let finished = now + latency.total();
            self.immediate.push_back(Completion { tag: io.tag, submitted: now, finished, latency });
        } else {
            self.enqueue(now, io);
            if self.serving.is_none() {
                self.start(now);
            }
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        let firsts = [self.overtaken.front(), self.serving.as_ref(), self.immediate.front()];
        firsts.into_iter().flatten().map(|completion| completion.finished).min()
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        while self.overtaken.front().is_some_and(|completion| completion.finished <= until) {
            done.extend(self.overtaken.pop_front());
        }
        self.run(until, |completion| done.push(completion));
    }

    fn capacity_bytes(&self) -> u64 {
        self.mechanics.parameters.sectors * u64::from(self.mechanics.parameters.sector_bytes)
    }

    fn wear(&self) -> Wear {
        self.wear
    }
}
