//! The document that a probe writes: the target and its measurements, the disturbance, and the resulting device.
//!
//! The document is JSON; `docs/probe.md` describes it. A change that an older reader would misunderstand gets a new
//! number.

use crate::advice::Advice;
use crate::experiment::Setup;
use crate::findings::Findings;
use crate::noise::Noise;
use crate::session::Outcome;
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::fs;

/// Value of the key `schema`.
pub const SCHEMA: &str = entresol_device::profile::PROBE_SCHEMA;

/// Target that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Description of the target, in a line.
    pub description: String,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// The smallest I/O that it takes, in bytes.
    pub granule_bytes: u32,
    /// Sentences about the measurement that a reader of results must know.
    pub caveats: Vec<String>,
}

impl Measured {
    /// Description of a target, as the target gives it.
    pub fn of(target: &dyn Target, caveats: Vec<String>) -> Self {
        Measured {
            description: target.describe(),
            capacity_bytes: target.capacity_bytes(),
            granule_bytes: target.granule_bytes(),
            caveats,
        }
    }
}

/// The machine, without anything that identifies it or its owner.
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
    /// True if a hypervisor lies between this system and the device.
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

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Name and number of this form: [`SCHEMA`].
    pub schema: String,
    /// The program and its version.
    pub program: String,
    /// Target that was measured.
    pub target: Measured,
    /// The machine; none for a model.
    pub environment: Option<Environment>,
    /// Setup of the experiments, without the trace.
    pub setup: Setup,
    /// Seed of all random choices.
    pub seed: u64,
    /// Disturbance of all experiments together.
    pub noise: Noise,
    /// Each experiment with its findings.
    pub experiments: Vec<Outcome>,
    /// Recommendations for a cache, derived from the findings.
    pub advice: Vec<Advice>,
    /// The device as a profile that simulation takes; none where too little was measured.
    pub profile: Option<serde_json::Value>,
    /// Reason for which there is no profile.
    pub no_profile: Option<String>,
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
    /// When the text is no document of a probe, or of another version: the fault, in a line.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Cell, Line, Parameter, Series, Table};

    fn document() -> Document {
        let (title, unit) = ("Latency".to_owned(), "us".to_owned());
        let parameter = Parameter {
            name: "random_read_us".into(),
            value: 10.5,
            unit: unit.clone(),
            low: 10.1,
            high: 1.0 / 3.0,
            from: "latency".into(),
        };
        let table = Table {
            title: title.clone(),
            columns: vec!["pattern".into(), "mean".into()],
            units: vec![String::new(), unit.clone()],
            rows: vec![vec!["random".into(), Cell::Number(10.5)]],
        };
        let line = Line { name: "read".into(), points: vec![(1.0, 0.1), (2.0, 0.2)] };
        let curves = vec![Series { title, x_label: unit, y_label: "share".into(), lines: vec![line] }];
        let findings = Findings { tables: vec![table], curves, fitted: vec![parameter], notes: vec!["a note".into()] };
        let noise = Noise { wall_ns: 5, steal: 0.02, contended: true, ..Noise::default() };
        let outcome = Outcome {
            experiment: "latency".into(),
            ios: 3,
            read_bytes: 4096,
            written_bytes: 8192,
            seconds: 0.25,
            noise: noise.clone(),
            findings,
        };
        Document {
            schema: SCHEMA.to_owned(),
            program: "entresol 0".into(),
            target: Measured {
                description: "x".into(),
                capacity_bytes: u64::MAX,
                granule_bytes: 512,
                caveats: vec!["c".into()],
            },
            environment: Some(Environment::here()),
            setup: Setup::new(1 << 30),
            seed: u64::MAX,
            noise,
            experiments: vec![outcome],
            advice: vec![Advice { topic: "layout".into(), recommendation: "r".into(), reason: "because".into() }],
            profile: None,
            no_profile: Some("nothing was measured".into()),
        }
    }

    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let document = document();
        assert_eq!(Document::from_json(&document.to_json()), Ok(document));
    }

    #[test]
    fn another_version_and_unknown_entries_are_refused() {
        let json = document().to_json();
        let refused = |from: &str, to: &str| Document::from_json(&json.replacen(from, to, 1)).expect_err(to);
        assert!(refused(SCHEMA, "entresol-probe/99").contains("'entresol-probe/99', expected 'entresol-probe/1'"));
        assert!(refused("\"seed\"", "\"sead\"").contains("sead"));
        assert!(refused("{", "[").contains("no probe's result"));
    }

    #[test]
    fn the_environment_names_no_host_and_no_user() {
        let json = serde_json::to_string(&Environment::here()).expect("texts and numbers");
        for path in ["/proc/sys/kernel/hostname", "/etc/machine-id"] {
            let name = fs::read_to_string(path).unwrap_or_default();
            // A host may bear the name of its processor.
            assert!(name.trim().len() < 4 || !json.contains(name.trim()), "{json}");
        }
        assert!(Environment::here().system.starts_with("linux "), "{json}");
    }
}
