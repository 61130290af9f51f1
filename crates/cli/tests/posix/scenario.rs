//! A scenario: what is done in a folder of its own, by whom.

use super::record::Record;
use std::path::Path;

/// Does something and notes what it sees.
type Run = Box<dyn Fn(&mut Record) + Send + Sync>;

/// Preparation by root before a scenario, in the folder of the file system below.
type Prepare = Box<dyn Fn(&Path) + Send + Sync>;

pub struct Scenario {
    pub name: String,
    pub run: Run,
    /// Done before by root, past the mount. Only who is not root sees such a scenario.
    pub prepare: Option<Prepare>,
    /// Only root can do it.
    pub root: bool,
}

/// One that root and another user see alike.
pub fn anybody(name: &str, run: impl Fn(&mut Record) + Send + Sync + 'static) -> Scenario {
    Scenario { name: name.to_owned(), run: Box::new(run), prepare: None, root: false }
}

/// One of what root alone may do.
pub fn root(name: &str, run: impl Fn(&mut Record) + Send + Sync + 'static) -> Scenario {
    Scenario { root: true, ..anybody(name, run) }
}

/// One of another user, in a folder in which root has made something before.
pub fn user(
    name: &str,
    prepare: impl Fn(&Path) + Send + Sync + 'static,
    run: impl Fn(&mut Record) + Send + Sync + 'static,
) -> Scenario {
    Scenario { prepare: Some(Box::new(prepare)), ..anybody(name, run) }
}

/// Scenarios by their names: each begins with what they are about.
macro_rules! scenarios {
    ($how:ident about $about:literal; $($name:literal => $run:expr;)*) => {
        vec![$($how(concat!($about, ": ", $name), $run)),*]
    };
}
pub(crate) use scenarios;
