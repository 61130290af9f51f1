//! The profiles that come with the program, as texts. A model reads the section of one that describes a device of its
//! kind.

use crate::check::Parameters;
use crate::section;
use serde::de::DeserializeOwned;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// Names and texts of the profiles that come with the program.
pub(crate) const BUILT_IN: &[(&str, &str)] = built_in![
    "dram",
    "optane-dimm",
    "pcm",
    "rram",
    "p4800x",
    "840-pro",
    "850-evo",
    "s3500",
    "p3700",
    "p3700-2tb",
    "cheetah-15k5",
    "face-disk",
    "face-raid0x2",
    "face-raid0x4",
    "face-raid0x8",
    "face-raid0x16",
    "sas-raid5x6",
    "infiniband-qdr",
    "panasas-pfs",
    "gp3-3000",
    "gp3-16000",
    "io2",
    "arulraj-dram",
    "arulraj-pcm",
    "arulraj-rram",
    "arulraj-ssd",
    "arulraj-hdd",
    "yang-dram",
    "yang-nvm",
    "yang-nvm-block",
    "yang-nand",
    "yang-hdd",
];

/// The names of the profiles that come with the program.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// The parameters in a section of the profile with this name.
pub(crate) fn parameters<P: Parameters + DeserializeOwned>(name: &str, key: &str) -> Result<P, String> {
    let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or("is no profile of the house")?;
    let mut profile = toml::from_str(text).map_err(|error| section::one_line(&error))?;
    let mut section = section::section(&mut profile, key)?.ok_or("has no such section")?;
    // The model, which the caller knows.
    section.remove("kind");
    section::parameters(section)
}
