//! Pragmas of a connection's cache: `PRAGMA entresol_stats`, `entresol_drain`, `entresol_mode`.

use crate::options::{mode, mode_name};
use crate::shared::Shared;
use entresol_cache::Mode;
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::io;

/// A pragma and its value.
pub(crate) struct Asked {
    name: String,
    value: Option<String>,
}

impl Asked {
    /// Reads name and value from the argument of the file control.
    ///
    /// # Safety
    /// `argument` must be an array of three pointers, the second to a C string, the third null or to one.
    pub unsafe fn new(argument: *mut *mut c_char) -> Self {
        // SAFETY: the caller vouches for the array.
        let text = |at| unsafe {
            let pointer = *argument.add(at);
            (!pointer.is_null()).then(|| CStr::from_ptr(pointer).to_string_lossy().into_owned())
        };
        Asked { name: text(1).unwrap_or_default().to_ascii_lowercase(), value: text(2) }
    }

    /// The answer; `None` if the pragma is not the cache's.
    ///
    /// # Errors
    /// Errors of the cache; `InvalidInput` for an invalid value.
    pub fn answer(&self, shared: &Shared) -> io::Result<Option<String>> {
        let known = matches!(&*self.name, "entresol_stats" | "entresol_drain" | "entresol_mode");
        let Some(cache) = shared.cache().filter(|_| known) else { return Ok(None) };
        let text = match &*self.name {
            "entresol_stats" => stats(shared)?,
            "entresol_drain" => {
                shared.drain()?;
                "drained: the database file is complete".to_owned()
            }
            _ => {
                if let Some(value) = &self.value {
                    let wrong = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
                    let mode = mode(value).map_err(wrong)?;
                    if mode == Mode::ReadOnly {
                        return Err(wrong("read-only is decided when the database is opened".to_owned()));
                    }
                    shared.set_mode(mode)?;
                }
                mode_name(cache.stats()?.mode).to_owned()
            }
        };
        Ok(Some(text))
    }
}

/// One line per figure.
fn stats(shared: &Shared) -> io::Result<String> {
    let Some(cache) = shared.cache() else { return Ok(String::new()) };
    let stats = cache.stats()?;
    let counts = stats.counts;
    let lines = [
        ("reads", counts.reads),
        ("writes", counts.writes),
        ("read_hits", counts.read_hits),
        ("write_hits", counts.write_hits),
        ("fetches", counts.fetches),
        ("admissions", counts.admissions),
        ("write_backs", counts.write_backs),
        ("bypasses", counts.bypasses),
        ("dirty_pages", stats.dirty_pages),
        ("lost_pages", stats.write_back.pages_lost),
    ];
    let mut text = format!("mode {}", mode_name(stats.mode));
    for (name, value) in lines {
        write!(text, "\n{name} {value}").expect("writing to a string");
    }
    Ok(text + &stats.failed.map_or_else(String::new, |why| format!("\nthe cache device has failed: {why}")))
}
