//! Write buffers inside an SSD: they hold written pages only and free them by erase block, so that flash is written in
//! large pieces. A read that misses bypasses them, and a read that hits changes nothing (004, section 2.4.2: the buffer
//! "considers only write requests").

mod blocks;
mod bpac;
mod bplru;
mod buckets;
mod buffer;
mod clc;
mod fab;
mod lb_clock;
mod wrb;

pub use bpac::Bpac;
pub use bplru::{Bplru, BplruOrder};
pub use buffer::WriteBuffer;
pub use clc::{Clc, ClcOrder};
pub use fab::{Fab, FabOrder};
pub use lb_clock::{LbClock, LbClockOrder};
pub use wrb::{Wrb, WrbOrder};
