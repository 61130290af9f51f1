//! A meter of the messages to and from the coordinator: a process between it and all others, which forwards every message and notes it.

use crate::network::Host;
use crate::pfs::now_ns;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the head of a message: four of a mark, and the lengths of its control message and of its raw bytes.
const HEADER_BYTES: usize = 12;
/// Most connections that wait to be accepted.
const QUEUE: i32 = 4096;

/// A message that was forwarded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    pub at_ns: u64,
    /// The node; none for a host that is no node.
    pub node: Option<u32>,
    pub kind: String,
    /// True if the coordinator has sent it.
    pub is_answer: bool,
    pub bytes: u64,
}

#[derive(Default)]
pub struct Meter {
    messages: Mutex<Vec<Message>>,
}

impl Meter {
    pub fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forward(&self, from: &TcpStream, to: &TcpStream, node: Option<u32>, is_answer: bool) -> Result<()> {
        loop {
            let mut header = [0; HEADER_BYTES];
            (&mut &*from).read_exact(&mut header)?;
            let length = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte])) as usize;
            let (control, raw) = (length(4), length(8));
            ensure!(header.starts_with(b"EBL1"), "no message of the burst buffer");
            let mut message = header.to_vec();
            message.resize(HEADER_BYTES + control + raw, 0);
            (&mut &*from).read_exact(&mut message[HEADER_BYTES..])?;
            (&mut &*to).write_all(&message)?;
            let at_ns = now_ns();
            let kind = kind(&serde_json::from_slice(&message[HEADER_BYTES..HEADER_BYTES + control])?);
            let one = Message { at_ns, node, kind, is_answer, bytes: message.len() as u64 };
            self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        }
    }
}

/// Name of a message: that of its variant, and of a writer's that of the event.
fn kind(message: &Value) -> String {
    let Value::Object(fields) = message else { return message.as_str().unwrap_or_default().to_owned() };
    match fields.iter().next() {
        Some((name, event)) if name == "Writer" => kind(event),
        Some((name, Value::Array(events))) if name == "Events" && events.is_empty() => format!("{name}, none"),
        Some((name, _)) => name.clone(),
        None => String::new(),
    }
}

/// Forwards all connections until the process ends.
pub fn start(listen: &str, to: &str) -> Result<Arc<Meter>> {
    let listener = TcpListener::bind(listen).with_context(|| listen.to_owned())?;
    // As many connections as the coordinator's own queue has.
    rustix::net::listen(&listener, QUEUE)?;
    let (meter, to) = (Arc::new(Meter::default()), to.to_owned());
    let own = Arc::clone(&meter);
    std::thread::spawn(move || {
        while let Ok((stream, peer)) = listener.accept() {
            let Ok(behind) = TcpStream::connect(&to) else { continue };
            let node = match Host::of_control(&peer.ip().to_string()) {
                Some(Host::Node(node)) => Some(node),
                _ => None,
            };
            let ways = [(false, stream.try_clone(), behind.try_clone()), (true, Ok(behind), Ok(stream))];
            for (is_answer, from, to) in ways {
                let (Ok(from), Ok(to)) = (from, to) else { continue };
                // Each message is small, and its answer waited for.
                let _ = to.set_nodelay(true);
                let meter = Arc::clone(&own);
                std::thread::spawn(move || {
                    // The end of a connection ends the other half of it too.
                    let _ended = meter.forward(&from, &to, node, is_answer);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    Ok(meter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_has_the_name_of_its_variant() {
        for (message, name) in [
            (json!("Nodes"), "Nodes"),
            (json!({"Writer": {"Open": {"ranks": 1}}}), "Open"),
            (json!({"Events": []}), "Events, none"),
            (json!({"Events": [[1, "Tick"]]}), "Events"),
            (json!({"Grants": {"grants": []}}), "Grants"),
        ] {
            assert_eq!(kind(&message), name);
        }
    }
}
