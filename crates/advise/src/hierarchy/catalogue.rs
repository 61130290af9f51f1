//! Catalogue of devices that can be bought: a dated TOML file with prices, device profiles and endurance.
//!
//! ```toml
//! date = "2026-11"
//! source = "Where the prices come from"
//!
//! [[item]]
//! name = "DRAM"
//! tier = "dram"                 # dram, nvm, ssd, disk
//! profile = "dram"              # a built-in profile or a TOML file
//! capacities_gb = [16, 32, 64]  # what can be bought, in 10^9 bytes
//! dollars_per_gb = 10.0         # or dollars = [150, 290, 570], one for each capacity
//! endurance_writes = 1e16       # writes of each byte until it fails; or dwpd with warranty_years; neither: does not wear
//! watts = [3, 6, 12]            # optional, one for each capacity: drawn whether it is used or not
//! ```

use super::AdviceError;
use crate::money::Money;
use entresol_device::nand::Amplification;
use entresol_device::profile::{self, Model, Profile};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use strsim::levenshtein;

/// Names and texts of the catalogues that come with the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("arulraj-2019", include_str!("../../catalogues/arulraj-2019.toml")),
    ("kang-2015", include_str!("../../catalogues/kang-2015.toml")),
];

/// Level of a hierarchy at which a device can be, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Volatile memory.
    Dram,
    /// Persistent memory.
    Nvm,
    /// Flash behind a block interface: a cache, or the lowest tier.
    Ssd,
    /// A disk or an array: the lowest tier.
    Disk,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Dram => "dram",
            Class::Nvm => "nvm",
            Class::Ssd => "ssd",
            Class::Disk => "disk",
        })
    }
}

/// Writes that a device endures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endurance {
    /// No wear, as far as the catalogue says.
    Unlimited,
    /// Writes of each byte that the medium endures, the device's own cleaning included.
    Media(f64),
    /// Writes of the whole capacity by the host that the maker guarantees (drive writes a day over the years of
    /// warranty).
    Host(f64),
}

/// A size in which an item is sold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Piece {
    /// Capacity in 10^9 bytes.
    pub gb: f64,
    /// Price.
    pub dollars: Money,
    /// Power drawn whether the device is used or not; `None` if the catalogue does not say.
    pub watts: Option<f64>,
}

impl Piece {
    /// Capacity in bytes.
    pub fn bytes(&self) -> f64 {
        self.gb * 1e9
    }
}

/// A device in all the sizes in which it is sold.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Name of the device.
    pub name: String,
    /// Level of a hierarchy at which the device can be.
    pub class: Class,
    /// Model of the device's behaviour. A flash drive has its measured write amplification if the profile states one.
    pub profile: Profile,
    /// Sizes on sale, ascending.
    pub pieces: Vec<Piece>,
    /// Writes that the device endures.
    pub endurance: Endurance,
}

/// Devices that can be bought, with their source and date.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    /// Name of the catalogue, or its file.
    pub name: String,
    /// Date of the prices.
    pub date: String,
    /// Source of the prices.
    pub source: String,
    /// The devices, in the order of the file.
    pub items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    date: Option<String>,
    source: Option<String>,
    #[serde(default)]
    item: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    tier: Option<Class>,
    profile: Option<String>,
    #[serde(default)]
    capacities_gb: Vec<f64>,
    dollars_per_gb: Option<f64>,
    dollars: Option<Vec<f64>>,
    endurance_writes: Option<f64>,
    dwpd: Option<f64>,
    warranty_years: Option<f64>,
    watts: Option<Vec<f64>>,
}

impl Catalogue {
    /// Names of the built-in catalogues.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// Loads the built-in catalogue of this name, or else the file. A profile that is not built in is a path relative
    /// to the working directory.
    ///
    /// # Errors
    /// When there is neither, or an entry is missing or impossible: names the item, the key and an accepted value.
    pub fn load(name_or_path: &str) -> Result<Catalogue, AdviceError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Catalogue::from_toml(name, text);
        }
        let error = |what| AdviceError::Catalogue { catalogue: name_or_path.to_owned(), what };
        if !Path::new(name_or_path).exists() {
            return Err(error(format!("neither a file nor one of {}", Catalogue::names().join(", "))));
        }
        let text = std::fs::read_to_string(name_or_path).map_err(|e| error(format!("cannot be read: {e}")))?;
        Catalogue::from_toml(name_or_path, &text)
    }

    /// Parses a catalogue; errors call it `name`.
    ///
    /// # Errors
    /// As [`Catalogue::load`].
    pub fn from_toml(name: &str, text: &str) -> Result<Catalogue, AdviceError> {
        let parsed = toml::from_str(text).map_err(|error: toml::de::Error| {
            let text = error.to_string();
            format!("is no catalogue: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
        });
        parsed
            .and_then(|file: File| file.check(name))
            .map_err(|what| AdviceError::Catalogue { catalogue: name.to_owned(), what })
    }
}

impl File {
    fn check(self, name: &str) -> Result<Catalogue, String> {
        let date = self.date.ok_or("`date` is missing: when the prices held, a text such as \"2026-11\"")?;
        let source = self.source.ok_or("`source` is missing: where the prices come from, a text")?;
        if self.item.is_empty() {
            return Err("nothing is for sale: at least one [[item]] is expected".to_owned());
        }
        let items = self.item.into_iter().enumerate().map(|(at, entry)| entry.check(at + 1));
        let items = items.collect::<Result<Vec<Item>, String>>()?;
        for (at, item) in items.iter().enumerate() {
            if items[..at].iter().any(|other| other.name == item.name) {
                return Err(format!("two items are called '{}'", item.name));
            }
        }
        Ok(Catalogue { name: name.to_owned(), date, source, items })
    }
}

impl Entry {
    fn check(self, number: usize) -> Result<Item, String> {
        let name = self.name.clone().filter(|name| !name.is_empty()).ok_or(format!("item {number} has no `name`"))?;
        self.checked(&name).map_err(|what| format!("item '{name}': {what}"))
    }

    fn checked(self, name: &str) -> Result<Item, String> {
        let class = self.tier.ok_or("`tier` is missing: dram, nvm, ssd or disk")?;
        let profile = load_profile(self.profile.as_deref())?;
        let endurance = self.endurance()?;
        let prices = self.prices(&profile)?;
        let watts = match &self.watts {
            None => vec![None; prices.len()],
            Some(watts) => {
                numbers("watts", watts, self.capacities_gb.len(), 0.0)?;
                watts.iter().copied().map(Some).collect()
            }
        };
        let sizes = self.capacities_gb.iter().zip(prices).zip(watts);
        let mut pieces: Vec<Piece> = sizes.map(|((&gb, dollars), watts)| Piece { gb, dollars, watts }).collect();
        pieces.sort_by(|a, b| a.gb.total_cmp(&b.gb));
        if let Some(twice) = pieces.windows(2).find(|pair| pair[0].gb == pair[1].gb) {
            return Err(format!("`capacities_gb` has {} twice", twice[0].gb));
        }
        Ok(Item { name: name.to_owned(), class, profile, pieces, endurance })
    }

    fn prices(&self, profile: &Profile) -> Result<Vec<Money>, String> {
        if self.capacities_gb.is_empty() {
            return Err("`capacities_gb` is missing: the sizes that can be bought, in 10^9 bytes".to_owned());
        }
        numbers("capacities_gb", &self.capacities_gb, self.capacities_gb.len(), f64::MIN_POSITIVE)?;
        match (&self.dollars, self.dollars_per_gb) {
            (Some(_), Some(_)) => Err("has both `dollars` and `dollars_per_gb`: one of them".to_owned()),
            (Some(dollars), None) => {
                numbers("dollars", dollars, self.capacities_gb.len(), 0.0)?;
                dollars.iter().map(|&dollars| money("dollars", dollars)).collect()
            }
            (None, Some(rate)) => {
                numbers("dollars_per_gb", &[rate], 1, 0.0)?;
                self.capacities_gb.iter().map(|gb| money("dollars_per_gb", gb * rate)).collect()
            }
            (None, None) => {
                let known = profile.dollars_per_gb.map(|price| {
                    format!("; the profile '{}' states {price} dollars a GB: dollars_per_gb = {price}", profile.name)
                });
                let wanted = "has no price: `dollars_per_gb`, or `dollars` with one for each capacity";
                Err(format!("{wanted}{}", known.unwrap_or_default()))
            }
        }
    }

    fn endurance(&self) -> Result<Endurance, String> {
        let positive = |key: &str, value: f64| numbers(key, &[value], 1, f64::MIN_POSITIVE).map(|()| value);
        match (self.endurance_writes, self.dwpd, self.warranty_years) {
            (None, None, None) => Ok(Endurance::Unlimited),
            (Some(writes), None, None) => positive("endurance_writes", writes).map(Endurance::Media),
            (None, Some(dwpd), Some(years)) => {
                Ok(Endurance::Host(positive("dwpd", dwpd)? * positive("warranty_years", years)? * 365.25))
            }
            (Some(_), ..) => {
                Err("has both `endurance_writes` and `dwpd` or `warranty_years`: one way to say it".to_owned())
            }
            (None, Some(_), None) => Err("`dwpd` needs `warranty_years`".to_owned()),
            (None, None, Some(_)) => Err("`warranty_years` needs `dwpd`".to_owned()),
        }
    }
}

/// Loads a profile. Flash gets its measured write amplification, which needs no preconditioning.
fn load_profile(name: Option<&str>) -> Result<Profile, String> {
    let names = profile::names();
    let Some(name) = name else {
        return Err(format!("`profile` is missing: a TOML file, or one of {}", names.join(", ")));
    };
    let profile = profile::load(name).map_err(|error| {
        let nearest = names.iter().min_by_key(|known| levenshtein(name, known)).expect("there are profiles");
        match Path::new(name).exists() {
            true => error.to_string(),
            false => format!("`profile` is '{name}', which is neither a file nor a profile; nearest: {nearest}"),
        }
    })?;
    match &profile.device {
        Model::Nand(drive) if drive.curve.is_some() => {
            profile.with_amplification(Amplification::Curve).map_err(|error| error.to_string())
        }
        _ => Ok(profile),
    }
}

/// Price of a piece that costs this many dollars by `key`; both are finite and not below 0.
fn money(key: &str, dollars: f64) -> Result<Money, String> {
    Money::of(dollars)
        .ok_or_else(|| format!("`{key}` makes a price of {dollars:e} dollars, expected at most {}", Money::MAX))
}

fn numbers(key: &str, values: &[f64], count: usize, least: f64) -> Result<(), String> {
    if values.len() != count {
        return Err(format!("`{key}` has {} numbers, expected one for each of the {count} capacities", values.len()));
    }
    match values.iter().find(|value| !value.is_finite() || **value < least) {
        None => Ok(()),
        Some(value) if least > 0.0 => Err(format!("`{key}` has {value}, expected more than 0")),
        Some(value) => Err(format!("`{key}` has {value}, expected 0 or more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        date = "2026-11"
        source = "a test"
        [[item]]
        name = "DRAM"
        tier = "dram"
        profile = "arulraj-dram"
        capacities_gb = [8, 4]
        dollars_per_gb = 10.0
        [[item]]
        name = "drive"
        tier = "ssd"
        profile = "s3500"
        capacities_gb = [480]
        dollars = [554]
        dwpd = 0.3
        warranty_years = 5
        watts = [0.65]
    "#;

    fn dollars(dollars: f64) -> Money {
        Money::of(dollars).expect("a price")
    }

    #[test]
    fn a_catalogue_is_read_and_the_shipped_ones_are_too() {
        let catalogue = Catalogue::from_toml("t", GOOD).expect("a catalogue");
        let [dram, drive] = &catalogue.items[..] else { panic!("two items") };
        assert_eq!(dram.pieces[0], Piece { gb: 4.0, dollars: dollars(40.0), watts: None });
        assert_eq!((dram.class, dram.endurance), (Class::Dram, Endurance::Unlimited));
        assert_eq!(drive.pieces, [Piece { gb: 480.0, dollars: dollars(554.0), watts: Some(0.65) }]);
        assert_eq!(drive.endurance, Endurance::Host(0.3 * 5.0 * 365.25));
        let Model::Nand(flash) = &drive.profile.device else { panic!("flash") };
        assert_eq!(flash.amplification, Amplification::Curve);
        for name in Catalogue::names() {
            let catalogue = Catalogue::load(name).expect(name);
            assert!(catalogue.items.iter().any(|item| item.class == Class::Dram) && !catalogue.date.is_empty());
        }
    }

    #[test]
    fn what_is_missing_is_named_with_what_would_do() {
        for (from, to, parts) in [
            ("dollars_per_gb = 10.0", "", &["item 'DRAM'", "no price", "dollars_per_gb = 10"][..]),
            ("dollars = [554]", "", &["item 'drive'", "no price", "dollars_per_gb = 1.15"]),
            ("dollars = [554]", "dollars = [554, 600]", &["'drive'", "has 2 numbers"]),
            ("dollars = [554]", "dollars = [-1]", &["'drive'", "-1"]),
            ("dollars = [554]", "dollars = [1e10]", &["'drive'", "`dollars`", "at most 1000000000.00"]),
            ("dollars_per_gb = 10.0", "dollars_per_gb = 1e300", &["'DRAM'", "`dollars_per_gb`", "at most"]),
            ("profile = \"s3500\"", "", &["'drive'", "`profile` is missing", "850-evo"]),
            ("profile = \"s3500\"", "profile = \"s350\"", &["'drive'", "'s350'", "nearest: s3500"]),
            ("capacities_gb = [480]", "", &["'drive'", "`capacities_gb` is missing"]),
            ("capacities_gb = [8, 4]", "capacities_gb = [8, 8]", &["'DRAM'", "8 twice"]),
            ("capacities_gb = [8, 4]", "capacities_gb = [8, 0]", &["'DRAM'", "more than 0"]),
            ("date = \"2026-11\"", "", &["`date` is missing"]),
            ("source = \"a test\"", "", &["`source` is missing"]),
            ("name = \"drive\"", "name = \"DRAM\"", &["two items are called 'DRAM'"]),
            ("name = \"drive\"", "", &["item 2 has no `name`"]),
            ("warranty_years = 5", "", &["`dwpd` needs"]),
            ("dwpd = 0.3", "endurance_writes = 3", &["one way to say it"]),
            ("tier = \"ssd\"", "tier = \"tape\"", &["tape", "disk"]),
            ("tier = \"ssd\"", "price = 3", &["unknown field `price`"]),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = Catalogue::from_toml("t", &GOOD.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{from} -> {to}: {error}");
        }
        let error = Catalogue::load("no-such").expect_err("no catalogue").to_string();
        assert!(error.contains("arulraj-2019"), "{error}");
    }
}
