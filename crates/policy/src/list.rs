//! Every policy that decides by itself, by name: all but those that choose among these.

use crate::info::{Config, Info};
use crate::interface::Policy;
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

macro_rules! list {
    ($($family:ident :: $policy:ident),* $(,)?) => {
        /// The policies, by family.
        pub(crate) const LISTED: &[&Info] = &[$(&<crate::$family::$policy as Policy>::INFO),*];

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

list! {
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
    learned::Reuse,
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
}

/// The description with this name, in whatever case, among some.
pub(crate) fn named(name: &str, among: &[&'static Info]) -> Result<&'static Info, BuildError> {
    among
        .iter()
        .find(|info| info.name.eq_ignore_ascii_case(name))
        .copied()
        .ok_or_else(|| BuildError::UnknownPolicy { name: name.to_owned(), nearest: nearest(name, among) })
}

/// Builds a policy and hands it to a visitor. Capacities are checked against the policy's minimum.
pub(crate) fn build<V: Visitor>(
    info: &'static Info,
    config: &Config,
    options: &Options,
    visitor: V,
) -> Result<V::Output, BuildError> {
    check(info, config)?;
    dispatch(info, config, options, visitor)
}

/// Checks the number of tiers and their capacities.
pub(crate) fn check(info: &'static Info, config: &Config) -> Result<(), BuildError> {
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
    Ok(())
}

/// The three names most like this one.
fn nearest(name: &str, among: &[&'static Info]) -> String {
    let name = name.to_ascii_lowercase();
    let mut names: Vec<(usize, &str)> = among.iter().map(|info| (levenshtein(&name, info.name), info.name)).collect();
    names.sort_unstable();
    names.iter().take(3).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}
