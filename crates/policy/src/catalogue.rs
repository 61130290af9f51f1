//! Every policy by name: those that decide by themselves, and those that choose among them.

pub use crate::list::Visitor;

use crate::choice::Auto;
use crate::info::{Config, Info};
use crate::interface::Policy;
use crate::list;
use crate::options::{BuildError, Options};

/// All policies, by family.
pub static ALL: &[&Info] = &{
    let mut all = [&<Auto as Policy>::INFO; list::LISTED.len() + 1];
    all.split_at_mut(list::LISTED.len()).0.copy_from_slice(list::LISTED);
    all
};

/// The description of a policy.
pub fn info(name: &str) -> Result<&'static Info, BuildError> {
    list::named(name, ALL)
}

/// Builds a policy and hands it to a visitor. Capacities are checked against the policy's minimum.
pub fn build<V: Visitor>(
    info: &'static Info,
    config: &Config,
    options: &Options,
    visitor: V,
) -> Result<V::Output, BuildError> {
    if info.name != <Auto as Policy>::INFO.name {
        return list::build(info, config, options, visitor);
    }
    list::check(info, config)?;
    Ok(visitor.visit(Auto::new(config, options)?))
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
        let error = info("LRV").unwrap_err().to_string();
        assert!(error.contains("nearest: lru"), "{error}");
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        for (given, name) in [("LRU", "lru"), ("Face-GSC", "face-gsc"), ("2Q", "2q"), ("Auto", "auto")] {
            assert_eq!(info(given).map(|info| info.name), Ok(name));
        }
    }
}
