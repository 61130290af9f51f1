//! Plain loads on the tables of [`tpcc`](crate::tpcc), to compare the storage below a database where it cannot speed
//! anything up.

use crate::BenchError;
use crate::driver::{Database, Session, TextRow, Value, unexpected};
use crate::tpcc::{DISTRICTS, Scale};
use crate::{DriverError, Failure};
use entresol_core::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Operation that clients repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Reads a customer by key, drawn uniformly.
    Reads,
    /// As `Reads`, but changes one customer in ten instead, and commits each change.
    Updates,
    /// Counts the rows of `stock` and adds up their quantities, without an index.
    Scan,
}

const READ: &str = "SELECT c_id, c_last, c_balance FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const CHANGE: &str =
    "UPDATE customer SET c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const SCAN: &str = "SELECT count(*), sum(s_quantity) FROM stock";

/// A client of a load.
pub struct Client {
    session: Box<dyn Session>,
    load: Load,
    scale: Scale,
    random: Random,
    /// Answer of the first scan; every later one must equal it.
    scanned: Option<Vec<TextRow>>,
}

impl Client {
    /// The client of this number, on a session of its own.
    ///
    /// # Errors
    /// The database's error.
    pub fn connect(
        database: &dyn Database,
        load: Load,
        scale: Scale,
        seed: u64,
        number: u64,
    ) -> Result<Self, DriverError> {
        let random = Random::new(Random::mix(Random::mix(seed) ^ (number + 1)));
        Ok(Self { session: database.connect()?, load, scale, random, scanned: None })
    }

    fn once(&mut self) -> Result<(), DriverError> {
        if self.load == Load::Scan {
            let answer = self.session.texts(SCAN)?;
            let rows = answer.first().and_then(|row| row.first()?.as_ref()?.parse::<u64>().ok());
            let first = self.scanned.get_or_insert_with(|| answer.clone());
            if *first != answer || rows != Some(self.scale.warehouses * self.scale.items) {
                return Err(unexpected(&format!("{answer:?} where a scan answered {first:?} before")));
            }
            return Ok(());
        }
        let Scale { warehouses, customers, .. } = self.scale;
        let id = 1 + self.random.below(customers) as i64;
        let key = [1 + self.random.below(warehouses) as i64, 1 + self.random.below(DISTRICTS) as i64, id];
        let key = key.map(Value::from);
        if self.load == Load::Updates && self.random.below(10) == 0 {
            match self.session.execute(CHANGE, &key)? {
                1 => Ok(()),
                rows => Err(unexpected(&format!("{rows} rows changed where one is"))),
            }
        } else {
            let rows = self.session.query(READ, &key)?;
            let found = rows.first().and_then(|row| row.first()) == Some(&key[2]);
            if rows.len() == 1 && found { Ok(()) } else { Err(unexpected(&format!("{rows:?} for customer {id}"))) }
        }
    }
}

/// Finished operations of clients, and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Operations of all clients.
    pub operations: u64,
    /// Time from the beginning of the first to the end of the last.
    pub took: Duration,
}

/// Runs clients side by side for this long; operations begun by then are finished. An error of one ends all.
///
/// # Errors
/// The database's error, that of a wrong answer, or [`BenchError::Interrupted`].
pub fn pass(clients: &mut [Client], time: Duration, ended: &AtomicBool) -> Result<Pass, BenchError> {
    let started = Instant::now();
    work(clients, ended, |_| started.elapsed() < time)
}

/// One operation of each client.
///
/// # Errors
/// As [`pass`].
pub fn round(clients: &mut [Client], ended: &AtomicBool) -> Result<Pass, BenchError> {
    work(clients, ended, |done| done == 0)
}

/// Runs clients side by side as long as `more` is true of the number of finished operations.
fn work(clients: &mut [Client], ended: &AtomicBool, more: impl Fn(u64) -> bool + Sync) -> Result<Pass, BenchError> {
    let (started, failed) = (Instant::now(), AtomicBool::new(false));
    let over = || ended.load(Relaxed) || failed.load(Relaxed);
    let work = |client: &mut Client| -> Result<u64, DriverError> {
        let mut operations = 0;
        while more(operations) && !over() {
            match client.once() {
                Ok(()) => operations += 1,
                Err(error) if error.failure == Failure::Transient => {}
                Err(error) => {
                    failed.store(true, Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(operations)
    };
    let done: Vec<Result<u64, DriverError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let took = started.elapsed();
    let operations = done.into_iter().sum::<Result<u64, DriverError>>()?;
    if ended.load(Relaxed) { Err(BenchError::Interrupted) } else { Ok(Pass { operations, took }) }
}
