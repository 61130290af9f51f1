//! Devices of the tiers, as options give them.

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use entresol_core::Size;
use entresol_device::nand::Amplification;
use entresol_device::profile::{self, Model, Profile};
use entresol_device::{Device, DeviceError};
use entresol_sim::{Addresses, Cell, CellOptions, Hierarchy, NamedDevice, TimedOptions, Work};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Devices and requesters of a timed simulation
#[derive(Args, Clone)]
pub struct TimedArgs {
    /// Simulate with time over these devices: [dram=PROFILE:SIZE,]cache=PROFILE[:SIZE],backing=PROFILE
    ///
    /// A profile is the name of a built-in one (an unknown name lists them) or a TOML file. Without a size the cache
    /// takes the sizes of --size. A policy of one tier manages the cache, with an LRU pool above it if dram is given; a
    /// policy of two manages dram and cache. The backing device holds all objects of the trace. A device is as large as
    /// its used part unless its size follows a slash: 840-pro:4GiB/128GiB, or 840-pro:4GiB/whole for the drive's own
    /// size; the first bytes of the device are used.
    #[arg(long, value_name = "LIST")]
    pub tiers: Option<Tiers>,
    /// Source of the write amplification of all flash drives [default: as their profiles say]
    #[arg(long, value_name = "MODE", requires = "tiers")]
    pub waf: Option<Waf>,
    /// Concurrent requesters, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "tiers", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub clients: u32,
    /// Microseconds between the completion of a request and the next one of the same requester
    #[arg(long, value_name = "US", default_value_t = 0, requires = "tiers", value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    pub think: u64,
    /// Microseconds of processor time that a request costs its requester before the next one
    ///
    /// This work waits for one of --processors; --think waits for nothing.
    #[arg(long, value_name = "US", default_value_t = 0, requires = "tiers", value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    pub work: u64,
    /// Processors that requesters share
    #[arg(long, value_name = "N", default_value_t = 1, requires = "work", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub processors: u32,
    /// Let requests arrive at the times of the trace, not when a requester is free
    #[arg(long, requires = "tiers", conflicts_with_all = ["clients", "think", "work"])]
    pub clock: Option<Clock>,
    /// Most background I/Os, or chains of them, at a time (filling, write-back, cleaning); no new request starts while
    /// so many are under way
    #[arg(long, value_name = "N", default_value_t = 256, requires = "tiers", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub background: u32,
    /// Bytes of a page that a request reads or updates in a memory tier: DRAM, or NVM on the memory bus (device kinds
    /// `dram`, `nvm-dimm`). Pages move between tiers whole [default: the whole page]
    #[arg(long, value_name = "BYTES", requires = "tiers", value_parser = clap::value_parser!(u32).range(1..))]
    pub touch: Option<u32>,
}

/// Clock that decides when a request arrives, other than requesters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// The times in the trace
    Trace,
}

/// Source of write amplification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Waf {
    /// The drive's own cleaning
    Mech,
    /// The drive's measured curve, by the size of writes
    Curve,
}

impl Waf {
    /// A profile with its write amplification from this source; unchanged if none is given.
    pub fn profile(waf: Option<Waf>, name: &str) -> Result<Profile, DeviceError> {
        let profile = profile::load(name)?;
        match waf {
            Some(waf) => profile.with_amplification(waf.into()),
            None => Ok(profile),
        }
    }
}

impl From<Waf> for Amplification {
    fn from(waf: Waf) -> Self {
        match waf {
            Waf::Mech => Amplification::Mech,
            Waf::Curve => Amplification::Curve,
        }
    }
}

/// A device, with the size of its used part and its full size.
#[derive(Clone, Debug, PartialEq)]
pub struct TierArg {
    profile: String,
    pub size: Option<Size>,
    device: Option<DeviceSize>,
}

/// The full size of a device of which a part is used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DeviceSize {
    /// The capacity in the device's profile.
    Whole,
    Of(Size),
}

impl fmt::Display for DeviceSize {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            DeviceSize::Whole => f.write_str("whole"),
            DeviceSize::Of(size) => size.fmt(f),
        }
    }
}

/// Devices that `--tiers` names.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    pub dram: Option<TierArg>,
    pub cache: TierArg,
    pub backing: TierArg,
}

impl FromStr for Tiers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tiers = [("dram", None), ("cache", None), ("backing", None)];
        for item in text.split(',') {
            let (name, device) =
                item.split_once('=').ok_or_else(|| format!("'{item}' is not of the form NAME=PROFILE[:SIZE]"))?;
            let place = tiers.iter_mut().find(|(known, _)| *known == name.trim());
            let (_, place) = place.ok_or_else(|| format!("there is no tier '{name}', only dram, cache and backing"))?;
            if place.replace(tier(name, device.trim())?).is_some() {
                return Err(format!("tier '{name}' is given twice"));
            }
        }
        let [(_, dram), (_, cache), (_, backing)] = tiers;
        let missing = |name: &str| format!("the tier {name} is missing: {name}=PROFILE");
        let (cache, backing) = (cache.ok_or_else(|| missing("cache"))?, backing.ok_or_else(|| missing("backing"))?);
        if dram.as_ref().is_some_and(|dram| dram.size.is_none()) {
            return Err("the size of dram is missing: dram=PROFILE:SIZE".to_owned());
        }
        if backing.size.is_some() {
            return Err("backing takes no size: it holds all of the trace".to_owned());
        }
        Ok(Tiers { dram, cache, backing })
    }
}

fn tier(name: &str, device: &str) -> Result<TierArg, String> {
    if device.is_empty() {
        return Err(format!("tier '{name}' has no profile"));
    }
    // The name of a profile file may contain a colon.
    let Some((profile, sizes)) = device.rsplit_once(':').filter(|_| !Path::new(device).exists()) else {
        return Ok(TierArg { profile: device.to_owned(), size: None, device: None });
    };
    let size = |text: &str| text.parse::<Size>().map_err(|error| format!("tier '{name}': {error}"));
    let (used, whole) = match sizes.split_once('/') {
        None => (sizes, None),
        Some((used, "whole")) => (used, Some(DeviceSize::Whole)),
        Some((used, of)) => (used, Some(DeviceSize::Of(size(of)?))),
    };
    // Without a used size before the slash, the used part is chosen as without a slash.
    let used = if used.is_empty() && whole.is_some() { None } else { Some(size(used)?) };
    Ok(TierArg { profile: profile.to_owned(), size: used, device: whole })
}

/// The devices that `--tiers` names.
pub struct Devices<'a> {
    /// Their names and sizes.
    pub tiers: &'a Tiers,
    /// Profiles of dram, if given, cache and backing.
    profiles: Vec<Profile>,
}

impl TimedArgs {
    /// The options for the simulator with these devices.
    ///
    /// # Errors
    /// If `--touch` is given and no tier is memory.
    pub fn options(&self, devices: &Devices) -> Result<TimedOptions> {
        Ok(TimedOptions {
            clients: if self.clock == Some(Clock::Trace) { 0 } else { self.clients },
            think_ns: self.think * 1000,
            work: Work { ns: self.work * 1000, processors: self.processors },
            background: self.background as usize,
            behind: None,
            touched_bytes: self.touch.map_or(Ok(Vec::new()), |bytes| devices.touched(bytes))?,
        })
    }
}

impl Tiers {
    /// The size of DRAM, if there is any.
    pub fn dram_size(&self) -> Option<Size> {
        self.dram.as_ref().and_then(|dram| dram.size)
    }

    /// The size of the cache, if given with its device.
    pub fn cache_size(&self) -> Option<Size> {
        self.cache.size
    }
}

impl<'a> Devices<'a> {
    /// Loads the profiles.
    pub fn load(tiers: &'a Tiers, arguments: &TimedArgs) -> Result<Self> {
        let named = tiers.dram.iter().chain([&tiers.cache, &tiers.backing]);
        let load = |tier: &TierArg| Waf::profile(arguments.waf, &tier.profile);
        let profiles = named.map(load).collect::<Result<Vec<_>, _>>()?;
        if arguments.waf.is_some() && !profiles.iter().any(|profile| matches!(profile.device, Model::Nand(_))) {
            bail!("--waf: none of the devices is a flash drive");
        }
        Ok(Devices { tiers, profiles })
    }

    /// The profile of the cache.
    pub fn cache_profile(&self) -> &Profile {
        &self.profiles[usize::from(self.tiers.dram.is_some())]
    }

    /// The profile of DRAM, if there is any.
    pub fn dram_profile(&self) -> Option<&Profile> {
        self.tiers.dram.as_ref().and_then(|_| self.profiles.first())
    }

    /// For each tier above the backing device: `bytes` if the tier is memory, else the page size.
    fn touched(&self, bytes: u32) -> Result<Vec<u32>> {
        let tiers = &self.profiles[..self.profiles.len() - 1];
        let memory = |profile: &Profile| matches!(profile.device, Model::Dram(_) | Model::NvmDimm(_));
        if !tiers.iter().any(memory) {
            bail!("--touch: no tier is memory (device kinds dram and nvm-dimm)");
        }
        Ok(tiers.iter().map(|profile| if memory(profile) { bytes } else { u32::MAX }).collect())
    }

    /// Devices with the capacity that a cell needs of each. A flash drive without a size of its own has spare slots too.
    pub fn hierarchy(&self, cell: &Cell, addresses: &Addresses, options: &CellOptions) -> Result<Hierarchy> {
        let (needs, spare) = (cell.needs(addresses), cell.spare(addresses, options));
        let mut devices: Vec<NamedDevice> = Vec::new();
        for (at, (tier, profile)) in self.placed().into_iter().enumerate() {
            let need = match tier.device {
                None => profile.bytes_with_spare(needs[at], spare[at]),
                Some(_) => needs[at],
            };
            let device = self.device(at, need, addresses, options.seed)?;
            let of = tier.device.map(|size| format!(", {size}")).unwrap_or_default();
            devices.push((format!("{}{of}", profile.name), device as _));
        }
        let backing = devices.pop().ok_or_else(|| anyhow!("a hierarchy has a level below"))?;
        Ok(Hierarchy { tiers: devices, backing })
    }

    /// One of the devices, counted from dram if there is any, with a capacity of at least `need` bytes.
    pub fn device(&self, at: usize, need: u64, addresses: &Addresses, seed: u64) -> Result<Box<dyn Device + Send>> {
        let (tier, profile) = self.placed()[at];
        // A tier that a policy does not use is a device of one page without requests.
        let need = need.max(addresses.trace.page_bytes.into());
        let seed = seed.wrapping_add(at as u64);
        let built = tier.device_bytes(profile, need, addresses).and_then(|bytes| Ok(profile.build(bytes, seed)?));
        let name = ["dram", "cache", "backing"][at + usize::from(self.tiers.dram.is_none())];
        built.with_context(|| format!("tier {name}"))
    }

    /// The tiers with their profiles, the backing device last.
    fn placed(&self) -> Vec<(&TierArg, &Profile)> {
        let tiers = self.tiers.dram.iter().chain([&self.tiers.cache, &self.tiers.backing]);
        tiers.zip(&self.profiles).collect()
    }
}

impl TierArg {
    /// Bytes of the whole device, of which `need` are used.
    fn device_bytes(&self, profile: &Profile, need: u64, addresses: &Addresses) -> Result<u64> {
        let bytes = match self.device {
            None => need,
            Some(DeviceSize::Whole) => profile.whole_bytes().with_context(|| {
                format!("device '{}': its profile states no size that could be the whole one", profile.name)
            })?,
            Some(DeviceSize::Of(size)) => {
                let page_bytes = addresses.trace.page_bytes;
                size.pages(page_bytes, addresses.trace.footprint() as u64) * u64::from(page_bytes)
            }
        };
        if bytes < need {
            bail!("device '{}': {need} B are used, more than its {bytes} B", profile.name);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_understood_in_any_order() {
        let tiers: Tiers =
            "backing=face-raid0x16, cache=p4800x:4GiB ,dram=dram:5%".replace(' ', "").parse().expect("tiers");
        let tier = |profile: &str, size| TierArg { profile: profile.into(), size, device: None };
        assert_eq!(tiers.cache, tier("p4800x", Some(Size::Bytes(4 << 30))));
        assert_eq!(tiers.dram, Some(tier("dram", Some(Size::Percent(5.0)))));
        assert_eq!(tiers.backing, tier("face-raid0x16", None));
    }

    #[test]
    fn the_size_of_a_device_follows_a_slash() {
        let whole = Some(DeviceSize::Whole);
        let of = Some(DeviceSize::Of(Size::Bytes(128 << 30)));
        for (text, used, device) in [
            ("840-pro:4GiB/128GiB", Some(Size::Bytes(4 << 30)), of),
            ("840-pro:/128GiB", None, of),
            ("840-pro:4GiB/whole", Some(Size::Bytes(4 << 30)), whole),
            ("./a/840-pro.toml:5%/whole", Some(Size::Percent(5.0)), whole),
            ("./a/840-pro.toml", None, None),
        ] {
            let tiers: Tiers = format!("cache={text},backing=840-pro:/whole").parse().expect(text);
            assert_eq!((tiers.cache.size, tiers.cache.device), (used, device), "{text}");
            assert_eq!((tiers.backing.size, tiers.backing.device), (None, whole));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, part) in [
            ("", "NAME=PROFILE"),
            ("cache=p4800x", "backing is missing"),
            ("backing=face-disk", "cache is missing"),
            ("cache=p4800x,backing=face-disk:1GiB", "takes no size"),
            ("cache=p4800x:big,backing=face-disk", "tier 'cache': 'big' is not a size"),
            ("cache=,backing=face-disk", "no profile"),
            ("cache=dram,cache=dram,backing=face-disk", "given twice"),
            ("cache=840-pro:1GiB/,backing=face-disk", "tier 'cache': '' is not a size"),
            ("cache=840-pro:1GiB/all,backing=face-disk", "'all' is not a size"),
            ("cache=840-pro:,backing=face-disk", "'' is not a size"),
            ("l2=dram,backing=face-disk", "no tier 'l2'"),
            ("dram=dram,cache=dram,backing=face-disk", "size of dram is missing"),
        ] {
            let error = text.parse::<Tiers>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
