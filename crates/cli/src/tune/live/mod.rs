//! `entresol tune --live`: runs the trace through a buffer over DRAM and emulated NVM, above an emulated device.

mod drive;

use crate::tune::Plan;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use drive::Drive;
use entresol_buffer::{Clock, EmulatedIo, TieredBuffer, TieredOptions, TieredStats};
use entresol_core::Random;
use entresol_device::emulated::{
    Calibration, Clock as DeviceClock, Curve, EmulatedDevice, Mapped, Slowdown, VirtualClock, WallClock,
};
use entresol_device::load::closed_loop;
use entresol_device::profile::{Model, Profile};
use entresol_device::{Device, Io, IoKind};
use entresol_policy::miniature::{Access, Awaits, Miniatures, Prices, Terms};
use entresol_service::keyword::Keyword;
use entresol_sim::{Addresses, Mode, PolicySpec, prices};
use entresol_tune::{EpochRow, Tuner};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use std::fs::File;
use std::sync::Arc;

/// Accesses by which a model's latency is measured, and later compared with the emulation's.
const ACCESSES: u64 = 2000;

/// The time of a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Time {
    /// Spent: an access of NVM or of the backing store takes as long as its model says
    Real,
    /// Counted: these accesses, and one of DRAM for each request, take no time but are added up
    Counted,
}

/// Counts of a live buffer over the whole run, the warm-up included.
#[derive(Serialize)]
pub struct LiveRow {
    /// Reads found in a tier: DRAM, NVM.
    pub read_hits: [u64; 2],
    /// Writes found in a tier: DRAM, NVM.
    pub write_hits: [u64; 2],
    /// Pages copied into a tier from the other: DRAM, NVM.
    pub copied_in: [u64; 2],
    /// Pages read from the backing store.
    pub page_reads: u64,
    /// Pages written to the backing store.
    pub page_writes: u64,
    /// Times that a requester waited for one of these writes to end.
    pub waits_for_writes: u64,
}

/// Results of a run.
pub struct Ran {
    /// Epochs from the end of the warm-up on.
    pub epochs: Vec<EpochRow>,
    /// Counts over the whole run.
    pub row: LiveRow,
    /// Accuracy of the emulated devices against their models, a line each.
    pub accuracy: Vec<String>,
}

/// Refuses policies and modes that a tiered buffer cannot run, before anything is run.
pub fn check(policy: &PolicySpec, mode: Mode) -> Result<()> {
    let info = policy.info;
    ensure!(
        !mode.is_clean(),
        "--live: a buffer of DRAM and NVM writes back; without --live {} is simulated",
        mode.keyword()
    );
    ensure!(
        info.tiers.len() == 2,
        "--live: policy '{}' manages {}; the live buffer is one of DRAM and NVM together",
        info.name,
        info.tiers.join(" and ")
    );
    Ok(())
}

/// The backing store.
type Below<C> = EmulatedIo<File, Box<dyn Device + Send>, C>;

/// Runs the trace through a new buffer under a tuner. `needs` are the bytes of DRAM, of NVM and of the backing store.
pub fn run(
    plan: &Plan,
    time: Time,
    policy: &PolicySpec,
    needs: &[u64],
    addresses: &Addresses,
    tuner: Box<dyn Tuner + Send>,
    shadows: Option<Miniatures>,
) -> Result<Ran> {
    let run = Run { plan, policy, needs, addresses, shadows };
    match time {
        Time::Real => run.with(WallClock::new(), Calibration::measure()?.clock_ns, tuner, |drive| drive.in_threads()),
        Time::Counted => {
            let clock = Arc::new(VirtualClock::new());
            let page_bytes = u64::from(addresses.trace.page_bytes);
            let dram = plan.devices.dram_profile().context("--live: DRAM has no profile")?;
            let dram_ns = latency_ns(dram, needs[0].max(page_bytes), IoKind::Read, page_bytes, plan.seed())?;
            run.with(clock.clone(), 0.0, tuner, |drive| drive.one_by_one(|| clock.advance(dram_ns as u64)))
        }
    }
}

/// Costs of the emulated devices' accesses, for the shadows of a tuner. The requester waits for all accesses except
/// writes to the backing store.
pub fn terms(plan: &Plan, needs: &[u64], addresses: &Addresses) -> Result<Terms> {
    let (page_bytes, seed) = (u64::from(addresses.trace.page_bytes), plan.seed());
    let access = |ns: f64| Access { waits: ns / 1e9, busy: ns / 1e9 };
    let nvm = |kind, size| -> Result<Access> {
        Ok(access(latency_ns(plan.devices.cache_profile(), needs[1].max(page_bytes), kind, size, seed)?))
    };
    let (read, write) = (nvm(IoKind::Read, page_bytes)?, nvm(IoKind::Write, page_bytes)?);
    let change = nvm(IoKind::Write, page_bytes / 2)?;
    let dram = plan.devices.dram_profile().context("--live: DRAM has no profile")?;
    let request = latency_ns(dram, needs[0].max(page_bytes), IoKind::Read, page_bytes, seed)? / 1e9;
    let (bytes, clients) = (page_bytes as u32, plan.timed.clients.max(1) as usize);
    let below = prices(|| plan.devices.device(2, needs[2], addresses, seed), bytes, bytes, clients, seed)?;
    let places = vec![Prices::default(), Prices { read, write, look: read, change }, below];
    Ok(Terms { places, request, awaits: Awaits::Copies, wears: 1 })
}

/// Arguments of one run.
struct Run<'a> {
    plan: &'a Plan<'a>,
    policy: &'a PolicySpec,
    needs: &'a [u64],
    addresses: &'a Addresses<'a>,
    shadows: Option<Miniatures>,
}

impl Run<'_> {
    /// Runs over devices with this clock; a reading of the clock takes `clock_ns`.
    fn with<C: DeviceClock + Clone + 'static>(
        &self,
        clock: C,
        clock_ns: f64,
        tuner: Box<dyn Tuner + Send>,
        send: impl Fn(&Drive<C>) -> Result<()>,
    ) -> Result<Ran> {
        let &Run { plan, policy, addresses, .. } = self;
        let &[dram, nvm, below] = self.needs else { bail!("--live: DRAM, NVM and a level below are needed") };
        let (trace, seed) = (addresses.trace, plan.seed());
        let page_bytes = trace.page_bytes as usize;
        let mut region = memory(plan.devices.cache_profile(), nvm, page_bytes, seed, clock.clone(), clock_ns)?;
        let measured = region.accuracy(&[page_bytes], ACCESSES, seed);
        let mut accuracy: Vec<String> = measured.iter().map(|line| format!("NVM: {line}")).collect();
        let model = plan.devices.device(2, below, addresses, seed)?;
        let file = File::from(memfd_create("entresol-backing", MemfdFlags::CLOEXEC)?);
        file.set_len(below).context("memory for the level below")?;
        let device = EmulatedDevice::new(file, model, clock.clone())?;
        let pages = trace.objects.iter().map(|object| object.pages);
        let below = Arc::new(Below::new(device, page_bytes as u64, pages));
        let (dram_pages, nvm_pages) = (dram as usize / page_bytes, nvm as usize / page_bytes);
        let options = TieredOptions {
            page_bytes,
            // As many handles as the simulator has; a buffer would otherwise reuse them.
            handles_per_page: trace.footprint().div_ceil(dram_pages + nvm_pages),
            objects: trace.objects.len(),
            clock: Clock::Requests,
            seed,
            write_behind: plan.timed.background,
            ..TieredOptions::new(dram_pages)
        };
        let buffer = TieredBuffer::new(options, policy.info, &policy.options, region, below.clone(), None)?;
        let drive = Drive::new(&buffer, &below, trace, plan, (tuner, self.shadows.clone()))?;
        send(&drive)?;
        let epochs = drive.end()?;
        accuracy.push(format!("level below: {}", below.device().accuracy()));
        Ok(Ran { epochs, row: LiveRow::new(&buffer.stats()), accuracy })
    }
}

impl LiveRow {
    fn new(stats: &TieredStats) -> Self {
        let [dram, nvm] = &stats.tiers;
        LiveRow {
            read_hits: [dram.read_hits, nvm.read_hits],
            write_hits: [dram.write_hits, nvm.write_hits],
            copied_in: [dram.copied_in, nvm.copied_in],
            page_reads: stats.page_reads,
            page_writes: stats.page_writes,
            waits_for_writes: stats.waits_for_writes,
        }
    }
}

/// Memory whose accesses take as long as those of an otherwise idle device.
fn memory<C: DeviceClock>(
    profile: &Profile,
    bytes: u64,
    page_bytes: usize,
    seed: u64,
    clock: C,
    clock_ns: f64,
) -> Result<Mapped<C>> {
    let name = &profile.name;
    ensure!(
        matches!(profile.device, Model::NvmDimm(_) | Model::Dram(_) | Model::Fixed(_)),
        "--live: '{name}' is no memory; a processor must read and write the cache in place"
    );
    let file = File::from(memfd_create("entresol-nvm", MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    let curve = |kind| -> Result<Curve> {
        let sizes = [64, 256, 1024, 4096, 16_384, 65_536].into_iter().filter(|&size| size <= page_bytes as u64);
        let points = sizes.map(|size| Ok((size, latency_ns(profile, bytes, kind, size, seed)?)));
        Ok(Curve::new(points.collect::<Result<Vec<_>>>()?))
    };
    let calibration = Calibration { clock_ns, load: curve(IoKind::Read)?, store: curve(IoKind::Write)? };
    let once = Slowdown { read: 1.0, write: 1.0 };
    Mapped::with_clock(&file, once, calibration, clock).with_context(|| format!("memory for '{name}'"))
}

/// Mean nanoseconds of a random I/O of a size, one at a time, by the model.
fn latency_ns(profile: &Profile, capacity: u64, kind: IoKind, size: u64, seed: u64) -> Result<f64> {
    let mut random = Random::new(seed);
    let mut device = profile.build(capacity, seed)?;
    let load = closed_loop(&mut device, 1, ACCESSES, |_| {
        let offset = random.below(capacity / size) * size;
        Io { kind, ..Io::read(offset, size as u32) }
    });
    Ok(load.latency.mean())
}
