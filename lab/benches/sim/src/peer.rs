//! libCacheSim in a process of its own.

use entresol_core::NEVER;
use entresol_sim::Addresses;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Sizes of libCacheSim's hash table, as the power of two of its buckets; 0 is the package's default.
#[derive(Clone, Copy, Debug)]
pub struct HashPower(pub u32);

/// A running libCacheSim.
pub struct Peer {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Version of the package.
    pub version: String,
}

impl Peer {
    /// Starts the package under this Python over a trace of `requests` requests.
    ///
    /// # Errors
    /// The reason for which it cannot be started, in one line.
    pub fn start(python: &Path, trace: &Path, requests: usize) -> Result<Self, String> {
        let mut child = Command::new(python)
            .args(["-c", include_str!("../libcachesim_peer.py")])
            .arg(trace)
            .arg(requests.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", python.display()))?;
        let commands = child.stdin.take().expect("a piped input");
        let answers = BufReader::new(child.stdout.take().expect("a piped output"));
        let mut peer = Peer { child, commands, answers, version: String::new() };
        peer.version = peer.answer()?;
        Ok(peer)
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) | Err(_) => Err("it ended (why stands on standard error)".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
        }
    }

    /// Misses of one run and the processor time it took, in seconds.
    ///
    /// # Errors
    /// One line that describes the fault.
    pub fn run(&mut self, class: &str, pages: usize, hash_power: HashPower) -> Result<(u64, f64), String> {
        writeln!(self.commands, "{class} {pages} {}", hash_power.0).map_err(|error| error.to_string())?;
        let answer = self.answer()?;
        let figures =
            answer.split_once(' ').and_then(|(misses, seconds)| Some((misses.parse().ok()?, seconds.parse().ok()?)));
        figures.ok_or(format!("it said '{answer}'"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The child may have ended by itself, and an error here cannot be handled.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a trace as oracleGeneral: packed little-endian records of u32 time, u64 object, u32 size, i64 next use.
///
/// # Errors
/// When the file cannot be written.
pub fn write_oracle_general(addresses: &Addresses, path: &Path) -> std::io::Result<()> {
    const REQUESTS_PER_SECOND: usize = 1000;
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    for (at, (&page, &next)) in addresses.trace.pages.iter().zip(addresses.next_use()).enumerate() {
        let block = addresses.trace.page_block[page as usize];
        let next = if next == NEVER { -1 } else { i64::from(next) + 1 };
        file.write_all(&((at / REQUESTS_PER_SECOND) as u32).to_le_bytes())?;
        file.write_all(&block.to_le_bytes())?;
        file.write_all(&1u32.to_le_bytes())?;
        file.write_all(&next.to_le_bytes())?;
    }
    file.flush()
}
