//! The candidates of a choice, before they are built.

use crate::candidate::{AnyPolicy, Boxed};
use crate::info::{Config, Info};
use crate::interface::Policy;
use crate::list;
use crate::options::{BuildError, Options};

/// A policy with its options, to be built at several sizes.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub info: &'static Info,
    options: Options,
}

impl Recipe {
    /// Parses `name` or `name+option=value+...`.
    ///
    /// # Errors
    /// When there is no such policy or option, or when the policy cannot be a candidate.
    pub fn parse(text: &str, refuse: impl Fn(&str) -> BuildError) -> Result<Self, BuildError> {
        let mut parts = text.split('+');
        // One that chooses is known too, to be refused for that.
        let known = [list::LISTED, &[&<super::Auto as Policy>::INFO]].concat();
        let info = list::named(parts.next().unwrap_or_default(), &known)?;
        let why = if info.tiers.len() != 1 {
            "manages two tiers: what it holds cannot be handed over to one that manages one"
        } else if info.future {
            "knows the future, which no cache does"
        } else if info.name == super::NAME {
            "has candidates of its own"
        } else if info.name == "table-placement" || info.known_bound.is_some() {
            "remembers all pages there are, not a sample of them"
        } else {
            return Ok(Recipe { info, options: Options::parse(info, parts)? });
        };
        Err(refuse(why))
    }

    /// Builds the policy.
    ///
    /// # Errors
    /// When its options are wrong, or a tier is too small for it.
    pub fn build(&self, config: &Config) -> Result<Boxed, BuildError> {
        list::build(self.info, config, &self.options, AnyPolicy { pool: None, handles: config.pages })
    }
}
