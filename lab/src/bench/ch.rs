//! `entresol-lab bench ch`: a TPC-C-like load and analytical queries at the same time.

use super::analysts::{Analysts, Asked};
use super::ch_report as report;
use super::testbed::Wanted;
use super::tpcc::{Bench, LoadArgs, Measured as Loaded};
use super::turns::{Turns, tell};
use super::variant::Variant;
use anyhow::{Result, bail};
use clap::Args;
use entresol_bench::ch::{Query, load, query, rows_more};
use entresol_render::{Progress, Unit};

/// Run a TPC-C-like load and analytical queries over its tables at the same time, without a cache and with one under several policies
///
/// CH-benCHmark: the clients of `entresol-lab bench tpcc`, and beside them sessions that ask queries of TPC-H,
/// rewritten for TPC-C's tables and three more. Both use the same server and the same database. Not audited.
/// Everything else is as with `entresol-lab bench tpcc`, also the checks after each run.
#[derive(Args)]
pub struct ChArgs {
    /// Sessions that ask queries, each one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub analysts: u64,
    /// Queries by their numbers from 1 to 22, separated by commas: each session asks all of them again and again, each time in
    /// another order
    #[arg(long, value_name = "LIST", default_value = "1,3,4,6,7,9,13,16,20", value_delimiter = ',', value_parser = number)]
    pub queries: Vec<u32>,
    /// Do not tell policies when a query begins and which tables it reads
    #[arg(long)]
    pub no_hints: bool,
    #[command(flatten)]
    pub load: LoadArgs,
}

fn number(text: &str) -> Result<u32, String> {
    let known = text.trim().parse().ok().filter(|&number| query(number).is_some());
    known.ok_or_else(|| "there are queries 1 to 22".to_owned())
}

pub struct Measured {
    pub load: Loaded,
    pub asked: Vec<Asked>,
}

impl Measured {
    /// Queries answered an hour, in the counted time.
    pub fn queries_an_hour(&self) -> f64 {
        let counted = self.asked.iter().filter(|asked| asked.counted).count();
        counted as f64 * 3600.0 / self.load.ran.counted.as_secs_f64()
    }
}

/// Most warehouses: products of the numbers of warehouses and items are of 32 bits, as all numbers of rows are.
const WAREHOUSES_MAX: u64 = 20_000;

pub fn run(arguments: &ChArgs, quiet: bool) -> Result<()> {
    let ChArgs { analysts, queries, no_hints, load: of_load } = arguments;
    if of_load.warehouses > WAREHOUSES_MAX {
        bail!("--warehouses: with these queries {WAREHOUSES_MAX} at most");
    }
    let seed = of_load.run.testbed.seed;
    let connections = (of_load.run.clients + analysts) as usize;
    let wanted = Wanted { connections, checkpoint: of_load.run.checkpoint };
    let mut bench = Bench::prepare(of_load, wanted, quiet, |session, ended| {
        let bar = Progress::start("loading suppliers", Some(rows_more()), Unit::Items("rows"), quiet);
        Ok(load(session, seed, ended, &|rows| bar.advance(rows))?)
    })?;
    let queries: Vec<&'static Query> = queries.iter().filter_map(|&number| query(number)).collect();
    let analysts = Analysts { queries: &queries, sessions: *analysts, seed, hints: !no_hints };
    let bar = of_load.run.bar(&bench.testbed);
    let (variants, name) = (bench.testbed.variants.clone(), |its: &Variant| its.name().to_owned());
    let measure = |variant: &Variant, repeat| {
        let database = bench.testbed.server.database();
        let ran = bench.measure(variant, repeat, &bar, &|watch, mounted| analysts.ask(&*database, watch, mounted));
        ran.map(|(load, asked)| Measured { load, asked })
    };
    let turns = Turns::take(&variants, of_load.run.testbed.repeat, &bar, name, measure, |run| {
        if !quiet {
            say!("{}", report::line(run));
        }
    });
    drop(bar);
    let turns = turns?;
    let report = report::Report { arguments, testbed: &bench.testbed, queries: &queries, runs: &turns.runs };
    tell(&of_load.run.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    let runs = turns.end()?;
    match runs.iter().map(|run| &run.load).find(|run| !run.faults.is_empty()) {
        Some(run) => bail!("{}: the database is not what it should be: {}", run.variant.name(), run.faults.join("; ")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_those_that_there_are() {
        assert_eq!(number(" 13"), Ok(13));
        assert!((1..=22).all(|its| number(&its.to_string()) == Ok(its)));
        for wrong in ["", "0", "23", "x", "-1"] {
            let refused = number(wrong).expect_err("no query");
            assert!(refused.contains("1 to 22"), "{refused}");
        }
    }
}
