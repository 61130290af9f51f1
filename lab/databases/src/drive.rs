//! Clients and the clock: sessions that run transactions one after the other, each on a thread of its own.

use crate::driver::{Database, Session};
use crate::tpcc::{Done, Entry, Input, Kind, Ledger, Scale, Terminal, perform};
use crate::{BenchError, DriverError, Failure};
use entresol_device::load::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Plan of a run: its database, its clients and its times.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Scale of the database that was loaded.
    pub scale: Scale,
    /// Seed of the loaded database; the clients draw from it too.
    pub seed: u64,
    /// The number of the first client; a run on the database of an earlier run takes other numbers.
    pub first_client: u64,
    /// Number of clients.
    pub clients: u64,
    /// Warm-up: the time before counting begins.
    pub warmup: Duration,
    /// Counted time, after the warm-up.
    pub duration: Duration,
}

/// Transactions that clients committed within a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// New orders that were committed.
    pub new_orders: u64,
    /// Transactions of all kinds that were committed.
    pub committed: u64,
}

/// Results of one kind of transaction, in the counted time.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were rolled back on purpose.
    pub rolled_back: u64,
    /// Retries after a deadlock or a serialization failure.
    pub retries: u64,
    /// Latency of the committed transactions in nanoseconds, from the first try on.
    pub latency: Histogram,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Figures of each second from the beginning on, the warm-up included.
    pub seconds: Vec<Second>,
    /// Tallies by kind, in the order of [`Kind::ALL`].
    pub tallies: [Tally; 5],
    /// Ledger of the commits, the warm-up included.
    pub ledger: Ledger,
    /// Error that ended the clients early, that of one of them.
    pub lost: Option<DriverError>,
    /// Length of the counted time.
    pub counted: Duration,
}

impl Ran {
    /// New orders a minute in the counted time: TPC-C's figure, though nothing here is a tpmC in its sense.
    pub fn new_orders_a_minute(&self) -> f64 {
        self.tallies[0].committed as f64 * 60.0 / self.counted.as_secs_f64()
    }

    /// Transactions of all kinds a second in the counted time.
    pub fn transactions_a_second(&self) -> f64 {
        let all: u64 = self.tallies.iter().map(|tally| tally.committed).sum();
        all as f64 / self.counted.as_secs_f64()
    }

    /// Retries of all kinds of transactions, in the counted time.
    pub fn retries(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.retries).sum()
    }
}

/// Flags and counts by which another thread watches and ends a run.
#[derive(Debug, Default)]
pub struct Watch {
    /// Ends the run at once.
    pub ended: Arc<AtomicBool>,
    /// New orders committed so far.
    pub new_orders: AtomicU64,
    /// True when a kill is under way: an error then ends the clients and is not the run's.
    pub crash: AtomicBool,
    /// True once counting has begun; set once.
    pub counting: AtomicBool,
    /// True once the clients have ended, for whatever reason; set once.
    pub over: AtomicBool,
}

/// Results that a client collects for itself.
#[derive(Default)]
struct Notes {
    seconds: Vec<Second>,
    tallies: [Tally; 5],
    ledger: Ledger,
}

/// Most retries of one transaction; its error then ends the client, because so many retries indicate a fault.
const TRIES_MAX: u32 = 1000;

/// Runs clients until the time is over. An error of one ends all, and is the run's unless a crash is under way.
///
/// # Errors
/// The database's error, or [`BenchError::Interrupted`].
pub fn run(database: &dyn Database, plan: &Plan, watch: &Watch) -> Result<Ran, BenchError> {
    let ran = run_clients(database, plan, watch);
    watch.over.store(true, Relaxed);
    ran
}

fn run_clients(database: &dyn Database, plan: &Plan, watch: &Watch) -> Result<Ran, BenchError> {
    let sessions: Vec<_> = (0..plan.clients).map(|_| database.connect()).collect::<Result<_, _>>()?;
    let started = Instant::now();
    let stop = AtomicBool::new(false);
    let first_error: Mutex<Option<DriverError>> = Mutex::default();
    let notes: Vec<Notes> = std::thread::scope(|scope| {
        let clients: Vec<_> = sessions
            .into_iter()
            .zip(plan.first_client..)
            .map(|(mut session, number)| {
                let (stop, first_error) = (&stop, &first_error);
                scope.spawn(move || {
                    let mut notes = Notes::default();
                    let ended = || stop.load(Relaxed) || watch.ended.load(Relaxed);
                    let worked = client(&mut *session, plan, number, started, watch, &ended, &mut notes);
                    if let Err(error) = worked {
                        first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        stop.store(true, Relaxed);
                    }
                    notes
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    let counted = started.elapsed().saturating_sub(plan.warmup).min(plan.duration);
    let lost = first_error.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut ran = Ran { lost, counted, ..Ran::default() };
    for its in notes {
        ran.take(its);
    }
    match &ran.lost {
        Some(error) if !watch.crash.load(Relaxed) => Err(error.clone().into()),
        _ if watch.ended.load(Relaxed) && !watch.crash.load(Relaxed) => Err(BenchError::Interrupted),
        _ => Ok(ran),
    }
}

impl Ran {
    fn take(&mut self, notes: Notes) {
        let Notes { seconds, tallies, ledger } = notes;
        self.seconds.resize(self.seconds.len().max(seconds.len()), Second::default());
        for (sum, its) in self.seconds.iter_mut().zip(seconds) {
            sum.new_orders += its.new_orders;
            sum.committed += its.committed;
        }
        for (sum, its) in self.tallies.iter_mut().zip(tallies) {
            sum.committed += its.committed;
            sum.rolled_back += its.rolled_back;
            sum.retries += its.retries;
            sum.latency.merge(&its.latency);
        }
        self.ledger.append(ledger);
    }
}

fn client(
    session: &mut dyn Session,
    plan: &Plan,
    number: u64,
    started: Instant,
    watch: &Watch,
    ended: &dyn Fn() -> bool,
    notes: &mut Notes,
) -> Result<(), DriverError> {
    let mut terminal = Terminal::new(plan.scale, plan.seed, number);
    loop {
        let begun = started.elapsed();
        if begun >= plan.warmup {
            watch.counting.store(true, Relaxed);
        }
        if begun >= plan.warmup + plan.duration || ended() {
            return Ok(());
        }
        let input = terminal.next_input();
        let (done, retries) = until_done(session, &input, ended, &mut notes.ledger)?;
        let now = started.elapsed();
        notes.record(plan, &input, done, retries, begun, now);
        if input.kind() == Kind::NewOrder {
            watch.new_orders.fetch_add(1, Relaxed);
        }
    }
}

/// Retries until the transaction is committed or rolled back, or until the run is to end: none then.
fn until_done(
    session: &mut dyn Session,
    input: &Input,
    ended: &dyn Fn() -> bool,
    ledger: &mut Ledger,
) -> Result<(Option<Done>, u64), DriverError> {
    for retries in 0.. {
        match perform(session, input) {
            Ok(done) => return Ok((Some(done), retries.into())),
            Err(failed) => {
                ledger.in_doubt.extend(failed.in_doubt);
                if failed.error.failure != Failure::Transient || retries == TRIES_MAX {
                    return Err(failed.error);
                }
                if ended() {
                    return Ok((None, retries.into()));
                }
            }
        }
    }
    unreachable!("it ends with an error before")
}

impl Notes {
    fn record(&mut self, plan: &Plan, input: &Input, done: Option<Done>, retries: u64, begun: Duration, now: Duration) {
        let kind = input.kind();
        let counts = now >= plan.warmup && now < plan.warmup + plan.duration;
        let place = Kind::ALL.iter().position(|other| *other == kind).expect("one of all");
        let tally = &mut self.tallies[place];
        tally.retries += if counts { retries } else { 0 };
        match done {
            Some(Done::Committed(entry)) => {
                self.ledger.committed.extend(entry);
                let second = now.as_secs() as usize;
                self.seconds.resize(self.seconds.len().max(second + 1), Second::default());
                self.seconds[second].committed += 1;
                self.seconds[second].new_orders += u64::from(kind == Kind::NewOrder);
                if counts {
                    tally.committed += 1;
                    tally.latency.record((now - begun).as_nanos() as u64);
                }
            }
            Some(Done::RolledBack) => tally.rolled_back += u64::from(counts),
            None => {}
        }
    }
}

/// Numbers of orders, payments and deliveries whose commit was acknowledged to clients.
pub fn acknowledged(ledger: &Ledger) -> [u64; 3] {
    let count = |of: fn(&Entry) -> bool| ledger.committed.iter().filter(|entry| of(entry)).count() as u64;
    [
        count(|entry| matches!(entry, Entry::Order { .. })),
        count(|entry| matches!(entry, Entry::Payment { .. })),
        count(|entry| matches!(entry, Entry::Delivery { .. })),
    ]
}
