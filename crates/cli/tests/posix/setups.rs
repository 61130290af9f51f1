//! Setups in which scenarios run: the file system below, and mounts of it.

use super::record::{Line, Record, ignore};
use super::scenario::Scenario;
use super::sys;
use super::testbed::Testbed;
use crate::common::mounted::{How, Mounted, NOBODY};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A way to mount a directory.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    pub how: How,
    /// True if the setup is part of the short run.
    pub short: bool,
}

const NO_CACHE: How = How { cache: None, page_cache: "on", passthrough: "on", nobody: false };

const fn cached(
    mode: &'static str,
    policy: &'static str,
    format: &'static [&'static str],
    page_cache: &'static str,
) -> How {
    How { cache: Some(([mode, policy], format)), page_cache, passthrough: "on", nobody: false }
}

pub const SETUPS: &[Setup] = &[
    Setup { name: "no cache", how: NO_CACHE, short: true },
    Setup { name: "no cache, served", how: How { page_cache: "off", passthrough: "off", ..NO_CACHE }, short: false },
    Setup { name: "write-back, log", how: cached("write-back", "face-gsc", &["--layout", "log"], "on"), short: true },
    Setup {
        name: "write-back, slots, no page cache",
        how: cached("write-back", "lru", &["--layout", "slots"], "off"),
        short: false,
    },
    Setup {
        name: "write-back, log, pages of 512 bytes",
        how: cached("write-back", "lru", &["--layout", "log", "--page-size", "512"], "on"),
        short: false,
    },
    Setup {
        name: "write-back, slots, pages of 64 KiB",
        how: cached("write-back", "lru", &["--layout", "slots", "--page-size", "65536", "--size", "16MiB"], "on"),
        short: false,
    },
    Setup {
        name: "write-through, slots, no page cache",
        how: cached("write-through", "lru", &["--layout", "slots"], "off"),
        short: false,
    },
    Setup {
        name: "write-around, segments",
        how: cached("write-around", "lru", &["--layout", "segments", "--wear", "unbounded"], "on"),
        short: false,
    },
    Setup { name: "nobody's, no cache", how: How { nobody: true, ..NO_CACHE }, short: false },
    Setup {
        name: "nobody's, write-back, log",
        how: How { nobody: true, ..cached("write-back", "lru", &["--layout", "log"], "on") },
        short: true,
    },
    Setup {
        name: "nobody's, write-through, slots",
        how: How { nobody: true, ..cached("write-through", "lru", &["--layout", "slots"], "on") },
        short: false,
    },
];

impl Setup {
    pub fn is_cached(&self) -> bool {
        self.how.cache.is_some()
    }

    /// True if its cache is in this mode.
    pub fn is(&self, mode: &str) -> bool {
        self.how.cache.is_some_and(|([has, _], _)| has == mode)
    }

    /// True if `format` receives this word.
    pub fn is_formatted(&self, word: &str) -> bool {
        self.how.cache.is_some_and(|(_, words)| words.contains(&word))
    }
}

/// A scenario's name with its observations.
pub type Seen = (String, Vec<Line>);

/// The scenarios that this user runs.
fn mine(scenarios: &[Scenario], nobody: bool) -> impl Iterator<Item = (usize, &Scenario)> {
    let mine = move |scenario: &Scenario| if nobody { !scenario.root } else { scenario.prepare.is_none() };
    scenarios.iter().enumerate().filter(move |(_, scenario)| mine(scenario))
}

/// Makes the folders of all scenarios, outside any mount.
fn prepare(scenarios: &[Scenario], root: &Path, nobody: bool) {
    for (i, scenario) in mine(scenarios, nobody) {
        let at = root.join(i.to_string());
        std::fs::create_dir(&at).expect("a folder");
        if let Some(prepare) = &scenario.prepare {
            prepare(&at);
        }
        if nobody {
            sys::chown(&at, NOBODY, NOBODY).expect("an owner");
        }
    }
}

/// Runs all scenarios, each in its folder.
fn run(scenarios: &[Scenario], root: &Path, nobody: bool) -> Vec<Seen> {
    std::thread::scope(|scope| {
        let run = move || {
            if nobody {
                sys::become_user(NOBODY);
            }
            mine(scenarios, nobody).map(|(i, scenario)| one(scenario, &root.join(i.to_string()))).collect()
        };
        scope.spawn(run).join().expect("failures are noted")
    })
}

fn one(scenario: &Scenario, at: &Path) -> Seen {
    let mut seen = Record::new(at.to_owned());
    let ended = catch_unwind(AssertUnwindSafe(|| (scenario.run)(&mut seen)));
    if let Err(why) = ended {
        let why =
            why.downcast_ref::<String>().cloned().or_else(|| why.downcast_ref::<&str>().map(|&why| why.to_owned()));
        seen.note("it ends by", why.unwrap_or_default());
    }
    (scenario.name.clone(), seen.lines())
}

/// Adds the final contents of the folders.
fn finish(scenarios: &[Scenario], root: &Path, nobody: bool, seen: &mut [Seen]) {
    for ((i, _), (_, lines)) in mine(scenarios, nobody).zip(seen) {
        let mut last = Record::new(root.join(i.to_string()));
        last.everything("in the end");
        lines.extend(last.lines());
    }
}

/// Runs scenarios in the file system below and returns their answers.
pub fn below(scenarios: &[Scenario], testbed: &Testbed, nobody: bool) -> Vec<Seen> {
    let scratch = testbed.scratch();
    let root = scratch.path("below");
    std::fs::create_dir(&root).expect("a folder");
    if nobody {
        ignore(std::os::unix::fs::chown(scratch.path("."), Some(NOBODY), Some(NOBODY)));
    }
    prepare(scenarios, &root, nobody);
    let mut seen = run(scenarios, &root, nobody);
    finish(scenarios, &root, nobody, &mut seen);
    seen
}

/// Runs scenarios in a mount and returns their answers, and what the mount leaves below. None where nothing can be
/// mounted.
pub fn above(scenarios: &[Scenario], testbed: &Testbed, setup: &Setup) -> Option<Vec<Seen>> {
    setup.how.is_named(setup.name);
    let began = std::time::Instant::now();
    let nobody = setup.how.nobody;
    let scratch = testbed.scratch();
    std::fs::create_dir(scratch.path("backing")).expect("a folder");
    prepare(scenarios, &scratch.path("backing"), nobody);
    let mut mounted = Mounted::made(scratch, &setup.how);
    if !mounted.start() {
        return None;
    }
    let mut seen = run(scenarios, &mounted.above(), nobody);
    mounted.unmount();
    finish(scenarios, &mounted.below(), nobody, &mut seen);
    println!("{}: {} scenarios in {:.1} s", setup.name, seen.len(), began.elapsed().as_secs_f64());
    Some(seen)
}
