//! Policies and stacks as text: `arc,face-gsc:pages=clean`, `h-arc:64Ki,wrb:4Ki:threshold=8`.

use entresol_core::{Size, SizeError};
use entresol_policy::{BuildError, Info, Options, catalogue};

/// A policy with its options.
#[derive(Clone, Debug)]
pub struct PolicySpec {
    /// The policy.
    pub info: &'static Info,
    /// Options of the policy.
    pub options: Options,
}

/// A layer of a stack: a policy and a size per tier.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// The policy.
    pub policy: PolicySpec,
    /// One size per tier, or one for all tiers together.
    pub sizes: Vec<Size>,
}

/// Why a text is not a valid policy or stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A policy or option is wrong.
    #[error(transparent)]
    Policy(#[from] BuildError),
    /// A size is wrong.
    #[error("layer '{layer}': {error}")]
    Size {
        /// The layer as it was given.
        layer: String,
        /// Error in the size.
        error: SizeError,
    },
    /// A layer has too few or too many sizes.
    #[error("layer '{layer}' needs one size, or one for each of its tiers ({tiers})")]
    SizeCount {
        /// The layer as it was given.
        layer: String,
        /// Names of the layer's tiers.
        tiers: String,
    },
    /// Nothing was named.
    #[error("no policy was named")]
    Empty,
}

fn policy(name: &str, options: &[&str]) -> Result<PolicySpec, BuildError> {
    let info = catalogue::info(name)?;
    Ok(PolicySpec { info, options: Options::parse(info, options.iter().copied())? })
}

/// Parses `a,b:key=value,...`; `all` stands for the whole catalogue.
pub fn parse_policies(text: &str) -> Result<Vec<PolicySpec>, SpecError> {
    let mut specs = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if item == "all" {
            specs.extend(catalogue::ALL.iter().map(|info| PolicySpec { info, options: Options::defaults(info) }));
            continue;
        }
        let parts: Vec<&str> = item.split(':').collect();
        specs.push(policy(parts[0], &parts[1..])?);
    }
    if specs.is_empty() { Err(SpecError::Empty) } else { Ok(specs) }
}

/// Parses `policy:size[:size][:key=value]...,...`, the top layer first.
pub fn parse_stack(text: &str) -> Result<Vec<LayerSpec>, SpecError> {
    let mut layers = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let mut parts = item.split(':');
        let name = parts.next().unwrap_or_default();
        let (options, sizes): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.contains('='));
        let policy = policy(name, &options)?;
        let sizes = sizes
            .into_iter()
            .map(|size| size.parse().map_err(|error| SpecError::Size { layer: item.to_owned(), error }))
            .collect::<Result<Vec<Size>, _>>()?;
        if sizes.is_empty() || (sizes.len() != 1 && sizes.len() != policy.info.tiers.len()) {
            return Err(SpecError::SizeCount { layer: item.to_owned(), tiers: policy.info.tiers.join(", ") });
        }
        layers.push(LayerSpec { policy, sizes });
    }
    if layers.is_empty() { Err(SpecError::Empty) } else { Ok(layers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_stacks_are_understood() {
        let specs = parse_policies("lru, face-gsc:pages=clean:scan=32").unwrap();
        assert_eq!(specs[1].info.name, "face-gsc");
        assert_eq!(specs[1].options.summary(), "pages=clean:scan=32");
        assert_eq!(parse_policies("all").unwrap().len(), catalogue::ALL.len());
        let stack = parse_stack("lru:64Ki,face:10:5%:pages=dirty").unwrap();
        assert_eq!(stack[0].sizes, [Size::Pages(65536)]);
        assert_eq!(stack[1].sizes, [Size::Pages(10), Size::Percent(5.0)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "nolru", "lru:x=1", "face-gsc:scan=1:scan=2"] {
            assert!(parse_policies(text).is_err(), "{text}");
        }
        for text in ["lru", "lru:1:2", "lru:x", "face:1:2:3"] {
            assert!(parse_stack(text).is_err(), "{text}");
        }
    }
}
