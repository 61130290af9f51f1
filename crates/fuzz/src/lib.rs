//! Everything that Entresol decodes, as functions of any bytes.
//!
//! A target takes bytes that nobody checked, and panics where the code under it breaks a promise: any bytes are understood or
//! refused, what is understood can be used, and neither takes memory without bound. The fuzzer (`make fuzz`) looks for bytes that
//! break one; the tests replay the corpus and changed copies of it.

mod files;
#[path = "../../engine/tests/common/hostile.rs"]
mod hostile;
mod names;
mod store;
mod texts;
mod wire;

use hostile::Chance;

/// A target and its name, which is also the name of its folder in `corpus`.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("hints", wire::hints),
    ("map", files::map),
    ("names", names::names),
    ("native", texts::native),
    ("nbd", wire::nbd),
    ("readers", texts::readers),
    ("specs", texts::specs),
    ("store", store::store),
];

/// Choices that bytes make, in order; zeros after their end.
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
