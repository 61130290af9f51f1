//! The choice among the measured hierarchies.

use super::AdviceError;
use super::measure::Measured;
use super::search::Tried;
use serde::Serialize;

/// Quantity by which the best hierarchy is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The most requests a second.
    Throughput,
    /// The most requests a second for each dollar (003, section 6.7).
    PerDollar,
    /// The least price.
    Price,
    /// The least 99th percentile of the latency.
    P99,
    /// The most years until a device is worn out.
    Lifetime,
    /// The least energy for a request.
    Energy,
}

impl Objective {
    /// True if a hierarchy that costs more and is no faster is never better.
    pub(super) fn is_bounded(self) -> bool {
        matches!(self, Objective::Throughput | Objective::PerDollar | Objective::Price)
    }

    /// Score of a hierarchy, higher is better; `None` if it was not measured.
    pub(super) fn score(self, tried: &Tried) -> Option<f64> {
        let measured = tried.measured()?;
        match self {
            Objective::Throughput => Some(measured.requests_per_second),
            // What costs nothing has more for a dollar than anything.
            Objective::PerDollar => Some(measured.per_dollar.unwrap_or(f64::INFINITY)),
            Objective::Price => Some(-tried.candidate.dollars.dollars()),
            Objective::P99 => measured.p99_us.map(|us| -us),
            Objective::Lifetime => Some(measured.lifetime_years.unwrap_or(f64::INFINITY)),
            Objective::Energy => measured.joules_per_request.map(|joules| -joules),
        }
    }
}

/// Limits that a hierarchy must keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Fewest requests a second.
    pub throughput_min: Option<f64>,
    /// Largest 99th percentile of the latency in microseconds.
    pub p99_us_max: Option<f64>,
    /// Fewest years until the first device is worn out.
    pub lifetime_years_min: Option<f64>,
    /// Largest energy of a request in joules.
    pub joules_max: Option<f64>,
}

impl Limits {
    /// Limits that are set: the option, the limit, the measured value, and the factor by which it falls short (1 or
    /// less: it holds).
    fn each(&self, measured: &Measured) -> Vec<(&'static str, f64, Option<f64>, f64)> {
        let years = measured.lifetime_years.unwrap_or(f64::INFINITY);
        let least = |name, asked: Option<f64>, found: f64| asked.map(|asked| (name, asked, Some(found), asked / found));
        let most = |name, asked: Option<f64>, found: Option<f64>| {
            asked.map(|asked| (name, asked, found, found.map_or(f64::INFINITY, |found| found / asked)))
        };
        let all = [
            least("--min-throughput", self.throughput_min, measured.requests_per_second),
            most("--max-p99", self.p99_us_max, measured.p99_us),
            least("--min-lifetime", self.lifetime_years_min, years),
            most("--max-energy", self.joules_max, measured.joules_per_request),
        ];
        all.into_iter().flatten().collect()
    }

    /// True if all limits hold.
    pub fn hold(&self, measured: &Measured) -> bool {
        self.each(measured).iter().all(|(_, _, _, short)| *short <= 1.0)
    }

    /// Largest factor by which a limit is missed.
    pub(super) fn shortfall(&self, measured: &Measured) -> f64 {
        self.each(measured).iter().map(|(_, _, _, short)| *short).fold(0.0, f64::max)
    }
}

/// The chosen hierarchy and the front of good ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Index of the best.
    pub best: usize,
    /// Indices, by price, of the hierarchies within the limits that no other beats in both price and throughput.
    pub front: Vec<usize>,
}

/// Chooses the best hierarchy within the limits; of equal ones the cheaper.
///
/// # Errors
/// When none is within the limits: names the nearest one and the limits that it would keep.
pub fn choose(tried: &[Tried], objective: Objective, limits: &Limits) -> Result<Choice, AdviceError> {
    let within = |entry: &Tried| entry.measured().is_some_and(|measured| limits.hold(measured));
    let mut best: Option<(usize, f64)> = None;
    for (at, entry) in tried.iter().enumerate().filter(|(_, entry)| within(entry)) {
        let Some(score) = objective.score(entry) else { continue };
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((at, score));
        }
    }
    match best {
        Some((best, _)) => Ok(Choice { best, front: front(tried, limits) }),
        None => Err(nearest(tried, objective, limits)),
    }
}

/// Indices, by price, of the hierarchies within the limits that no cheaper or equally priced one equals in throughput.
/// Only hierarchies simulated in full count, because estimates from a sample compare with each other only.
pub fn front(tried: &[Tried], limits: &Limits) -> Vec<usize> {
    let mut order: Vec<(usize, &Tried, &Measured)> =
        tried.iter().enumerate().filter_map(|(at, entry)| Some((at, entry, entry.measured()?))).collect();
    order.retain(|(_, _, measured)| limits.hold(measured));
    order.sort_by(|a, b| {
        let faster = b.2.requests_per_second.total_cmp(&a.2.requests_per_second);
        a.1.candidate.dollars.cmp(&b.1.candidate.dollars).then(faster).then(a.0.cmp(&b.0))
    });
    let mut fastest = 0.0;
    order.retain(|(_, _, measured)| {
        let faster = measured.requests_per_second > fastest;
        fastest = measured.requests_per_second.max(fastest);
        faster
    });
    order.into_iter().map(|(at, ..)| at).collect()
}

fn nearest(tried: &[Tried], objective: Objective, limits: &Limits) -> AdviceError {
    let simulated = tried.iter().filter_map(|entry| Some((entry, entry.measured()?)));
    let nearest = simulated.min_by(|a, b| limits.shortfall(a.1).total_cmp(&limits.shortfall(b.1)));
    let Some((entry, measured)) = nearest else {
        let reason = tried.iter().find_map(|entry| match &entry.fate {
            super::Fate::Impossible(why) => Some(format!("{}: {why}", entry.candidate)),
            _ => None,
        });
        let reason = reason.unwrap_or_default();
        return AdviceError::Limits(format!("no hierarchy can be simulated; the first reason: {reason}"));
    };
    let broken: Vec<_> = limits.each(measured).into_iter().filter(|(_, _, _, short)| *short > 1.0).collect();
    let unknown = broken.iter().find(|(_, _, found, _)| found.is_none());
    if unknown.is_some() || broken.is_empty() {
        let what = unknown
            .map_or_else(|| format!("the objective {objective:?}").to_lowercase(), |(name, ..)| (*name).to_owned());
        return AdviceError::Limits(format!(
            "nothing is known for {what}: energy needs `watts` of every device of the catalogue, a 99th percentile a thousand requests"
        ));
    }
    let asked: Vec<String> = broken.iter().map(|(name, asked, ..)| format!("{name} {asked}")).collect();
    let would: Vec<String> = broken
        .iter()
        .map(|(name, _, found, _)| format!("{name} {}", loosened(name, found.unwrap_or(f64::NAN))))
        .collect();
    AdviceError::Limits(format!(
        "no hierarchy within the budget keeps all limits; the nearest is {} for ${}, which breaks {}: {} would do",
        entry.candidate,
        entry.candidate.dollars,
        asked.join(" and "),
        would.join(" "),
    ))
}

/// A limit that the found value barely keeps, with three digits or more.
fn loosened(name: &str, found: f64) -> String {
    let unit = 10f64.powf(found.abs().log10().floor() - 2.0).min(1.0);
    let rounded = if name.starts_with("--min") { (found / unit).floor() * unit } else { (found / unit).ceil() * unit };
    let digits = (-unit.log10()).max(0.0).round() as usize;
    format!("{rounded:.digits$}")
}
