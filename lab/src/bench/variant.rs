//! Variants of the storage below a database in a run: the backing device alone, a policy's cache, or the cache's
//! device alone.

use super::daemon::Figures;
use super::mounted::Mounted;
use super::place::Place;
use anyhow::Result;
use entresol_cache::Mode;
use entresol_cli::shared::Waf;
use entresol_cli::shared::{Keyword, one_policy};
use entresol_cli::shared::{Limit, OnOff, layout, word};
use entresol_core::Size;
use entresol_policy::Wear;
use entresol_store::Layout;
use std::path::PathBuf;
use std::time::Duration;

/// A cache of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    pub policy: String,
    /// Layout of this cache alone.
    layout: Option<Layout>,
    /// Handling of writes by this cache alone.
    mode: Option<Mode>,
    /// Longest time that a page may differ from the backing store.
    pub dirty_age: Limit,
    /// Name of the variant in tables: the policy, and the bound where several are compared.
    name: String,
}

/// Beginning of the name of a variant that is another backing device alone.
const OTHER: &str = "none@";

/// A variant of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The backing device alone.
    None,
    /// Another backing device alone, by its name `none@PROFILE`.
    Other(String),
    /// The cache device alone.
    SsdOnly,
    /// A cache.
    Cached(Cached),
}

impl Variant {
    /// Parses one name of `--policy`: `none`, `none@PROFILE`, or a policy, after each `@` a layout or a mode of its own.
    /// A policy gives a cache for each of these bounds on ages.
    pub fn parse(name: &str, dirty_ages: &[Limit]) -> Result<Vec<Self>> {
        if name == "none" {
            return Ok(vec![Variant::None]);
        }
        if name.starts_with(OTHER) {
            return Ok(vec![Variant::Other(name.to_owned())]);
        }
        let mut parts = name.split('@');
        let policy = parts.next().unwrap_or_default();
        one_policy(policy)?;
        let (mut its, mut mode) = (None, None);
        for part in parts {
            match Mode::named(part) {
                Some(found) => mode = Some(found),
                None => its = Some(layout(part).map_err(anyhow::Error::msg)?),
            }
        }
        let cached = |&dirty_age: &Limit| {
            let name = if dirty_ages.len() > 1 { format!("{name}, age {dirty_age}") } else { name.to_owned() };
            Variant::Cached(Cached { policy: policy.to_owned(), layout: its, mode, dirty_age, name })
        };
        Ok(dirty_ages.iter().map(cached).collect())
    }

    /// Profile of a device that no other variant has.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Variant::Other(name) => name.strip_prefix(OTHER),
            _ => None,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Variant::None => "none",
            Variant::Other(name) => name,
            Variant::SsdOnly => "ssd-only",
            Variant::Cached(cached) => &cached.name,
        }
    }
}

/// Options that all variants have in common.
pub struct Devices {
    pub backing_profile: Option<String>,
    pub cache_profile: Option<String>,
    pub waf: Option<Waf>,
    pub mode: Mode,
    /// Layout in which all caches keep their pages; if none, the one that suits the policy.
    pub layout: Option<Layout>,
    /// Bound on what is written to caches in segments.
    pub wear: Wear,
    pub page_cache: OnOff,
    pub sequential_cutoff: u64,
    pub passthrough: OnOff,
    pub page_size: u32,
    /// Pages of a cache.
    pub pages: u64,
    pub dram: Option<Size>,
    pub seed: u64,
    /// Path for a recording of the requests to the backing device, where there is no cache.
    pub record: Option<PathBuf>,
    /// True if each process that mounts compares the files with what former ones noted.
    pub witness: bool,
    /// Time of a write and of a sync of a tablespace, where a kill loses what no sync has covered.
    pub volatile: Option<Duration>,
}

impl Devices {
    /// Layout in which a variant's cache keeps its pages; none for a variant without a cache.
    pub fn layout_of(&self, variant: &Variant) -> Option<Layout> {
        let Variant::Cached(Cached { policy, layout, .. }) = variant else { return None };
        layout.or(self.layout).or_else(|| Some(entresol_cache::layout_suiting(one_policy(policy).ok()?.info)))
    }

    /// Mounts the working copy; a cache is made if there is none. Returns the figures of its open.
    pub fn mount(&self, place: &Place, variant: &Variant) -> Result<(Mounted, Figures)> {
        let text = |path: std::path::PathBuf| path.display().to_string();
        let mut arguments = vec![text(place.work()), text(place.mountpoint())];
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("seed", self.seed.to_string());
        option("page-cache", word(self.page_cache));
        option("passthrough", word(self.passthrough));
        let backing = if *variant == Variant::SsdOnly { &self.cache_profile } else { &self.backing_profile };
        if let Some(profile) = variant.profile().or(backing.as_deref()) {
            option("backing-profile", profile.to_owned());
        }
        if let Some(waf) = self.waf {
            option("waf", word(waf));
        }
        if self.record.is_some() && *variant == Variant::None {
            option("record", text(place.recording()));
        }
        option("page-size", self.page_size.to_string());
        if let Variant::Cached(Cached { policy, mode, dirty_age, .. }) = variant {
            option("cache", text(place.cache()));
            option("pages", self.pages.to_string());
            option("policy", policy.clone());
            if let Some(layout) = self.layout_of(variant) {
                option("layout", layout.name().to_owned());
                if layout == Layout::Segments {
                    option("wear", self.wear.to_string());
                }
            }
            option("mode", mode.unwrap_or(self.mode).keyword().to_owned());
            option("sequential-cutoff", self.sequential_cutoff.to_string());
            option("dirty-age", dirty_age.to_string());
            if let Some(dram) = self.dram {
                let bytes = dram.pages(self.page_size, self.pages) * u64::from(self.page_size);
                option("dram", format!("{bytes}B"));
            }
            if let Some(profile) = &self.cache_profile {
                option("cache-profile", profile.clone());
            }
            if !place.cache().exists() {
                option("make", self.pages.to_string());
            }
        }
        if self.witness {
            arguments.push("--witness".to_owned());
        }
        if let Some(takes) = self.volatile {
            arguments.extend(["--volatile".to_owned(), format!("{}ms", takes.as_millis())]);
        }
        Mounted::start(&arguments, &place.mountpoint(), place.run(), place.owner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_a_layout_a_mode_and_another_device() {
        let parse = |name: &str| Variant::parse(name, &[Limit(None)]).map(|found| found[0].clone());
        let Ok(Variant::Cached(cached)) = parse("reuse@segments@write-through") else { panic!("a cache") };
        assert_eq!((cached.policy.as_str(), cached.layout), ("reuse", Some(Layout::Segments)));
        assert_eq!((cached.mode, cached.name.as_str()), (Some(Mode::WriteThrough), "reuse@segments@write-through"));
        assert_eq!(parse("none").ok(), Some(Variant::None));
        assert_eq!(parse("none@gp3-16000").expect("a device").profile(), Some("gp3-16000"));
        assert!(parse("reuse@tape").is_err() && parse("no-such-policy").is_err());
    }
}
