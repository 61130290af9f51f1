//! Restores of a checkpoint by the source of its bytes: the memory of the reader's node, that of another node when the writer's node is
//! lost, the PFS, and all of them.

use crate::cluster::{Cluster, Process, Shape};
use crate::role::JOB;
use crate::{Bench, Comparison, WRITE, seconds};
use anyhow::{Result, ensure};
use entresol_burst_live::client::Client;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

pub const READING: &str = "A checkpoint of one rank is restored: the coordinator and the nodes are asked, each chunk of 1 MiB is read and its checksum \
compared, and the bytes are collected in new memory. What is read beside it goes into memory that was touched, by 1 MiB, and is not compared. Nodes whose bytes \
are to stay in memory cannot write to the PFS. The file beside the PFS is in memory too. Every restore is compared with the checkpoint, which is not part of its time.";

/// A third of a checkpoint, in whole chunks.
fn third(bytes: u64) -> usize {
    (bytes / 3) as usize / WRITE * WRITE
}

fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

fn receive(address: &str, to: &mut [u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    Ok(to.chunks_mut(WRITE).try_for_each(|part| stream.read_exact(part))?)
}

fn read(path: &Path, to: &mut [u8]) -> Result<()> {
    let mut file = File::open(path)?;
    Ok(to.chunks_mut(WRITE).try_for_each(|part| file.read_exact(part))?)
}

/// Time of a restore, whose bytes come from these sources, and only from them.
fn restore(client: &Client, source: &[u8], sources: &[&str]) -> Result<f64> {
    let mut restored = None;
    let time = seconds(|| {
        restored = Some(client.restore(JOB, None, 0)?);
        Ok(())
    })?;
    let restored = restored.expect("it was restored");
    ensure!(restored.bytes == source, "other bytes are restored");
    let mut by_source: BTreeMap<&str, u64> = BTreeMap::new();
    restored.chunks.iter().for_each(|chunk| *by_source.entry(&chunk.source).or_default() += chunk.bytes);
    ensure!(by_source.keys().copied().eq(sources.iter().copied()), "bytes by source: {by_source:?}");
    Ok(time)
}

/// Nodes whose bytes stay in memory.
const fn of(memory: &[u64]) -> Shape<'_> {
    Shape { memory, policy: "cdbb", checksums: true, keeps: true, drain_rate: 0 }
}

/// Restores from each source beside the same bytes without a burst buffer: rows of a report.
pub fn measure(bench: &mut Bench) -> Result<String> {
    let file = bench.scratch.path().join("file");
    std::fs::write(&file, bench.source)?;
    let sender = Process::start(&["source", &bench.bytes.to_string()])?;
    let rows = [local(bench)?, partner(bench, &sender)?, pfs(bench, &file)?, all(bench, &sender, &file)?];
    Ok(rows.iter().map(|comparison| comparison.row(bench.bytes)).collect())
}

/// Memory for a checkpoint.
const fn capacity(bench: &Bench) -> u64 {
    bench.bytes + (64 << 20)
}

fn local(bench: &mut Bench) -> Result<Comparison> {
    let (pairs, source) = (bench.pairs, bench.source);
    let mut cluster = Cluster::start(bench.scratch.path(), "of-local", &of(&[capacity(bench)]))?;
    cluster.store(source)?;
    let reader = cluster.reader(0)?;
    let ours = || restore(&reader, source, &["memory of node 0"]);
    let others = || {
        seconds(|| {
            copy(source, bench.arena);
            Ok(())
        })
    };
    Comparison::run("from the memory of the reader's node", "a copy of memory", None, pairs, ours, others)
}

fn partner(bench: &mut Bench, sender: &Process) -> Result<Comparison> {
    let (pairs, source) = (bench.pairs, bench.source);
    let memory = [capacity(bench), capacity(bench)];
    let shape = Shape { policy: "cdbb:redundancy=partner", ..of(&memory) };
    let mut cluster = Cluster::start(bench.scratch.path(), "of-partner", &shape)?;
    cluster.store(source)?;
    cluster.lose(0)?;
    let reader = cluster.reader(2)?;
    let ours = || restore(&reader, source, &["memory of node 1"]);
    let others = || seconds(|| receive(&sender.address, bench.arena));
    Comparison::run("from the partner, the writer's node lost", "a TCP stream", None, pairs, ours, others)
}

fn pfs(bench: &mut Bench, file: &Path) -> Result<Comparison> {
    let (pairs, source) = (bench.pairs, bench.source);
    let memory = [capacity(bench)];
    let shape = Shape { keeps: false, ..of(&memory) };
    let mut cluster = Cluster::start(bench.scratch.path(), "of-pfs", &shape)?;
    cluster.store(source)?;
    cluster.wait_for_drain()?;
    let reader = cluster.reader(2)?;
    let ours = || restore(&reader, source, &["the PFS"]);
    let others = || seconds(|| read(file, bench.arena));
    let compared = Comparison::run("from the PFS", "a file", None, pairs, ours, others);
    cluster.remove_drained()?;
    compared
}

/// A third fits into each of two nodes; the rest is written to the PFS.
fn all(bench: &mut Bench, sender: &Process, file: &Path) -> Result<Comparison> {
    let (pairs, source, third) = (bench.pairs, bench.source, third(bench.bytes));
    let mut cluster = Cluster::start(bench.scratch.path(), "of-all", &of(&[third as u64, third as u64]))?;
    cluster.store(source)?;
    let reader = cluster.reader(0)?;
    let ours = || restore(&reader, source, &["memory of node 0", "memory of node 1", "the PFS"]);
    let others = || {
        seconds(|| {
            let (of_local, rest) = bench.arena.split_at_mut(third);
            let (of_partner, of_pfs) = rest.split_at_mut(third);
            copy(&source[..third], of_local);
            receive(&sender.address, of_partner)?;
            read(file, of_pfs)
        })
    };
    let beside = "a third by each of them";
    Comparison::run("a third from each of two nodes and the PFS", beside, None, pairs, ours, others)
}
