//! The core of a cache, without its policy's type: what requests, maintenance and long operations ask of it.

use super::durability::{Source, WriteBack};
use super::executor::Executor;
use super::frame_hits::FrameHits;
use super::learned::{LearnedState, Tables};
use super::maintenance::Refused;
use super::objects::Objects;
use super::plan::{PageBytes, Plan};
use super::search::Search;
use super::{CacheStats, Mode, Tag};
use entresol_core::{Hint, ObjectId, Page};
use entresol_policy::{Choice, Streams, Wear};
use entresol_store::{Clock, Entry};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A core of any policy: one virtual call per step. Methods do I/O only where their doc or the head of `locks.rs` says
/// so.
pub(super) trait Core: Send {
    /// The store and the way to the backing store.
    fn write_back(&mut self) -> &mut WriteBack;
    /// Begins to serve the recovered pages, at most so many of them.
    fn start(&mut self, pages: usize);
    /// Has the policy go on with what it had learned before, page by page as it is shown them. To be called before
    /// [`start`](Core::start). False, with nothing changed, if the policy cannot.
    fn learn(&mut self, state: LearnedState) -> bool;
    /// The policy's knowledge of classes of pages. None if it learns nothing that lasts, or the cache device is out of use.
    fn learned(&mut self) -> Option<Tables>;
    /// Histories of the pages that the policy of this name holds, of these handles. None if there are no more, or the policy
    /// is another one.
    fn histories(&mut self, policy: &str, handles: Range<usize>) -> Option<Vec<(u64, u32)>>;
    /// The pages of each object, and its account.
    fn objects(&mut self) -> &mut Objects;
    /// Tells the policy of a query.
    fn hint(&mut self, hint: Hint);
    /// Pages of an object that the policy holds whole; 0 for any other.
    fn placed(&self, object: ObjectId) -> u64;
    /// Has the policy do a little of the work that a hint left. True if more is left.
    fn go_on(&mut self) -> bool;
    /// True if the policy holds the page.
    fn holds(&mut self, page: u64) -> bool;
    /// Prefetches a page of an object that the policy holds whole; `bytes` are those of its newest version. True if
    /// the policy holds the page now and did not before. A prefetch is no request.
    fn prefetch_object(&mut self, page: u64, bytes: &[u8], tag: Tag) -> bool;
    /// True if the cache device is out of use.
    fn is_off(&self) -> bool;
    /// Handling of writes.
    fn mode(&self) -> Mode;
    /// Sets the detector of long sequential streams that bypass the cache from now on. None: no stream bypasses it.
    fn follow(&mut self, streams: Option<Box<Streams>>);
    /// Finds the newest version of a page, and copies its bytes if memory has them.
    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source>;
    /// Handles an unreadable copy in the store. An error if the page is lost; otherwise the page is found elsewhere.
    fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()>;
    /// Takes the steps that the decisions of this hold of the core's lock have left.
    fn take_plan(&mut self) -> Plan;
    /// True if decisions of this hold have left steps.
    fn has_steps(&self) -> bool;
    /// Decides on a read of a page; the contents are those of its newest version. Leaves steps.
    fn read(&mut self, page: u64, contents: PageBytes, tag: Tag);
    /// Decides on a read of a page in the store whose bytes are not known yet, if no movement can need them. True if it
    /// did; if the bytes then come from elsewhere, [`fill`](Core::fill) follows. Leaves no step.
    fn read_stored(&mut self, page: u64, tag: Tag) -> bool;
    /// Shares frames with a table from now on.
    fn share_frames(&mut self, hits: Arc<FrameHits>);
    /// Lets a page be read without the core's lock, if its newest version is where a hit moves no page: in memory, or on
    /// the cache device where no memory lies above it.
    fn enter_hit(&mut self, page: u64);
    /// Decides on a read that was answered without the core's lock. False if the page is there no more. Leaves no step.
    fn hear_of_hit(&mut self, page: u64, tag: Tag) -> bool;
    /// Puts a page that was decided on into the tier where the policy believes it to be, if that has no bytes of it.
    /// Leaves steps.
    fn fill(&mut self, page: u64, contents: PageBytes);
    /// True if the policy believes a page to be in a tier that has no bytes of it.
    fn awaits_bytes(&self, page: u64) -> bool;
    /// Reads whole pages from `first` on and decides on each; true if it did. All must be in memory where a hit moves
    /// nothing. Leaves steps.
    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool;
    /// Checks whether whole pages from `first` on can be read from the backing store in one piece. If so, returns as
    /// bits the pages that the cache holds as well. `bytes` may then hold anything.
    fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64>;
    /// Stops reading gaps: the backing store did not have one in its memory.
    fn skip_gaps(&mut self);
    /// Writes a page. `whole` when none of its bytes were read for the write. Leaves steps.
    fn write(&mut self, page: u64, contents: PageBytes, whole: bool, tag: Tag) -> io::Result<()>;
    /// Frames that a flush has to hand to the store by [`store_frames`](Core::store_frames): at most `most`, from
    /// handle `from` on, ascending.
    fn unstored(&self, from: u32, most: usize) -> Vec<Page>;
    /// Hands frames to the store, as long as there is space. Returns the number of those that need no more. Leaves steps.
    fn store_frames(&mut self, handles: &[Page]) -> io::Result<usize>;
    /// Queues those of these pages that are still to be written below, from memory where a frame has the bytes.
    fn queue_owed(&mut self, pages: &[u64]) -> io::Result<()>;
    /// Queues pages that only memory has to be written below.
    fn hand_down(&mut self, pages: &[u64]) -> io::Result<()>;
    /// Sets the bound on the time for which a page may differ from the backing store.
    fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock);
    /// Sets the bound on the wear of a log below the policy; false if there is no such log.
    fn set_wear(&mut self, wear: Wear) -> bool;
    /// Takes a failed cache device out of use, and writes below all that can be saved. Does I/O.
    fn give_up_cache(&mut self) -> io::Result<()>;
    /// True if a search is shorter than a look at every page of its range.
    fn should_search(&self, search: &Search) -> bool;
    /// Goes on with a search and adds the pages found. True if more is left to search.
    fn search(&self, search: &mut Search, found: &mut Vec<u64>) -> bool;
    /// Begins to discard or invalidate pages. Returns those of which anything is held.
    fn begin_to_void(&mut self, pages: &[u64]) -> Vec<u64>;
    /// Queues a discard of a page of which something is held. Called within the hard limits only.
    fn discard_held(&mut self, page: u64) -> io::Result<()>;
    /// Invalidates pages that were changed below: no held version is served or written there. Returns the held ones.
    fn make_void(&mut self, pages: &[u64]) -> Vec<u64>;
    /// Declares an invalidated page gone in the store. Called within the hard limits only.
    fn declare_void(&mut self, page: u64) -> io::Result<()>;
    /// Changes the mode; dirty pages stay dirty.
    fn set_mode(&mut self, mode: Mode);
    /// Begins or ends sending writes below at once, in write-back mode too.
    fn send_through(&mut self, through: bool);
    /// Marks the cache as closed in good order, after a flush. Does I/O.
    fn close(&mut self) -> io::Result<()>;
    /// Shows the policy some of the pages that it has not seen. Called within the hard limits only. True if more may be
    /// left.
    fn show_more(&mut self) -> bool;
    /// Takes the core apart: the executor, and the policy with its memory, which takes a while to free.
    fn leave(self: Box<Self>) -> (Executor, Box<dyn Send>);
    /// Counts and state.
    fn stats(&self) -> CacheStats;
    /// Figures that the policy reports, by name.
    fn gauges(&self) -> Vec<(&'static str, f64)>;
    /// Candidates of a policy that lets one of several decide, with its figures on each.
    fn choice(&self) -> Option<Choice>;
    /// Use of an object as the policy has found it, in a word.
    fn verdict(&self, object: ObjectId) -> Option<&'static str>;
    /// Pages whose only copy was lost.
    fn lost_pages(&self) -> Vec<u64>;
    /// Dirty pages that the backing store refuses once more. Does I/O.
    fn retry_refused(&mut self) -> io::Result<Refused>;
    /// Writes below every dirty page that the backing store takes. Returns those that it refuses. Does I/O.
    fn drain_past_refused(&mut self) -> io::Result<Refused>;
    /// Pages that the store holds, in no order, and whether each is dirty.
    fn held_pages(&self) -> Vec<(u64, bool)>;
    /// Those of these pages of which anything is held, and whether the store has each as dirty.
    fn held_of(&self, pages: &[u64]) -> Vec<(u64, bool)>;
    /// Pages of a range of which anything is held, ascending, found without a [`Search`].
    #[cfg(test)]
    fn held_in(&self, pages: &std::ops::Range<u64>) -> Vec<u64>;
    /// Pages that count as cached though the policy does not hold them, once it has been shown all earlier pages.
    #[cfg(test)]
    fn unknown_residents(&self) -> Vec<u64>;
}
