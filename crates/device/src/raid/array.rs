//! The array: splits I/Os, sends the pieces to the members and combines their completions.

use super::plan::{Group, Piece};
use super::{Level, RaidParameters, raid0, raid5};
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, IoKind, Latency, Nanos, Wear};
use std::collections::VecDeque;

/// A host's I/O under way.
#[derive(Clone, Copy, Debug)]
struct Parent {
    tag: u64,
    submitted: Nanos,
    groups: usize,
}

/// A group of pieces under way.
#[derive(Clone, Debug)]
struct InFlight {
    parent: usize,
    pending: usize,
    second: Vec<Piece>,
    /// Latency along the critical path so far.
    latency: Latency,
}

/// An I/O that the controller holds back.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    start: Nanos,
    submitted: Nanos,
    io: Io,
}

/// Slots that are reused.
#[derive(Clone, Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    fn insert(&mut self, value: T) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        index
    }

    fn get(&mut self, index: usize) -> &mut T {
        self.slots[index].as_mut().expect("a slot in use")
    }

    fn remove(&mut self, index: usize) -> T {
        self.free.push(index);
        self.slots[index].take().expect("a slot in use")
    }
}

/// An array of devices. The latency of an I/O is that of its critical path: of the pieces that start together, the last
/// to complete. Writes to one stripe at once are not serialised.
#[derive(Clone, Debug)]
pub struct Raid<D> {
    parameters: RaidParameters,
    members: Vec<D>,
    /// The next event of each member, `Nanos::MAX` for none.
    next: Vec<Nanos>,
    capacity: u64,
    parents: Slab<Parent>,
    under_way: Slab<InFlight>,
    held: VecDeque<HeldBack>,
    /// Time at which the controller lets the next I/O start.
    controller_free: Nanos,
    /// Offset of the byte after the latest I/O submitted. An I/O that begins there continues it.
    last_end: u64,
    /// Completions not yet handed out, in order of time.
    done: VecDeque<Completion>,
    from_member: Vec<Completion>,
    host_read_bytes: u64,
    host_written_bytes: u64,
}

impl<D: Device> Raid<D> {
    /// An array of members. The array uses as many whole stripe units of each as the smallest has.
    ///
    /// # Errors
    /// With too few members (RAID-0 needs 1, RAID-5 needs 3), an impossible limit of the controller, no stripe unit, or
    /// members smaller than one.
    pub fn new(parameters: RaidParameters, members: Vec<D>) -> Result<Self, DeviceError> {
        let fail = |what: String| Err(DeviceError::Profile { device: parameters.name.clone(), what });
        let (fewest, parity) = match parameters.level {
            Level::Raid0 => (1, 0),
            Level::Raid5 => (3, 1),
        };
        if members.len() < fewest {
            return fail(format!("{} members where {fewest} are needed", members.len()));
        }
        if parameters.controller.is_some_and(|controller| !controller.is_possible()) {
            return fail(format!("an impossible controller: {:?}", parameters.controller));
        }
        let unit = u64::from(parameters.stripe_unit_bytes);
        let smallest = members.iter().map(Device::capacity_bytes).min().unwrap_or(0);
        if unit == 0 || smallest < unit {
            return fail(format!("a stripe unit of {unit} B over members of {smallest} B"));
        }
        Ok(Raid {
            capacity: smallest / unit * unit * (members.len() - parity) as u64,
            next: members.iter().map(|member| member.next_event().unwrap_or(Nanos::MAX)).collect(),
            members,
            parents: Slab { slots: Vec::new(), free: Vec::new() },
            under_way: Slab { slots: Vec::new(), free: Vec::new() },
            held: VecDeque::new(),
            controller_free: 0,
            last_end: u64::MAX,
            done: VecDeque::new(),
            from_member: Vec::new(),
            host_read_bytes: 0,
            host_written_bytes: 0,
            parameters,
        })
    }

    /// The members.
    pub fn members(&self) -> &[D] {
        &self.members
    }

    fn split(&self, io: &Io) -> Vec<Group> {
        let unit = u64::from(self.parameters.stripe_unit_bytes);
        if io.kind == IoKind::Flush {
            let piece = |member| Piece { member, kind: IoKind::Flush, offset: 0, bytes: 0 };
            return vec![Group { first: (0..self.members.len()).map(piece).collect(), second: Vec::new() }];
        }
        match self.parameters.level {
            Level::Raid0 => raid0::split(io, self.members.len(), unit),
            Level::Raid5 => raid5::split(io, self.members.len(), unit),
        }
    }

    /// Sends an I/O to the members.
    fn launch(&mut self, now: Nanos, submitted: Nanos, io: &Io) {
        let groups = self.split(io);
        let latency = Latency { queue: now - submitted, ..Latency::default() };
        let parent = self.parents.insert(Parent { tag: io.tag, submitted, groups: groups.len() });
        for Group { first, second } in groups {
            let in_flight = self.under_way.insert(InFlight { parent, pending: first.len(), second, latency });
            self.send(now, in_flight, &first);
            if first.is_empty() {
                self.finish_phase(now, in_flight);
            }
        }
    }

    fn send(&mut self, now: Nanos, in_flight: usize, pieces: &[Piece]) {
        for piece in pieces {
            let member = &mut self.members[piece.member];
            member.submit(now, piece.io(in_flight as u64)).expect("a piece lies within its member");
            self.next[piece.member] = member.next_event().unwrap_or(Nanos::MAX);
        }
    }

    /// Continues an I/O after the last piece of a phase.
    fn finish_phase(&mut self, now: Nanos, index: usize) {
        let in_flight = self.under_way.get(index);
        let second = std::mem::take(&mut in_flight.second);
        if !second.is_empty() {
            in_flight.pending = second.len();
            self.send(now, index, &second);
            return;
        }
        let InFlight { parent: number, latency, .. } = self.under_way.remove(index);
        let parent = self.parents.get(number);
        parent.groups -= 1;
        if parent.groups == 0 {
            let Parent { tag, submitted, .. } = self.parents.remove(number);
            self.done.push_back(Completion { tag, submitted, finished: now, latency });
        }
    }

    /// The earliest event inside the array and its member; `None` for the controller.
    fn earliest(&self) -> (Nanos, Option<usize>) {
        let held = (self.held.front().map_or(Nanos::MAX, |held| held.start), None);
        let members = self.next.iter().enumerate().map(|(member, &at)| (at, Some(member)));
        members.fold(held, |best, event| if event.0 < best.0 { event } else { best })
    }

    fn run(&mut self, until: Nanos) {
        loop {
            let (at, member) = self.earliest();
            if at == Nanos::MAX || at > until {
                return;
            }
            let Some(member) = member else {
                let held = self.held.pop_front().expect("an I/O was held back");
                self.launch(at, held.submitted, &held.io);
                continue;
            };
            let mut completions = std::mem::take(&mut self.from_member);
            self.members[member].advance(at, &mut completions);
            self.next[member] = self.members[member].next_event().unwrap_or(Nanos::MAX);
            for completion in completions.drain(..) {
                let index = completion.tag as usize;
                let in_flight = self.under_way.get(index);
                in_flight.pending -= 1;
                if in_flight.pending == 0 {
                    in_flight.latency += completion.latency;
                    self.finish_phase(at, index);
                }
            }
            self.from_member = completions;
        }
    }
}

impl<D: Device> Device for Raid<D> {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > self.capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity: self.capacity });
        }
        self.run(now);
        match io.kind {
            IoKind::Read => self.host_read_bytes += u64::from(io.bytes),
            IoKind::Write => self.host_written_bytes += u64::from(io.bytes),
            IoKind::Flush | IoKind::Discard => {}
        }
        let start = match &self.parameters.controller {
            None => now,
            Some(controller) => {
                let start = now.max(self.controller_free);
                self.controller_free = start + controller.spacing(&io, io.offset == self.last_end);
                start
            }
        };
        self.last_end = io.end();
        if start == now {
            self.launch(now, now, &io);
        } else {
            self.held.push_back(HeldBack { start, submitted: now, io });
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        let within = self.earliest().0;
        let at = self.done.front().map_or(within, |completion| completion.finished.min(within));
        (at != Nanos::MAX).then_some(at)
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        self.run(until);
        while self.done.front().is_some_and(|completion| completion.finished <= until) {
            done.extend(self.done.pop_front());
        }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    fn wear(&self) -> Wear {
        let own = Wear {
            host_read_bytes: self.host_read_bytes,
            host_written_bytes: self.host_written_bytes,
            ..Wear::default()
        };
        self.members.iter().map(Device::wear).fold(own, |sum, member| Wear {
            media_written_bytes: sum.media_written_bytes + member.media_written_bytes,
            erases: sum.erases + member.erases,
            worn: sum.worn.max(member.worn),
            joules: sum.joules + member.joules,
            ..sum
        })
    }
}
