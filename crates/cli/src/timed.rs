//! `entresol simulate --tiers`: simulation with time over device models.

use crate::args::SimulateArgs;
use crate::timed_report;
use crate::trace_source::{self, Named};
use crate::{output, results};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use entresol_core::Size;
use entresol_device::profile::{self, Profile};
use entresol_report::{Progress, Unit};
use entresol_sim::{
    Cell, CellOptions, Hierarchy, NamedDevice, PolicySpec, Row, Skipped, TimedOptions, TimedRow, World, parse_policies,
};
use serde::Serialize;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How devices and requesters are given
#[derive(Args, Clone)]
pub struct TimedArgs {
    /// Simulate with time over these devices: [dram=PROFILE:SIZE,]cache=PROFILE[:SIZE],backing=PROFILE
    ///
    /// A profile is the name of one of the house (an unknown one lists them) or a TOML file. Without a size the cache
    /// takes those of --size. A policy of one tier is the cache, with an LRU pool above it where dram is given; a policy
    /// of two has dram and cache. The backing device holds all objects of the trace.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["stack", "dram", "sample", "interval", "parts", "drain", "baseline", "svg"])]
    pub tiers: Option<Tiers>,
    /// Concurrent requesters, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "tiers", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub clients: u32,
    /// Microseconds between the completion of a request and the next one of the same requester
    #[arg(long, value_name = "US", default_value_t = 0, requires = "tiers", value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    pub think: u64,
    /// Let requests arrive when the trace says, not when a requester is free
    #[arg(long, requires = "tiers", conflicts_with_all = ["clients", "think"])]
    pub clock: Option<Clock>,
    /// I/Os, or chains of them, under way that nobody waits for (filling, write-back, cleaning); while there are as many
    /// no new request starts
    #[arg(long, value_name = "N", default_value_t = 256, requires = "tiers", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub background: u32,
}

/// Who says when a request arrives, other than requesters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// The times in the trace
    Trace,
}

/// A device with the size that is used of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TierArg {
    profile: String,
    size: Option<Size>,
}

/// What `--tiers` names.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    dram: Option<TierArg>,
    cache: TierArg,
    backing: TierArg,
}

impl FromStr for Tiers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tiers = [("dram", None), ("cache", None), ("backing", None)];
        for item in text.split(',') {
            let (name, device) =
                item.split_once('=').ok_or_else(|| format!("'{item}' is not of the form NAME=PROFILE[:SIZE]"))?;
            let place = tiers.iter_mut().find(|(known, _)| *known == name.trim());
            let (_, place) = place.ok_or_else(|| format!("there is no tier '{name}', only dram, cache and backing"))?;
            if place.replace(tier(name, device.trim())?).is_some() {
                return Err(format!("tier '{name}' is given twice"));
            }
        }
        let [(_, dram), (_, cache), (_, backing)] = tiers;
        let missing = |name: &str| format!("the tier {name} is missing: {name}=PROFILE");
        let (cache, backing) = (cache.ok_or_else(|| missing("cache"))?, backing.ok_or_else(|| missing("backing"))?);
        if dram.as_ref().is_some_and(|dram| dram.size.is_none()) {
            return Err("the size of dram is missing: dram=PROFILE:SIZE".to_owned());
        }
        if backing.size.is_some() {
            return Err("backing takes no size: it holds all of the trace".to_owned());
        }
        Ok(Tiers { dram, cache, backing })
    }
}

fn tier(name: &str, device: &str) -> Result<TierArg, String> {
    if device.is_empty() {
        return Err(format!("tier '{name}' has no profile"));
    }
    // A file may have a colon in its name.
    let (profile, size) = match device.rsplit_once(':') {
        Some((profile, size)) if !Path::new(device).exists() => {
            (profile, Some(size.parse().map_err(|error| format!("tier '{name}': {error}"))?))
        }
        _ => (device, None),
    };
    Ok(TierArg { profile: profile.to_owned(), size })
}

/// The result of one cell.
#[derive(Serialize)]
pub struct TimedResult {
    /// What the policy did.
    #[serde(flatten)]
    pub row: Row,
    /// What that took.
    pub timed: TimedRow,
}

/// All results of one trace.
pub struct TimedResults {
    /// The trace.
    pub named: Named,
    /// In the order of the command line.
    pub rows: Vec<TimedResult>,
    /// Cells that could not be run.
    pub skipped: Vec<Skipped>,
}

/// What is to be simulated, apart from the trace.
struct Plan<'a> {
    tiers: &'a Tiers,
    /// Of dram, where given, cache and backing.
    profiles: Vec<Profile>,
    policies: Vec<PolicySpec>,
    sizes: Vec<Size>,
    lenient: bool,
    options: CellOptions,
    timed: TimedOptions,
    threads: usize,
}

/// Runs the command.
pub fn run(arguments: &SimulateArgs, tiers: &Tiers, quiet: bool) -> Result<()> {
    let plan = Plan::new(arguments, tiers, quiet)?;
    let needs_future = plan.policies.iter().any(|policy| policy.info.future);
    let mut all = Vec::new();
    for path in &arguments.traces {
        let named = trace_source::open(path, &arguments.read, needs_future, quiet)?;
        all.push(plan.simulate(named, quiet)?);
    }
    if let Some(path) = &arguments.json {
        let each = all.iter().map(|results| (&results.named, &results.rows[..], &results.skipped[..]));
        results::write_json(path, each)?;
    }
    if let Some(path) = &arguments.csv {
        output::write_file(path, timed_report::table(&all).to_csv().as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        output::write_file(path, timed_report::page(&all).to_html().as_bytes())?;
    }
    all.iter().try_for_each(|results| output::print(&timed_report::text(results)))
}

impl<'a> Plan<'a> {
    fn new(arguments: &SimulateArgs, tiers: &'a Tiers, quiet: bool) -> Result<Self> {
        let named = tiers.dram.iter().chain([&tiers.cache, &tiers.backing]);
        let profiles = named.map(|tier| profile::load(&tier.profile)).collect::<Result<Vec<_>, _>>()?;
        let lenient = arguments.policy.split(',').any(|name| name.trim() == "all");
        let mut policies = parse_policies(&arguments.policy)?;
        if tiers.dram.is_none() {
            policies = of_one_tier(policies, lenient, quiet)?;
        }
        let sizes = match tiers.cache.size {
            Some(_) if arguments.size_given() => {
                bail!("the size of the cache is given twice: by --tiers and by --size")
            }
            Some(size) => vec![size],
            None => arguments.size.clone(),
        };
        let every_processor = || std::thread::available_parallelism().map_or(1, |count| count.get());
        let TimedArgs { clients, think, clock, background, .. } = &arguments.timed;
        Ok(Plan {
            tiers,
            profiles,
            policies,
            sizes,
            lenient,
            options: CellOptions { warmup: arguments.warmup, seed: arguments.seed, ..CellOptions::default() },
            timed: TimedOptions {
                clients: if *clock == Some(Clock::Trace) { 0 } else { *clients },
                think_ns: think * 1000,
                background: *background as usize,
            },
            threads: arguments.threads.map_or_else(every_processor, usize::from),
        })
    }

    fn cells(&self, world: &World) -> Result<(Vec<Cell>, Vec<Skipped>)> {
        let dram = self.tiers.dram.as_ref().and_then(|dram| dram.size);
        let (mut cells, mut skipped) = (Vec::new(), Vec::new());
        for (policy, &size) in self.policies.iter().flat_map(|policy| self.sizes.iter().map(move |size| (policy, size)))
        {
            match Cell::single(policy, size, dram, world) {
                Ok(cell) => cells.push(cell),
                Err(skip) if self.lenient => skipped.push(*skip),
                Err(skip) => return Err((*skip).into()),
            }
        }
        if cells.is_empty() {
            bail!("no policy can be run at these sizes; the first reason: {}", skipped[0]);
        }
        Ok((cells, skipped))
    }

    fn simulate(&self, named: Named, quiet: bool) -> Result<TimedResults> {
        let world = World::new(&named.trace);
        let (cells, skipped) = self.cells(&world)?;
        let bar = Progress::start(&named.name, Some(cells.len() as u64), Unit::Items("results"), quiet);
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Vec<Mutex<Option<Result<TimedResult>>>> = cells.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(cells.len()) {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = cells.get(at) else { break };
                        let result = self.run(cell, &world);
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        *done[at].lock().expect("no thread panics with it") = Some(result);
                        bar.advance(1);
                    }
                });
            }
        });
        drop(bar);
        // A cell that was not begun comes after one that failed.
        let results = done.into_iter().filter_map(|slot| slot.into_inner().expect("no thread panicked with it"));
        let rows = results.collect::<Result<Vec<_>>>()?;
        Ok(TimedResults { named, rows, skipped })
    }

    fn run(&self, cell: &Cell, world: &World) -> Result<TimedResult> {
        let mut devices = self.devices(&cell.needs(world), world.trace.page_bytes)?;
        let backing = devices.pop().ok_or_else(|| anyhow!("a hierarchy has a level below"))?;
        let hierarchy = Hierarchy { tiers: devices, backing };
        let (row, timed) = cell.run_timed(world, hierarchy, &self.options, &self.timed)?;
        Ok(TimedResult { row, timed })
    }

    /// Devices that hold what a cell needs of each of them.
    fn devices(&self, needs: &[u64], page_bytes: u32) -> Result<Vec<NamedDevice>> {
        let names = ["dram", "cache", "backing"].into_iter().skip(3 - self.profiles.len());
        let named = names.zip(&self.profiles).zip(needs).enumerate();
        let build = |(index, ((tier, profile), &need)): (usize, ((&str, &Profile), &u64))| {
            // A tier that a policy was told to do without is a device of one page that nobody asks.
            let device = profile.build(need.max(page_bytes.into()), self.options.seed.wrapping_add(index as u64));
            Ok((profile.name.clone(), device.with_context(|| format!("tier {tier}"))? as _))
        };
        named.map(build).collect()
    }
}

/// Without DRAM, only policies that manage one tier can be run; of the whole catalogue the others are left out.
fn of_one_tier(policies: Vec<PolicySpec>, lenient: bool, quiet: bool) -> Result<Vec<PolicySpec>> {
    let (one, two): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| policy.info.tiers.len() == 1);
    let Some(first) = two.first() else { return Ok(one) };
    let names: Vec<&str> = two.iter().map(|policy| policy.info.name).collect();
    if !lenient {
        let (name, tiers) = (first.info.name, first.info.tiers.join(" and "));
        bail!("policy '{name}' manages {tiers}: --tiers needs dram=PROFILE:SIZE as well");
    }
    if !quiet {
        eprintln!("left out, for --tiers gives no dram: {}", names.join(", "));
    }
    Ok(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_understood_in_any_order() {
        let tiers: Tiers =
            "backing=face-raid0x16, cache=p4800x:4GiB ,dram=dram:5%".replace(' ', "").parse().expect("tiers");
        assert_eq!(tiers.cache, TierArg { profile: "p4800x".into(), size: Some(Size::Bytes(4 << 30)) });
        assert_eq!(tiers.dram, Some(TierArg { profile: "dram".into(), size: Some(Size::Percent(5.0)) }));
        assert_eq!(tiers.backing, TierArg { profile: "face-raid0x16".into(), size: None });
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, part) in [
            ("", "NAME=PROFILE"),
            ("cache=p4800x", "backing is missing"),
            ("backing=face-disk", "cache is missing"),
            ("cache=p4800x,backing=face-disk:1GiB", "takes no size"),
            ("cache=p4800x:big,backing=face-disk", "tier 'cache': 'big' is not a size"),
            ("cache=,backing=face-disk", "no profile"),
            ("cache=dram,cache=dram,backing=face-disk", "given twice"),
            ("l2=dram,backing=face-disk", "no tier 'l2'"),
            ("dram=dram,cache=dram,backing=face-disk", "size of dram is missing"),
        ] {
            let error = text.parse::<Tiers>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
