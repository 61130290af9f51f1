//! Every policy by name.

use crate::interface::{Config, Info, Policy};
use crate::options::{BuildError, Options, PAGES_MAX};
use strsim::levenshtein;

/// Action to be taken on a policy once it is built.
///
/// The generic method is instantiated once per policy, so that a policy chosen at run time still runs in a loop of its
/// own: one dynamic choice per run, none per request.
pub trait Visitor {
    /// Result of the action.
    type Output;
    /// Takes the policy.
    fn visit<P: Policy>(self, policy: P) -> Self::Output;
}

macro_rules! catalogue {
    ($($family:ident :: $policy:ident),* $(,)?) => {
        /// All policies, by family.
        pub static ALL: &[&Info] = &[$(&<crate::$family::$policy as Policy>::INFO),*];

        fn dispatch<V: Visitor>(
            info: &'static Info,
            config: &Config,
            options: &Options,
            visitor: V,
        ) -> Result<V::Output, BuildError> {
            $(
                if info.name == <crate::$family::$policy as Policy>::INFO.name {
                    return Ok(visitor.visit(<crate::$family::$policy as Policy>::new(config, options)?));
                }
            )*
            unreachable!("every policy of the list is dispatched")
        }
    };
}

catalogue! {
    classic::Fifo,
    classic::Clock,
    classic::Lru,
    classic::Mru,
    classic::Lfu,
    classic::LfuAging,
    classic::Random,
    offline::Min,
    offline::MinClean,
    adaptive::Lru2,
    adaptive::TwoQ,
    adaptive::Mq,
    adaptive::Arc,
    adaptive::Car,
    adaptive::Lirs,
    adaptive::ClockPro,
    learned::Lecar,
    learned::Cacheus,
    learned::ExpCache,
    modern::S3Fifo,
    modern::Sieve,
    modern::WTinyLfu,
    dirty::Cflru,
    dirty::LruWsr,
    dirty::AdLru,
    dirty::LruDram,
    dirty::HArc,
    run::IoCache,
    run::Longest,
    hybrid::Hibachi,
    hybrid::HybridLru,
    hybrid::HybridArc,
    extension::Tac,
    extension::Lc,
    extension::HeuristicDb,
    extension::TablePlacement,
    extension::Face,
    extension::FaceGsc,
    migration::MultiTier,
    writebuffer::Fab,
    writebuffer::Bplru,
    writebuffer::LbClock,
    writebuffer::Clc,
    writebuffer::Bpac,
    writebuffer::Wrb,
    choice::Auto,
}

/// The description of a policy.
pub fn info(name: &str) -> Result<&'static Info, BuildError> {
    ALL.iter()
        .find(|info| info.name == name)
        .copied()
        .ok_or_else(|| BuildError::UnknownPolicy { name: name.to_owned(), nearest: nearest(name) })
}

/// Builds a policy and hands it to a visitor. Capacities are checked against the policy's minimum.
pub fn build<V: Visitor>(
    info: &'static Info,
    config: &Config,
    options: &Options,
    visitor: V,
) -> Result<V::Output, BuildError> {
    if config.tiers.len() != info.tiers.len() {
        return Err(BuildError::WrongTiers {
            policy: info.name,
            expected: info.tiers.len(),
            given: config.tiers.len(),
        });
    }
    for ((&tier, &min), &given) in info.tiers.iter().zip(info.min_pages).zip(&config.tiers) {
        if given < min {
            return Err(BuildError::TooSmall { policy: info.name, tier, min, given });
        }
        if given > PAGES_MAX {
            return Err(BuildError::TooLarge { policy: info.name, tier, max: PAGES_MAX, given });
        }
    }
    dispatch(info, config, options, visitor)
}

/// The three names most like this one.
fn nearest(name: &str) -> String {
    let mut names: Vec<(usize, &str)> = ALL.iter().map(|info| (levenshtein(name, info.name), info.name)).collect();
    names.sort_unstable();
    names.iter().take(3).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_options_documented() {
        for (i, info) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name != info.name), "{} twice", info.name);
            assert!(!info.paper.is_empty() && !info.summary.is_empty() && !info.family.is_empty(), "{}", info.name);
            assert_eq!(info.tiers.len(), info.min_pages.len(), "{}", info.name);
            assert!(info.options.iter().all(|option| !option.help.is_empty()), "{}", info.name);
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        let error = info("fcae-gsc").unwrap_err().to_string();
        assert!(error.contains("face-gsc"), "{error}");
    }
}
