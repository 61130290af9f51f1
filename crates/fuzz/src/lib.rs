//! Everything that Entresol decodes, as functions of arbitrary bytes.
//!
//! A target takes unchecked bytes, and panics where the code under test breaks a promise. Any bytes are decoded or
//! refused; decoded input can be used; neither takes unbounded memory. The fuzzer (`make fuzz`) looks for bytes that
//! break a promise. The tests replay the corpus and changed copies of it.

/// The program's output to standard error, for its modules that are included here.
macro_rules! say {
    ($($words:tt)*) => {
        eprintln!($($words)*)
    };
}

#[allow(dead_code, reason = "the program's own module, of which only the reading is wanted")]
#[path = "../../cli/src/config.rs"]
mod config;
mod files;
#[path = "../../cache/tests/common/hostile.rs"]
mod hostile;
#[allow(dead_code, reason = "the program's own module, of which only the reading is wanted")]
#[path = "../../cli/src/journal.rs"]
mod journal;
mod learned;
#[path = "../../cache/tests/common/memory.rs"]
mod memory;
mod names;
#[allow(dead_code, reason = "the program's own module, of which only the reading is wanted")]
#[path = "../../cli/src/output.rs"]
mod output;
mod program;
#[allow(dead_code, reason = "the program's own module, of which only the reading is wanted")]
#[path = "../../service/src/control/protocol.rs"]
mod protocol;
mod store;
mod texts;
mod wire;

use hostile::Chance;

/// A target and its name, which is also the name of its folder in `corpus`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("configuration", program::configuration),
    ("control", program::control),
    ("hints", wire::hints),
    ("learned", learned::learned),
    ("map", files::map),
    ("names", names::names),
    ("native", texts::native),
    ("nbd", wire::nbd),
    ("readers", texts::readers),
    ("record", program::record),
    ("resumed", program::resumed),
    ("specs", texts::specs),
    ("store", store::store),
    ("tickets", wire::tickets),
];

/// Choices taken from bytes, in order; zeros after their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn number(&mut self, width: usize) -> u64 {
        let (these, rest) = self.0.split_at(width.min(self.0.len()));
        self.0 = rest;
        these.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

impl Chance for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let width = match bound {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.number(width) % bound.max(1)
    }

    fn chance(&mut self, share: f64) -> bool {
        (self.number(1) as f64) < share * 256.0
    }

    fn any(&mut self) -> u64 {
        self.number(8)
    }
}
