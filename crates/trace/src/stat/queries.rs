//! Per-query tables and the three classes of queries (Yang 2021, section 2.6.2, tables 2.4 to 2.6).

use super::span_us;
use super::tally::{Counter, Tally, ratio};
use crate::{Event, EventKind, OpByte, Trace};
use serde::Serialize;

/// A query is randomly read when its random reads are a larger share of its page requests than this.
pub const RANDOM_READ_SHARE_MIN: f64 = 0.5;
/// A query is repeatedly read when its repeat access rate is above this.
pub const REPEAT_ACCESS_RATE_MIN: f64 = 1.1;

/// Class of a query by the way it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueryClass {
    /// Random reads are at most half of its requests. (The thesis found no such query that also repeats itself, and
    /// has no fourth class for one.)
    Sequential,
    /// Random reads are more than half, and the repeat access rate is at most 1.1.
    Random,
    /// Random reads are more than half, and the repeat access rate is above 1.1.
    RandomRepeated,
}

/// Statistics of one query: of all requests between its begin and its end, of any process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryStat {
    /// Its number, from 0 in order of starts.
    pub query: u32,
    /// Its label.
    pub label: String,
    /// Number of requests before its begin.
    pub begin: u64,
    /// Number of requests before its end; all of the trace when it does not end.
    pub end: u64,
    /// Microseconds from its first request to its last, where the trace has times and it has requests.
    pub span_us: Option<u64>,
    /// Its requests.
    #[serde(flatten)]
    pub tally: Tally,
    /// Random reads over page requests, 0 without requests.
    pub random_read_share: f64,
    /// Its class; `None` when it has no request.
    pub class: Option<QueryClass>,
    /// The objects it requested, in the order of the trace (table 2.6).
    pub objects: Vec<QueryObject>,
}

/// Requests of a query to one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryObject {
    /// Name of the object.
    pub name: String,
    /// Requests to it.
    #[serde(flatten)]
    pub tally: Tally,
}

impl QueryClass {
    /// The class of a query with this share of random reads and this repeat access rate.
    pub fn of(random_read_share: f64, repeat_access_rate: f64) -> Self {
        match (random_read_share > RANDOM_READ_SHARE_MIN, repeat_access_rate > REPEAT_ACCESS_RATE_MIN) {
            (false, _) => QueryClass::Sequential,
            (true, false) => QueryClass::Random,
            (true, true) => QueryClass::RandomRepeated,
        }
    }
}

/// A query that has begun.
struct Running {
    query: u32,
    label: String,
    begin: usize,
    total: Counter,
    objects: Vec<Counter>,
}

/// Follows the queries of a trace.
pub(super) struct Queries<'a> {
    trace: &'a Trace,
    events: &'a [Event],
    /// Index of the first event that is still to come, and the request it waits for.
    next: usize,
    next_at: u64,
    running: Vec<Running>,
    finished: Vec<QueryStat>,
}

impl<'a> Queries<'a> {
    pub fn new(trace: &'a Trace) -> Self {
        let mut queries =
            Queries { trace, events: &trace.events, next: 0, next_at: 0, running: Vec::new(), finished: Vec::new() };
        queries.next_at = queries.events.first().map_or(u64::MAX, |event| event.at);
        queries
    }

    /// Counts request i for every query that runs.
    #[inline]
    pub fn request(&mut self, i: usize, byte: OpByte, object: usize, seen: [u32; 2]) {
        if self.next_at <= i as u64 {
            self.events_up_to(i as u64);
        }
        for query in &mut self.running {
            query.total.add(byte, seen, query.begin as u32);
            query.objects[object].add(byte, seen, query.begin as u32);
        }
    }

    fn events_up_to(&mut self, at: u64) {
        while let Some(event) = self.events.get(self.next).filter(|event| event.at <= at) {
            self.next += 1;
            match &event.kind {
                EventKind::QueryBegin { query, label, .. } => self.running.push(Running {
                    query: *query,
                    label: label.clone(),
                    begin: event.at as usize,
                    total: Counter::default(),
                    objects: vec![Counter::default(); self.trace.objects.len()],
                }),
                EventKind::QueryEnd { query } => {
                    if let Some(position) = self.running.iter().position(|running| running.query == *query) {
                        let running = self.running.remove(position);
                        self.end(running, event.at as usize);
                    }
                }
            }
        }
        self.next_at = self.events.get(self.next).map_or(u64::MAX, |event| event.at);
    }

    fn end(&mut self, running: Running, end: usize) {
        let trace = self.trace;
        let tally = running.total.tally(trace.page_bytes, None);
        let random_reads = tally.reads.page_requests - tally.reads.sequential;
        let random_read_share = ratio(random_reads, tally.page_requests);
        let class = (tally.page_requests > 0).then(|| QueryClass::of(random_read_share, tally.repeat_access_rate));
        let used = trace.objects.iter().zip(&running.objects).filter(|(_, counter)| !counter.is_empty());
        let objects = used
            .map(|(object, counter)| QueryObject {
                name: object.name.clone(),
                tally: counter.tally(trace.page_bytes, None),
            })
            .collect();
        self.finished.push(QueryStat {
            query: running.query,
            label: running.label,
            begin: running.begin as u64,
            end: end as u64,
            span_us: span_us(trace, running.begin, end),
            tally,
            random_read_share,
            class,
            objects,
        });
    }

    /// All queries, by number; those without an end last to the end of the trace.
    pub fn finish(mut self) -> Vec<QueryStat> {
        self.events_up_to(u64::MAX);
        for running in std::mem::take(&mut self.running) {
            self.end(running, self.trace.len());
        }
        self.finished.sort_by_key(|query| query.query);
        self.finished
    }
}
