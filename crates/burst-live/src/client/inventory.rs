//! All parts of a job's checkpoints that exist, in the buffers of nodes and on the PFS.

use super::{Client, ClientError, MESSAGE, Peers, ask};
use crate::clock;
use crate::index::PIECE;
use crate::layout::{self, Census};
use crate::message::{FromCoordinator, FromNode, NodeEntry, Part, StoredPiece, ToCoordinator, ToNode};
use crate::mutant::{self, Mutant};
use entresol_burst::{CheckpointId, JobId, Lease, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Deadline of one question to a node.
const NODE: Duration = Duration::from_secs(2);
/// Longest wait for the end of the coordinator's wait for nodes.
const SETTLE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// A source of a part.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Node { node: NodeId, address: String, lease: Lease, crcs: Vec<u32> },
    Pfs,
}

/// The parts of one checkpoint with their sources.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub parts: Vec<(Part, Source)>,
}

impl Found {
    pub fn census(&self) -> Census {
        Census::of(&self.parts.iter().map(|(part, _)| *part).collect::<Vec<_>>())
    }

    /// Parts on the PFS.
    pub fn on_pfs(&self) -> Vec<Part> {
        let on_pfs = self.parts.iter().filter(|(_, source)| matches!(source, Source::Pfs));
        on_pfs.map(|(part, _)| *part).collect()
    }

    /// Parts of the newest whole attempts with their sources.
    pub fn chosen(&self) -> impl Iterator<Item = &(Part, Source)> {
        let census = self.census();
        let is_chosen = move |part: &Part| {
            let of_kind = if part.about.ranks == PIECE { &census.pieces } else { &census.whole };
            of_kind.get(&part.object.rank) == Some(&part.about)
        };
        self.parts.iter().filter(move |(part, _)| is_chosen(part))
    }
}

/// Parts by checkpoint.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub checkpoints: BTreeMap<CheckpointId, Found>,
    /// Nodes that could not be asked.
    pub missing: Vec<String>,
    /// Failures of the PFS that nodes report.
    pub failing: Vec<String>,
}

impl Client {
    /// Parts of one checkpoint that exist now. Without a coordinator to ask for the nodes, and without their addresses,
    /// those on the PFS, and the reason why there are no others.
    pub(super) fn found(
        &self,
        job: JobId,
        checkpoint: CheckpointId,
        peers: &mut Peers,
    ) -> Result<(Found, Option<ClientError>), ClientError> {
        let (addresses, partial) = match self.node_addresses(job) {
            Err(error @ ClientError::NoNodes(_)) => (Vec::new(), Some(error)),
            addresses => (addresses?, None),
        };
        let mut inventory = self.inventory_of(job, Some(checkpoint), &addresses, peers)?;
        Ok((inventory.checkpoints.remove(&checkpoint).unwrap_or_default(), partial))
    }

    /// Parts that exist now.
    pub(super) fn inventory(&self, job: JobId, peers: &mut Peers) -> Result<Inventory, ClientError> {
        self.inventory_of(job, None, &self.node_addresses(job)?, peers)
    }

    /// Parts of all checkpoints or one. The nodes are asked before the PFS, so that a part that is drained meanwhile is
    /// found.
    fn inventory_of(
        &self,
        job: JobId,
        only: Option<CheckpointId>,
        addresses: &[String],
        peers: &mut Peers,
    ) -> Result<Inventory, ClientError> {
        let mut inventory = Inventory::default();
        if mutant::is(Mutant::PfsAskedFirst) {
            self.parts_on_pfs(job, only, &mut inventory)?;
        }
        for address in addresses {
            match self.pieces(job, address, peers, &mut inventory) {
                Ok(()) => {}
                Err(error) => inventory.missing.push(error.to_string()),
            }
        }
        if !mutant::is(Mutant::PfsAskedFirst) {
            self.parts_on_pfs(job, only, &mut inventory)?;
        }
        Ok(inventory)
    }

    fn parts_on_pfs(
        &self,
        job: JobId,
        only: Option<CheckpointId>,
        inventory: &mut Inventory,
    ) -> Result<(), ClientError> {
        let on_pfs = match only {
            Some(checkpoint) => BTreeSet::from([checkpoint]),
            None => layout::checkpoints(&*self.pfs, job).map_err(ClientError::Pfs)?,
        };
        for checkpoint in on_pfs {
            let parts = layout::parts(&*self.pfs, job, checkpoint).map_err(ClientError::Pfs)?;
            let found = inventory.checkpoints.entry(checkpoint).or_default();
            found.parts.extend(parts.into_iter().map(|part| (part, Source::Pfs)));
        }
        Ok(())
    }

    fn pieces(
        &self,
        job: JobId,
        address: &str,
        peers: &mut Peers,
        inventory: &mut Inventory,
    ) -> Result<(), ClientError> {
        let (FromNode::Status(status), _) = peers.node(address, &ToNode::Status, &[], NODE)? else {
            return Err(ClientError::Unexpected(address.to_owned()));
        };
        inventory.failing.extend(status.failing.map(|why| format!("node {}: {why}", status.node)));
        let (FromNode::Pieces { node, pieces }, _) = peers.node(address, &ToNode::Pieces { job }, &[], NODE)? else {
            return Err(ClientError::Unexpected(address.to_owned()));
        };
        for StoredPiece { lease, part, crcs, .. } in pieces {
            if part.object.job == job && layout::is_sound(&part) {
                let source = Source::Node { node, address: address.to_owned(), lease, crcs };
                inventory.checkpoints.entry(part.object.checkpoint).or_default().parts.push((part, source));
            }
        }
        Ok(())
    }

    fn node_addresses(&self, job: JobId) -> Result<Vec<String>, ClientError> {
        let Some(address) = &self.settings.coordinator else { return Ok(self.settings.nodes.clone()) };
        match self.coordinator_nodes(address, job) {
            Err(_) if !self.settings.nodes.is_empty() => Ok(self.settings.nodes.clone()),
            Err(error @ ClientError::Wire(..)) => Err(ClientError::NoNodes(Box::new(error))),
            found => found,
        }
    }

    /// Addresses of the nodes that may have bytes of a job, once the coordinator waits for no more. A node that is lost has
    /// none if all bytes of the job are on the PFS.
    fn coordinator_nodes(&self, address: &str, job: JobId) -> Result<Vec<String>, ClientError> {
        let until = clock::now() + SETTLE;
        let peer = self.connect(address, MESSAGE)?;
        loop {
            match ask(&peer, address, &ToCoordinator::Nodes, MESSAGE)? {
                FromCoordinator::Nodes { nodes, settled: true, undrained_jobs, pfs, .. } => {
                    self.check_directory(address, pfs.as_deref())?;
                    let may_have = |node: &NodeEntry| node.present || undrained_jobs.contains(&job);
                    return Ok(nodes.into_iter().filter(may_have).map(|node| node.address).collect());
                }
                FromCoordinator::Nodes { .. } if clock::now() < until => clock::sleep(PAUSE),
                FromCoordinator::Nodes { .. } => return Err(ClientError::NotSettled),
                _ => return Err(ClientError::Unexpected(address.to_owned())),
            }
        }
    }
}
