//! One policy with its world: serves pages, one request at a time.

use super::counts::Counts;
use super::keeper::{Keeper, KeeperCounts, Source};
use super::upkeep;
use super::world::{World, request};
use super::{CacheConfig, CacheError, CacheStats, Mode, Tag, change};
use crate::mutant::{self, Mutant};
use entresol_core::{Op, Page};
use entresol_policy::{Config, Policy};
use std::io;
use std::ops::Range;

/// A core of any policy: one virtual call per step. None of them waits for I/O but those that say so.
pub(super) trait Core: Send {
    /// The log and the way below.
    fn keeper(&mut self) -> &mut Keeper;
    /// Is the cache device out of use?
    fn is_off(&self) -> bool;
    /// What becomes of writes.
    fn mode(&self) -> Mode;
    /// Finds the newest version of a page; its bytes, if memory has them.
    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source>;
    /// Decides on a read of a page, whose newest version these are the bytes of.
    fn read(&mut self, page: u64, bytes: &[u8], tag: Tag);
    /// Reads whole pages from one on and decides on each, if all are in memory where a hit moves nothing; whether it did.
    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool;
    /// Writes a page. `whole` when none of the bytes were read for it.
    fn write(&mut self, page: u64, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()>;
    /// What a flush has to hand over to the log, by [`log_frames`](Core::log_frames), a few at a time.
    fn unlogged(&self) -> Vec<Page>;
    /// Hands frames over to the log.
    fn log_frames(&mut self, handles: &[Page]) -> io::Result<()>;
    /// After a failure of the cache device: everything that can be saved goes below, and the cache is out of use. Does
    /// I/O.
    fn give_up_cache(&mut self) -> io::Result<()>;
    /// Discards whole pages. Does I/O.
    fn discard(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Whole pages were changed below: what is held of them is void. Does I/O.
    fn forget(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Changes the mode. Does I/O.
    fn set_mode(&mut self, mode: Mode) -> io::Result<()>;
    /// Writes every dirty page below. Does I/O.
    fn drain(&mut self) -> io::Result<()>;
    /// Notes that all is in order, after a flush. Does I/O.
    fn close(&mut self) -> io::Result<()>;
    /// Makes ready for [`change`](Core::change).
    fn settle_for_change(&mut self) -> io::Result<()>;
    /// Another policy over the same stores, after [`settle_for_change`](Core::settle_for_change); itself again with the
    /// reason if that cannot be.
    fn change(self: Box<Self>, to: &CacheConfig, built_for: &Config) -> (Box<dyn Core>, Result<(), CacheError>);
    /// Counts and state.
    fn stats(&self) -> CacheStats;
    /// Pages whose only copy was lost.
    fn lost_pages(&self) -> Vec<u64>;
    /// Pages that the log holds, in no order, and whether each is dirty.
    fn held_pages(&self) -> Vec<(u64, bool)>;
}

/// Recovered pages between the one that the policy is shown and the one for which memory is asked.
const AHEAD: usize = 12;

pub(super) struct Engine<P> {
    pub(super) policy: P,
    pub(super) world: World,
    mode: Mode,
    /// The cache device has failed and is out of use.
    off: bool,
}

impl<P: Policy> Engine<P> {
    pub fn new(policy: P, world: World, mode: Mode) -> Self {
        Engine { policy, world, mode, off: false }
    }

    /// Policy, world and mode.
    pub fn into_parts(self) -> (P, World, Mode) {
        (self.policy, self.world, self.mode)
    }

    /// Shows the policy what is held after a change. What fails then fails again for the next request.
    pub fn show(&mut self) {
        let shown = self.replay();
        let _known_to_the_keeper = self.after(shown, |_| Ok(()));
    }

    /// Makes durable where it goes what is on its way, and puts into the log what only frames have.
    pub fn hand_over(&mut self) -> io::Result<()> {
        let settled = mutant::is(Mutant::NotSettledForChange);
        let result = self.world.hand_over_frames();
        let result = result.and_then(|()| if settled { Ok(()) } else { upkeep::flush(&mut self.world.keeper, true) });
        self.after(result, |_| Ok(()))
    }

    /// Shows the policy what was recovered, oldest first, so that it holds it again.
    pub fn replay(&mut self) -> io::Result<()> {
        let shown = self.show_held();
        // What comes next is a request, whether or not all could be shown.
        self.world.end_replay();
        shown
    }

    fn show_held(&mut self) -> io::Result<()> {
        let entries = self.world.keeper.log.index.iter();
        let held: Vec<u64> = entries.filter(|(_, entry)| !entry.lost).map(|(page, _)| page).collect();
        for (i, &page) in held.iter().enumerate() {
            if let Some(&later) = held.get(i + AHEAD) {
                self.world.keeper.log.index.prefetch(later);
                self.world.directory.prefetch(later);
            }
            upkeep::make_ready(&mut self.world.keeper)?;
            // Making room may have written it below.
            let Some(entry) = self.world.keeper.log.index.get(page) else { continue };
            let op = if entry.dirty { Op::Write } else { Op::Read };
            let policy = &self.policy;
            let Some(handle) = self.world.directory.handle(page, |handle| !policy.state(handle).known) else {
                continue;
            };
            self.world.begin_replay(page, op);
            self.policy.access(request(handle, op, false), &mut self.world);
            self.world.end()?;
        }
        Ok(())
    }

    /// Runs one page request through the policy; none when the directory has no handle for its page.
    fn access(&mut self, page: u64, op: Op, bytes: &[u8], tag: Tag) -> Option<(Page, io::Result<()>)> {
        let policy = &self.policy;
        let handle = self.world.directory.handle(page, |handle| !policy.state(handle).known);
        let Some(handle) = handle else {
            self.world.counts.directory_full += 1;
            return None;
        };
        self.world.begin(page, op, bytes, tag.now_us);
        let outcome = self.policy.access(request(handle, op, tag.sequential), &mut self.world);
        self.world.counts.outcome(op, outcome);
        Some((handle, self.world.end()))
    }

    fn is_held(&self, page: u64) -> bool {
        self.world.directory.find(page).is_some_and(|handle| !self.policy.state(handle).tiers.is_empty())
    }

    fn write_page(&mut self, page: u64, op: Op, bytes: &[u8], tag: Tag) -> io::Result<()> {
        if self.mode == Mode::WriteAround && !self.is_held(page) {
            self.world.counts.around += 1;
            self.world.counts.writes += 1;
            return self.world.keeper.write_past(page, bytes);
        }
        let Some((handle, result)) = self.access(page, op, bytes, tag) else {
            return self.world.keeper.write_past(page, bytes);
        };
        result?;
        if self.mode != Mode::WriteBack && !self.world.went_past() {
            self.world.write_through(handle)?;
        }
        Ok(())
    }

    /// Discards a page of which something is held: it goes through the queue, so that the order of things is kept.
    fn discard_held(&mut self, page: u64) -> io::Result<()> {
        self.make_ready()?;
        self.world.hollow_out(page);
        if self.off {
            self.world.keeper.discard_without_log(page);
            return Ok(());
        }
        let result = self.world.keeper.discard_past(page);
        self.after(result, |engine| {
            engine.world.keeper.discard_without_log(page);
            Ok(())
        })
    }

    /// Before an operation that has the cache to itself: see [`upkeep::make_ready`].
    fn make_ready(&mut self) -> io::Result<()> {
        if self.off {
            return self.world.keeper.make_ready_without_log();
        }
        let result = upkeep::make_ready(&mut self.world.keeper);
        self.after(result, |_| Ok(()))
    }

    /// Ends an operation. A failure of the cache device turns into an error only where it cost data or an
    /// acknowledgement.
    fn after(&mut self, result: io::Result<()>, again: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.off || !self.world.keeper.broken {
            return result;
        }
        self.give_up_cache()?;
        if result.is_err() { again(self) } else { Ok(()) }
    }
}

impl<P: Policy> Core for Engine<P> {
    fn keeper(&mut self) -> &mut Keeper {
        &mut self.world.keeper
    }

    fn is_off(&self) -> bool {
        self.off
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source> {
        if self.off {
            return self.world.keeper.locate_below(page, bytes);
        }
        let handle = self.world.directory.find(page);
        self.world.locate(page, handle, bytes)
    }

    fn read(&mut self, page: u64, bytes: &[u8], tag: Tag) {
        if self.off {
            return;
        }
        // The reader has what it wants and is not told of trouble with other pages: they stay queued or are listed.
        if let Some((handle, _trouble)) = self.access(page, Op::Read, bytes, tag) {
            let in_log = self.policy.state(handle).tiers.contains(self.world.log_tier());
            self.world.fill(handle, in_log);
        }
    }

    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool {
        self.read_uppermost(first, bytes, tag)
    }

    fn write(&mut self, page: u64, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()> {
        if self.off {
            self.world.keeper.write_without_log(page, bytes);
            return Ok(());
        }
        self.write_page(page, if whole { Op::Write } else { Op::Update }, bytes, tag)
    }

    fn unlogged(&self) -> Vec<Page> {
        self.world.unlogged()
    }

    fn log_frames(&mut self, handles: &[Page]) -> io::Result<()> {
        if self.off { Ok(()) } else { self.world.log_frames(handles) }
    }

    fn give_up_cache(&mut self) -> io::Result<()> {
        self.off = true;
        self.world.keeper.abandon_log();
        self.world.write_frames_below(false)?;
        upkeep::flush_without_log(&mut self.world.keeper)
    }

    fn discard(&mut self, pages: Range<u64>) -> io::Result<()> {
        let mut free_from = pages.start;
        for held in self.world.held_in(&pages).into_iter().chain([pages.end]) {
            if free_from < held {
                self.make_ready()?;
                self.world.keeper.discard_below(free_from..held)?;
            }
            free_from = held + 1;
            if held < pages.end {
                self.discard_held(held)?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, pages: Range<u64>) -> io::Result<()> {
        let held = self.world.held_in(&pages);
        held.iter().for_each(|&page| self.world.hollow_out(page));
        if self.off {
            self.world.keeper.forget_without_log(&held);
            return Ok(());
        }
        let result = self.world.keeper.forget(pages, &held);
        self.after(result, |engine| {
            engine.world.keeper.forget_without_log(&held);
            Ok(())
        })
    }

    fn set_mode(&mut self, mode: Mode) -> io::Result<()> {
        if self.mode == Mode::WriteBack && mode != Mode::WriteBack {
            self.drain()?;
        }
        self.mode = mode;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        if self.off {
            return upkeep::flush_without_log(&mut self.world.keeper);
        }
        let result = self.world.write_frames_below(true).and_then(|()| self.world.keeper.drain());
        self.after(result, |_| Ok(()))
    }

    fn close(&mut self) -> io::Result<()> {
        if self.off {
            return Ok(());
        }
        let result = self.world.keeper.close();
        self.after(result, |_| Ok(()))
    }

    fn settle_for_change(&mut self) -> io::Result<()> {
        Engine::settle_for_change(self)
    }

    fn change(self: Box<Self>, to: &CacheConfig, built_for: &Config) -> (Box<dyn Core>, Result<(), CacheError>) {
        change::rebuild(*self, to, built_for)
    }

    fn stats(&self) -> CacheStats {
        let counts: Counts = self.world.counts;
        let keeper: KeeperCounts = self.world.keeper.counts;
        CacheStats {
            counts,
            keeper,
            log: self.world.keeper.log.counts(),
            dirty_pages: self.world.keeper.log.index.dirty_len() as u64,
            index_bytes: self.world.keeper.log.index.memory_bytes() as u64,
            directory_bytes: self.world.directory.memory_bytes() as u64,
            mode: self.mode,
            failed: self.off,
        }
    }

    fn lost_pages(&self) -> Vec<u64> {
        self.world.keeper.lost_pages()
    }

    fn held_pages(&self) -> Vec<(u64, bool)> {
        self.world.keeper.log.index.iter().map(|(page, entry)| (page, entry.dirty)).collect()
    }
}
