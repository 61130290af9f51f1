//! Settings of a database's cache: the parameters of the database's URI, over the options with which the VFS was
//! registered.

use crate::api::Api;
use crate::backing::GrowingFile;
use crate::error::Error;
use entresol_cache::Mode;
use entresol_core::Size;
use entresol_disk::Disk;
use entresol_policy::{Info, catalogue};
use std::ffi::{CStr, OsStr, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Function that makes the disk between a cache and its database file, such as an emulated device.
pub type Below = Arc<dyn Fn(Arc<GrowingFile>) -> io::Result<Arc<dyn Disk>> + Send + Sync>;

/// Default limit on a database's size, which a program can change: 256 TiB.
pub const CAPACITY_BYTES: u64 = 1 << 48;

/// Settings of a database's cache.
#[derive(Clone)]
pub struct Options {
    /// The cache: a file, or a block device that was formatted for the database. Without one, and without
    /// [`below`](Options::below), a database is opened as without Entresol. (`cache_file`)
    pub cache: Option<PathBuf>,
    /// The policy, as `NAME` or `NAME:OPTION=VALUE:...`. Default: that of the cache's layout. (`cache_policy`)
    pub policy: Option<String>,
    /// Treatment of writes. (`cache_mode`: `write-through`, `write-back`, `write-around` or `read-only`)
    pub mode: Mode,
    /// Memory for the upper tier of a policy that manages two. Default: the policy's own share. (`cache_dram`)
    pub dram: Option<Size>,
    /// Size in bytes of a cache file that does not exist yet. (`cache_size`)
    pub size_bytes: u64,
    /// Page size in bytes of a cache file that does not exist yet; best is the database's. (`cache_page`)
    pub page_bytes: u32,
    /// A CSV file for a record of every request to the database file. (`cache_trace`)
    pub trace: Option<PathBuf>,
    /// Pages that the policy can know at once, residents and ghosts. Default: three times the pages that fit.
    pub handles: Option<usize>,
    /// Largest size that the database can reach, in bytes. A cache is made for one such size.
    pub capacity_bytes: u64,
    /// Maker of the disk between the cache and the database file. Without it there is none.
    pub below: Option<Below>,
}

impl Default for Options {
    /// No cache file. For a given one: the policy of its layout (`reuse` over a new one), write-through, 256 MiB of 4-KiB
    /// pages, a database of at most 256 TiB.
    fn default() -> Self {
        Options {
            cache: None,
            policy: None,
            mode: Mode::WriteThrough,
            dram: None,
            size_bytes: 256 << 20,
            page_bytes: 4096,
            trace: None,
            handles: None,
            capacity_bytes: CAPACITY_BYTES,
            below: None,
        }
    }
}

/// Names of the parameters. Plain `cache` and `mode` are SQLite's own.
const PARAMETERS: [&CStr; 7] =
    [c"cache_file", c"cache_policy", c"cache_mode", c"cache_dram", c"cache_size", c"cache_page", c"cache_trace"];

/// Options of one connection, and the texts of the parameters that its URI gave.
pub(crate) struct Given {
    pub options: Options,
    pub texts: Vec<(&'static str, String)>,
}

impl Options {
    /// These options, overridden by the URI's parameters.
    ///
    /// # Safety
    /// `filename` must be the one that SQLite passes to `xOpen` of a main database.
    pub(crate) unsafe fn with_uri(&self, api: &Api, filename: *const c_char) -> Result<Given, Error> {
        let mut given = Given { options: self.clone(), texts: Vec::new() };
        // SAFETY: the caller vouches for the file name.
        for key in unsafe { api.keys(filename) } {
            if key.starts_with("cache_") && !PARAMETERS.iter().any(|name| name.to_bytes() == key.as_bytes()) {
                return Err(Error::Parameter { name: key, why: "there is no such parameter".to_owned() });
            }
        }
        for name in PARAMETERS {
            // SAFETY: as above.
            let Some(value) = (unsafe { api.parameter(filename, name) }) else { continue };
            let name = name.to_str().expect("the names above are ASCII");
            given.options.set(name, value).map_err(|why| Error::Parameter { name: name.to_owned(), why })?;
            given.texts.push((name, value.to_string_lossy().into_owned()));
        }
        Ok(given)
    }

    fn set(&mut self, name: &str, value: &CStr) -> Result<(), String> {
        let path = || PathBuf::from(OsStr::from_bytes(value.to_bytes()));
        let text = value.to_str().map_err(|_| "is no text".to_owned());
        match name {
            "cache_file" => self.cache = Some(path()),
            "cache_trace" => self.trace = Some(path()),
            "cache_policy" => {
                let given = text?;
                policy(given)?;
                self.policy = Some(given.to_owned());
            }
            "cache_mode" => self.mode = mode(text?)?,
            "cache_dram" => self.dram = Some(text?.parse::<Size>().map_err(|error| error.to_string())?),
            "cache_size" => self.size_bytes = bytes(text?)?,
            "cache_page" => self.page_bytes = u32::try_from(bytes(text?)?).map_err(|error| error.to_string())?,
            _ => unreachable!("{name} is not in the list above"),
        }
        Ok(())
    }
}

/// A policy with its options.
pub(crate) fn policy(text: &str) -> Result<(&'static Info, entresol_policy::Options), String> {
    let mut parts = text.split(':');
    let info = catalogue::info(parts.next().unwrap_or_default()).map_err(|error| error.to_string())?;
    let options = entresol_policy::Options::parse(info, parts).map_err(|error| error.to_string())?;
    Ok((info, options))
}

/// A mode by its name.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "write-back" => Ok(Mode::WriteBack),
        "write-through" => Ok(Mode::WriteThrough),
        "write-around" => Ok(Mode::WriteAround),
        "read-only" => Ok(Mode::ReadOnly),
        _ => Err(format!("'{text}' is none of write-back, write-through, write-around, read-only")),
    }
}

/// The name of a mode.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::WriteBack => "write-back",
        Mode::WriteThrough => "write-through",
        Mode::WriteAround => "write-around",
        Mode::ReadOnly => "read-only",
    }
}

/// A number of bytes, with or without a unit.
fn bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        Ok(Size::Pages(bytes)) if bytes > 0 && !text.contains('p') => Ok(bytes),
        _ => Err(format!("'{text}' is no number of bytes above 0, such as 4096, 64KiB or 10GB")),
    }
}
