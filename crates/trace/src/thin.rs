//! A sample of a trace's pages, taken while the trace is read: the requests of the other pages are counted and
//! forgotten, so that memory goes with the sample and the footprint, not with the length of the trace.

use crate::trace::{Column, Event, Object, OpByte, Trace};
use entresol_core::{Address, Page};
use std::ops::Range;

/// Pages with `2^k` to `2^(k+1) - 1` requests each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Octave {
    /// Number of the pages.
    pub pages: u64,
    /// Their requests.
    pub requests: u64,
}

/// Counts of a whole trace that a sample of its pages is measured against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Page requests.
    pub requests: u64,
    /// Requests that write.
    pub writes: u64,
    /// Distinct pages.
    pub pages: u64,
    /// The pages by their requests: entry `k` is of those with `2^k` or more, and fewer than `2^(k+1)`.
    pub octaves: [Octave; Population::OCTAVES],
}

impl Population {
    /// Number of octaves: a page has fewer than 2^32 requests.
    pub const OCTAVES: usize = 32;

    /// The octave of a page with so many requests, at least one.
    pub fn octave(requests: u64) -> usize {
        (requests.max(1).ilog2() as usize).min(Population::OCTAVES - 1)
    }
}

/// A sample of a trace's pages, renumbered, and the counts of the whole trace.
pub struct Sampled {
    /// Requests of the sampled pages. Objects keep their lengths.
    pub trace: Trace,
    /// Counts of the whole trace.
    pub population: Population,
}

/// Requests of a trace taken in one step.
pub(crate) struct Part<'a> {
    pub pages: &'a [u32],
    pub ops: &'a [u8],
    pub times_us: Option<&'a [u64]>,
    /// All events of the trace so far.
    pub events: &'a [Event],
}

/// A page that was requested.
#[derive(Clone, Copy)]
struct Seen {
    requests: u32,
    /// Number of the page in the sample, [`LEFT_OUT`] if it is not sampled.
    number: u32,
}

const LEFT_OUT: u32 = u32::MAX;

/// Keeps the requests of the sampled pages, part by part, and counts all.
pub(crate) struct Thinner<'k> {
    keep: &'k dyn Fn(Address) -> bool,
    /// The pages by their number in the whole trace.
    seen: Vec<Seen>,
    /// Address of each sampled page.
    order: Vec<Address>,
    pages: Vec<u32>,
    ops: Vec<u8>,
    times_us: Vec<u64>,
    /// Position in the sample of each event so far.
    events_at: Vec<u64>,
    requests: u64,
    writes: u64,
}

impl<'k> Thinner<'k> {
    pub fn new(keep: &'k dyn Fn(Address) -> bool) -> Self {
        Thinner {
            keep,
            seen: Vec::new(),
            order: Vec::new(),
            pages: Vec::new(),
            ops: Vec::new(),
            times_us: Vec::new(),
            events_at: Vec::new(),
            requests: 0,
            writes: 0,
        }
    }

    /// Takes the next requests. Pages are numbered in order of first appearance over all parts.
    pub fn take(&mut self, part: &Part, address: impl Fn(u32) -> Address) {
        for (i, &page) in part.pages.iter().enumerate() {
            if part.events.len() > self.events_at.len() {
                self.pass_events(part.events, self.requests + i as u64);
            }
            if page as usize == self.seen.len() {
                let at = address(page);
                let kept = (self.keep)(at);
                self.seen.push(Seen { requests: 0, number: if kept { self.order.len() as u32 } else { LEFT_OUT } });
                if kept {
                    self.order.push(at);
                }
            }
            let seen = &mut self.seen[page as usize];
            seen.requests = seen.requests.saturating_add(1);
            if seen.number != LEFT_OUT {
                self.pages.push(seen.number);
                self.ops.push(part.ops[i]);
                if let Some(times) = part.times_us {
                    self.times_us.push(times[i]);
                }
            }
        }
        self.requests += part.pages.len() as u64;
        self.writes += part.ops.iter().filter(|&&op| OpByte(op).op().is_write()).count() as u64;
    }

    /// Notes the position of the events up to a request of the whole trace.
    fn pass_events(&mut self, events: &[Event], at: u64) {
        let passed = events[self.events_at.len()..].iter().take_while(|event| event.at <= at).count();
        self.events_at.extend(std::iter::repeat_n(self.pages.len() as u64, passed));
    }

    /// The sample. `whole` has the objects and events of the whole trace; its requests and pages are not looked at.
    pub fn finish(mut self, whole: Trace) -> Sampled {
        self.pass_events(&whole.events, u64::MAX);
        let mut population = Population {
            requests: self.requests,
            writes: self.writes,
            pages: self.seen.len() as u64,
            octaves: Default::default(),
        };
        for seen in &self.seen {
            let octave = &mut population.octaves[Population::octave(u64::from(seen.requests))];
            octave.pages += 1;
            octave.requests += u64::from(seen.requests);
        }
        let events = whole.events.into_iter().zip(self.events_at);
        let trace = Trace {
            page_bytes: whole.page_bytes,
            pages: Column::Owned(self.pages),
            ops: Column::Owned(self.ops),
            times_us: whole.times_us.is_some().then_some(Column::Owned(self.times_us)),
            next_use: None,
            page_object: Column::Owned(self.order.iter().map(|at| at.object.0).collect()),
            page_block: Column::Owned(self.order.iter().map(|at| at.block).collect()),
            objects: whole.objects.iter().map(Object::of_part).collect(),
            events: events.map(|(event, at)| Event { at, kind: event.kind }).collect(),
            provenance: format!(
                "a sample of {} of {} pages of {}",
                self.order.len(),
                population.pages,
                whole.provenance
            ),
        };
        Sampled { trace, population }
    }
}

/// Requests that are taken at once from a trace in memory or a mapped file.
const AT_ONCE: usize = 1 << 22;

impl Trace {
    /// The requests of the pages that `keep` returns true for.
    pub fn sampled(&self, keep: &dyn Fn(Address) -> bool) -> Sampled {
        let mut thinner = Thinner::new(keep);
        for from in (0..self.len()).step_by(AT_ONCE) {
            let range = from..self.len().min(from + AT_ONCE);
            let part = Part {
                pages: &self.pages[range.clone()],
                ops: &self.ops[range.clone()],
                times_us: self.times_us.as_ref().map(|times| &times[range.clone()]),
                events: &self.events,
            };
            thinner.take(&part, |page| self.address(Page(page)));
            self.release(range);
        }
        thinner.finish(Trace {
            page_bytes: self.page_bytes,
            pages: Column::Owned(Vec::new()),
            ops: Column::Owned(Vec::new()),
            times_us: self.times_us.as_ref().map(|_| Column::Owned(Vec::new())),
            next_use: None,
            page_object: Column::Owned(Vec::new()),
            page_block: Column::Owned(Vec::new()),
            objects: self.objects.clone(),
            events: self.events.clone(),
            provenance: self.provenance.clone(),
        })
    }

    /// Gives the memory of these requests back to the system, if they are mapped from a file: it is read again when
    /// they are.
    pub(crate) fn release(&self, range: Range<usize>) {
        self.pages.release(range.clone());
        self.ops.release(range.clone());
        if let Some(times) = &self.times_us {
            times.release(range);
        }
    }
}
