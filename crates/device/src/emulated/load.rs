//! A closed loop over an emulated device: the counterpart of [`load::closed_loop`](crate::load::closed_loop) for
//! models.

use super::clock::Clock;
use super::device::EmulatedDevice;
use super::storage::Storage;
use crate::device::Device;
use crate::io::{Io, IoKind, Latency};
use crate::load::{Histogram, Load};
use std::io;

/// Keeps `depth` I/Os outstanding until `count` are done; `next(i)` makes the i-th. Each I/O after the first `depth`
/// is submitted when a completion has been handed over. Latencies and times are as given, not as asked; the parts are
/// the model's. Writes carry the bytes 0xA5.
///
/// # Errors
/// A refusal of the device or an error of the storage.
///
/// # Panics
/// When `depth` or `count` is 0.
pub fn closed_loop<S: Storage, M: Device, C: Clock>(
    device: &EmulatedDevice<S, M, C>,
    depth: usize,
    count: u64,
    mut next: impl FnMut(u64) -> Io,
) -> io::Result<Load> {
    assert!(depth > 0 && count > 0, "a load of depth {depth} and {count} I/Os");
    let (mut submitted, mut bytes) = (0, 0);
    let mut submit = |mut buffer: Vec<u8>| {
        let io = Io { tag: submitted, ..next(submitted) };
        submitted += 1;
        bytes += u64::from(io.bytes);
        let wanted = if matches!(io.kind, IoKind::Read | IoKind::Write) { io.bytes as usize } else { 0 };
        buffer.resize(wanted, 0);
        if io.kind == IoKind::Write {
            buffer.fill(0xA5);
        }
        device.submit(io, buffer)
    };
    let started = device.clock().now();
    let first = count.min(depth as u64);
    (0..first).try_for_each(|_| submit(Vec::new()))?;

    let (mut latency, mut parts, mut last) = (Histogram::default(), Latency::default(), started);
    while let Some(done) = device.reap() {
        done.result?;
        latency.record(done.given - done.completion.submitted);
        parts += done.completion.latency;
        last = done.given;
        if latency.count() + first <= count {
            submit(done.buffer)?;
        }
    }
    Ok(Load { started, elapsed: last - started, completions: latency.count(), bytes, latency, parts })
}
