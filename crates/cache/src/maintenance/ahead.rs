//! Work of the maintenance threads: the same that a request does at a hard limit, in small steps and earlier.

use super::{StoreAccess, free_waiting, reclaim_ahead, settle, sync_store, write_some};
use crate::durability::{DEPTH_MAX, WriteBack};
use entresol_store::mutant::{self, Mutant};
use std::io;

/// Writes under way at a time while pages are cleaned ahead, unless the queue demands more.
const DEPTH: usize = 8;

/// Role of a maintenance thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Writes complete batches, and makes the store durable before requests must.
    Store,
    /// Writes the queue below, reclaims segments, cleans pages ahead and keeps the bound on ages.
    Backing,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::Store, Role::Backing];

    /// True if the role has work.
    pub fn calls(self, write_back: &WriteBack) -> bool {
        match self {
            Role::Store => write_back.lacks_sync() || (write_back.store.sealed_len() > 0 && write_back.has_help()),
            Role::Backing => {
                let old = write_back.ages_call() && !mutant::is(Mutant::AgeOnlyOnAccess);
                write_back.lacks_room() || write_back.lacks_clean_pages() || old
            }
        }
    }
}

/// One step towards the soft watermarks.
pub(crate) fn make_some_room(access: &mut impl StoreAccess) -> io::Result<()> {
    if access.write_back().reclaim.is_some() {
        empty_ahead(access)?;
    }
    let keeps_slots = access.write_back().owes_slots();
    let depth = if keeps_slots { DEPTH_MAX } else { access.write_back().depth().min(DEPTH_MAX) };
    if depth > 0 {
        write_some(access, depth)?;
    }
    if keeps_slots || access.write_back().is_unsynced_half_full() {
        settle(access)?;
    }
    if access.write_back().reclaim.is_none() && access.write_back().lacks_segments() {
        reclaim_noted(access)?;
    }
    if access.write_back().awaits_segments() {
        free_waiting(access)?;
    }
    if access.write_back().lacks_clean_pages() { clean_some(access) } else { Ok(()) }
}

/// Reclaims ahead of need, and notes whether that has gained anything.
fn reclaim_noted(access: &mut impl StoreAccess) -> io::Result<()> {
    let free = access.write_back().free_once_durable();
    reclaim_ahead(access)?;
    access.write_back().reclaimed_ahead(free);
    Ok(())
}

/// Rounds of reclaim until enough segments are free, or a round gains nothing: writes below, which take longer, would
/// come between. What a round gives up is free after the sync of the next one.
fn empty_ahead(access: &mut impl StoreAccess) -> io::Result<()> {
    while access.write_back().lacks_segments() && !access.write_back().is_queue_full() {
        reclaim_noted(access)?;
        if access.write_back().lacks_free_segments() {
            sync_store(access)?;
            if let Some(slots) = access.write_back().store.slots() {
                slots.state_what_is_durable();
            }
        }
    }
    Ok(())
}

/// One step towards fewer dirty pages.
fn clean_some(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_back = access.write_back();
    write_back.dirty_limits.cleaning = true;
    write_back.queue_cold();
    if write_back.dirty_queue.is_empty() {
        settle(access)?;
    } else {
        let depth = access.write_back().depth().clamp(DEPTH, DEPTH_MAX);
        write_some(access, depth)?;
    }
    let write_back = access.write_back();
    write_back.dirty_limits.cleaning = write_back.lacks_clean_pages();
    Ok(())
}
