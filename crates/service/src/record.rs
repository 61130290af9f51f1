//! The client's half of a recording: requests of a cache in use become a trace for the simulator.

use super::control::RecordListener;
use anyhow::{Context, Result};
use entresol_trace::ObjectKind;
use entresol_trace::native::Spool;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Reason for the end of a recording.
#[derive(Clone, Copy)]
pub enum End {
    /// The recording ended as asked.
    Asked,
    /// The server has ended in good order.
    Server,
    /// The server was killed, or gave up on a recorder that read nothing.
    BrokenOff,
}

impl End {
    /// Describes an early end for the user; none if the recording ended as asked.
    pub fn said(self) -> Option<&'static str> {
        match self {
            End::Asked => None,
            End::Server => Some("until the server ended"),
            End::BrokenOff => Some("broken off: the server was killed, or the recorder took nothing for ten seconds"),
        }
    }
}

/// Writes requests until the recording ends.
///
/// It ends after `time`, after `limit` requests, when `stop` is set, or with the server.
pub fn take(
    limit: Option<u64>,
    time: Option<Duration>,
    listener: &mut RecordListener,
    spool: &mut Spool,
    stop: &AtomicBool,
    started: Instant,
) -> Result<End> {
    let limit = limit.unwrap_or(u64::MAX);
    let mut from_us = None;
    let mut ending = false;
    loop {
        let enough = spool.requests() >= limit || time.is_some_and(|time| started.elapsed() >= time);
        if !ending && (enough || stop.load(Relaxed)) {
            ending = true;
            listener.end().context("the server")?;
        }
        let (heard, objects) = match listener.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(if ending { End::Asked } else { End::Server }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(End::BrokenOff),
            Err(error) => return Err(error).context("the server"),
        };
        for name in objects {
            spool.object(&name, ObjectKind::Data);
        }
        for heard in heard {
            if spool.requests() >= limit {
                break;
            }
            let from_us = *from_us.get_or_insert(heard.time_us);
            spool.push(heard.time_us.saturating_sub(from_us), heard.object, heard.block, heard.op)?;
        }
    }
}
