//! Measurement of one hierarchy: a simulation with device time.

use super::AdviceError;
use super::bound::{MostHits, Shortest};
use super::candidate::{Candidate, Part, Policies};
use super::catalogue::{Catalogue, Endurance};
use entresol_device::Nanos;
use entresol_device::profile::{Model, Profile};
use entresol_sim::{Addresses, Behind, CellOptions, DeviceRow, Hierarchy, Mode, TimedOptions, TimedRow, Work};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Mutex;

/// Smallest size of a simulated flash drive: fewer blocks per die would change its geometry.
const FLASH_BYTES_MIN: u64 = 1 << 30;
/// Fewest counted requests for a decision, and fewest of them whose page was requested before.
const COUNTED_MIN: u64 = 10_000;
const SEEN_MIN: u64 = 1_000;

/// Results of simulated hierarchies, by name. The results stay valid when prices change.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashMap<String, Result<Measured, String>>>);

/// Workload that each hierarchy is simulated with.
pub struct Workload<'w> {
    /// The trace.
    pub addresses: &'w Addresses<'w>,
    /// Policies that manage the tiers.
    pub policies: Policies,
    /// Share of the requests that warm up the caches and are not counted; 003 takes half (section 6.2).
    pub warmup: f64,
    /// Concurrent requesters.
    pub clients: u32,
    /// Time between the answer to a request and the next one of the same requester.
    pub think_ns: Nanos,
    /// Processor time of a request, spent before the think time on processors that all requesters share.
    pub work: Work,
    /// Seed of the random choices.
    pub seed: u64,
    /// Handling of writes by the tier above the lowest. In each mode the bound of a candidate counts the writes as in
    /// write-back, which takes the least time.
    pub mode: Mode,
    /// Results of earlier simulations.
    pub known: Known,
}

/// Figures of one device of a simulated hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartUse {
    /// Share of the requests served by the device.
    pub served: f64,
    /// Share of the time that the device was busy.
    pub utilisation: f64,
    /// Bytes that the host wrote to the device.
    pub written_bytes: u64,
    /// Bytes written to the medium per byte written by the host.
    pub write_amplification: f64,
    /// Years until the endurance is used up at this rate, day and night; `None` if the device does not wear or nothing
    /// was written.
    pub lifetime_years: Option<f64>,
}

/// Figures of a simulated hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Requests a second.
    pub requests_per_second: f64,
    /// Requests a second for each dollar; `None` for a hierarchy that costs nothing.
    pub per_dollar: Option<f64>,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// 99th percentile of the latency in microseconds; none with fewer than a thousand requests.
    pub p99_us: Option<f64>,
    /// Years until the first device's endurance is used up; `None` if no device wears.
    pub lifetime_years: Option<f64>,
    /// Energy of a request in joules, from the catalogue's watts and the profiles' energy per byte; `None` if a device
    /// has neither.
    pub joules_per_request: Option<f64>,
    /// The devices, in the order of the hierarchy.
    pub devices: Vec<PartUse>,
}

impl Workload<'_> {
    /// The same workload with another trace.
    pub(super) fn with<'w>(&self, addresses: &'w Addresses<'w>) -> Workload<'w> {
        let Workload { warmup, clients, think_ns, work, seed, mode, .. } = *self;
        let policies = self.policies.clone();
        Workload { addresses, policies, warmup, clients, think_ns, work, seed, mode, known: Known::default() }
    }

    fn warm(&self) -> usize {
        (self.addresses.trace.len() as f64 * self.warmup) as usize
    }

    /// Checks that the trace is long enough to decide on.
    ///
    /// # Errors
    /// When too few requests are counted, or too few of them are to pages that were requested before.
    pub fn check(&self) -> Result<(), AdviceError> {
        let trace = self.addresses.trace;
        let counted = (trace.len() - self.warm()) as u64;
        if counted < COUNTED_MIN {
            let nearest = match trace.len() as u64 {
                all if all >= COUNTED_MIN * 4 / 3 => {
                    let warmup = ((1.0 - COUNTED_MIN as f64 / all as f64) * 100.0).floor() / 100.0;
                    format!("--warmup {warmup} counts enough")
                }
                _ => format!("a trace of {} would do", 2 * COUNTED_MIN),
            };
            return Err(AdviceError::Trace(format!(
                "the trace is too short to decide: {counted} requests are counted after the warm-up of {} %, at least {COUNTED_MIN} are \
                 needed; {nearest}",
                self.warmup * 100.0
            )));
        }
        let mut seen = vec![false; trace.footprint()];
        let mut again = 0;
        for (at, &page) in trace.pages.iter().enumerate() {
            again += u64::from(std::mem::replace(&mut seen[page as usize], true) && at >= self.warm());
        }
        if again < SEEN_MIN {
            return Err(AdviceError::Trace(format!(
                "the trace is too short to decide: {again} of its {counted} counted requests are to pages requested before, at least \
                 {SEEN_MIN} are needed; if a longer one is no different, no cache is worth its price and the cheapest hierarchy is the \
                 best"
            )));
        }
        Ok(())
    }

    /// Returns the counts of requests and of possible hits for a bound.
    pub(super) fn most_hits(&self) -> MostHits<'_> {
        MostHits::new(self.addresses, self.warm())
    }

    /// Upper bound on the requests a second of a hierarchy, whatever its policies do.
    pub(super) fn most_per_second(
        &self,
        most: &MostHits,
        times: &HashMap<usize, Shortest>,
        candidate: &Candidate,
    ) -> f64 {
        // Flash without memory above it gathers writes in the host's memory, so no requester waits for them.
        let shortest = |item| {
            if candidate.bare_flash().is_some() { Shortest { write_ns: 0.0, ..times[item] } } else { times[item] }
        };
        let mut caches: Vec<(usize, Shortest)> =
            candidate.caches().iter().map(|part| (part.pages as usize, shortest(&part.item))).collect();
        // Pages on their way below are read from memory.
        let in_memory = self.behind(candidate).map(|behind| behind.pages_max(self.addresses.trace.page_bytes));
        caches.extend(in_memory.map(|pages| (pages, Shortest { read_ns: 0.0, write_ns: 0.0, apart_ns: 0.0 })));
        let least = most.least_ns(&caches, times[&candidate.lowest().item]);
        let clients = f64::from(self.clients);
        // Requests under way at the end of the warm-up are answered after it. Work and think time pass between the
        // requests of a requester.
        let between = (most.requests() as f64 - clients).max(0.0);
        let work = between * self.work.ns as f64;
        let alone = (least + between * self.think_ns as f64 + work) / clients;
        let busy = most.least_busy_ns(&caches, times[&candidate.lowest().item]);
        let computing = work / f64::from(self.work.processors.max(1));
        (most.requests() as f64 + clients) * 1e9 / alone.max(busy).max(computing).max(1.0)
    }

    /// Shortest times of the candidates' devices, by index in the catalogue.
    pub(super) fn shortest<'c>(
        &self,
        catalogue: &Catalogue,
        candidates: impl Iterator<Item = &'c Candidate>,
    ) -> Result<HashMap<usize, Shortest>, AdviceError> {
        let trace = self.addresses.trace;
        let stored: u64 = trace.objects.iter().map(|object| object.pages).sum();
        let mut times = HashMap::new();
        for part in candidates.flat_map(|candidate| &candidate.parts) {
            if times.contains_key(&part.item) {
                continue;
            }
            let profile = &catalogue.items[part.item].profile;
            let bytes = device_bytes(profile, stored * u64::from(trace.page_bytes));
            let shortest = Shortest::of(profile, bytes, trace.page_bytes)
                .map_err(|error| AdviceError::Simulation { hierarchy: part.name.clone(), what: error.to_string() })?;
            times.insert(part.item, shortest);
        }
        Ok(times)
    }

    /// Simulates a hierarchy, or returns its known result. Between calls only the prices of the catalogue may differ.
    ///
    /// # Errors
    /// The reason why the hierarchy cannot be simulated: a tier too small for its policy, or a device too small for the
    /// data.
    pub fn measure(&self, catalogue: &Catalogue, candidate: &Candidate) -> Result<Measured, String> {
        let name = candidate.to_string();
        let known = self.known.0.lock().expect("no thread panics with it").get(&name).cloned();
        let measured = known.unwrap_or_else(|| {
            let measured = self.simulate(catalogue, candidate);
            self.known.0.lock().expect("no thread panics with it").insert(name, measured.clone());
            measured
        });
        measured
            .map(|measured| Measured { per_dollar: per_dollar(measured.requests_per_second, candidate), ..measured })
    }

    /// The thread for writes below of bare flash, which is the live cache. In other modes than write-back requests wait for
    /// these writes.
    fn behind(&self, candidate: &Candidate) -> Option<Behind> {
        let flash = candidate.bare_flash().filter(|_| !self.mode.is_clean())?;
        Some(Behind::live(flash.pages, self.addresses.trace.page_bytes))
    }

    fn simulate(&self, catalogue: &Catalogue, candidate: &Candidate) -> Result<Measured, String> {
        let (cell, places) = candidate.cell(&self.policies, self.addresses)?;
        let mut devices = Vec::new();
        let tiers = places.iter().copied().chain([Some(candidate.parts.len() - 1)]);
        let options = CellOptions { warmup: self.warmup, seed: self.seed, mode: self.mode, ..CellOptions::default() };
        let needs = cell.needs(self.addresses).into_iter().zip(cell.spare(self.addresses, &options));
        for (place, (need, spare)) in tiers.zip(needs) {
            // A tier without frames never uses its device, so any will do.
            let part = &candidate.parts[place.unwrap_or(0)];
            let profile = &catalogue.items[part.item].profile;
            let need = need.max(self.addresses.trace.page_bytes.into());
            let bytes = device_bytes(profile, profile.bytes_with_spare(need, spare));
            let device = profile.build(bytes, self.seed.wrapping_add(devices.len() as u64));
            devices.push((part.name.clone(), device.map_err(|error| error.to_string())? as _));
        }
        let backing = devices.pop().expect("a hierarchy has a lowest tier");
        let Workload { clients, think_ns, work, .. } = *self;
        let behind = self.behind(candidate);
        let timed = TimedOptions { clients, think_ns, work, behind, ..TimedOptions::default() };
        let run = cell.run_timed(self.addresses, Hierarchy { tiers: devices, backing }, &options, &timed);
        let (_, timed) = run.map_err(|error| error.to_string())?;
        Ok(Measured::of(&timed, &places, catalogue, candidate))
    }
}

impl Measured {
    fn of(timed: &TimedRow, places: &[Option<usize>], catalogue: &Catalogue, candidate: &Candidate) -> Self {
        // The level below comes last; the first latencies are those of all requests.
        let tiers = places.iter().copied().chain([Some(candidate.parts.len() - 1)]);
        let rows = tiers.zip(&timed.devices).zip(&timed.latencies[1..]);
        let rows: Vec<_> =
            rows.filter_map(|((place, row), latency)| Some((&candidate.parts[place?], row, latency))).collect();
        let devices = rows.iter().map(|(part, row, latency)| PartUse {
            served: latency.count as f64 / timed.requests.max(1) as f64,
            utilisation: row.utilisation,
            written_bytes: row.write_bytes,
            write_amplification: row.write_amplification,
            lifetime_years: lifetime(part, row, catalogue.items[part.item].endurance, timed.elapsed_seconds),
        });
        let devices: Vec<PartUse> = devices.collect();
        let energy: Option<f64> = rows.iter().map(|(part, row, _)| joules(part, row, timed.elapsed_seconds)).sum();
        Measured {
            requests_per_second: timed.requests_per_second,
            per_dollar: per_dollar(timed.requests_per_second, candidate),
            mean_us: timed.latencies[0].mean_us,
            p99_us: timed.latencies[0].p99_us,
            lifetime_years: devices.iter().filter_map(|device| device.lifetime_years).min_by(f64::total_cmp),
            joules_per_request: energy.map(|joules| joules / timed.requests.max(1) as f64),
            devices,
        }
    }
}

fn per_dollar(requests_per_second: f64, candidate: &Candidate) -> Option<f64> {
    let dollars = candidate.dollars.dollars();
    (dollars > 0.0).then(|| requests_per_second / dollars)
}

/// Bytes of the simulated device when `need` of them are used.
fn device_bytes(profile: &Profile, need: u64) -> u64 {
    if matches!(profile.device, Model::Nand(_)) { need.max(FLASH_BYTES_MIN) } else { need }
}

fn lifetime(part: &Part, row: &DeviceRow, endurance: Endurance, seconds: f64) -> Option<f64> {
    const YEAR: f64 = 365.25 * 86_400.0;
    let written = row.write_bytes as f64;
    let (written, writes) = match endurance {
        Endurance::Unlimited => return None,
        Endurance::Media(writes) => (written * row.write_amplification, writes),
        Endurance::Host(writes) => (written, writes),
    };
    (written > 0.0).then(|| writes * part.piece.bytes() / (written / seconds) / YEAR)
}

/// Energy of a device; `None` if neither the catalogue nor the profile states any.
fn joules(part: &Part, row: &DeviceRow, seconds: f64) -> Option<f64> {
    match part.piece.watts {
        Some(watts) => Some(watts * seconds + row.joules),
        None => (row.joules > 0.0).then_some(row.joules),
    }
}
