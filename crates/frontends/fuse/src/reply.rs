//! Results as replies to the kernel.

use crate::attributes::{TRUST, attributes, errno, system};
use crate::nodes::Node;
use fuser::{Generation, ReplyEmpty, ReplyEntry};
use rustix::fs::Stat;
use std::io;
use std::sync::Arc;

pub(super) fn answer(reply: ReplyEntry, found: io::Result<(Arc<Node>, Stat)>) {
    match found {
        Ok((node, stat)) => reply.entry(&TRUST, &attributes(&stat, node.number), Generation(0)),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn finish(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn finish_call(reply: ReplyEmpty, result: rustix::io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(system(error)),
    }
}
