//! Policy and mode of a start: those of the command line, else those given to `entresol format`, else the defaults.

use super::keyword::Keyword;
use entresol_cache::Mode;
use entresol_files::record::Record;

/// The policy of a cache for which none was given.
pub(crate) const DEFAULT_POLICY: &str = "face-gsc";
/// The mode of a cache for which none was given.
pub(crate) const DEFAULT_MODE: Mode = Mode::WriteBack;

/// Policy and mode given to `entresol format`, as far as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) policy: Option<String>,
    pub(crate) mode: Option<Mode>,
}

impl Kept {
    /// Reads them from a record.
    pub(crate) fn of(record: Option<&Record>) -> Self {
        let Some(choices) = record.and_then(|record| record.choices.as_ref()) else { return Kept::default() };
        // A mode that this version does not know is ignored.
        let mode = choices.mode.as_ref().and_then(|mode| Mode::named(mode));
        Kept { policy: choices.policy.clone(), mode }
    }
}

/// Policy and mode of one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The policy, with its options.
    pub policy: String,
    /// Treatment of writes.
    pub mode: Mode,
    /// The values taken from `entresol format`, in words.
    kept: Vec<String>,
}

impl Chosen {
    /// For a start with this policy and mode, as far as they are given.
    pub(crate) fn new(policy: Option<&str>, mode: Option<Mode>, kept: &Kept) -> Self {
        let mut said = Vec::new();
        let policy = policy
            .map(str::to_owned)
            .or_else(|| kept.policy.clone().inspect(|policy| said.push(format!("policy {policy}"))));
        let mode = mode.or_else(|| kept.mode.inspect(|&mode| said.push(format!("mode {}", mode.keyword()))));
        let policy = policy.unwrap_or_else(|| DEFAULT_POLICY.to_owned());
        Chosen { policy, mode: mode.unwrap_or(DEFAULT_MODE), kept: said }
    }

    /// Policy and mode that were set while a former server ran.
    pub(crate) fn as_set(policy: &str, mode: Mode) -> Self {
        Chosen { policy: policy.to_owned(), mode, kept: Vec::new() }
    }

    /// A line that names the values taken from `entresol format`; none if there are none.
    pub(crate) fn said(&self) -> Option<String> {
        (!self.kept.is_empty()).then(|| format!("{}, as `entresol format` was told", self.kept.join(" and ")))
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
            let kept_before = Kept { policy: kept_before, mode: [None, Some(Mode::ReadOnly)][kept] };
            let chosen = Chosen::new(told[given], modes[given], &kept_before);
            let (policy, mode, said) = match (given, kept) {
                (1, _) => ("arc", Mode::WriteThrough, None),
                (_, 1) => ("mq", Mode::ReadOnly, Some("policy mq and mode read-only, as `entresol format` was told")),
                _ => ("face-gsc", Mode::WriteBack, None),
            };
            assert_eq!((chosen.policy.as_str(), chosen.mode), (policy, mode), "given {given}, kept {kept}");
            assert_eq!(chosen.said().as_deref(), said, "given {given}, kept {kept}");
        }
    }
}
