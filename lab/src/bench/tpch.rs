//! `entresol-lab bench tpch`: queries of TPC-H.

use super::daemon::{CacheFigures, DeviceFigures, Figures, FileFigures};
use super::mounted::Mounted;
use super::testbed::{Testbed, TestbedArgs, Wanted, said};
use super::tpch_report as report;
use super::turns::{Turns, tell};
use super::variant::Variant;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_bench::driver::{Database, Session, TextRow};
use entresol_bench::tpch::{Answer, NUMBERS, Query, SCALE_MAX, SCALE_MIN, load, mixed, rows_about};
use entresol_bench::{BenchError, DriverError};
use entresol_core::Size;
use entresol_names::{Found, Names};
use entresol_render::{Progress, Unit};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Ask queries of TPC-H of a private database, without a cache and with one under several policies and of several sizes
///
/// The queries are asked one after the other. Unless --queries names others, they are those of Yang 2021
/// (HeuristicDB): 3, 7, 9, 13 and 20 read at random and again and again; by 10 and 16 it compares caching and placing
/// tables; mixed is its sequence of twenty; all are the 22 of TPC-H. Parameters are drawn by the specification's rules.
/// Not audited, and no QphH: there are no refresh functions. The data are those of the specification's generator. Each
/// run begins with a fresh copy of the loaded database, an empty cache and a new start of the server, on a mount of its
/// own. Logs and temporary files bypass the cache. Every answer is compared with that of the same query without a
/// mount.
#[derive(Args)]
pub struct TpchArgs {
    /// Scale factor: gigabytes of data, about; 0.01 is the least
    #[arg(long, value_name = "N", default_value = "0.05", value_parser = scale)]
    pub scale: f64,
    /// Queries in their order: numbers of 1 to 22 separated by commas, or all, or mixed; the second of a number has
    /// other parameters than the first
    #[arg(long, value_name = "LIST", default_value = "3,7,9,10,13,16,20", value_parser = wanted)]
    pub queries: Queries,
    /// Variants to compare, separated by commas: policies (`entresol policies` lists them), or none for no cache.
    /// Before each query table-placement prefetches whole tables and indexes, as many as fit, which is timed apart
    #[arg(long, value_name = "LIST", default_value = "none,lru,tac,heuristicdb", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Pages that the cache keeps, of the loaded database: one size or several, separated by commas
    #[arg(long, value_name = "SIZES", default_value = "10%", value_delimiter = ',')]
    pub cache_size: Vec<Size>,
    /// Do not tell policies when a query begins and which tables it reads
    #[arg(long)]
    pub no_hints: bool,
    #[command(flatten)]
    pub testbed: TestbedArgs,
}

/// Which queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queries {
    /// By their numbers.
    Numbers(Vec<u32>),
    /// The mixed sequence.
    Mixed,
}

impl Queries {
    fn drawn(&self, seed: u64, scale: f64) -> Vec<Query> {
        let Queries::Numbers(numbers) = self else { return mixed(seed, scale) };
        let mut counts = HashMap::new();
        let draw = |&number: &u32| {
            let instance = counts.entry(number).or_insert(0);
            *instance += 1;
            Query::draw(seed, number, *instance, scale)
        };
        numbers.iter().map(draw).collect()
    }
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| (SCALE_MIN..=SCALE_MAX).contains(scale));
    scale.ok_or_else(|| format!("it must be a number from {SCALE_MIN} to {SCALE_MAX}"))
}

fn wanted(text: &str) -> Result<Queries, String> {
    match text {
        "all" => return Ok(Queries::Numbers(NUMBERS.to_vec())),
        "mixed" => return Ok(Queries::Mixed),
        _ => {}
    }
    let number = |text: &str| text.trim().parse().ok().filter(|number| NUMBERS.contains(number));
    let numbers: Option<Vec<u32>> = text.split(',').map(number).collect();
    let wrong = || "it must be all, mixed, or numbers of 1 to 22 separated by commas".to_owned();
    numbers.map(Queries::Numbers).ok_or_else(wrong)
}

/// Counts of a table or an index during a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectFigures {
    pub name: String,
    pub reads: u64,
    pub read_hits: u64,
    /// Pages in the cache at the query's end.
    pub resident: u64,
    /// Usage of the table or index as the policy classified it, in a word.
    pub verdict: Option<String>,
}

/// Figures of a query.
pub struct Timed {
    pub seconds: f64,
    /// Time in seconds that prefetching tables took before the query.
    pub placing_s: f64,
    pub answer: Answer,
    pub cache: Option<CacheFigures>,
    pub cache_device: Option<DeviceFigures>,
    pub backing_device: Option<DeviceFigures>,
    pub objects: Vec<ObjectFigures>,
}

/// Case to run: a variant, and the size of its cache if it has one, as given and in pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub variant: Variant,
    pub size: Option<(Size, u64)>,
}

impl Case {
    pub fn name(&self) -> String {
        match &self.size {
            Some((size, _)) => format!("{} {size}", self.variant.name()),
            None => self.variant.name().to_owned(),
        }
    }
}

pub struct Measured {
    pub case: Case,
    /// Number of the repetition, from 1.
    pub repeat: u32,
    /// One entry for each query.
    pub queries: Vec<Timed>,
    /// Answers that differ from those without a mount, described.
    pub faults: Vec<String>,
    /// Time from the server's start until it was ready.
    pub ready: Duration,
}

/// The number of the running query.
const QUERY: u32 = 1;

/// A benchmark with its testbed.
struct Bench<'a> {
    arguments: &'a TpchArgs,
    testbed: Testbed,
    queries: Vec<Query>,
    /// Answers to the queries without a mount.
    expected: Vec<Answer>,
    names: Names,
}

pub fn run(arguments: &TpchArgs, quiet: bool) -> Result<()> {
    let mut bench = Bench::prepare(arguments, quiet)?;
    let cases = bench.cases()?;
    let total = bench.queries.len() * cases.len() * arguments.testbed.repeat as usize;
    let bar = Progress::start("asking", Some(total as u64), Unit::Items("queries"), quiet);
    let measure = |case: &Case, repeat| bench.measure(case, repeat, &bar);
    let turns = Turns::take(&cases, arguments.testbed.repeat, &bar, Case::name, measure, |run| {
        if !quiet {
            say!("{}", report::line(run));
        }
    });
    drop(bar);
    let turns = turns?;
    let Bench { testbed, queries, expected, .. } = &bench;
    let report = report::Report { arguments, testbed, queries, expected, runs: &turns.runs };
    tell(&arguments.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    let runs = turns.end()?;
    match runs.iter().find(|run| !run.faults.is_empty()) {
        Some(run) => bail!("{}: {}", run.case.name(), run.faults.join("; ")),
        None => Ok(()),
    }
}

impl<'a> Bench<'a> {
    /// Loads the database that all runs begin with, and asks it every query once.
    fn prepare(arguments: &'a TpchArgs, quiet: bool) -> Result<Self> {
        let queries = arguments.queries.drawn(arguments.testbed.seed, arguments.scale);
        let mut expected = Vec::new();
        let load = |database: &dyn Database, ended: &AtomicBool| {
            let mut session = database.connect()?;
            let bar = Progress::start("loading", Some(rows_about(arguments.scale)), Unit::Items("rows"), quiet);
            load(&mut *session, arguments.scale, ended, &|rows| bar.advance(rows))?;
            drop(bar);
            let bar =
                Progress::start("asking without a mount", Some(queries.len() as u64), Unit::Items("queries"), quiet);
            for query in &queries {
                bar.note(query.name());
                let (rows, _) = asked(&mut *session, query, ended, || {})?;
                expected.push(Answer::of(&rows));
                bar.advance(1);
            }
            Ok(())
        };
        let wanted = Wanted { connections: 2, checkpoint: Duration::from_secs(300) };
        let testbed = Testbed::prepare(&arguments.testbed, &arguments.policy, wanted, quiet, load)?;
        let names = Names::find(&testbed.place.loaded())?;
        Ok(Bench { arguments, testbed, queries, expected, names })
    }

    /// All cases; each cache's smallest size comes first.
    fn cases(&self) -> Result<Vec<Case>> {
        let sizes = self.arguments.cache_size.iter().map(|&size| Ok((size, self.testbed.cache_pages(size)?)));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let of = |variant: &Variant| match variant {
            Variant::Cached(_) => {
                sizes.iter().map(|&size| Case { variant: variant.clone(), size: Some(size) }).collect()
            }
            Variant::None | Variant::Other(_) | Variant::SsdOnly => vec![Case { variant: variant.clone(), size: None }],
        };
        Ok(self.testbed.variants.iter().flat_map(of).collect())
    }

    /// Measures all queries in one case, on a fresh copy.
    fn measure(&mut self, case: &Case, repeat: u32, bar: &Progress) -> Result<Measured> {
        bar.note(format!("{}, run {repeat}: starting", case.name()));
        self.testbed.devices.pages = case.size.map_or(0, |(_, pages)| pages);
        let (mut mounted, ready) = self.testbed.start(&case.variant)?;
        let mut session = self.testbed.server.database().connect()?;
        let (mut queries, mut faults) = (Vec::new(), Vec::new());
        for at in 0..self.queries.len() {
            let name = self.queries[at].name();
            bar.note(format!("{}, run {repeat}: {name}", case.name()));
            let timed = self.time(&mut *session, at, &mut mounted).with_context(|| name.clone())?;
            let (found, expected) = (timed.answer, self.expected[at]);
            if found != expected {
                faults.push(format!("{name} answered {}, and without a mount {}", rows(found), rows(expected)));
            }
            queries.push(timed);
            bar.advance(1);
        }
        // The rest is not measured.
        mounted.ask("hurry")?;
        drop(session);
        self.testbed.server.stop()?;
        mounted.close()?;
        self.testbed.place.clear()?;
        Ok(Measured { case: case.clone(), repeat, queries, faults, ready })
    }

    /// Measures one query and its requests.
    fn time(&mut self, session: &mut dyn Session, at: usize, mounted: &mut Mounted) -> Result<Timed> {
        let query = &self.queries[at];
        let (untold, report) = (mounted.ask("figures")?, Instant::now());
        if !self.arguments.no_hints {
            let files = session.files(query.tables())?;
            mounted.ask(&format!("begin {QUERY} {}", files.join(" ")))?;
        }
        let placing_s = report.elapsed().as_secs_f64();
        let files_before = mounted.files()?;
        let before = mounted.ask("figures")?;
        let ended = self.testbed.ended.clone();
        let server = &mut self.testbed.server;
        // When the benchmark is to end, a running query is not waited for.
        let answer = asked(session, query, &ended, || {
            server.kill();
            mounted.kill();
        });
        let (rows, took) = answer.map_err(|error| match error {
            BenchError::Interrupted => error.into(),
            other => said(&*self.testbed.server, other.into()),
        })?;
        let after = mounted.ask("figures")?;
        let objects = self.objects(&files_before, mounted.files()?);
        if !self.arguments.no_hints {
            mounted.ask(&format!("end {QUERY}"))?;
        }
        let Figures { mut cache, cache_device, backing_device, .. } = after.since(&before);
        if let Some(cache) = &mut cache {
            cache.placed += before.since(&untold).cache.map_or(0, |before| before.placed);
        }
        let (seconds, answer) = (took.as_secs_f64(), Answer::of(&rows));
        Ok(Timed { seconds, placing_s, answer, cache, cache_device, backing_device, objects })
    }

    /// Tables and indexes that were read between two looks, by their names.
    fn objects(&self, before: &[FileFigures], after: Vec<FileFigures>) -> Vec<ObjectFigures> {
        let before: HashMap<&str, &FileFigures> = before.iter().map(|file| (file.path.as_str(), file)).collect();
        let of = |file: FileFigures| {
            let was = |of: fn(&FileFigures) -> u64| before.get(file.path.as_str()).map_or(0, |file| of(file));
            let reads = file.reads - was(|file| file.reads);
            let name = match self.names.known(&file.path) {
                Found::Name(name) => name.object,
                Found::Unknown | Found::Other => file.path.clone(),
            };
            let read_hits = file.read_hits - was(|file| file.read_hits);
            let (resident, verdict) = (file.resident, file.verdict);
            (reads > 0).then_some(ObjectFigures { name, reads, read_hits, resident, verdict })
        };
        let mut objects: Vec<ObjectFigures> = after.into_iter().filter_map(of).collect();
        objects.sort_by(|one, other| other.reads.cmp(&one.reads).then_with(|| one.name.cmp(&other.name)));
        objects
    }
}

fn rows(answer: Answer) -> String {
    format!("{} rows of checksum {:016x}", answer.rows, answer.checksum)
}

/// The rows of a query and its time. If the benchmark is to end, `give_up` makes the database end the query.
fn asked(
    session: &mut dyn Session,
    query: &Query,
    ended: &AtomicBool,
    give_up: impl FnOnce(),
) -> Result<(Vec<TextRow>, Duration), BenchError> {
    let (sql, mut give_up) = (query.sql(), Some(give_up));
    let answer: Result<_, DriverError> = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let started = Instant::now();
            session.texts(&sql).map(|rows| (rows, started.elapsed()))
        });
        while !asking.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
            if ended.load(Relaxed) {
                give_up.take().into_iter().for_each(|give_up| give_up());
            }
        }
        asking.join().expect("a session does not panic")
    });
    if ended.load(Relaxed) {
        return Err(BenchError::Interrupted);
    }
    Ok(answer?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_understood_and_drawn_apart() {
        assert_eq!(wanted("mixed"), Ok(Queries::Mixed));
        assert_eq!(wanted("3, 20,3"), Ok(Queries::Numbers(vec![3, 20, 3])));
        assert_eq!(wanted("all"), Ok(Queries::Numbers((1..=22).collect())));
        for wrong in ["", "3,", "0", "23", "three", "mixed,3", "all,3"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
        let drawn = wanted("3,20,3").expect("queries").drawn(9, 0.05);
        let names: Vec<String> = drawn.iter().map(Query::name).collect();
        assert_eq!(names, ["Q3_1", "Q20_1", "Q3_2"]);
        assert_ne!(drawn[0].sql(), drawn[2].sql());
    }

    #[test]
    fn scales_have_bounds() {
        assert_eq!(scale("0.01"), Ok(0.01));
        for wrong in ["0", "0.005", "-1", "nan", "1001", "x"] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }
}
