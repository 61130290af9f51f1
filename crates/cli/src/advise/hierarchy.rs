//! `entresol advise hierarchy`: recommends a hierarchy to buy.

use super::{hierarchy_report as report, hierarchy_text as text};
use crate::arguments::keyword;
use crate::output;
use crate::trace_source::ReadArgs;
use crate::trace_source::{self, Named};
use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use entresol_advise::hierarchy::{
    Catalogue, Choice, Known, Limits, Objective, Policies, Question, Scale, SearchOptions, Tried, Warning, WhatIf,
    Workload, candidates, choose, search, usual_sample, warnings, what_if,
};
use entresol_advise::money::Money;
use entresol_core::Size;
use entresol_render::{Progress, TextStyle, Unit, percent};
use entresol_service::values::share;
use entresol_sim::{Addresses, Mode, Work};
use entresol_trace::Trace;
use serde::Serialize;
use std::path::PathBuf;

/// Recommend a hierarchy of DRAM, NVM, SSD and disk for a budget
///
/// Every combination of the catalogue within the budget that can hold the data is a candidate: DRAM, NVM or both, flash
/// above a disk, and a lowest tier that holds everything. Candidates are simulated with device time, the cheapest
/// first. A candidate is skipped if a cheaper one beats it even at the best hit ratios that any policy could have,
/// which cannot change the answer.
#[derive(Args)]
pub struct HierarchyArgs {
    /// Trace files, or generate:SPEC for generated ones; several run on one machine at the same time
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Shares of the requests that come from each of several traces, separated by commas; any weights (7,3) [default:
    /// their numbers of requests]
    ///
    /// The requests of the traces are mixed evenly, each trace in its own order, until one of them is used up.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub weight: Vec<f64>,
    /// Budget in dollars
    // None only if a subcommand is given, which does not need this budget.
    #[arg(long, required = true, value_name = "DOLLARS", value_parser = money, allow_hyphen_values = true)]
    pub budget: Option<Money>,
    /// Catalogue of devices that can be bought: a built-in one (arulraj-2019, kang-2015) or a TOML file
    #[arg(long, value_name = "CATALOGUE", default_value = "arulraj-2019")]
    pub catalogue: String,
    /// Bytes of data that the trace's pages stand for (1.3TB); capacities are scaled down by the same factor [default:
    /// the bytes of these pages]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub footprint: Option<Size>,
    /// Figure to optimise
    #[arg(long, value_name = "WHAT", default_value = "throughput")]
    pub objective: Wanted,
    /// Consider only hierarchies with at least this many requests a second
    #[arg(long, value_name = "N", value_parser = positive)]
    pub min_throughput: Option<f64>,
    /// Consider only hierarchies with a 99th percentile of the latency of at most this many microseconds
    #[arg(long, value_name = "US", value_parser = positive)]
    pub max_p99: Option<f64>,
    /// Consider only hierarchies whose devices all last at least this many years, at the simulated rate day and night
    #[arg(long, value_name = "YEARS", value_parser = positive)]
    pub min_lifetime: Option<f64>,
    /// Consider only hierarchies that take at most this many joules per request
    #[arg(long, value_name = "JOULES", value_parser = positive)]
    pub max_energy: Option<f64>,
    /// Concurrent requesters, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub clients: u32,
    /// Microseconds between the completion of a request and the next one of the same requester
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    pub think: u64,
    /// Microseconds of processor time that a request costs its requester before the next one
    ///
    /// This work waits for one of --processors; --think waits for nothing.
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = microseconds)]
    pub work: f64,
    /// Processors that requesters share
    #[arg(long, value_name = "N", default_value_t = 1, requires = "work", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub processors: u32,
    /// The trace holds the misses of a database's own buffer pool: no memory is bought, and caches are flash above a
    /// disk, or none
    #[arg(long, conflicts_with = "what_if")]
    pub below_pool: bool,
    /// Share of the requests that fill the caches and are not counted, 0 to 1
    #[arg(long, default_value_t = 0.5, value_parser = share)]
    pub warmup: f64,
    /// Policy that manages DRAM if there is no NVM
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    pub dram_policy: String,
    /// Policy that manages NVM, and DRAM above it
    #[arg(long, value_name = "POLICY", default_value = "multi-tier")]
    pub nvm_policy: String,
    /// Policy that manages flash above a disk; DRAM above the flash is an LRU pool for a policy of one tier
    #[arg(long, value_name = "POLICY", default_value = "reuse")]
    pub flash_policy: String,
    /// Treatment of writes by the tier above the lowest, as `mount` and `serve` take it. The default here is another than that
    /// of a cache in use, which is write-through
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    /// Simulate every candidate in full, including those that cannot be the answer
    #[arg(long, conflicts_with = "sample")]
    pub every: bool,
    /// Compare candidates with this share of the pages first, and simulate only the best eight in full [default: all in
    /// full up to 100 million requests of all candidates together, above that the share that makes 50 million]
    #[arg(long, value_name = "SHARE", value_parser = sample)]
    pub sample: Option<f64>,
    /// Ask again with prices halved and doubled, with NVM at 1, 2, 4 and 8 times DRAM's latency and with each half of
    /// the trace. Report the worth of a tenth more of each tier, beside the break-even of 001, equation 1
    #[arg(long)]
    pub what_if: bool,
    /// Seed of policies and devices that draw at random
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Simulations at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write everything to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a row per candidate to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report with charts to this file: one page, readable without a network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Figure to optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// Requests a second
    Throughput,
    /// Requests a second for each dollar
    PerDollar,
    /// The least price
    Price,
    /// The least 99th percentile of the latency
    P99,
    /// Years until the first device is worn out
    Lifetime,
    /// The least energy for a request
    Energy,
}

impl From<Wanted> for Objective {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Throughput => Objective::Throughput,
            Wanted::PerDollar => Objective::PerDollar,
            Wanted::Price => Objective::Price,
            Wanted::P99 => Objective::P99,
            Wanted::Lifetime => Objective::Lifetime,
            Wanted::Energy => Objective::Energy,
        }
    }
}

/// Results of the command.
#[derive(Serialize)]
pub struct Advice<'a> {
    /// The trace.
    pub trace: &'a str,
    /// The catalogue.
    pub catalogue: &'a str,
    /// Date of the catalogue's prices.
    pub prices_of: &'a str,
    /// Source of the prices.
    pub price_source: &'a str,
    /// Budget.
    pub budget: Money,
    /// Figure to optimise.
    pub objective: Objective,
    /// Limits that the answer must satisfy.
    pub limits: Limits,
    /// Data that the pages of the trace stand for, in 10^9 bytes.
    pub footprint_gb: f64,
    /// Bytes of real data for each byte of the trace.
    pub scale: f64,
    /// Number of combinations above the budget.
    pub beyond_budget: usize,
    /// Share of the pages with which candidates were compared; 1 if all were simulated in full.
    pub sample: f64,
    /// The answer.
    pub choice: &'a Choice,
    /// All candidates, by price.
    pub candidates: &'a [Tried],
    /// Warnings about caches of candidates: slower than no cache, or too small for reliable results.
    pub warnings: &'a [Warning],
    /// The answer under other circumstances, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
}

/// Runs the command.
pub fn run(arguments: &HierarchyArgs, quiet: bool) -> Result<()> {
    let files = [&arguments.json, &arguments.csv, &arguments.html];
    files.into_iter().flatten().try_for_each(|path| output::check_writable(path))?;
    let budget = arguments.budget.context("--budget is missing: the dollars that may be spent")?;
    let catalogue = Catalogue::load(&arguments.catalogue)?;
    let policies = Policies::parse(&arguments.dram_policy, &arguments.nvm_policy, &arguments.flash_policy);
    let policies = policies.map_err(|what| anyhow!(what))?;
    let limits = arguments.limits();
    let objective = Objective::from(arguments.objective);
    let named = arguments.opened(quiet)?;
    ensure!(!named.trace.is_empty(), "{}: the trace has no request", named.name);
    let addresses = Addresses::new(&named.trace);
    let workload = Workload {
        addresses: &addresses,
        policies,
        warmup: arguments.warmup,
        clients: arguments.clients,
        think_ns: arguments.think * 1000,
        work: Work { ns: (arguments.work * 1000.0) as u64, processors: arguments.processors },
        seed: arguments.seed,
        mode: arguments.mode,
        known: Known::default(),
    };
    workload.check()?;
    let scale = arguments.scale(&addresses)?;
    let spare = objective == Objective::Lifetime || limits.lifetime_years_min.is_some();
    let found = candidates(&catalogue, &scale, budget, spare)?;
    let usual = if arguments.every { 1.0 } else { usual_sample(found.list.len(), named.trace.len()) };
    let options = SearchOptions {
        threads: threads(arguments.threads),
        objective,
        limits,
        prune: !arguments.every,
        sample: arguments.sample.unwrap_or(usual),
    };
    let bar = Progress::start(&named.name, Some(found.list.len() as u64), Unit::Items("candidates"), quiet);
    let tried = search(&catalogue, found.list, &workload, &options, &|| bar.advance(1))?;
    drop(bar);
    let choice = choose(&tried, objective, &limits)?;
    let question =
        Question { catalogue: &catalogue, scale: &scale, budget, spare, workload: &workload, options: &options };
    let what_if = arguments.what_if.then(|| {
        let bar = Progress::start("other circumstances", None, Unit::Items("answers"), quiet);
        what_if(&question, &tried, choice.best, &|| bar.advance(1))
    });
    let advice = Advice {
        trace: &named.name,
        catalogue: &catalogue.name,
        prices_of: &catalogue.date,
        price_source: &catalogue.source,
        budget,
        objective,
        limits,
        footprint_gb: scale.gb(scale.footprint_pages),
        scale: scale.factor,
        beyond_budget: found.beyond_budget,
        sample: options.sample,
        choice: &choice,
        candidates: &tried,
        warnings: &warnings(&tried, &workload.policies, addresses.trace.page_bytes),
        what_if: what_if.transpose()?,
    };
    output::write_asked(&arguments.json, || Ok(serde_json::to_string_pretty(&advice)? + "\n"))?;
    output::write_asked(&arguments.csv, || Ok(text::all(&tried, 0..tried.len()).to_csv()))?;
    output::write_asked(&arguments.html, || Ok(report::page(&advice, &trace_source::describe(&named)).to_html()))?;
    output::print(&format!("{}\n{}", trace_source::describe(&named), text::advice(&advice, TextStyle::stdout())))
}

impl HierarchyArgs {
    /// The trace, or the mixture of all of them.
    fn opened(&self, quiet: bool) -> Result<Named> {
        let open = |path: &PathBuf| trace_source::open(path, &self.read, false, quiet);
        let mut all = self.traces.iter().map(open).collect::<Result<Vec<_>>>()?;
        let weights = match &self.weight[..] {
            [] => all.iter().map(|named| named.trace.len() as f64).collect(),
            given => given.to_vec(),
        };
        ensure!(
            weights.len() == all.len(),
            "--weight: {} given for {}",
            counted(weights.len(), "weight"),
            counted(all.len(), "trace")
        );
        if all.len() == 1 {
            return Ok(all.remove(0));
        }
        let sum: f64 = weights.iter().sum();
        let share = |(named, weight): (&Named, &f64)| format!("{} {}", percent(weight / sum, 0), named.name);
        let name = all.iter().zip(&weights).map(share).collect::<Vec<_>>().join(" with ");
        let format = all[0].format.clone();
        let traces: Vec<Trace> = all.into_iter().map(|named| named.trace).collect();
        Ok(Named { trace: Trace::mixed(&traces, &weights)?, name, format, left_out: Vec::new() })
    }

    fn limits(&self) -> Limits {
        Limits {
            throughput_min: self.min_throughput,
            p99_us_max: self.max_p99,
            lifetime_years_min: self.min_lifetime,
            joules_max: self.max_energy,
        }
    }

    fn scale(&self, addresses: &Addresses) -> Result<Scale> {
        let bytes = match self.footprint {
            None => None,
            Some(Size::Bytes(bytes)) if bytes > 0 => Some(bytes as f64),
            Some(other) => return Err(anyhow!("--footprint {other}: a number of bytes is expected, such as 1.3TB")),
        };
        Ok(Scale { below_pool: self.below_pool, ..Scale::new(addresses, bytes) })
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn threads(given: Option<std::num::NonZeroUsize>) -> usize {
    given.map_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get()), usize::from)
}

fn sample(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("a share above 0 and at most 1 is expected".to_owned()),
    }
}

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=3.6e9).contains(&value) => Ok(value),
        _ => Err("a number of microseconds, at most an hour, is expected".to_owned()),
    }
}

fn money(text: &str) -> Result<Money, String> {
    let expected = || format!("an amount above 0 and at most {} is expected", Money::MAX);
    Money::of(positive(text)?).filter(|&amount| amount > Money::default()).ok_or_else(expected)
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("a number above 0 is expected".to_owned()),
    }
}
