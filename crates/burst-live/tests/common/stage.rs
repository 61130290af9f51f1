//! A file system whose every call is announced to another process, which lets it go on, fails it or keeps it waiting.

use entresol_burst_live::pfs::{Directory, FileSystem, Mounted, NewFile};
use rustix::io::Errno;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Calls of the file system by name, in the order in which a file needs them.
pub const CALLS: [&str; 6] = ["folder", "create", "bytes", "sync", "rename", "sync names"];
/// Writes of a file of which one is announced: a copy is made of small writes.
const ANNOUNCED: u32 = 64;

/// The connection on which a process announces its calls, each in a line. The answer is a line too.
struct Stage {
    connection: Mutex<BufReader<TcpStream>>,
}

impl Stage {
    fn announce(&self, call: &str, path: &Path) -> io::Result<()> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.get_mut().write_all(format!("{call}\t{}\n", path.display()).as_bytes())?;
        let mut verdict = String::new();
        connection.read_line(&mut verdict)?;
        match verdict.trim_end() {
            "go" => Ok(()),
            "full" => Err(Errno::NOSPC.into()),
            "error" => Err(Errno::IO.into()),
            other => Err(io::Error::other(format!("the stage says {other:?}"))),
        }
    }
}

/// The mounted file systems under a stage.
pub struct Staged {
    stage: Arc<Stage>,
}

impl Staged {
    /// A PFS directory whose calls are announced at an address, in the name of a process.
    pub fn directory(address: &str, role: &str, root: &Path) -> Directory {
        let mut connection = TcpStream::connect(address).expect("the stage");
        connection.set_nodelay(true).expect("a socket");
        writeln!(connection, "{role}").expect("the stage");
        let stage = Arc::new(Stage { connection: Mutex::new(BufReader::new(connection)) });
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let owner = format!("{}-{}", std::process::id(), since.as_nanos());
        Directory::over(Box::new(Staged { stage }), root, owner)
    }
}

impl FileSystem for Staged {
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.stage.announce("folder", path)?;
        Mounted.create_directory(path, mode)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.stage.announce("sync names", path)?;
        Mounted.sync_directory(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        Mounted.names(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.stage.announce("create", path)?;
        let (inner, stage) = (Mounted.create(path)?, Arc::clone(&self.stage));
        Ok(Box::new(StagedFile { inner, stage, path: path.to_owned(), writes: 0 }))
    }

    fn open(&self, path: &Path, at: u64) -> io::Result<Box<dyn Read>> {
        Mounted.open(path, at)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.stage.announce("rename", from)?;
        Mounted.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Mounted.remove(path)
    }
}

struct StagedFile {
    inner: Box<dyn NewFile>,
    stage: Arc<Stage>,
    path: PathBuf,
    writes: u32,
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.writes.is_multiple_of(ANNOUNCED) {
            self.stage.announce("bytes", &self.path)?;
        }
        self.writes += 1;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl NewFile for StagedFile {
    fn sync(&mut self) -> io::Result<()> {
        self.stage.announce("sync", &self.path)?;
        self.inner.sync()
    }
}
