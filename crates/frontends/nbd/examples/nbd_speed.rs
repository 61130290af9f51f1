//! Benchmark of the NBD front-end alone: 4-KiB requests per second over a Unix socket.
//! The client does as little as possible. Others take turns with it:
//! - a peer that answers any 28 bytes with as many as a read has: the cost of the socket;
//! - `nbdkit memory`, where it is installed;
//! - memory of which one page in ten takes 100 us: with hits answered at once, and with hits that have to be guessed.
//!
//! Processor time is of both sides together.
//!
//! `cargo run --release -p entresol-nbd --example nbd_speed -- [SECONDS [ROUNDS]]`

#[path = "../../../cache/tests/common/memory.rs"]
mod memory;

use entresol_cache::Block;
use entresol_nbd::{Export, Limits, Listener, Server};
use memory::MemoryBlock;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: u64 = 64 << 20;
const BYTES: usize = 4096;
/// Time of a read that memory does not answer.
const MISS: Duration = Duration::from_micros(100);

type Failure = Box<dyn std::error::Error>;

/// Makes a stream on which requests are answered.
type Connect = Box<dyn Fn() -> io::Result<UnixStream>>;

struct Contender {
    name: &'static str,
    write: bool,
    connect: Connect,
    /// Another process whose CPU time counts too.
    process: Option<u32>,
}

/// Result of some seconds: requests per second, and CPU time of a request in microseconds.
struct Figures {
    per_second: f64,
    cpu_us: f64,
}

fn main() -> Result<(), Failure> {
    let argument = |at, otherwise| std::env::args().nth(at).map_or(Ok(otherwise), |text| text.parse::<f64>());
    let (time, rounds) = (Duration::from_secs_f64(argument(1, 1.0)?), argument(2, 5.0)? as usize);
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let memory = || MemoryBlock::new(SIZE as usize);
    let servers = [
        serve(&at("memory"), memory())?,
        serve(&at("told"), Mixed { memory: memory(), tells: true })?,
        serve(&at("guessed"), Mixed { memory: memory(), tells: false })?,
    ];
    let nbdkit = Nbdkit::start(&at("nbdkit"))?;
    let mut contenders = vec![Contender { name: "socket", write: false, connect: Box::new(echo), process: None }];
    let mut add = |name, write, socket: &str, process| {
        let socket = at(socket);
        contenders.push(Contender { name, write, connect: Box::new(move || chosen(&socket)), process });
    };
    add("read", false, "memory", None);
    add("write", true, "memory", None);
    if let Some(nbdkit) = &nbdkit {
        add("nbdkit read", false, "nbdkit", Some(nbdkit.0.id()));
        add("nbdkit write", true, "nbdkit", Some(nbdkit.0.id()));
    }
    add("mixed", false, "told", None);
    add("mixed, guessed", false, "guessed", None);
    // Memory that was never touched costs page faults.
    contenders.iter().skip(1).try_for_each(|contender| fill(&mut (contender.connect)()?))?;
    println!("4-KiB requests at random offsets of {} MiB, {rounds} rounds of {time:?} each, medians", SIZE >> 20);
    println!("{:>15} {:>5} {:>10} {:>10} {:>10} {:>11}", "", "depth", "kIOPS", "us each", "CPU us", "of socket's");
    for depth in [1, 4, 16, 32] {
        let mut results: Vec<Vec<Figures>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (contender, results) in contenders.iter().zip(&mut results) {
                results.push(measure(contender, depth, time)?);
            }
        }
        let rates: Vec<f64> = results.iter().map(|of| median(of, |figures| figures.per_second)).collect();
        for ((contender, results), rate) in contenders.iter().zip(&results).zip(&rates) {
            let (us, cpu) = (depth as f64 * 1e6 / rate, median(results, |figures| figures.cpu_us));
            let (name, of_socket) = (contender.name, rate / rates[0]);
            println!("{name:>15} {depth:>5} {:>10.1} {us:>10.2} {cpu:>10.2} {of_socket:>10.2}x", rate / 1e3);
        }
    }
    servers.into_iter().try_for_each(|server| Ok(server.stop().map(drop)?))
}

fn serve(socket: &Path, block: impl Block + 'static) -> Result<Server, Failure> {
    let export = Export { block: Arc::new(block), name: String::new(), description: String::new(), read_only: false };
    Ok(Server::start(Listener::unix(socket)?, export, Limits::default(), |error| eprintln!("server: {error}"))?)
}

/// Memory of which one page in ten takes a while to read.
struct Mixed {
    memory: MemoryBlock,
    /// True if the block tells which reads are hits.
    tells: bool,
}

impl Mixed {
    fn is_miss(offset: u64) -> bool {
        (offset / BYTES as u64).is_multiple_of(10)
    }
}

impl Block for Mixed {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if Self::is_miss(offset) {
            std::thread::sleep(MISS);
        }
        self.memory.read(offset, bytes)
    }
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.tells && !Self::is_miss(offset) && self.memory.read_now(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.memory.write(offset, bytes, fua)
    }
    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.discard(offset, bytes)
    }
}

/// A server of another project, ended with this value.
struct Nbdkit(Child);

impl Nbdkit {
    /// Starts the server; `None` where it is not installed.
    fn start(socket: &Path) -> Result<Option<Self>, Failure> {
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(socket).args(["memory", &format!("size={SIZE}")]);
        let server = match command.spawn() {
            Ok(server) => Self(server),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!("nbdkit is not installed");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        for _ in 0..1000 {
            if socket.exists() {
                return Ok(Some(server));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("nbdkit does not listen".into())
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // The server keeps no data.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn median(results: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut figures: Vec<f64> = results.iter().map(of).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// CPU time of this process, and of the other one.
fn cpu_us(other: Option<u32>) -> Result<f64, Failure> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3;
    let Some(other) = other else { return Ok(own) };
    let stat = std::fs::read_to_string(format!("/proc/{other}/stat"))?;
    // The name, which may hold anything, ends with the last parenthesis; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(own + ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// A connection that has chosen the only export.
fn chosen(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    // Fixed newstyle, without padding; the export without a name, by the oldest option.
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    // Greeting, size and flags.
    stream.read_exact(&mut [0; 18 + 10])?;
    Ok(stream)
}

/// A connection to a peer that only answers.
fn echo() -> io::Result<UnixStream> {
    let (stream, mut peer) = UnixStream::pair()?;
    std::thread::spawn(move || {
        let mut request = [0; 28];
        // The loop ends with the client.
        while peer.read_exact(&mut request).and_then(|()| peer.write_all(&[0; 16 + BYTES])).is_ok() {}
    });
    Ok(stream)
}

fn measure(contender: &Contender, depth: u64, time: Duration) -> Result<Figures, Failure> {
    let mut stream = (contender.connect)()?;
    let (start, cpu) = (Instant::now(), cpu_us(contender.process)?);
    let done = run(&mut stream, depth, contender.write, time)?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_us(contender.process)? - cpu);
    Ok(Figures { per_second: done as f64 / seconds, cpu_us: cpu / done as f64 })
}

/// A request of `length` bytes.
fn request(write: bool, offset: u64, length: usize) -> Vec<u8> {
    let mut request = vec![0; 28 + if write { length } else { 0 }];
    request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    request[7] = u8::from(write);
    request[16..24].copy_from_slice(&offset.to_be_bytes());
    request[24..28].copy_from_slice(&(length as u32).to_be_bytes());
    request
}

/// Writes the whole export.
fn fill(stream: &mut UnixStream) -> io::Result<()> {
    const AT_ONCE: usize = 1 << 20;
    for offset in (0..SIZE).step_by(AT_ONCE) {
        let mut request = request(true, offset, AT_ONCE);
        request[28..].fill(1);
        stream.write_all(&request)?;
        stream.read_exact(&mut [0; 16])?;
    }
    Ok(())
}

/// Keeps `depth` requests in flight for a while; returns the number answered.
fn run(stream: &mut UnixStream, depth: u64, write: bool, time: Duration) -> io::Result<u64> {
    let mut replies = BufReader::with_capacity(1 << 16, stream.try_clone()?);
    let mut reply = vec![0; 16 + if write { 0 } else { BYTES }];
    let mut request = request(write, 0, BYTES);
    let (start, mut sent, mut random) = (Instant::now(), 0_u64, 1_u64);
    let mut send = |stream: &mut UnixStream| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (random >> 33) % (SIZE / BYTES as u64) * BYTES as u64;
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        stream.write_all(&request)
    };
    let mut done = 0;
    loop {
        let more = start.elapsed() < time;
        while more && sent - done < depth {
            send(stream)?;
            sent += 1;
        }
        if sent == done {
            return Ok(done);
        }
        replies.read_exact(&mut reply)?;
        assert_eq!(reply[4..8], [0; 4]);
        done += 1;
    }
}
