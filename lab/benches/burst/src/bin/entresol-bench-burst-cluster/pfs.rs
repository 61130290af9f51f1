//! The emulated parallel file system: a directory in memory behind a link of its own. The bytes of parts cross the writer's link and that
//! link, whose bucket has the rate of the simulated PFS; each stream is paced by its sender. Manifests, checksums and listings go to the
//! directory at once, as the simulation has no metadata.

use anyhow::{Context, Result};
use entresol_burst_live::pfs::{Directory, Pfs};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that a sender gives to its socket at once.
const BLOCK: usize = 16 << 10;
/// Bytes that a stream may catch up at once after a wait.
const CATCH_UP: f64 = 32e3;
/// Deadline of a call.
const PATIENCE: Duration = Duration::from_secs(120);
const STORED: u8 = 1;

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A part that was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moved {
    pub folder: String,
    pub name: String,
    pub bytes: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// The PFS as a node or a writer sees it.
pub struct Remote {
    directory: Directory,
    server: String,
    /// Rate of one stream in bytes a second; none without a limit.
    stream: Option<f64>,
    /// Connections that no part uses. A new one would wait behind the bytes of all others before its first byte is sent.
    idle: Mutex<Vec<TcpStream>>,
    moved: Mutex<Vec<Moved>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub fn new(root: &Path, server: &str, stream: Option<f64>) -> Result<Remote> {
        let directory = Directory::open(root)?;
        Ok(Remote { directory, server: server.to_owned(), stream, idle: Mutex::default(), moved: Mutex::default() })
    }

    /// All parts that were written through this.
    pub fn moved(&self) -> Vec<Moved> {
        lock(&self.moved).clone()
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn send(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<u64> {
        let idle = lock(&self.idle).pop();
        let mut stream = idle.map_or_else(|| self.connect(), Ok)?;
        stream.write_all(format!("{folder}\n{name}\n").as_bytes())?;
        let mut frame = vec![0; 4 + BLOCK];
        let (mut sent, mut due) = (0, Instant::now());
        loop {
            let bytes = contents.read(&mut frame[4..])?;
            frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            stream.write_all(&frame[..4 + bytes])?;
            if bytes == 0 {
                break;
            }
            sent += bytes as u64;
            if let Some(rate) = self.stream {
                let earliest = Instant::now().checked_sub(Duration::from_secs_f64(CATCH_UP / rate));
                due = earliest.map_or(due, |earliest| due.max(earliest)) + Duration::from_secs_f64(bytes as f64 / rate);
            }
        }
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        if answer != [STORED] {
            return Err(io::Error::other("the PFS has failed"));
        }
        lock(&self.idle).push(stream);
        Ok(sent)
    }
}

impl Pfs for Remote {
    fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
        if name.ends_with(".json") {
            return self.directory.create(folder, name, contents);
        }
        let begin_ns = now_ns();
        let bytes = self.send(folder, name, contents)?;
        let moved = Moved { folder: folder.to_owned(), name: name.to_owned(), bytes, begin_ns, end_ns: now_ns() };
        lock(&self.moved).push(moved);
        Ok(())
    }

    fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.directory.read(folder, name, at, bytes)
    }

    fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
        self.directory.read_small(folder, name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.directory.list(folder)
    }
}

/// Serves the PFS until the process ends.
pub fn serve(address: &str, root: &Path) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| address.to_owned())?;
    let directory = Arc::new(Directory::open(root)?);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let directory = Arc::clone(&directory);
            std::thread::spawn(move || {
                if let Err(error) = store(&stream, &directory) {
                    eprintln!("the PFS: {error}");
                }
            });
        }
    });
    Ok(())
}

/// Stores the parts that come over a connection, until it is closed.
fn store(mut stream: &TcpStream, directory: &Directory) -> io::Result<()> {
    let mut from = BufReader::with_capacity(2 * BLOCK, stream);
    loop {
        let (mut folder, mut name) = (String::new(), String::new());
        if from.read_line(&mut folder)? == 0 {
            return Ok(());
        }
        from.read_line(&mut name)?;
        let mut frames = Frames { from: &mut from, left: 0, ended: false };
        let stored = directory.create(folder.trim_end(), name.trim_end(), &mut frames);
        stream.write_all(&[u8::from(stored.is_ok()) * STORED])?;
        stored?;
    }
}

/// The bytes of a part, whose end is a frame of no bytes. A connection that ends before is an error.
struct Frames<R> {
    from: R,
    left: usize,
    ended: bool,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.ended {
            let mut length = [0; 4];
            self.from.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length) as usize;
            self.ended = self.left == 0;
        }
        let part = self.left.min(buffer.len());
        self.from.read_exact(&mut buffer[..part])?;
        self.left -= part;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_arrives_whole_and_one_that_breaks_off_is_not_stored() {
        let scratch = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        drop(listener);
        serve(&address, scratch.path()).expect("a server");
        let pfs = Remote::new(scratch.path(), &address, Some(1e6)).expect("a directory");
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        let begin = Instant::now();
        pfs.create("job-1", "part", &mut &bytes[..]).expect("stored");
        assert!(begin.elapsed() >= Duration::from_millis(50), "100 kB at 1 MB/s, of which 32 kB are a full bucket");
        assert_eq!(pfs.read("job-1", "part", 0, 100_000).expect("stored"), bytes);
        assert_eq!(pfs.moved()[0].bytes, 100_000);
        pfs.create("job-1", "next", &mut &b"next"[..]).expect("stored over the same connection");
        assert_eq!((pfs.read("job-1", "next", 0, 4).expect("stored"), lock(&pfs.idle).len()), (b"next".to_vec(), 1));
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        assert!(pfs.create("job-1", "other", &mut (&bytes[..]).chain(Broken)).is_err());
        assert!(pfs.read("job-1", "other", 0, 1).is_err());
    }
}
