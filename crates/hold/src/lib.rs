//! The *holder*: a small process that keeps descriptors of a server, so that another server takes the place of one that
//! was killed, crashed, hangs or is to be upgraded.
//!
//! The holder is the server's parent. It knows names and descriptors, and nothing of what they are. [`run`] is the
//! holder, [`Server`] is the server's end of it. Both speak over a socket, whose number the server finds in the
//! environment variable [`SOCKET`]; `protocol.rs` has the messages, to the byte.
//!
//! # Ends
//!
//! | the server ended | the holder |
//! |:--|:--|
//! | after [`Server::stopping`], or with exit code 0 | ends with the same code (128 and the signal's number for a signal; 0 if nothing was left to do) |
//! | before the first [`Server::ready`] of the first server | ends with the same code |
//! | otherwise | starts another one at once, of the same executable |
//! | otherwise, for the last of [`Settings::attempts`] times in a row without getting ready | ends with a code that is not 0 |
//! | after an upgrade, before it was ready, with any code | starts the executable of before the upgrade again |
//!
//! The next server begins after the old one is gone with all its threads and descriptors. From the third server in a row
//! that ends within a quarter of a second of being ready, or before, the holder pauses before the next one, twice as long
//! each time, up to [`Settings::pause_max`].
//!
//! # Signals
//!
//! SIGTERM, SIGINT and SIGHUP ask for the end. They go on to the server, and once more to a server that had to be started
//! since, when that is ready: none is lost with a server that dies of it before it can heed it. SIGHUP stays ignored if
//! it was. SIGUSR2 is an upgrade. The server has a process group of its own, so that the interrupt key of a terminal
//! reaches it once. So it cannot read from that terminal, and the suspend key stops the holder alone: the server serves
//! on, but its calls wait. SIGQUIT and SIGKILL end the holder alone, which [`Server::lost`] tells the server.
//!
//! # Executables
//!
//! A server is executed through a descriptor of its file (`/proc/self/fd/N`), which the holder keeps for the next one.
//! So a file that is replaced on disk changes nothing until the upgrade. The executable may be no script. An upgrade
//! opens the path anew. It leaves the holder itself as it is.

mod holder;
mod lines;
mod notify;
mod process;
mod protocol;
mod server;

pub use holder::{Settings, run};
pub use lines::write_line;
pub use process::{Program, SOCKET, STANDBY};
pub use protocol::{NAME_BYTES_MAX, Reason, Start, UPGRADED};
pub use server::Server;
