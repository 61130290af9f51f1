//! The thesis's figures 5.6 to 5.8: their published numbers, and the fit of the one number that was not published.

use super::model::{Cluster, Workload};
use super::run::run;
use crate::Policy;

/// Published times of `ldbb` in seconds, the sum over all six checkpoints of a program (section 5.4.4), and the
/// published ratio of the totals of `ldbb` and `cdbb` (figure 5.6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Time of QE in seconds.
    pub qe_s: f64,
    /// Time of pBWA in seconds.
    pub pbwa_s: f64,
    /// `ldbb` over `cdbb`.
    pub ratio: f64,
}

impl Published {
    /// The medium experiment.
    pub const MEDIUM: Published = Published { qe_s: 230.39, pbwa_s: 332.80, ratio: 8.4 };
    /// The heavy experiment.
    pub const HEAVY: Published = Published { qe_s: 161.94, pbwa_s: 241.76, ratio: 4.6 };

    /// Published numbers of a workload, if there are any.
    pub fn of(workload: &Workload) -> Option<Published> {
        match workload.name {
            "medium" => Some(Published::MEDIUM),
            "heavy" => Some(Published::HEAVY),
            _ => None,
        }
    }
}

/// A fitted rate of the PFS, and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Fitted rate in bytes per second.
    pub pfs: f64,
    /// Median of QE's simulated times, divided by the published one.
    pub qe: f64,
    /// The same for pBWA.
    pub pbwa: f64,
}

/// Steps of the fit: each corrects the rate by the mean error, and three bring it below a thousandth.
const STEPS: usize = 6;

/// Fits only the rate of the PFS, such that the two ratios to the published times have the geometric mean 1. `map` runs
/// a function for each seed and returns the results in order; it may use several threads.
pub fn fit(
    cluster: &Cluster,
    workload: &Workload,
    policy: Policy,
    published: &Published,
    map: impl Fn(&(dyn Fn(u64) -> (f64, f64) + Sync)) -> Vec<(f64, f64)>,
) -> Fit {
    let at = |name: &str| workload.programs.iter().position(|program| program.name == name);
    let (qe, pbwa) = (at("QE").expect("QE is in the workload"), at("pBWA").expect("pBWA is in the workload"));
    let mut fitted = Fit { pfs: cluster.pfs, qe: 0.0, pbwa: 0.0 };
    for _ in 0..STEPS {
        let cluster = Cluster { pfs: fitted.pfs, ..*cluster };
        let times = map(&|seed| {
            let run = run(&cluster, workload, policy, seed);
            (run.program_total_s(qe), run.program_total_s(pbwa))
        });
        fitted.qe = median(times.iter().map(|time| time.0)) / published.qe_s;
        fitted.pbwa = median(times.iter().map(|time| time.1)) / published.pbwa_s;
        let error = (fitted.qe * fitted.pbwa).sqrt();
        if (error - 1.0).abs() < 1e-3 {
            break;
        }
        fitted.pfs *= error;
    }
    fitted
}

/// The quantile at `share`, interpolated linearly between neighbours.
///
/// # Panics
/// When there is no value.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The median.
///
/// # Panics
/// When there is no value.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}
