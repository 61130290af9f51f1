//! The burst buffer's client as a module of Python, `entresol_burst._native`. The package around it has the interface that is documented.
//!
//! Python's global lock is released while a call waits for the network or a disk.

mod client;
mod error;
mod file;
mod memory;

use pyo3::pymodule;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::error::BurstError;
    #[pymodule_export]
    use super::file::{Reader, Writer};
}
