//! The mode of a cache, as users name it.

use clap::ValueEnum;
use entresol_cache::Mode;

/// Treatment of writes
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Writes stay in the cache until the policy writes them back; a flush makes them durable in the cache
    #[value(alias = "writeback")]
    WriteBack,
    /// Writes go to the cache and the backing store; a flush makes them durable in the backing store
    #[value(alias = "writethrough")]
    WriteThrough,
    /// Writes go to the backing store, and to the cache if it already holds the page
    #[value(alias = "writearound")]
    WriteAround,
    /// Writes are refused
    ReadOnly,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::WriteBack => Mode::WriteBack,
            ModeArg::WriteThrough => Mode::WriteThrough,
            ModeArg::WriteAround => Mode::WriteAround,
            ModeArg::ReadOnly => Mode::ReadOnly,
        }
    }
}
