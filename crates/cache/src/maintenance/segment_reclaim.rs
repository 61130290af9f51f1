//! Reclaim of segments, in the layout of that name: pages that are still needed are appended again, and a segment is
//! written again as a whole. Which segment comes next is decided by the object that the simulator drives too.

use super::{StoreAccess, catch_up, empty_segment, write_needed};
use crate::durability::{FREE_MIN, WriteBack};
use entresol_policy::COMPARED;
use entresol_store::mutant::{self, Mutant};
use std::io;

/// Most slots that are looked at in one hold of the core's lock.
const LOOKS: usize = 256;

/// Empties segments until enough are free, or will be once that is durable. Ahead of need it leaves requests the
/// segments that they may want meanwhile.
pub(super) fn empty_segments(access: &mut impl StoreAccess, ahead: bool) -> io::Result<()> {
    if ahead && access.write_back().store.free_segments() < FREE_MIN {
        return Ok(());
    }
    let mut taken = Vec::new();
    let emptied = empty_some(access, ahead, &mut taken);
    // After an error, or where requests have written to a page meanwhile, a segment may hold something.
    let write_back = access.write_back();
    taken.into_iter().for_each(|segment| write_back.note_emptied(segment));
    emptied
}

fn empty_some(access: &mut impl StoreAccess, ahead: bool, taken: &mut Vec<u32>) -> io::Result<()> {
    let least = if ahead { access.write_back().free_for_requests() } else { FREE_MIN - 1 };
    let start = access.write_back().slots_to_gain();
    // Versions of each segment, as pages and addresses.
    let mut versions = Vec::new();
    let mut owed = false;
    // Copies take blocks that must be gained too.
    while access.write_back().slots_to_gain() > 0 && taken.len() as u64 <= start {
        let no_room = access.write_back().store.free_segments() < least;
        if no_room && !taken.is_empty() {
            break;
        }
        let Some(segment) = next_victim(access)? else { break };
        taken.push(segment);
        let held = access.write_back().versions_in(segment);
        owed |= empty_segment(access, &held)?;
        // A copy need not be durable: in the journal it comes before the entry that frees its former slot.
        access.write_back().give_up_clean(&held)?;
        catch_up(access)?;
        versions.push(held);
    }
    if owed && !mutant::is(Mutant::TailTooEarly) {
        write_needed(access, &versions)?;
    }
    versions.iter().try_for_each(|versions| access.write_back().give_up_clean(versions))
}

/// Chooses a segment, with a few looks in each hold.
fn next_victim(access: &mut impl StoreAccess) -> io::Result<Option<u32>> {
    let step = (LOOKS / access.write_back().store.geometry().segment_pages as usize).clamp(1, COMPARED);
    for _ in 0..COMPARED.div_ceil(step) {
        access.write_back().compare_segments(step);
        access.pass()?;
    }
    Ok(access.write_back().take_victim())
}

/// Ranks of a segment's pages: those that the policy counts as cached may not be dropped, the others take no room.
fn rank_residents(residents: usize, ranks: &mut Vec<f32>) {
    ranks.extend(std::iter::repeat_n(f32::INFINITY, residents));
}

impl WriteBack {
    /// Slots that are missing from enough free ones, in whole segments.
    fn slots_to_gain(&mut self) -> u64 {
        let (_, enough) = self.enough_slots();
        self.store.slots().map_or(0, |slots| enough.saturating_sub(slots.free_once_durable()))
    }

    fn compare_segments(&mut self, segments: usize) {
        let (Some(slots), Some(reclaim)) = (self.store.slots(), &mut self.reclaim) else { return };
        for segment in slots.take_changed() {
            if slots.is_sealed(segment) { reclaim.seal(segment) } else { reclaim.unseal(segment) }
        }
        reclaim.compare(segments, |segment, ranks| rank_residents(slots.needed_in(segment), ranks));
    }

    fn take_victim(&mut self) -> Option<u32> {
        let (slots, reclaim) = (self.store.slots()?, self.reclaim.as_mut()?);
        let victim = reclaim.take(|segment, ranks| rank_residents(slots.needed_in(segment), ranks));
        victim.map(|victim| victim.segment)
    }

    fn versions_in(&mut self, segment: u32) -> Vec<(u64, u64)> {
        self.store.slots().map_or_else(Vec::new, |slots| slots.versions_in(segment))
    }

    /// Gives up the slots of those of these versions that the backing store has. A version that the policy holds could
    /// not be read: the page is read from below when it is asked for next.
    fn give_up_clean(&mut self, versions: &[(u64, u64)]) -> io::Result<()> {
        let early = mutant::is(Mutant::TailTooEarly) || mutant::is(Mutant::DirtyNotKept);
        for &(page, address) in versions {
            let entry = self.store.index().get(page).filter(|entry| entry.address == address && !entry.lost);
            if entry.is_some_and(|entry| !entry.dirty || early) {
                self.declare_gone(page)?;
                self.counts.slots_freed += 1;
            }
        }
        Ok(())
    }

    /// Counts an emptied segment. One that still holds something is chosen again later.
    fn note_emptied(&mut self, segment: u32) {
        let is_sealed = self.store.slots().is_some_and(|slots| slots.is_sealed(segment));
        match &mut self.reclaim {
            Some(reclaim) if is_sealed => reclaim.seal(segment),
            _ => self.counts.segments_reclaimed += 1,
        }
    }
}
