//! Whole simulations with time.

use crate::Measured;
use entresol_core::Size;
use entresol_device::profile;
use entresol_sim::{Addresses, Cell, CellOptions, Hierarchy, NamedDevice, TimedOptions, parse_policies};
use entresol_trace::{Trace, generate};

/// Policy and devices of its two tiers and of the backing store.
const RUNS: [(&str, [&str; 3], Option<f64>); 4] = [
    ("multi-tier", ["dram", "optane-dimm", "p4800x"], Some(5.0)),
    ("face-gsc", ["dram", "p4800x", "face-raid0x16"], None),
    ("face-gsc", ["dram", "840-pro", "face-raid0x16"], None),
    ("lc", ["dram", "840-pro", "face-raid0x16"], None),
];

fn cell(policy: &str, addresses: &Addresses) -> Result<Cell, String> {
    let policies = parse_policies(policy).map_err(|error| error.to_string())?;
    Cell::single(&policies[0], Size::Percent(20.0), Some(Size::Percent(4.0)), addresses)
        .map_err(|skipped| skipped.error.to_string())
}

fn hierarchy(cell: &Cell, devices: [&str; 3], addresses: &Addresses) -> Result<Hierarchy, String> {
    let build = |(name, bytes): (&str, u64)| -> Result<NamedDevice, String> {
        let device = profile::load(name).and_then(|profile| profile.build(bytes, 42));
        Ok((name.to_owned(), device.map_err(|error| error.to_string())?))
    };
    let mut built = devices.into_iter().zip(cell.needs(addresses)).map(build).collect::<Result<Vec<_>, _>>()?;
    let backing = built.pop().ok_or("a hierarchy has a level below")?;
    Ok(Hierarchy { tiers: built, backing })
}

/// Three tiers and 30 % writes, sixteen requesters.
pub fn all(rounds: u32, shorter: u64) -> Result<Vec<Measured>, String> {
    let spec = format!("zipf:n={}:pages=100000:seed=42:ids=scattered:write=30", 1_000_000 / shorter);
    let trace: Trace = generate(&spec.parse().map_err(|error: entresol_trace::SpecError| error.to_string())?);
    let addresses = Addresses::new(&trace);
    let timed = TimedOptions { clients: 16, ..TimedOptions::default() };
    let mut all = Vec::new();
    for (policy, devices, bound) in RUNS {
        let cell = cell(policy, &addresses)?;
        // Policy and devices can fail to build, and a run that failed has no time.
        let mut failed = None;
        let measured = Measured::of(
            format!("simulation, 30 % writes: {policy} over {}", devices.join(", ")),
            bound,
            trace.len() as u64,
            rounds,
            || hierarchy(&cell, devices, &addresses),
            |built| {
                let run = built.and_then(|hierarchy| {
                    let result = cell.run_timed(&addresses, hierarchy, &CellOptions::default(), &timed);
                    result.map_err(|error| error.to_string())
                });
                match run {
                    Ok((row, timed)) => {
                        let ios: u64 = timed.devices.iter().map(|device| device.reads + device.writes).sum();
                        let each = ios as f64 / timed.requests.max(1) as f64;
                        format!("{each:.1} I/Os a request, {:.1} % hits", 100.0 * row.hit_ratio())
                    }
                    Err(error) => {
                        failed = Some(error);
                        String::new()
                    }
                }
            },
        );
        match failed {
            None => all.push(measured),
            Some(error) => return Err(format!("{policy}: {error}")),
        }
    }
    Ok(all)
}
