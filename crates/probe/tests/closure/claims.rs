//! Claims: the expected values of fitted parameters, and their tolerances.

use entresol_probe::Findings;

/// Tolerance of a fitted parameter against the truth.
#[derive(Clone, Copy, Debug)]
pub enum Within {
    /// By this share of the truth.
    Share(f64),
    /// By this amount.
    Absolute(f64),
    /// Exact match.
    Exactly,
}

/// A parameter, its true value, and the tolerance.
pub struct Claim(pub &'static str, pub f64, pub Within);

impl Claim {
    fn holds(&self, found: f64) -> bool {
        let Claim(_, truth, within) = self;
        let error = (found - truth).abs();
        match within {
            Within::Share(share) => error <= share * truth.abs(),
            Within::Absolute(most) => error <= *most,
            Within::Exactly => found == *truth,
        }
    }
}

/// Fails with every claim that does not hold.
pub fn check(device: &str, findings: &Findings, claims: &[Claim]) {
    let mut failures = Vec::new();
    for claim in claims {
        let Claim(name, truth, within) = claim;
        match findings.parameter(name) {
            Some(found) => {
                println!(
                    "{device:10} {name:34} true {truth:12.4} found {:12.4} ({:.4} to {:.4}) {within:?}",
                    found.value, found.low, found.high
                );
                assert!(found.low <= found.value && found.value <= found.high, "{name}: {found:?}");
                if !claim.holds(found.value) {
                    failures.push(format!("{name} is {}, true is {truth}, {within:?}", found.value));
                }
            }
            None => failures.push(format!("{name} was not fitted; notes: {:?}", findings.notes)),
        }
    }
    assert!(failures.is_empty(), "{device} (seed {}):\n{}", super::SEED, failures.join("\n"));
}
