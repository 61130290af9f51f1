//! Policy, mode and bound on wear of a start: those of the command line, else those of the backing record, else the defaults.

use super::keyword::Keyword;
use entresol_cache::{Mode, default_policy};
use entresol_files::record::Record;
use entresol_policy::Wear;
use entresol_store::Layout;

/// The mode of a cache for which none was given.
pub(crate) const DEFAULT_MODE: Mode = Mode::WriteThrough;
/// The other mode that a user may want, and its price.
const OTHER_MODE: &str = "`--mode write-back` makes writes fast too, and loses the newest with the cache device";

/// Settings by a backing record, as far as they are known: policy and bound on wear as given to `entresol format`, the
/// mode last used or given to `format`, and the layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) policy: Option<String>,
    pub(crate) mode: Option<Mode>,
    pub(crate) layout: Option<Layout>,
    pub(crate) wear: Option<Wear>,
}

impl Kept {
    /// Reads them from a record.
    pub(crate) fn of(record: Option<&Record>) -> Self {
        let Some(record) = record else { return Kept::default() };
        let choices = record.choices.as_ref();
        // A mode that this version does not know is ignored.
        let mode = choices.and_then(|choices| choices.mode.as_ref()).and_then(|mode| Mode::named(mode));
        // Earlier versions noted no mode; only write-back leaves a backing store without some bytes.
        let mode = mode.or((!record.complete).then_some(Mode::WriteBack));
        let layout = choices.map(|choices| choices.geometry.layout);
        // So is a bound in words of a later version.
        let wear = choices.and_then(|choices| choices.wear.as_ref()).and_then(|wear| wear.parse().ok());
        Kept { policy: choices.and_then(|choices| choices.policy.clone()), mode, layout, wear }
    }
}

/// Policy, mode and bound on wear of one start.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The policy, with its options.
    pub policy: String,
    /// Treatment of writes.
    pub mode: Mode,
    /// Bound on what is written to the cache, where one was chosen.
    pub wear: Option<Wear>,
    /// The values that were not given with the start, in words.
    said: Vec<String>,
}

impl Chosen {
    /// For a start with this policy, mode and bound on wear, as far as they are given.
    pub(crate) fn new(policy: Option<&str>, mode: Option<Mode>, wear: Option<Wear>, kept: &Kept) -> Self {
        let mut said = Vec::new();
        let policy = policy.map(str::to_owned).or_else(|| {
            kept.policy.clone().inspect(|policy| said.push(format!("policy {policy}, as given to `format`")))
        });
        let policy = policy.unwrap_or_else(|| default_policy(kept.layout.unwrap_or(Layout::Log)).to_owned());
        let mode = mode.unwrap_or_else(|| {
            said.push(kept.mode.map_or_else(
                || format!("mode {}, the default ({OTHER_MODE})", DEFAULT_MODE.keyword()),
                |mode| format!("mode {}, as before", mode.keyword()),
            ));
            kept.mode.unwrap_or(DEFAULT_MODE)
        });
        let wear = wear.or_else(|| kept.wear.inspect(|wear| said.push(format!("wear {wear}, as given to `format`"))));
        Chosen { policy, mode, wear, said }
    }

    /// Settings that were made while a former server ran.
    pub(crate) fn as_set(policy: &str, mode: Mode, wear: Option<Wear>) -> Self {
        Chosen { policy: policy.to_owned(), mode, wear, said: Vec::new() }
    }

    /// A line that names the values that were not given with the start, but for the default policy; none if there are
    /// none.
    pub(crate) fn said(&self) -> Option<String> {
        (!self.said.is_empty()).then(|| self.said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_comes_before_format_and_format_before_the_defaults() {
        let told = [None, Some("arc")];
        let modes = [None, Some(Mode::WriteThrough)];
        for (given, kept) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let kept_before = [None, Some("mq")][kept].map(str::to_owned);
            let kept_before = Kept { policy: kept_before, mode: [None, Some(Mode::ReadOnly)][kept], ..Kept::default() };
            let chosen = Chosen::new(told[given], modes[given], None, &kept_before);
            let (policy, mode, said) = match (given, kept) {
                (1, _) => ("arc", Mode::WriteThrough, None),
                (_, 1) => ("mq", Mode::ReadOnly, Some("policy mq, as given to `format`; mode read-only, as before")),
                _ => {
                    let said = "mode write-through, the default (`--mode write-back` makes writes fast too, and loses the newest \
                                with the cache device)";
                    ("face-gsc", Mode::WriteThrough, Some(said))
                }
            };
            assert_eq!((chosen.policy.as_str(), chosen.mode), (policy, mode), "given {given}, kept {kept}");
            assert_eq!(chosen.said().as_deref(), said, "given {given}, kept {kept}");
        }
    }

    #[test]
    fn the_default_policy_follows_the_layout() {
        for (layout, expected) in [
            (None, "face-gsc"),
            (Some(Layout::Log), "face-gsc"),
            (Some(Layout::Slots), "reuse"),
            (Some(Layout::Segments), "reuse"),
        ] {
            let kept = Kept { layout, ..Kept::default() };
            assert_eq!(Chosen::new(None, None, None, &kept).policy, expected, "{layout:?}");
        }
    }
}
