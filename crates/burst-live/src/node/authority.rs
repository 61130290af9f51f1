//! Requests that the holder of a ticket may make to a node.

use crate::credentials::{Bearer, OTHER_JOB};
use crate::message::{NO_SUCH_PIECE, NodeStatus, ToNode};
use entresol_burst::{JobId, Lease};

/// Checks that a peer may make a request at a time, nanoseconds since 1970. `job_of` is the job of a piece that is here.
/// Every message stands here by its name: a new one is refused to users until it does. Another job's piece is refused as one that
/// does not exist.
///
/// # Errors
/// The reason of the refusal.
pub(super) fn authorise(
    bearer: Bearer,
    request: &ToNode,
    job_of: impl Fn(Lease) -> Option<JobId>,
    now_ns: u64,
) -> Result<(), &'static str> {
    let Some(claims) = bearer.bounds(now_ns)? else { return Ok(()) };
    match request {
        ToNode::Write { grant, .. } | ToNode::Fill { grant, .. } => {
            claims.has(grant.object.job).then_some(()).ok_or(OTHER_JOB)
        }
        ToNode::Store { lease, .. } | ToNode::Read { lease, .. } | ToNode::Locate { lease, .. } => {
            job_of(*lease).is_some_and(|job| claims.has(job)).then_some(()).ok_or(NO_SUCH_PIECE)
        }
        ToNode::Pieces { job } => claims.has(*job).then_some(()).ok_or(OTHER_JOB),
        // The answer is cut by `visible`.
        ToNode::Status => Ok(()),
    }
}

/// Counters as far as a peer may see them: the failure of another job's piece names neither the job nor its files.
pub(super) fn visible(bearer: Bearer, mut status: NodeStatus) -> NodeStatus {
    if let Bearer::User(claims) = bearer
        && status.failing.is_some()
        && status.failing_job.is_none_or(|job| !claims.has(job))
    {
        status.failing = Some("bytes of another job are not on the PFS yet, kept and tried again".to_owned());
        status.failing_job = None;
    }
    status
}
