//! Figures of a burst buffer for those who watch it.

use super::{ClientError, MESSAGE, Peers, ask};
use crate::credentials::Credential;
use crate::message::{FromCoordinator, FromNode, NodeStatus, ToCoordinator, ToNode};
use crate::wire::Peer;
use entresol_burst::NodeId;

/// Figures of a burst buffer at one time.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The coordinator's epoch.
    pub epoch: u32,
    /// Checkpoints with committed bytes that are not on the PFS.
    pub undrained: u64,
    /// Those of them with bytes that one node alone has.
    pub at_risk: u64,
    /// The nodes that have reported in this epoch, each with its counters if it answers.
    pub nodes: Vec<(NodeId, Option<NodeStatus>)>,
}

/// Asks a coordinator, and then each node. A cluster with a key answers its holders alone: a ticket gets no counts of
/// checkpoints.
///
/// # Errors
/// When the coordinator does not answer.
pub fn figures(coordinator: &str, credential: Option<&Credential>) -> Result<Figures, ClientError> {
    let failed = |error| ClientError::Wire(coordinator.to_owned(), error);
    let peer = Peer::connect_as(coordinator, MESSAGE, credential).map_err(failed)?;
    let answer = ask(&peer, coordinator, &ToCoordinator::Nodes, MESSAGE)?;
    let FromCoordinator::Nodes { nodes, epoch, undrained, at_risk, .. } = answer else {
        return Err(ClientError::Unexpected(coordinator.to_owned()));
    };
    let mut peers = Peers { credential: credential.cloned(), ..Peers::default() };
    let mut status = |address: &str| match peers.node(address, &ToNode::Status, &[], MESSAGE) {
        Ok((FromNode::Status(status), _)) => Some(status),
        _ => None,
    };
    let nodes = nodes.into_iter().map(|it| (it.node, it.present.then(|| status(&it.address)).flatten())).collect();
    Ok(Figures { epoch, undrained, at_risk, nodes })
}
