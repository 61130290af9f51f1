//! The document that a probe leaves: what was measured on what, how disturbed it was, and the device that comes of it.
//!
//! It is JSON; `docs/probe.md` describes it. A change that an older reader would misunderstand gets a new number.

use crate::experiment::Setup;
use crate::findings::Findings;
use crate::noise::Noise;
use crate::session::Outcome;
use crate::target::Target;
use entresol_device::fixed::FixedParameters;
use entresol_device::profile::{Model, Profile};
use serde::{Deserialize, Serialize};
use std::fs;

/// What the key `schema` says.
pub const SCHEMA: &str = entresol_device::profile::PROBE_SCHEMA;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// What it is, in a line.
    pub description: String,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// The smallest I/O that it takes, in bytes.
    pub granule_bytes: u32,
    /// What to know of how it was measured.
    pub caveats: Vec<String>,
}

impl Measured {
    /// What a target says of itself.
    pub fn of(target: &dyn Target, caveats: Vec<String>) -> Self {
        Measured {
            description: target.describe(),
            capacity_bytes: target.capacity_bytes(),
            granule_bytes: target.granule_bytes(),
            caveats,
        }
    }
}

/// The machine, without anything that says whose or which it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Operating system and release of its kernel.
    pub system: String,
    /// Model of the processor, or its architecture where it has none.
    pub processor: String,
    /// Processors.
    pub processors: u32,
    /// Memory in bytes; 0 where it is not known.
    pub memory_bytes: u64,
    /// Whether a hypervisor lies between this system and the device.
    pub hypervisor: bool,
}

impl Environment {
    /// This machine.
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        let info = read("/proc/cpuinfo");
        let of = |key: &str| {
            let line = info.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let memory = read("/proc/meminfo");
        let kib =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Environment {
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            processor: of("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            memory_bytes: kib.unwrap_or(0_u64) * 1024,
            hypervisor: of("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Name and number of this form: [`SCHEMA`].
    pub schema: String,
    /// The program and its version.
    pub program: String,
    /// What was measured.
    pub target: Measured,
    /// The machine; none for a model.
    pub environment: Option<Environment>,
    /// What the experiments were given, without the trace.
    pub setup: Setup,
    /// Where random choices began.
    pub seed: u64,
    /// How disturbed all was together.
    pub noise: Noise,
    /// Each experiment with what it found.
    pub experiments: Vec<Outcome>,
    /// What the findings mean for a cache, in sentences.
    pub advice: Vec<String>,
    /// The device as a profile that simulation takes; none where too little was measured.
    pub profile: Option<serde_json::Value>,
}

impl Document {
    /// All findings together.
    pub fn findings(&self) -> Findings {
        let mut all = Findings::default();
        self.experiments.iter().for_each(|outcome| all.merge(outcome.findings.clone()));
        all
    }

    /// Reads a document.
    ///
    /// # Errors
    /// When it is no document of a probe, or of another version: what is wrong, in a line.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| format!("is no probe's result: {error}"))?;
        match document.schema.as_str() {
            SCHEMA => Ok(document),
            other => Err(format!("has the schema '{other}', expected '{SCHEMA}'")),
        }
    }

    /// The document as JSON, which [`Document::from_json`] reads back as it was.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("texts and finite numbers");
        text.push('\n');
        text
    }
}

/// The device that behaves as was measured, or none where latencies and rates of reads and writes were not.
///
/// It is a device of fixed latency: a random 4-KiB read and write take what they took alone, as many of them go on at a
/// time as saturate it, and bytes pass at its bandwidth. A write that is fast while a buffer takes it and slow in the
/// long run has the latency of the long run, for a cache writes all the time.
pub fn device_profile(name: &str, measured: &Measured, findings: &Findings) -> Option<Profile> {
    let value = |name: &str| findings.value(name).filter(|value| value.is_finite() && *value > 0.0);
    let read_us = value("random_read_us")?;
    let write_us = value("random_write_us")?;
    let parallel = |iops: Option<f64>, us: f64| iops.map_or(1.0, |iops| (iops * us / 1e6).round().max(1.0));
    let parallelism = parallel(value("random_read_4k_iops"), read_us).min(256.0);
    // So many writes at a time, each as long as gives the rate that was measured.
    let sustained_us =
        value("steady_write_iops").or(value("random_write_4k_iops")).map(|iops| parallelism * 1e6 / iops);
    let write_us = sustained_us.map_or(write_us, |sustained| sustained.max(write_us));
    let bandwidth = |names: [&str; 2]| names.into_iter().filter_map(value).map(|mb_s| mb_s / 1e3).reduce(f64::max);
    let gb_per_s = bandwidth(["sequential_read_mb_s", "random_read_mb_s"]);
    // The bytes of a page pass before its latency begins.
    let alone = |us: f64| {
        let page_ns = gb_per_s.map_or(0.0, |gb_per_s| 4096.0 / gb_per_s);
        ((us * 1e3 - page_ns).round().max(1.0)) as u64
    };
    let device = FixedParameters {
        read_ns: alone(read_us),
        write_ns: alone(write_us),
        gb_per_s,
        write_gb_per_s: bandwidth(["sequential_write_mb_s", "fill_mb_s"]),
        parallelism: parallelism as u32,
        endurance_writes: None,
        energy: None,
    };
    Some(Profile {
        name: name.to_owned(),
        about: format!("as measured: {}", measured.description),
        source: "entresol probe".to_owned(),
        dollars_per_gb: None,
        device: Model::Fixed(device),
        host: None,
    })
}
