//! One policy with its world: serves pages, one request at a time.

use super::counts::Counts;
use super::keeper::KeeperCounts;
use super::world::{World, request};
use super::{CacheConfig, CacheError, CacheStats, Mode, Tag, change};
use crate::disk::Disk;
use crate::mutant::{self, Mutant};
use entresol_core::Op;
use entresol_policy::{Config, Policy};
use std::io;
use std::ops::Range;

/// A core of any policy: one virtual call per page.
pub(super) trait Core: Send {
    /// Reads a whole page.
    fn read(&mut self, page: u64, bytes: &mut [u8], tag: Tag) -> io::Result<()>;
    /// Writes part of a page from a byte on. `whole` when no byte of the page that counts is left out.
    fn write(&mut self, page: u64, from: usize, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()>;
    /// Makes durable what was written.
    fn flush(&mut self) -> io::Result<()>;
    /// Discards whole pages.
    fn discard(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Whole pages were changed below: what is held of them is void.
    fn forget(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Changes the mode.
    fn set_mode(&mut self, mode: Mode) -> io::Result<()>;
    /// Writes every dirty page below.
    fn drain(&mut self) -> io::Result<()>;
    /// Flushes and notes that all is in order.
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

pub(super) struct Engine<P, C, B> {
    policy: P,
    world: World<C, B>,
    mode: Mode,
    /// The cache device has failed and is out of use.
    off: bool,
    /// A page's worth of bytes.
    scratch: Vec<u8>,
}

impl<P: Policy, C: Disk, B: Disk> Engine<P, C, B> {
    pub fn new(policy: P, world: World<C, B>, mode: Mode, page_bytes: usize) -> Self {
        Engine { policy, world, mode, off: false, scratch: vec![0; page_bytes] }
    }

    /// Policy, world, mode and page size.
    pub fn into_parts(self) -> (P, World<C, B>, Mode, usize) {
        (self.policy, self.world, self.mode, self.scratch.len())
    }

    /// Is the cache device out of use?
    pub fn is_off(&self) -> bool {
        self.off
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
        let result = result.and_then(|()| if settled { Ok(()) } else { self.world.keeper.flush(true) });
        self.after(result, |_| Ok(()))
    }

    /// Shows the policy what was recovered, oldest first, so that it holds it again.
    pub fn replay(&mut self) -> io::Result<()> {
        let entries = self.world.keeper.log.index.iter();
        let held: Vec<u64> = entries.filter(|(_, entry)| !entry.lost).map(|(page, _)| page).collect();
        for (i, &page) in held.iter().enumerate() {
            if let Some(&later) = held.get(i + AHEAD) {
                self.world.keeper.log.index.prefetch(later);
                self.world.directory.prefetch(later);
            }
            self.world.keeper.make_ready()?;
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
        self.world.end_replay()
    }

    /// Runs one page request through the policy; false when the directory has no handle for its page.
    fn access(
        &mut self,
        page: u64,
        op: Op,
        whole: Option<&[u8]>,
        tag: Tag,
    ) -> Option<(entresol_core::Page, io::Result<()>)> {
        let policy = &self.policy;
        let handle = self.world.directory.handle(page, |handle| !policy.state(handle).known);
        let Some(handle) = handle else {
            self.world.counts.directory_full += 1;
            return None;
        };
        self.world.begin(page, op, whole, tag.now_us);
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
        let Some((handle, result)) = self.access(page, op, Some(bytes), tag) else {
            return self.world.keeper.write_past(page, bytes);
        };
        result?;
        if self.mode != Mode::WriteBack && !self.world.went_past() {
            self.world.write_through(handle)?;
        }
        Ok(())
    }

    /// After a failure of the cache device: everything that can be saved goes below, and the cache is out of use.
    fn give_up_cache(&mut self) -> io::Result<()> {
        self.off = true;
        self.world.keeper.abandon_log();
        self.world.write_frames_below(false)?;
        self.world.keeper.flush_without_log()
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

    /// Before a request: see [`Keeper::make_ready`](super::keeper::Keeper::make_ready).
    fn make_ready(&mut self) -> io::Result<()> {
        if self.off {
            return self.world.keeper.make_ready_without_log();
        }
        let result = self.world.keeper.make_ready();
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

impl<P: Policy, C: Disk + 'static, B: Disk + 'static> Core for Engine<P, C, B> {
    fn read(&mut self, page: u64, bytes: &mut [u8], tag: Tag) -> io::Result<()> {
        self.make_ready()?;
        if self.off {
            return self.world.keeper.read_below(page, bytes);
        }
        let result = match self.access(page, Op::Read, None, tag) {
            None => self.world.keeper.read_below(page, bytes),
            Some((handle, accessed)) => {
                if let Some(found) = self.world.found() {
                    bytes.copy_from_slice(found);
                    Ok(())
                } else {
                    accessed.and_then(|()| self.world.read_newest(page, Some(handle), bytes))
                }
            }
        };
        // The reader of a page that was found is not told of trouble with others: they stay queued or are listed.
        let was_off = self.off;
        self.after(result, |_| Ok(()))?;
        if self.off && !was_off { self.world.keeper.read_below(page, bytes) } else { Ok(()) }
    }

    fn write(&mut self, page: u64, from: usize, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()> {
        if self.mode == Mode::ReadOnly {
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the cache is in read-only mode"));
        }
        self.make_ready()?;
        let mut full = std::mem::take(&mut self.scratch);
        let completed = if whole {
            full.fill(0);
            Ok(())
        } else if self.off {
            self.world.keeper.read_below(page, &mut full)
        } else {
            let handle = self.world.directory.find(page);
            self.world.read_newest(page, handle, &mut full)
        };
        let result = completed.and_then(|()| {
            full[from..from + bytes.len()].copy_from_slice(bytes);
            if self.off {
                self.world.keeper.write_without_log(page, &full);
                return Ok(());
            }
            let op = if whole { Op::Write } else { Op::Update };
            let result = self.write_page(page, op, &full, tag);
            self.after(result, |engine| {
                engine.world.keeper.write_without_log(page, &full);
                Ok(())
            })
        });
        self.scratch = full;
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.off {
            return self.world.keeper.flush_without_log();
        }
        let through = self.mode != Mode::WriteBack;
        let result = self.world.log_frames().and_then(|()| self.world.keeper.flush(through));
        self.after(result, |_| Ok(()))
    }

    fn discard(&mut self, pages: Range<u64>) -> io::Result<()> {
        if self.mode == Mode::ReadOnly {
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the cache is in read-only mode"));
        }
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
            return self.world.keeper.flush_without_log();
        }
        let result = self.world.write_frames_below(true).and_then(|()| self.world.keeper.drain());
        self.after(result, |_| Ok(()))
    }

    fn close(&mut self) -> io::Result<()> {
        Core::flush(self)?;
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
