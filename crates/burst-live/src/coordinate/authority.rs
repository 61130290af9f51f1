//! Requests that the holder of a ticket may make to the coordinator.

use crate::credentials::{Bearer, Claims, OTHER_JOB};
use crate::message::{FromCoordinator, ToCoordinator};
use entresol_burst::Event;

const NO_NODE: &str = "only a holder of the key is a node";

/// Checks that a peer may make a request at a time, nanoseconds since 1970. Every message stands here by its name: a new
/// one is refused to users until it does.
///
/// # Errors
/// The reason of the refusal.
pub(super) fn authorise(bearer: Bearer, request: &ToCoordinator, now_ns: u64) -> Result<(), &'static str> {
    let Some(claims) = bearer.bounds(now_ns)? else { return Ok(()) };
    match request {
        ToCoordinator::Writer(event) => of_event(claims, event),
        // The answer is cut by `visible`.
        ToCoordinator::Nodes => Ok(()),
        ToCoordinator::Hello { .. } | ToCoordinator::Report(_) | ToCoordinator::Events(_) => Err(NO_NODE),
    }
}

fn of_event(claims: Claims, event: &Event) -> Result<(), &'static str> {
    match event {
        Event::Open { object, .. } | Event::Renew { object } | Event::Commit { object } | Event::Abandon { object } => {
            claims.has(object.job).then_some(()).ok_or(OTHER_JOB)
        }
        Event::Stored { .. }
        | Event::Drained { .. }
        | Event::Released { .. }
        | Event::Report(_)
        | Event::NodeLost { .. }
        | Event::Tick => Err(NO_NODE),
    }
}

/// The answer as far as a peer may see it: a user sees no other job.
pub(super) fn visible(bearer: Bearer, mut answer: FromCoordinator) -> FromCoordinator {
    if let (Bearer::User(claims), FromCoordinator::Nodes { undrained, at_risk, undrained_jobs, .. }) =
        (bearer, &mut answer)
    {
        (*undrained, *at_risk) = (0, 0);
        undrained_jobs.retain(|job| claims.has(*job));
    }
    answer
}
