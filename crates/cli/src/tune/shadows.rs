//! Options and miniature caches for `entresol tune --tuner shadows`.

use super::live;
use super::{Plan, TuneArgs};
use anyhow::Result;
use entresol_policy::miniature::{Awaits, Miniatures, Scale, Terms};
use entresol_sim::{Addresses, Cell, prices};
use entresol_tune::{RaceLimits, ShadowingOptions, Tuner};

/// Shadows settle for as many epochs as it takes to request half as many pages as the tiers hold.
const SETTLE_SHARE: f64 = 0.5;
const SETTLE_MAX: f64 = 8.0;

/// The options for building the tuner with shadows.
pub fn options(arguments: &TuneArgs, cell: &Cell, addresses: &Addresses) -> ShadowingOptions {
    let bytes: u64 = cell.needs(addresses).iter().rev().skip(1).sum();
    let pages = bytes as f64 / f64::from(addresses.trace.page_bytes);
    let settle = (SETTLE_SHARE * pages / arguments.epoch as f64).ceil().clamp(1.0, SETTLE_MAX) as u32;
    ShadowingOptions {
        race: RaceLimits { settle, ..RaceLimits::default() },
        clients: arguments.timed.clients,
        ..ShadowingOptions::default()
    }
}

/// The miniature caches that run a tuner's shadows; none if the tuner has no shadows.
pub fn of(plan: &Plan, tuner: &dyn Tuner, cell: &Cell, addresses: &Addresses) -> Result<Option<Miniatures>> {
    if tuner.shadowed().is_empty() {
        return Ok(None);
    }
    let needs = cell.needs(addresses);
    let terms = match plan.live {
        Some(_) => live::terms(plan, &needs, addresses)?,
        None => terms(plan, &needs, addresses)?,
    };
    Ok(Some(cell.miniatures(&plan.tunables, addresses, &plan.cell_options, Scale::default(), terms)?))
}

/// Costs of the simulated devices' accesses, for the shadows of a tuner. The requester waits only for its own page.
fn terms(plan: &Plan, needs: &[u64], addresses: &Addresses) -> Result<Terms> {
    let (page_bytes, clients) = (addresses.trace.page_bytes, plan.timed.clients.max(1) as usize);
    let place = |(at, &need): (usize, &u64)| {
        let touched = plan.timed.touched_bytes.get(at).map_or(page_bytes, |&bytes| bytes.min(page_bytes));
        prices(|| plan.devices.device(at, need, addresses, plan.seed()), page_bytes, touched, clients, plan.seed())
    };
    let places = needs.iter().enumerate().map(place).collect::<Result<Vec<_>>>()?;
    let request = (plan.timed.think_ns + plan.timed.work.ns) as f64 / 1e9;
    Ok(Terms { places, request, awaits: Awaits::Page, wears: plan.tier })
}
