//! Statistics of a trace in one pass: all figures that the papers report of their traces.
//!
//! | statistic | source |
//! |---|---|
//! | requests, reads and writes, footprint, sequential shares | all five |
//! | accessed data, repeat access rate, per object and per query; classes of queries | Yang 2021, section 2.6, tables 2.4 to 2.6 |
//! | temporal distances by the kinds of the two requests | Fan 2017, section 4.2, fig. 4.2 |
//! | frequency curves | Fan 2017, fig. 4.3 |
//! | skew | Arulraj 2019, section 6.3, fig. 3 |
//! | peak temporal distance | Zhou 2001, section 4 (the `lifeTime` of MQ) |
//! | exact miss-ratio curve of LRU | Mattson 1970 |
//!
//! Memory is about 45 bytes per distinct page and a constant, whatever the length of the trace.

mod distribution;
mod queries;
mod stack;
mod tally;

pub use distribution::{Bucket, CurvePoint, FrequencyPoint, Log2Histogram, MissRatioCurve, SkewPoint, Spread};
pub use queries::{QueryClass, QueryObject, QueryStat, RANDOM_READ_SHARE_MIN, REPEAT_ACCESS_RATE_MIN};
pub use tally::{Direction, Tally};

use crate::{ObjectKind, OpByte, Trace};
use distribution::Log2Counts;
use entresol_core::Op;
use queries::Queries;
use serde::Serialize;
use stack::LruStack;
use tally::{Counter, ratio};

/// Options of a measurement: its resolution over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatOptions {
    /// Number of windows of equal numbers of requests for [`Stat::working_set`], 100 unless set; a trace with fewer
    /// requests has a window for each.
    pub windows: u32,
}

impl Default for StatOptions {
    fn default() -> Self {
        StatOptions { windows: 100 }
    }
}

/// The statistics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stat {
    /// Provenance of the trace: the file and how it was read.
    pub provenance: String,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// All requests; the footprint is `unique_pages` and `unique_bytes`.
    #[serde(flatten)]
    pub total: Tally,
    /// I/Os: requests that are the first page of one.
    pub ios: u64,
    /// Writes that cover only a part of their page.
    pub updates: u64,
    /// Reads per write in page requests; `None` when nothing is written.
    pub read_write_ratio: Option<f64>,
    /// Microseconds from the first request to the last, where the trace has times.
    pub span_us: Option<u64>,
    /// Per object, in the order of the trace.
    pub objects: Vec<ObjectStat>,
    /// Per query, in order of starts.
    pub queries: Vec<QueryStat>,
    /// Temporal distances.
    pub distances: Distances,
    /// The most common temporal distance in requests, see [`peak_temporal_distance`].
    pub peak_temporal_distance: u32,
    /// Distributions of all accesses, of reads alone and of writes alone over pages.
    pub spread: Spreads,
    /// The working set over time.
    pub working_set: Vec<Window>,
    /// The miss-ratio curve of LRU at about a hundred sizes, exact at each.
    pub lru_curve: Vec<CurvePoint>,
}

/// Statistics of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectStat {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its size in pages as far as the trace shows it.
    pub size_pages: u64,
    /// Its requests.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Temporal distances. For every request but the first to its page, the distance is the number of distinct other pages
/// requested since the last request to that page. Distances are sorted by the directions of these two consecutive
/// requests, so that every such request is in exactly one histogram. 0 means that no other page came between.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distances {
    /// A read whose page was last read.
    pub read_after_read: Log2Histogram,
    /// A write whose page was last written.
    pub write_after_write: Log2Histogram,
    /// A read whose page was last written.
    pub read_after_write: Log2Histogram,
    /// A write whose page was last read.
    pub write_after_read: Log2Histogram,
    /// All of them: the reuse distances of LRU.
    pub all: Log2Histogram,
}

/// [`Spread`] of all accesses and of each direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spreads {
    /// Reads and writes together.
    pub all: Spread,
    /// Reads alone, over the pages that are read.
    pub reads: Spread,
    /// Writes alone, over the pages that are written.
    pub writes: Spread,
}

/// The requests of one window of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// First request.
    pub begin: u64,
    /// The request after the last.
    pub end: u64,
    /// Time of the first request in microseconds, where the trace has times.
    pub begin_us: Option<u64>,
    /// Distinct pages requested in the window: the working set.
    pub unique_pages: u64,
    /// Of these, pages never requested before the window.
    pub new_pages: u64,
    /// Page requests that read.
    pub reads: u64,
    /// Page requests that write.
    pub writes: u64,
}

/// Records of all pages, indexed by page id, and the histogram of their stack distances.
struct Pages {
    /// Number of requests up to and including the last read and the last write, 0 where there is none.
    seen: Vec<[u32; 2]>,
    /// Number of reads and of writes.
    counts: Vec<[u32; 2]>,
    /// Number of requests at each stack distance, indexed by the distance.
    distances: Vec<u32>,
}

/// Measures a trace in one pass. Time grows with the requests and with the number of queries that run at once.
pub fn stat(trace: &Trace, options: &StatOptions) -> Stat {
    let footprint = trace.footprint();
    let mut pages =
        Pages { seen: vec![[0; 2]; footprint], counts: vec![[0; 2]; footprint], distances: vec![0; footprint] };
    let mut stack = LruStack::new(footprint);
    let mut total = Counter::default();
    let mut objects = vec![Counter::default(); trace.objects.len()];
    let mut queries = Queries::new(trace);
    let mut windows = Windows::new(trace, options.windows);
    // Indexed by the direction of the earlier request, then of the later.
    let mut distances = [const { [Log2Counts::EMPTY; 2] }; 2];
    let mut in_requests = Log2Counts::EMPTY;
    let mut updates = 0;
    for i in 0..trace.len() {
        let (page, byte) = (trace.pages[i], OpByte(trace.ops[i]));
        let direction = usize::from(byte.op().is_write());
        let seen = pages.seen[page as usize];
        if let Some(distance) = stack.access(page) {
            let earlier = usize::from(seen[1] > seen[0]);
            distances[earlier][direction].add(distance);
            pages.distances[distance as usize] += 1;
            in_requests.add(i as u32 - seen[earlier]);
        }
        let object = trace.page_object[page as usize] as usize;
        total.add(byte, seen, 0);
        objects[object].add(byte, seen, 0);
        queries.request(i, byte, object, seen);
        windows.request(i, byte, seen);
        updates += u64::from(byte.op() == Op::Update);
        pages.seen[page as usize][direction] = i as u32 + 1;
        pages.counts[page as usize][direction] += 1;
    }
    let asked = trace.objects.iter().try_fold(0u64, |sum, object| sum.checked_add(object.asked_bytes?));
    let tally = total.tally(trace.page_bytes, asked);
    let object = |(object, counter): (&crate::Object, &Counter)| ObjectStat {
        name: object.name.clone(),
        kind: object.kind,
        size_pages: object.pages,
        tally: counter.tally(trace.page_bytes, object.asked_bytes),
    };
    let count = |direction: usize| Spread::new(pages.counts.iter().map(move |counts| counts[direction]));
    let spread = Spreads {
        all: Spread::new(pages.counts.iter().map(|counts| counts[0] + counts[1])),
        reads: count(0),
        writes: count(1),
    };
    Stat {
        provenance: trace.provenance.clone(),
        page_bytes: trace.page_bytes,
        ios: tally.reads.ios + tally.writes.ios,
        updates,
        read_write_ratio: (tally.writes.page_requests > 0)
            .then(|| ratio(tally.reads.page_requests, tally.writes.page_requests)),
        span_us: span_us(trace, 0, trace.len()),
        objects: trace.objects.iter().zip(&objects).map(object).collect(),
        queries: queries.finish(),
        peak_temporal_distance: in_requests.peak_power(),
        distances: Distances::new(&distances),
        spread,
        working_set: windows.finished,
        lru_curve: MissRatioCurve::new(&pages.distances, tally.unique_pages).points(),
        total: tally,
    }
}

impl Distances {
    fn new(by_direction: &[[Log2Counts; 2]; 2]) -> Self {
        let [[read_read, read_write], [write_read, write_write]] = by_direction;
        let mut all = Log2Counts::EMPTY;
        by_direction.iter().flatten().for_each(|counts| all.merge(counts));
        Distances {
            read_after_read: read_read.histogram(),
            write_after_write: write_write.histogram(),
            read_after_write: write_read.histogram(),
            write_after_read: read_write.histogram(),
            all: all.histogram(),
        }
    }
}

/// Time from request `begin` to request `end - 1`; `None` where there is neither time nor request.
fn span_us(trace: &Trace, begin: usize, end: usize) -> Option<u64> {
    let times = trace.times_us.as_ref()?;
    (begin < end).then(|| times[end - 1].saturating_sub(times[begin]))
}

/// Cuts a trace into windows.
struct Windows<'a> {
    trace: &'a Trace,
    windows: u64,
    finished: Vec<Window>,
}

impl<'a> Windows<'a> {
    fn new(trace: &'a Trace, windows: u32) -> Self {
        let windows = u64::from(windows).min(trace.len() as u64);
        Windows { trace, windows, finished: Vec::with_capacity(windows as usize) }
    }

    #[inline]
    fn request(&mut self, i: usize, byte: OpByte, seen: [u32; 2]) {
        if self.finished.last().is_none_or(|window| i as u64 >= window.end) {
            self.open(i);
        }
        let Some(window) = self.finished.last_mut() else { return };
        let seen = u64::from(seen[0].max(seen[1]));
        window.unique_pages += u64::from(seen <= window.begin);
        window.new_pages += u64::from(seen == 0);
        *(if byte.op().is_write() { &mut window.writes } else { &mut window.reads }) += 1;
    }

    #[cold]
    fn open(&mut self, i: usize) {
        if self.windows == 0 {
            return;
        }
        let number = self.finished.len() as u64 + 1;
        self.finished.push(Window {
            begin: i as u64,
            end: number * self.trace.len() as u64 / self.windows,
            begin_us: self.trace.times_us.as_ref().map(|times| times[i]),
            unique_pages: 0,
            new_pages: 0,
            reads: 0,
            writes: 0,
        });
    }
}

/// The exact miss-ratio curve of LRU over all sizes (Mattson 1970), reads and writes alike, every page admitted.
/// 21 bytes per distinct page while it runs.
pub fn lru_miss_ratio_curve(trace: &Trace) -> MissRatioCurve {
    let mut stack = LruStack::new(trace.footprint());
    let mut distances = vec![0; trace.footprint()];
    let mut cold = 0;
    for page in trace.pages.iter() {
        match stack.access(*page) {
            Some(distance) => distances[distance as usize] += 1,
            None => cold += 1,
        }
    }
    MissRatioCurve::new(&distances, cold)
}

/// The most common temporal distance, in requests, to a power of two. A distance d is the difference of the numbers of
/// consecutive requests to one page. The result is the bound `2^k` of the fullest class `2^(k-1) < d <= 2^k`. Of two
/// equal classes the lower counts; 0 when no page is requested twice. MQ takes it for its `lifeTime` (Zhou 2001).
pub fn peak_temporal_distance(trace: &Trace) -> u32 {
    let mut seen = vec![0u32; trace.footprint()];
    let mut distances = Log2Counts::EMPTY;
    for (i, page) in trace.pages.iter().enumerate() {
        let last = std::mem::replace(&mut seen[*page as usize], i as u32 + 1);
        if last > 0 {
            distances.add(i as u32 - last);
        }
    }
    distances.peak_power()
}
