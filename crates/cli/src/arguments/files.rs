//! Options of a cache over a directory of files.

use clap::Args;
use entresol_service::files::FileOptions;
use entresol_service::hints::HintSources;
use std::path::PathBuf;

/// Files that bypass the cache
#[derive(Args, Clone)]
pub struct FileArgs {
    /// With --cache: files that bypass it, as patterns of names, separated by commas; a directory's name covers all
    /// files in it. `none` names none, `logs` the default without temporary files, which are cached then [default: logs
    /// and temporary files of PostgreSQL, InnoDB and SQLite, see docs/OPERATING.md]
    #[arg(long, value_name = "PATTERNS", requires = "cache", value_delimiter = ',')]
    bypass: Vec<String>,
    /// With --cache: drop dirty pages of files that no longer exist; these pages are lost. Without this option a start
    /// is refused while the cache has dirty pages of missing files, unless the files were removed through the cache
    #[arg(long, requires = "cache")]
    drop_gone: bool,
    /// With --cache: open the cache with O_DIRECT. Its pages then take no memory of the kernel's page cache, and each
    /// hit is read from its device; --dram keeps the hottest pages in memory. The cache's page size must be a multiple
    /// of 4096 bytes
    #[arg(long, requires = "cache")]
    direct: bool,
}

impl FileArgs {
    /// The options that were given.
    pub fn options(&self) -> FileOptions {
        FileOptions {
            bypass: self.bypass.clone(),
            drop_gone: self.drop_gone,
            direct: self.direct,
            ..FileOptions::default()
        }
    }
}

/// Ways in which databases report their queries to a cache
#[derive(Args, Clone)]
pub struct HintArgs {
    /// Receive messages about queries on this Unix datagram socket, from PostgreSQL's extension or another
    /// program that follows docs/hints.md
    #[arg(long, value_name = "SOCKET", requires = "cache")]
    hints: Option<PathBuf>,
    /// Read queries from this log of MariaDB's audit plugin; the server's data directory must be among the files
    #[arg(long, value_name = "LOG", requires = "cache")]
    audit_log: Option<PathBuf>,
}

impl HintArgs {
    /// The sources that were given.
    pub fn sources(&self) -> HintSources {
        HintSources { socket: self.hints.clone(), audit_log: self.audit_log.clone() }
    }
}
