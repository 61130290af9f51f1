//! What the NBD door costs by itself: requests per second on memory, over a Unix socket, from a client that does as little
//! as possible; and what the socket costs by itself, on a peer that answers any 28 bytes with as many as a read has.
//! Time includes the client's, CPU time is of both sides together.
//! `cargo run --release -p entresol-front --example nbd_speed -- [SECONDS]`

use entresol_front::MemoryBlock;
use entresol_front::nbd::{Export, Limits, Listener, Server};
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: u64 = 256 << 20;
const BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let socket = std::env::temp_dir().join(format!("nbd-speed-{}", std::process::id()));
    let block = Arc::new(MemoryBlock::new(SIZE as usize));
    let export = Export { block, name: String::new(), description: String::new(), read_only: false };
    let server =
        Server::start(Listener::unix(&socket)?, export, Limits::default(), |error| eprintln!("server: {error}"))?;
    println!("4-KiB requests at random offsets of {} MiB, {seconds} s each", SIZE >> 20);
    println!("{:>8} {:>5} {:>10} {:>10} {:>10}", "", "depth", "kIOPS", "us each", "CPU us");
    for depth in [1, 4, 16, 32] {
        for name in ["socket", "read", "write"] {
            let mut stream = if name == "socket" { echo()? } else { chosen(&socket)? };
            let cpu = cpu_us();
            let done = run(&mut stream, depth, name == "write", Duration::from_secs_f64(seconds))?;
            let (rate, cpu) = (done as f64 / seconds, (cpu_us() - cpu) / done as f64);
            println!("{name:>8} {depth:>5} {:>10.1} {:>10.2} {cpu:>10.2}", rate / 1e3, depth as f64 * 1e6 / rate);
        }
    }
    server.stop()?;
    Ok(())
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// A connection that has chosen the export.
fn chosen(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0")?;
    // Greeting, size and flags, block sizes, the end of the negotiation.
    stream.read_exact(&mut [0; 18 + 32 + 34 + 20])?;
    Ok(stream)
}

/// A connection to a peer that does nothing but answer.
fn echo() -> std::io::Result<UnixStream> {
    let (stream, mut peer) = UnixStream::pair()?;
    std::thread::spawn(move || {
        let mut request = [0; 28];
        // The client ends it.
        while peer.read_exact(&mut request).and_then(|()| peer.write_all(&[0; 16 + BYTES])).is_ok() {}
    });
    Ok(stream)
}

/// Keeps `depth` requests in flight for a while; how many were answered.
fn run(stream: &mut UnixStream, depth: u64, write: bool, time: Duration) -> std::io::Result<u64> {
    let mut replies = BufReader::with_capacity(1 << 16, stream.try_clone()?);
    let mut reply = vec![0; 16 + if write { 0 } else { BYTES }];
    let mut request = vec![0; 28 + if write { BYTES } else { 0 }];
    request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    request[7] = u8::from(write);
    request[24..28].copy_from_slice(&(BYTES as u32).to_be_bytes());
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
