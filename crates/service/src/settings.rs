//! Settings of a cache in use that outlive its server, once one of them was changed.

use super::chosen::Chosen;
use super::holder::Holder;
use super::keyword::Keyword;
use anyhow::{Context, Result};
use entresol_cache::Mode;
use entresol_policy::Wear;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Name under which a holder keeps them.
const NAME: &str = "cache.settings";

/// All settings that a running cache takes, as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) mode: String,
    /// The policy, with its options.
    pub(crate) policy: String,
    /// Pages of each tier.
    pub(crate) tiers: Vec<usize>,
    /// Upper and lower limit of dirty pages, as shares.
    pub(crate) dirty_limits: (f64, f64),
    /// Bound on the age of dirty pages.
    pub(crate) dirty_age: Option<Duration>,
    /// Bound on the wear of the cache; none from a server that had no such setting.
    #[serde(default)]
    pub(crate) wear: Option<String>,
    /// Bytes of a stream after which its rest bypasses the cache.
    pub(crate) sequential_cutoff: u64,
    /// Bytes a second that placing may fetch, if it was set.
    pub(crate) place_rate: Option<u64>,
    /// Files that were placed, in their order.
    pub(crate) placed: Vec<String>,
}

impl Settings {
    /// The settings that were changed under a former server; none if there were none.
    ///
    /// # Errors
    /// If they cannot be read: to go on in another mode than the one that was promised would be worse.
    pub(crate) fn left(holder: Option<&Holder>) -> Result<Option<Self>> {
        holder.map_or(Ok(None), |holder| holder.value(NAME))
    }

    /// Has them outlive this process, once this returns.
    ///
    /// # Errors
    /// As [`Holder::keep_value`].
    pub(crate) fn keep(&self, holder: &Holder) -> io::Result<()> {
        holder.keep_value(NAME, self)
    }

    /// Policy, mode and bound on wear of the start; `given` is the bound for which a former server had no setting.
    ///
    /// # Errors
    /// For a mode or a bound that this program does not know.
    pub(crate) fn chosen(&self, given: Option<Wear>) -> Result<Chosen> {
        let mode = Mode::named(&self.mode).with_context(|| format!("mode: '{}' is not known", self.mode))?;
        let wear = self.wear.as_ref().map(|wear| wear.parse()).transpose()?.or(given);
        Ok(Chosen::as_set(&self.policy, mode, wear))
    }
}
