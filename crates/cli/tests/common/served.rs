//! A cache behind the NBD front-end of the real command.

#[path = "../../../frontends/nbd/tests/support/client.rs"]
pub mod client;

use super::{Scratch, Signal, signal};
use client::Client;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::SystemTime;

pub const PAGE: usize = 4096;
/// The last page is short.
pub const BACKING: usize = 1024 * PAGE + 512;

/// Record of a cache and mark of its last write, in the extended attributes of its backing file, with the file's time. A test
/// that restores an older copy of the cache, or the file's bytes, restores these as well, or is refused.
pub struct Kept {
    pub attributes: Vec<(&'static str, Vec<u8>)>,
    modified: SystemTime,
}

impl Kept {
    pub fn of(scratch: &Scratch) -> Self {
        let disk = scratch.path("disk");
        let attribute = |name| {
            let mut value = vec![0; 4096];
            let length = match rustix::fs::getxattr(&disk, name, &mut value[..]) {
                // As for a program that keeps none.
                Err(rustix::io::Errno::NODATA) => return None,
                length => length.expect(name),
            };
            value.truncate(length);
            Some((name, value))
        };
        let attributes = ["user.entresol", "user.entresol.last_write"].into_iter().filter_map(attribute).collect();
        Kept { attributes, modified: std::fs::metadata(&disk).and_then(|found| found.modified()).expect("a time") }
    }

    pub fn put_back(&self, scratch: &Scratch) {
        let disk = scratch.path("disk");
        for (name, value) in &self.attributes {
            rustix::fs::setxattr(&disk, *name, value, rustix::fs::XattrFlags::empty()).expect("an attribute");
        }
        let file = std::fs::OpenOptions::new().write(true).open(&disk).expect("a file");
        file.set_modified(self.modified).expect("a time");
    }
}

pub fn formatted() -> Scratch {
    formatted_with(&[])
}

/// A cache of the layout log, in which batches follow one another on the device, and which can grow.
pub fn formatted_log() -> Scratch {
    formatted_with(&["--layout", "log"])
}

fn formatted_with(options: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    scratch.format(&[&["--cache", "cache", "--backing", "disk", "--size", "2MiB"], options].concat());
    scratch
}

pub fn start(scratch: &Scratch, policy: &str, mode: &str) -> Child {
    start_with(scratch, policy, &["--mode", mode])
}

/// Starts a server with these arguments besides its policy.
pub fn start_with(scratch: &Scratch, policy: &str, more: &[&str]) -> Child {
    let arguments = "serve nbd --backing disk --cache cache --socket s --policy";
    let arguments: Vec<&str> = arguments.split(' ').chain([policy]).chain(more.iter().copied()).collect();
    let mut command = scratch.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
}

/// Waits until the server accepts connections.
pub fn reached(scratch: &Scratch, child: &mut Child) -> Client {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    if line.is_empty() {
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        panic!("the server ended: {said}");
    }
    Client::connect(&scratch.path("s"), false).expect("a connection")
}

pub fn terminate(child: Child) -> String {
    ended(child, 0)
}

/// As [`terminate`], with the expected exit code.
pub fn ended(mut child: Child, code: i32) -> String {
    signal(child.id(), Signal::TERM);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(code), "{said}");
    said
}
