//! Named devices: a profile is a TOML file with the numbers of one device and the source of each.
//!
//! ```toml
//! name = "my-drive"
//! about = "What it is, in a line"
//! source = "Where its numbers come from"
//!
//! [device]
//! kind = "fixed"
//! read_ns = 25_000
//! write_ns = 300_000
//! gb_per_s = 1.0
//! parallelism = 8
//!
//! [host] # optional: the software in front of it
//! threads = 1
//! software_ns = 2_000
//! busy_ns = 3_410
//! ```
//!
//! The output of `entresol probe` is a profile too: JSON that holds one under the key `profile`.
//!
//! The kinds of devices are in `model.rs`, the profiles of the house in `crates/device/profiles`. A profile builds the
//! device of its kind, so this module is above all models.

mod array;
mod model;

pub use crate::house::names;
pub use array::{ArrayParameters, Member};
pub use model::Model;

use crate::check::{self, Parameters};
use crate::device::Device;
use crate::host::{HostParameters, Hosted};
use crate::house::BUILT_IN;
use crate::io::DeviceError;
use crate::nand::Amplification;
use crate::section::{one_line, parameters, section};
use serde::Serialize;
use std::path::Path;

/// A device as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Name of the device.
    pub name: String,
    /// Description of the device, in a line.
    pub about: String,
    /// Source of the numbers.
    pub source: String,
    /// Price in dollars per GB; none where no source gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars_per_gb: Option<f64>,
    /// The device's kind and numbers.
    pub device: Model,
    /// The software in front of the device; none for a device that is used directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostParameters>,
}

/// Value of the key `schema` in the JSON of `entresol probe`.
pub const PROBE_SCHEMA: &str = "entresol-probe/1";

/// The profile of this name, or else the one in this file, which is TOML or the output of a probe.
///
/// # Errors
/// When there is neither, or the file has a missing, unknown or impossible entry.
pub fn load(name_or_path: &str) -> Result<Profile, DeviceError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        return Profile::from_toml(name, text);
    }
    let error = |what| DeviceError::Profile { device: name_or_path.to_owned(), what };
    if !Path::new(name_or_path).exists() {
        return Err(error(format!("neither a file nor one of the profiles {}", names().join(", "))));
    }
    let text = std::fs::read_to_string(name_or_path).map_err(|e| error(format!("cannot be read: {e}")))?;
    // No TOML begins with a brace.
    let is_json = text.trim_start().starts_with('{');
    if is_json { Profile::from_json(name_or_path, &text) } else { Profile::from_toml(name_or_path, &text) }
}

impl Profile {
    /// Reads a profile from TOML; errors call it `file`.
    ///
    /// # Errors
    /// When an entry is missing, unknown or impossible: names the file, the key and what is expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, DeviceError> {
        let table = toml::from_str(text).map_err(|e| format!("is no TOML: {}", one_line(&e)));
        table.and_then(Self::parse).map_err(|what| DeviceError::Profile { device: file.to_owned(), what })
    }

    /// Takes the profile out of the JSON that a probe wrote; errors call it `file`.
    ///
    /// # Errors
    /// When the text is not the output of a probe, the probe measured too little for a profile, or an entry of it is
    /// missing, unknown or impossible.
    pub fn from_json(file: &str, text: &str) -> Result<Self, DeviceError> {
        let found = probed(text).and_then(Self::parse);
        found.map_err(|what| DeviceError::Profile { device: file.to_owned(), what })
    }

    /// The profile as TOML, which [`Profile::from_toml`] reads back as it was.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile is tables, texts and numbers")
    }

    /// A device of this capacity, or of its own where it has one (a disk, an array); `seed` seeds its random choices.
    ///
    /// # Errors
    /// When the device's own capacity is less than `capacity_bytes`, or its parts do not fit together.
    pub fn build(&self, capacity_bytes: u64, seed: u64) -> Result<Box<dyn Device + Send>, DeviceError> {
        let error = |what| DeviceError::Profile { device: self.name.clone(), what };
        let device = self.device.build(capacity_bytes, seed).map_err(|reason| match reason {
            DeviceError::Profile { what, .. } => error(what),
            beyond @ DeviceError::BeyondEnd { .. } => beyond,
        })?;
        let own = device.capacity_bytes();
        if own < capacity_bytes {
            return Err(error(format!("holds {own} B, and {capacity_bytes} B are asked of it")));
        }
        Ok(match &self.host {
            None => device,
            Some(host) => Box::new(Hosted::new(device, host)),
        })
    }

    /// Bytes of the whole device, where the profile states them, as that of a flash drive does.
    pub fn whole_bytes(&self) -> Option<u64> {
        match &self.device {
            Model::Nand(drive) => Some(drive.capacity_bytes),
            _ => None,
        }
    }

    /// Bytes of a device of which `need` bytes are used, and `spare` more if it is a flash drive, as far as it has them.
    pub fn bytes_with_spare(&self, need: u64, spare: u64) -> u64 {
        self.whole_bytes().map_or(need, |whole| (need + spare).min(whole).max(need))
    }

    /// The same device with write amplification in another mode; a device without flash is unchanged.
    ///
    /// # Errors
    /// When the mode is `curve` and the profile states none.
    pub fn with_amplification(mut self, mode: Amplification) -> Result<Self, DeviceError> {
        if let Model::Nand(drive) = &mut self.device {
            drive.amplification = mode;
            let device = &self.name;
            drive.check().map_err(|what| DeviceError::Profile { device: device.clone(), what })?;
        }
        Ok(self)
    }

    fn parse(mut table: toml::Table) -> Result<Self, String> {
        let device = section(&mut table, "device")?.ok_or("section [device] is missing")?;
        let host = section(&mut table, "host")?;
        let mut entries = Entries { table };
        let profile = Profile {
            name: entries.text("name")?,
            about: entries.text("about")?,
            source: entries.text("source")?,
            dollars_per_gb: entries.price("dollars_per_gb")?,
            device: Model::parse(device).map_err(|what| format!("section [device]: {what}"))?,
            host: host.map(parameters).transpose().map_err(|what| format!("section [host]: {what}"))?,
        };
        match entries.table.keys().next() {
            None => Ok(profile),
            Some(key) => Err(format!(
                "unknown key `{key}`, expected name, about, source, dollars_per_gb and the sections [device] and [host]"
            )),
        }
    }
}

/// The table under the key `profile` of a probe's JSON.
fn probed(text: &str) -> Result<toml::Table, String> {
    let mut document: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    match document.get("schema").and_then(serde_json::Value::as_str) {
        Some(PROBE_SCHEMA) => {}
        Some(other) => return Err(format!("key `schema` is \"{other}\", expected \"{PROBE_SCHEMA}\"")),
        None => return Err(format!("key `schema` is missing or no text, expected \"{PROBE_SCHEMA}\"")),
    }
    match document.get_mut("profile").map(serde_json::Value::take) {
        None | Some(serde_json::Value::Null) => {
            Err("holds no profile: the probe did not measure the latencies of random reads and writes".to_owned())
        }
        Some(profile) => {
            let odd = "key `profile` is no object of texts, numbers and lists";
            toml::Table::try_from(profile).map_err(|_| odd.to_owned())
        }
    }
}

/// Entries of a file's top level that were not taken out yet.
struct Entries {
    table: toml::Table,
}

impl Entries {
    fn text(&mut self, key: &str) -> Result<String, String> {
        match self.table.remove(key) {
            Some(toml::Value::String(text)) if !text.is_empty() => Ok(text),
            Some(other) => Err(format!("key `{key}` is {other}, expected a text that is not empty")),
            None => Err(format!("key `{key}` is missing, expected a text")),
        }
    }

    fn price(&mut self, key: &str) -> Result<Option<f64>, String> {
        let price = match self.table.remove(key) {
            None => return Ok(None),
            Some(toml::Value::Float(price)) => price,
            Some(toml::Value::Integer(price)) => price as f64,
            Some(other) => return Err(format!("key `{key}` is {other}, expected a price in dollars")),
        };
        check::number(key, price, 0.0, 1e9).map(|()| Some(price))
    }
}

#[cfg(test)]
mod tests;
