//! A scenario: its steps in a folder of its own, and its user.

use super::record::Record;
use std::path::Path;

/// Runs the steps and notes the observations.
type Run = Box<dyn Fn(&mut Record) + Send + Sync>;

/// Preparation by root before a scenario, in the folder of the file system below.
type Prepare = Box<dyn Fn(&Path) + Send + Sync>;

pub struct Scenario {
    pub name: String,
    pub run: Run,
    /// Preparation by root, outside the mount. Only another user runs such a scenario.
    pub prepare: Option<Prepare>,
    /// True if only root can run it.
    pub root: bool,
}

/// A scenario that root and another user run alike.
pub fn anybody(name: &str, run: impl Fn(&mut Record) + Send + Sync + 'static) -> Scenario {
    Scenario { name: name.to_owned(), run: Box::new(run), prepare: None, root: false }
}

/// A scenario for root alone.
pub fn root(name: &str, run: impl Fn(&mut Record) + Send + Sync + 'static) -> Scenario {
    Scenario { root: true, ..anybody(name, run) }
}

/// A scenario of another user, in a folder that root has prepared.
pub fn user(
    name: &str,
    prepare: impl Fn(&Path) + Send + Sync + 'static,
    run: impl Fn(&mut Record) + Send + Sync + 'static,
) -> Scenario {
    Scenario { prepare: Some(Box::new(prepare)), ..anybody(name, run) }
}

/// Scenarios by their names, each of which begins with its topic.
macro_rules! scenarios {
    ($how:ident about $about:literal; $($name:literal => $run:expr;)*) => {
        vec![$($how(concat!($about, ": ", $name), $run)),*]
    };
}
pub(crate) use scenarios;
