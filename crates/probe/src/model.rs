//! A device model as a target, in virtual time.
//!
//! Each stream is a thread of its own in front of the device, as each job of `fio` is: it pays the host's cost per I/O,
//! and two streams do not wait for each other's software (002, section 4.2).

use crate::target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};
use entresol_core::Random;
use entresol_device::host::HostParameters;
use entresol_device::profile::Profile;
use entresol_device::{Completion, Device, DeviceError, Io, IoKind, Nanos, Wear};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A model of a device, and the time in front of it.
pub struct ModelTarget {
    name: String,
    device: Box<dyn Device>,
    host: Option<HostParameters>,
    now: Nanos,
}

impl ModelTarget {
    /// A device behind a host that costs `host` per I/O and stream, or nothing.
    pub fn new(name: impl Into<String>, device: Box<dyn Device>, host: Option<HostParameters>) -> Self {
        ModelTarget { name: name.into(), device, host, now: 0 }
    }

    /// The device of a profile with this capacity, or its own where it has one.
    ///
    /// # Errors
    /// When the profile cannot be built with it.
    pub fn of_profile(profile: &Profile, capacity_bytes: u64, seed: u64) -> Result<Self, DeviceError> {
        let bare = Profile { host: None, ..profile.clone() };
        Ok(Self::new(profile.name.clone(), bare.build(capacity_bytes, seed)?, profile.host.clone()))
    }

    /// Current virtual time in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Wear of the device.
    pub fn wear(&self) -> Wear {
        self.device.wear()
    }

    fn refuse<T>(&self, what: impl Into<String>) -> Result<T, TargetError> {
        Err(TargetError::Refused { target: self.name.clone(), what: what.into() })
    }

    fn check(&self, stream: &Stream) -> Result<(), TargetError> {
        let (bytes, align) = (u64::from(stream.bytes), u64::from(stream.align));
        let Range { start, end } = stream.range;
        if bytes == 0 || align == 0 {
            return self.refuse("a stream of I/Os or steps of 0 B");
        }
        if start.checked_add(bytes).is_none_or(|first| first > end) || end > self.device.capacity_bytes() {
            let capacity = self.device.capacity_bytes();
            return self.refuse(format!("I/Os of {bytes} B in {start}..{end}, expected room in its {capacity} B"));
        }
        if let Pattern::List(offsets) = &stream.pattern
            && (offsets.is_empty() || offsets.iter().any(|offset| start.saturating_add(*offset + bytes) > end))
        {
            return self.refuse(format!("a list of offsets that is empty or leaves {start}..{end}"));
        }
        match stream.pace {
            Pace::Closed { depth: 0 } => self.refuse("a queue depth of 0"),
            Pace::Open { per_second } if !(1e-6..=1e9).contains(&per_second) => {
                self.refuse(format!("{per_second} I/Os a second"))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for ModelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelTarget").field("name", &self.name).field("now", &self.now).finish_non_exhaustive()
    }
}

impl Target for ModelTarget {
    fn describe(&self) -> String {
        format!("model of {}, {} B, in virtual time", self.name, self.device.capacity_bytes())
    }

    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }

    fn granule_bytes(&self) -> u32 {
        512
    }

    fn run(&mut self, streams: &[Stream], seed: u64) -> Result<Vec<Samples>, TargetError> {
        streams.iter().try_for_each(|stream| self.check(stream))?;
        if streams.iter().all(|stream| stream.until == Until::First) {
            return self.refuse("a run of nothing but streams in the background");
        }
        let mut run = Run::new(self.now, streams, seed);
        while let Some(at) = run.step(&mut *self.device, self.host.as_ref()) {
            self.now = at;
        }
        Ok(run.finish())
    }

    fn idle(&mut self, duration: Nanos) -> Result<(), TargetError> {
        self.now += duration;
        self.device.advance(self.now, &mut Vec::new());
        Ok(())
    }

    fn discard(&mut self, range: Range<u64>) -> Result<(), TargetError> {
        const MOST: u64 = 1 << 30;
        if range.end > self.device.capacity_bytes() {
            return self.refuse(format!("discard up to {}, beyond the end", range.end));
        }
        let mut done = Vec::new();
        for offset in range.clone().step_by(MOST as usize) {
            let bytes = (range.end - offset).min(MOST) as u32;
            let io = Io { kind: IoKind::Discard, ..Io::read(offset, bytes) };
            self.device.submit(self.now, io).expect("the range was checked");
            while let Some(at) = self.device.next_event() {
                self.now = at;
                self.device.advance(at, &mut done);
            }
        }
        Ok(())
    }
}

/// An I/O on its way.
#[derive(Clone, Copy, Debug)]
struct Op {
    stream: usize,
    kind: IoKind,
    offset: u64,
    /// Intended start of the I/O.
    intended: Nanos,
    /// Time in the device so far.
    in_device: Nanos,
    submitted: Nanos,
}

/// A stream under way.
struct Flow<'a> {
    stream: &'a Stream,
    random: Random,
    sent: u64,
    writes_sent: u64,
    /// Submissions that are planned and not yet completed.
    pending: u64,
    /// Most I/Os that the stream will send.
    most: u64,
    /// Time from which no submission is intended.
    ends: Nanos,
    thread_free: Nanos,
    cursor: u64,
    first: Option<Nanos>,
    last: Nanos,
    samples: Samples,
}

/// A run of streams.
struct Run<'a> {
    started: Nanos,
    flows: Vec<Flow<'a>>,
    ops: Vec<Op>,
    free: Vec<usize>,
    /// Submissions to come: the time at which they reach the device, their order, and the operation.
    coming: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    numbered: u64,
    done: Vec<Completion>,
    /// Streams that are not in the background and have something to do.
    foreground: usize,
}

impl<'a> Run<'a> {
    fn new(started: Nanos, streams: &'a [Stream], seed: u64) -> Self {
        let mut seeds = Random::new(seed);
        let flow = |stream: &'a Stream| Flow {
            stream,
            random: Random::new(seeds.next_u64()),
            sent: 0,
            writes_sent: 0,
            pending: 0,
            most: if let Until::Count(count) = stream.until { count } else { u64::MAX },
            ends: if let Until::Elapsed(time) = stream.until { started + time } else { Nanos::MAX },
            thread_free: 0,
            cursor: 0,
            first: None,
            last: started,
            samples: Samples::default(),
        };
        Run {
            started,
            flows: streams.iter().map(flow).collect(),
            ops: Vec::new(),
            free: Vec::new(),
            coming: BinaryHeap::new(),
            numbered: 0,
            done: Vec::new(),
            foreground: 0,
        }
    }

    /// Runs the next event and returns its time; `None` at the end.
    fn step(&mut self, device: &mut dyn Device, host: Option<&HostParameters>) -> Option<Nanos> {
        if self.numbered == 0 {
            self.begin(host);
        }
        let sends = self.coming.peek().map(|Reverse(coming)| coming.0);
        let happens = device.next_event();
        match (sends, happens) {
            (None, None) => None,
            (Some(at), happens) if happens.is_none_or(|event| at <= event) => {
                let Reverse((_, _, number)) = self.coming.pop()?;
                self.send(device, host, at, number);
                Some(at)
            }
            (_, happens) => {
                let at = happens?;
                let mut done = std::mem::take(&mut self.done);
                device.advance(at, &mut done);
                done.drain(..).for_each(|completion| self.complete(host, &completion));
                self.done = done;
                Some(at)
            }
        }
    }

    fn begin(&mut self, host: Option<&HostParameters>) {
        let works = |flow: &&Flow<'_>| flow.stream.until != Until::First && flow.most > 0 && flow.ends > self.started;
        self.foreground = self.flows.iter().filter(works).count();
        for stream in 0..self.flows.len() {
            let ops = match self.flows[stream].stream.pace {
                Pace::Closed { depth } => depth,
                Pace::Open { .. } => 1,
            };
            (0..ops).for_each(|_| self.plan(host, stream, self.started));
        }
    }

    /// Plans a stream's next I/O for a time, unless the stream has ended.
    fn plan(&mut self, host: Option<&HostParameters>, stream: usize, intended: Nanos) {
        let flow = &mut self.flows[stream];
        let ended = flow.stream.until == Until::First && self.foreground == 0;
        if ended || flow.sent >= flow.most || intended >= flow.ends {
            return;
        }
        flow.sent += 1;
        flow.pending += 1;
        let is_write = flow.stream.write_share >= 1.0 || flow.random.chance(flow.stream.write_share);
        let kind = if is_write { IoKind::Write } else { IoKind::Read };
        let offset = flow.next_offset();
        self.schedule(host, Op { stream, kind, offset, intended, in_device: 0, submitted: intended }, intended);
    }

    /// Schedules an I/O to reach the device after the host's work.
    fn schedule(&mut self, host: Option<&HostParameters>, op: Op, from: Nanos) {
        let flow = &mut self.flows[op.stream];
        let reaches = host.map_or(from, |host| {
            let start = from.max(flow.thread_free);
            flow.thread_free = start + host.busy_ns;
            start + host.software_ns
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.ops[number] = op;
                number
            }
            None => {
                self.ops.push(op);
                self.ops.len() - 1
            }
        };
        self.coming.push(Reverse((reaches, self.numbered, number)));
        self.numbered += 1;
    }

    fn send(&mut self, device: &mut dyn Device, host: Option<&HostParameters>, at: Nanos, number: usize) {
        let Op { stream, kind, offset, intended, .. } = self.ops[number];
        let flow = &mut self.flows[stream];
        if flow.stream.until == Until::First && self.foreground == 0 {
            flow.pending -= 1;
            self.free.push(number);
            return;
        }
        flow.first.get_or_insert(intended);
        let bytes = if kind == IoKind::Flush { 0 } else { flow.stream.bytes };
        self.ops[number].submitted = at;
        let io = Io { kind, offset, bytes, tag: number as u64 };
        device.submit(at, io).expect("the streams were checked");
        if let Pace::Open { per_second } = self.flows[stream].stream.pace
            && kind != IoKind::Flush
        {
            let next = self.flows[stream].sent as f64 * 1e9 / per_second;
            self.plan(host, stream, self.started + next as Nanos);
        }
    }

    fn complete(&mut self, host: Option<&HostParameters>, completion: &Completion) {
        let number = completion.tag as usize;
        let mut op = self.ops[number];
        self.free.push(number);
        op.in_device += completion.finished - op.submitted;
        let flow = &mut self.flows[op.stream];
        if op.kind == IoKind::Write {
            flow.writes_sent += 1;
            if flow.stream.flush_every.is_some_and(|every| flow.writes_sent.is_multiple_of(u64::from(every.max(1)))) {
                self.schedule(host, Op { kind: IoKind::Flush, offset: 0, ..op }, completion.finished);
                return;
            }
        }
        flow.record(self.started, &op, completion.finished);
        flow.pending -= 1;
        if matches!(flow.stream.pace, Pace::Closed { .. }) {
            self.plan(host, op.stream, completion.finished);
        }
        let flow = &self.flows[op.stream];
        if flow.pending == 0 && flow.stream.until != Until::First {
            self.foreground -= 1;
        }
    }

    fn finish(self) -> Vec<Samples> {
        let close = |flow: Flow<'_>| Samples {
            elapsed: flow.first.map_or(0, |first| flow.last.saturating_sub(first)),
            ..flow.samples
        };
        self.flows.into_iter().map(close).collect()
    }
}

impl Flow<'_> {
    fn next_offset(&mut self) -> u64 {
        let Range { start, end } = self.stream.range;
        let align = u64::from(self.stream.align);
        let places = (end - start - u64::from(self.stream.bytes)) / align + 1;
        let cursor = self.cursor;
        self.cursor += 1;
        start
            + match &self.stream.pattern {
                Pattern::Same => 0,
                Pattern::Sequential => cursor % places * align,
                Pattern::Random => self.random.below(places) * align,
                Pattern::List(offsets) => offsets[(cursor % offsets.len() as u64) as usize],
            }
    }

    fn record(&mut self, started: Nanos, op: &Op, finished: Nanos) {
        let latency = finished - op.intended;
        let samples = &mut self.samples;
        if op.kind == IoKind::Read { &mut samples.reads } else { &mut samples.writes }.record(latency);
        samples.raw_device.record(op.in_device);
        samples.completions += 1;
        samples.bytes += u64::from(self.stream.bytes);
        self.last = self.last.max(finished);
        if self.stream.keep_raw {
            samples.raw.push((finished - started, latency));
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
