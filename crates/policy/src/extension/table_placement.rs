//! Table placement: whole tables and indexes are brought to the fast device before a query runs.
//!
//! 000, section 2.7.1 and figure 2.13, after Luo, Lee, Mesnier, Chen, "hStorage-DB: heterogeneity-aware data management
//! to exploit the full capability of hybrid storage systems", PVLDB 2012, and the advisor of Canim, Mihaila,
//! Bhattacharjee, Lang, Ross, "An object placement advisor for DB2 using solid state storage", PVLDB 2009, which ranks
//! objects by the random reads they cause for the space they take.
//!
//! When a query begins, those of its objects that are not placed yet are taken in the order of random accesses seen
//! so far per page. Each is fetched as a whole when it fits, the least recently required objects making room for it;
//! otherwise it is read where it is (step 3 of the figure). Requests to placed objects hit, all others pass by.
//!
//! Readings. What the query itself requires is never moved out for it. An object that was never accessed at random
//! brings nothing on the fast device and takes free space only. Of equal benefit the smaller object goes first, then
//! the one with the lower number. An object of which no page was ever requested is not known and is not placed.
//!
//! The figure moves an object in one step, which takes no time in a simulator. With `fill=gradual`, as in a live cache,
//! no request waits for the move: a hint only decides which objects are to be placed and which to leave. A page of a
//! placed object is admitted when it is prefetched or first requested by a query. Pages of objects that leave go a few
//! with each request, or when [`go_on`](Policy::go_on) is called; until then they are served. An object that a person
//! placed ([`Hint::Place`]) displaces others whatever its benefit, and is not moved out for others.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, GroupLists, Lists};
use entresol_core::{Hint, Movement, ObjectId, Outcome, Page, Request, Tier, Verb};

const NVM: Tier = Tier::TOP;
const PLACED: usize = 0;
/// List of the objects that are to leave and still have pages.
const LEAVING: usize = 1;
/// Pages of such objects that leave with a request: more than a request can bring.
const LEAVE_PER_REQUEST: usize = 4;
/// Pages that leave with a step that no request waits for.
const LEAVE_PER_STEP: usize = 64;
const NONE: u32 = u32::MAX;

/// State of an object: its accesses, its placement and the last query that required it.
#[derive(Clone, Copy, Debug)]
struct Object {
    /// Accesses that were not sequential.
    random: u64,
    /// Pages placed: the object's length when it was fetched; 0 when it is not placed.
    placed: u32,
    /// The last query that required the object, counted from 1.
    required_by: u32,
    /// A page of the object, by which the lists name it.
    some_page: u32,
    /// True if a person placed the object.
    pinned: bool,
}

/// Places whole objects.
#[derive(Clone, Debug)]
pub struct TablePlacement {
    capacity: usize,
    /// Pages of placed objects, brought in or not.
    used: usize,
    /// True if objects are filled page by page.
    gradual: bool,
    /// Pages held; counted with gradual filling only.
    held: usize,
    objects: Vec<Object>,
    /// Placed objects, the last required in front, and objects that leave. The "pages" of these lists are numbers of
    /// objects.
    placed: Lists<2>,
    /// Pages with a handle of every object that is placed or leaves; with gradual filling only the held ones.
    resident: GroupLists,
    dirty: Bits,
    /// Pages by which objects are named.
    named: Bits,
    queries: u32,
    /// Objects of a query that are not placed: scratch space, kept to allocate once.
    candidates: Vec<Candidate>,
}

/// An object that a query requires and that is not placed.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    object: ObjectId,
    pages: u32,
    random: u64,
}

impl Candidate {
    /// Random accesses per page, compared without rounding; ties as the file's heading says.
    fn before(&self, other: &Candidate) -> std::cmp::Ordering {
        let benefit = u128::from(self.random) * u128::from(other.pages);
        let others = u128::from(other.random) * u128::from(self.pages);
        others.cmp(&benefit).then(self.pages.cmp(&other.pages)).then(self.object.cmp(&other.object))
    }
}

const OPTIONS: &[OptionInfo] = &[OptionInfo {
    name: "fill",
    default: "at-once",
    help: "how placed objects are filled: at-once, before the next request; gradual, page by page, as a live cache does",
}];

impl Policy for TablePlacement {
    const INFO: Info = Info {
        name: "table-placement",
        family: "extension",
        summary: "whole tables and indexes placed before a query, by random accesses per page",
        paper: "Luo, Lee, Mesnier, Chen: hStorage-DB, PVLDB 2012; Canim et al.: An object placement advisor for DB2 \
                using solid state storage, PVLDB 2009",
        options: OPTIONS,
        tiers: &["nvm"],
        addresses: true,
        live: &["fill=gradual"],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let unknown = Object { random: 0, placed: 0, required_by: 0, some_page: NONE, pinned: false };
        Ok(TablePlacement {
            capacity: config.tiers[0],
            used: 0,
            gradual: options.choice("fill", &[("at-once", false), ("gradual", true)])?,
            held: 0,
            objects: vec![unknown; config.objects],
            placed: Lists::new(config.objects),
            resident: GroupLists::new(config.pages, config.objects),
            dirty: Bits::new(config.pages),
            named: Bits::new(config.pages),
            queries: 0,
            candidates: Vec::with_capacity(config.objects),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let address = driver.address(page);
        let object = &mut self.objects[address.object.index()];
        object.random += u64::from(!request.sequential);
        if self.gradual {
            let placed = address.block < u64::from(object.placed);
            return self.access_gradually(request, address.object, placed, driver);
        }
        if object.some_page == NONE {
            object.some_page = page.0;
            self.named.insert(page);
        }
        if address.block >= u64::from(object.placed) {
            return driver.bypass(request);
        }
        if !self.resident.contains(page) {
            self.resident.push(address.object.0, page);
        }
        driver.overwrite(request, NVM);
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        Outcome::Hit(NVM)
    }

    fn hint<D: Driver>(&mut self, hint: Hint, driver: &mut D) {
        match hint {
            Hint::QueryBegin { objects, .. } => self.place_for(objects, driver),
            Hint::QueryEnd { .. } => {}
            Hint::Place { object } => self.pin(object, driver),
            Hint::Unplace { object } => {
                self.objects[object.index()].pinned = false;
                if self.objects[object.index()].placed > 0 {
                    self.move_out(object, driver);
                }
            }
        }
    }

    fn placed(&self, object: ObjectId) -> u64 {
        if self.gradual { self.objects[object.index()].placed.into() } else { 0 }
    }

    fn go_on<D: Driver>(&mut self, driver: &mut D) -> bool {
        self.leave(LEAVE_PER_STEP, driver) == LEAVE_PER_STEP && !self.placed.is_empty(LEAVING)
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        let Object { placed, pinned, .. } = self.objects[object.index()];
        let word = if pinned { "pinned" } else { "placed" };
        (placed > 0).then_some(word)
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.resident.contains(page);
        PageState {
            tiers: TierSet::only(NVM, held),
            dirty: self.dirty.contains(page),
            known: held || self.named.contains(page),
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        if self.gradual { self.held } else { self.used }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("placed_objects", self.placed.len(PLACED) as f64);
        visit("placed_pages", self.used as f64);
        if self.gradual {
            visit("held_pages", self.held as f64);
            visit("leaving_objects", self.placed.len(LEAVING) as f64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.resident.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.objects.capacity() * size_of::<Object>()
            + self.placed.memory_bytes()
            + self.resident.memory_bytes()
            + self.dirty.memory_bytes()
            + self.named.memory_bytes()
            + self.candidates.capacity() * size_of::<Candidate>()
    }
}

impl TablePlacement {
    /// Begins a query: places the objects that it requires and that fit.
    fn place_for<D: Driver>(&mut self, objects: &[ObjectId], driver: &mut D) {
        self.queries += 1;
        self.candidates.clear();
        for &object in objects {
            let entry = &mut self.objects[object.index()];
            if std::mem::replace(&mut entry.required_by, self.queries) == self.queries {
                continue;
            }
            if entry.placed > 0 {
                self.placed.move_to_front(PLACED, Page(object.0));
                continue;
            }
            let pages = driver.object_pages(object);
            let known = self.gradual || entry.some_page != NONE;
            if known && (1..=self.capacity as u64).contains(&pages) {
                self.candidates.push(Candidate { object, pages: pages as u32, random: entry.random });
            }
        }
        self.candidates.sort_unstable_by(Candidate::before);
        for i in 0..self.candidates.len() {
            let candidate = self.candidates[i];
            if self.make_room(candidate, driver) {
                self.place(candidate, driver);
            }
        }
    }

    /// Places an object whatever its benefit, if enough frames can be freed.
    fn pin<D: Driver>(&mut self, object: ObjectId, driver: &mut D) {
        let pages = driver.object_pages(object);
        let Object { placed, some_page, .. } = self.objects[object.index()];
        if placed == 0 {
            let known = self.gradual || some_page != NONE;
            if !known || !(1..=self.capacity as u64).contains(&pages) {
                return;
            }
            let candidate = Candidate { object, pages: pages as u32, random: u64::MAX };
            if !self.make_room(candidate, driver) {
                return;
            }
            self.place(candidate, driver);
        }
        self.objects[object.index()].pinned = true;
    }

    /// Moves out objects that the query does not require until a candidate fits; moves none if it would not fit.
    fn make_room<D: Driver>(&mut self, candidate: Candidate, driver: &mut D) -> bool {
        let needed = candidate.pages as usize;
        let free = self.capacity - self.used;
        if needed <= free {
            return true;
        }
        let query = self.queries;
        let idle = |object: &Object| object.required_by != query && !object.pinned;
        let held = self.placed.iter_from_back(PLACED).map(|object| self.objects[object.index()]);
        let movable: usize = held.filter(idle).map(|object| object.placed as usize).sum();
        if candidate.random == 0 || needed > free + movable {
            return false;
        }
        while needed > self.capacity - self.used {
            let oldest = self.placed.back_where(PLACED, |object| idle(&self.objects[object.index()]));
            let oldest = oldest.expect("enough pages can be moved out");
            self.move_out(ObjectId(oldest.0), driver);
        }
        true
    }

    fn place<D: Driver>(&mut self, Candidate { object, pages, .. }: Candidate, driver: &mut D) {
        if self.gradual {
            if self.placed.contains(Page(object.0)) {
                // The object was about to leave.
                self.placed.remove(LEAVING, Page(object.0));
            }
            self.objects[object.index()].placed = pages;
            self.placed.push_front(PLACED, Page(object.0));
            self.used += pages as usize;
            return;
        }
        let some = Page(self.objects[object.index()].some_page);
        driver.start(some, Verb::FetchObject { object, pages, to: NVM });
        self.objects[object.index()].placed = pages;
        self.placed.push_front(PLACED, Page(object.0));
        self.used += pages as usize;
        // All pages around the known one; pages beyond a gap are added when they are requested.
        let mut first = some;
        while let Some(page) = driver.predecessor(first) {
            first = page;
        }
        let mut page = Some(first);
        while let Some(held) = page.filter(|&page| driver.address(page).block < u64::from(pages)) {
            self.resident.push(object.0, held);
            page = driver.successor(held);
        }
    }

    /// Writes back the dirty pages of an object, a run of neighbours at a time, and frees its frames.
    fn move_out<D: Driver>(&mut self, object: ObjectId, driver: &mut D) {
        if self.gradual {
            self.used -= std::mem::take(&mut self.objects[object.index()].placed) as usize;
            return self.placed.transfer(PLACED, LEAVING, Page(object.0));
        }
        let dirty = |page: &Page| self.dirty.contains(*page);
        for first in self.resident.iter(object.0).filter(dirty) {
            if driver.predecessor(first).is_some_and(|page| dirty(&page)) {
                continue;
            }
            let mut next = Some(first);
            while let Some(page) = next {
                driver.emit(Movement { page, verb: Verb::WriteBack { from: NVM }, joined: page != first });
                next = driver.successor(page).filter(dirty);
            }
        }
        while let Some(page) = self.resident.oldest(object.0) {
            self.resident.remove(object.0, page);
            self.dirty.remove(page);
        }
        let entry = &mut self.objects[object.index()];
        let pages = std::mem::take(&mut entry.placed);
        driver.start(Page(entry.some_page), Verb::DropObject { object, pages, from: NVM });
        self.used -= pages as usize;
        self.placed.remove(PLACED, Page(object.0));
    }

    /// [`access`](Policy::access) for objects that are filled page by page.
    fn access_gradually<D: Driver>(
        &mut self,
        request: Request,
        object: ObjectId,
        placed: bool,
        driver: &mut D,
    ) -> Outcome {
        let page = request.page;
        let mut outcome = Outcome::BYPASSED;
        if self.resident.contains(page) {
            driver.overwrite(request, NVM);
            outcome = Outcome::Hit(NVM);
        } else if placed && (self.held < self.capacity || self.leave(1, driver) == 1) {
            driver.admit(request, NVM);
            self.resident.push(object.0, page);
            self.held += 1;
            outcome = Outcome::ADMITTED;
        } else {
            driver.bypass(request);
        }
        if request.op.is_write() && outcome != Outcome::BYPASSED {
            self.dirty.insert(page);
        }
        self.leave(LEAVE_PER_REQUEST, driver);
        outcome
    }

    /// Frees at most `pages_max` frames of objects that leave; returns how many.
    fn leave<D: Driver>(&mut self, pages_max: usize, driver: &mut D) -> usize {
        let mut left = 0;
        while left < pages_max {
            let Some(object) = self.placed.back(LEAVING) else { break };
            let Some(page) = self.resident.oldest(object.0) else {
                self.placed.remove(LEAVING, object);
                continue;
            };
            if !driver.may_evict(page, NVM) {
                // The page may not be evicted now; it is tried again later.
                break;
            }
            driver.evict(page, NVM, self.dirty.remove(page));
            self.resident.remove(object.0, page);
            self.held -= 1;
            left += 1;
        }
        left
    }
}
