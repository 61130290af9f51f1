//! The connection of a node to the coordinator: it joins the epoch, reports, sends events in order, and obeys orders.

use super::Shared;
use crate::message::{FromCoordinator, ToCoordinator};
use crate::report::report;
use crate::server::lock;
use crate::wire::{Peer, WireError};
use entresol_burst::{Epoch, NotAdmitted, Policy, PolicyError};
use std::time::Duration;

/// Pause between two messages to the coordinator when there is no event.
const IDLE: Duration = Duration::from_millis(100);
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// Deadline of a message and its answer.
const MESSAGE: Duration = Duration::from_secs(5);
/// Most events of one message.
const EVENTS_MAX: usize = 1000;

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the coordinator refused: {0}")]
    Refused(String),
    #[error("an answer that does not fit")]
    Unexpected,
    #[error(transparent)]
    Epoch(#[from] NotAdmitted),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Keeps the connection until the daemon stops. A failure is reported once, until it changes.
pub(crate) fn run(shared: &Shared) {
    let mut last = String::new();
    while !shared.is_stopping() {
        let Err(error) = exchange(shared) else { return };
        shared.note_direct(false);
        let error = error.to_string();
        if error != last && !shared.is_stopping() {
            report!("node {}: without the coordinator {}: {error}", shared.node.0, shared.coordinator);
            last = error;
        }
        shared.pause(RETRY);
    }
}

fn call(peer: &Peer, request: &ToCoordinator) -> Result<FromCoordinator, LinkError> {
    match peer.call(request, &[], MESSAGE)?.0 {
        FromCoordinator::Refused { why } => Err(LinkError::Refused(why)),
        answer => Ok(answer),
    }
}

/// Talks to one start of the coordinator until the connection fails or the daemon stops.
fn exchange(shared: &Shared) -> Result<(), LinkError> {
    let peer = Peer::connect_as(&shared.coordinator, MESSAGE, shared.credential().as_ref())?;
    let (node, incarnation) = (shared.node, shared.incarnation);
    let pfs = shared.pfs.identity().map(str::to_owned);
    let hello = ToCoordinator::Hello { node, incarnation, address: shared.advertised.clone(), pfs };
    let FromCoordinator::Welcome { epoch, applied, policy } = call(&peer, &hello)? else {
        return Err(LinkError::Unexpected);
    };
    let policy: Policy = policy.parse()?;
    // Space that the report does not name is free.
    let report = shared.zeroed().join(Epoch(epoch), applied)?;
    *lock(&shared.policy) = Some(policy);
    let mut answer = call(&peer, &ToCoordinator::Report(report))?;
    loop {
        let FromCoordinator::Orders { orders, applied, direct } = answer else { return Err(LinkError::Unexpected) };
        shared.note_direct(direct);
        {
            let mut buffer = lock(&shared.buffer);
            buffer.acknowledged(applied);
            orders.into_iter().for_each(|order| buffer.obey(order));
            buffer.tick();
        }
        let events = shared.wait_for_events(EVENTS_MAX, IDLE);
        if shared.is_stopping() {
            return Ok(());
        }
        answer = call(&peer, &ToCoordinator::Events(events))?;
    }
}
