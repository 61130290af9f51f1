//! Sessions that ask analytical queries one after the other beside the clients of a load, until the clients have
//! ended.

use super::mounted::{Shared, ask};
use anyhow::{Context, Error, Result};
use entresol_bench::ch::Query;
use entresol_bench::drive::Watch;
use entresol_bench::driver::{Database, Session};
use entresol_core::Random;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Queries to ask, and the number of sessions that ask them.
pub struct Analysts<'a> {
    pub queries: &'a [&'static Query],
    pub sessions: u64,
    pub seed: u64,
    /// True if policies are notified when a query begins and ends.
    pub hints: bool,
}

/// An answered query.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Number of the session that asked, from 1.
    pub session: u64,
    pub number: u32,
    pub seconds: f64,
    pub rows: usize,
    /// True if the query ended in the counted time.
    pub counted: bool,
}

/// A running session.
struct Analyst<'a, 'm> {
    number: u64,
    session: Box<dyn Session>,
    /// Files that each query reads.
    files: Vec<Vec<String>>,
    of: &'a Analysts<'a>,
    watch: &'a Watch,
    mounted: &'a Shared<'m>,
}

/// Interval at which the sessions are checked for their end.
const LOOK: Duration = Duration::from_millis(20);

impl Analysts<'_> {
    /// Asks until the clients have ended or an error occurs; an error ends the clients too.
    ///
    /// # Errors
    /// The error of the database, or of the process that mounts, where it came before the end.
    pub fn ask(&self, database: &dyn Database, watch: &Watch, mounted: &Shared) -> Result<Vec<Asked>> {
        // A session that cannot begin ends the clients like one that cannot continue.
        let open = |number| self.open(number, database, watch, mounted);
        let analysts = (1..=self.sessions).map(open).collect::<Result<Vec<_>>>();
        let analysts = analysts.inspect_err(|_| watch.ended.store(true, Relaxed))?;
        std::thread::scope(|scope| {
            // All sessions are started before the first is waited for.
            let working: Vec<_> = analysts
                .into_iter()
                .map(|analyst| {
                    let cancel = analyst.session.canceller();
                    (scope.spawn(move || analyst.work()), cancel)
                })
                .collect();
            while working.iter().any(|(thread, _)| !thread.is_finished()) {
                std::thread::sleep(LOOK);
                if is_over(watch) {
                    let asking = working.iter().filter(|(thread, _)| !thread.is_finished());
                    asking.for_each(|(_, cancel)| cancel());
                }
            }
            let asked = working.into_iter().map(|(thread, _)| thread.join().expect("a session does not panic"));
            let asked = asked.collect::<Result<Vec<_>>>()?;
            Ok(asked.into_iter().flatten().collect())
        })
    }

    fn open<'a, 'm>(
        &'a self,
        number: u64,
        database: &dyn Database,
        watch: &'a Watch,
        mounted: &'a Shared<'m>,
    ) -> Result<Analyst<'a, 'm>> {
        let mut session = database.connect()?;
        let files = self.queries.iter().map(|query| session.files(query.tables)).collect::<Result<_, _>>()?;
        Ok(Analyst { number, session, files, of: self, watch, mounted })
    }
}

/// True if no answer is needed any more: the clients have ended, or are to end at once.
fn is_over(watch: &Watch) -> bool {
    watch.over.load(Relaxed) || watch.ended.load(Relaxed)
}

impl Analyst<'_, '_> {
    fn work(mut self) -> Result<Vec<Asked>> {
        let mut random = Random::new(Random::mix(Random::mix(self.of.seed ^ 0x6368) ^ self.number));
        let mut order: Vec<usize> = (0..self.of.queries.len()).collect();
        let mut asked = Vec::new();
        while !is_over(self.watch) {
            // Each round has another order.
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            for &at in &order {
                if is_over(self.watch) {
                    break;
                }
                match self.one(at) {
                    Ok(answered) => asked.push(answered),
                    // The session was told to end, or its error no longer matters.
                    Err(_) if is_over(self.watch) => break,
                    Err(error) => {
                        self.watch.ended.store(true, Relaxed);
                        return Err(error.context(self.of.queries[at].name()));
                    }
                }
            }
        }
        Ok(asked)
    }

    fn one(&mut self, at: usize) -> Result<Asked> {
        let (query, session) = (self.of.queries[at], self.number);
        self.hint(|| format!("begin {session} {}", self.files[at].join(" ")))?;
        let began = Instant::now();
        let rows = self.session.texts(&query.sql()).map_err(Error::from);
        let seconds = began.elapsed().as_secs_f64();
        let counted = self.watch.counting.load(Relaxed) && !is_over(self.watch);
        self.hint(|| format!("end {session}"))?;
        let rows = rows?.len();
        Ok(Asked { session, number: query.number, seconds, rows, counted })
    }

    fn hint(&self, word: impl Fn() -> String) -> Result<()> {
        if self.of.hints {
            ask(self.mounted, &word()).context("a hint")?;
        }
        Ok(())
    }
}
