//! Time that requests take, counted from a policy's movements as the drivers carry them out.

use crate::mode::Mode;
use entresol_core::{Demand, Movement, Op, Outcome, Request, STATIONS, Tier, Verb};

/// Time that one access takes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// Latency of the access on an idle device: the time that a waiting requester waits.
    pub waits: f64,
    /// Time that the access occupies the device: the reciprocal of its throughput in accesses a second under full load.
    pub busy: f64,
}

/// Times of the accesses of a tier, or of the level below (the backing store).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Reading a page.
    pub read: Access,
    /// Writing a page.
    pub write: Access,
    /// Reading the part of a page that a request wants, in place.
    pub look: Access,
    /// Changing the part of a page that a request changes, in place.
    pub change: Access,
}

impl Prices {
    /// The same access time for all accesses.
    pub fn of(access: Access) -> Self {
        Prices { read: access, write: access, look: access, change: access }
    }
}

/// Accesses of a request that its requester waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    /// Only those that bring the page; the rest is done in the background.
    #[default]
    Page,
    /// Everything but writes below.
    Copies,
    /// Everything.
    All,
}

/// Prices by which requests are counted, and the accesses that requesters wait for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Prices of each tier, fastest first, and of the level below.
    pub places: Vec<Prices>,
    /// Time of a request for its requester beside its accesses, in seconds.
    pub request: f64,
    /// Accesses of a request that its requester waits for.
    pub awaits: Awaits,
    /// The tier that wears: pages written to it are counted.
    pub wears: usize,
}

/// Counts one request, as the planner of `sim` and `TieredBuffer` carry it out.
pub(super) struct Counter<'a> {
    request: Request,
    terms: &'a Terms,
    waits: f64,
    busy: [f64; STATIONS],
    written: f64,
    /// True if the page was copied up from the tier of its hit: the hit then costs no further read there.
    promoted: bool,
    /// The tier in which the page was installed.
    installed: Option<usize>,
    /// True if the request is a write that the backing store gets at once, and no movement has sent it there yet.
    to_send: bool,
    /// True if the backing store has each write at once, so that there is nothing to write back.
    is_clean: bool,
}

impl<'a> Counter<'a> {
    pub fn new(request: Request, terms: &'a Terms, mode: Mode) -> Self {
        Counter {
            request,
            terms,
            waits: 0.0,
            busy: [0.0; STATIONS],
            written: 0.0,
            promoted: false,
            installed: None,
            to_send: mode.is_clean() && request.op.is_write(),
            is_clean: mode.is_clean(),
        }
    }

    fn below(&self) -> usize {
        self.terms.places.len() - 1
    }

    fn access(&mut self, place: usize, pick: impl Fn(&Prices) -> Access, awaited: bool) {
        let access = pick(&self.terms.places[place]);
        self.busy[place] += access.busy;
        let awaits_rest = match self.terms.awaits {
            Awaits::Page => false,
            // The backing store is only read for the requester.
            Awaits::Copies => place != self.below(),
            Awaits::All => true,
        };
        if awaited || awaits_rest {
            self.waits += access.waits;
        }
    }

    fn write(&mut self, tier: Tier, awaited: bool) {
        self.access(tier.index(), |prices| prices.write, awaited);
        self.written += f64::from(u8::from(tier.index() == self.terms.wears));
    }

    pub fn movement(&mut self, Movement { page, verb, .. }: Movement) {
        let read = |prices: &Prices| prices.read;
        match verb {
            Verb::Fetch { to } => {
                self.access(self.below(), read, true);
                self.write(to, false);
            }
            // Priced at the end, when it is known whether the page was held.
            Verb::Install { to } => self.installed = Some(to.index()),
            Verb::Copy { from, to } => {
                let awaited = page == self.request.page && to < from;
                self.promoted |= awaited;
                self.access(from.index(), read, awaited);
                self.write(to, awaited);
            }
            Verb::WriteBack { .. } if self.is_clean => {}
            Verb::WriteBack { from } => {
                self.access(from.index(), read, false);
                self.access(self.below(), |prices| prices.write, false);
            }
            Verb::Requeue { tier } => {
                self.access(tier.index(), read, false);
                self.write(tier, false);
            }
            Verb::Bypass if self.request.op.is_write() => {
                self.to_send = false;
                self.access(self.below(), |prices| prices.write, true);
            }
            Verb::Bypass => self.access(self.below(), read, true),
            Verb::Drop { .. }
            | Verb::DropObject { .. }
            | Verb::Supersede { .. }
            | Verb::Reclaim { .. }
            | Verb::FetchObject { .. } => {}
        }
    }

    pub fn end(mut self, outcome: Outcome, into: &mut Demand) {
        let update = self.request.op == Op::Update;
        match outcome {
            Outcome::Hit(tier) if self.request.op == Op::Read && !self.promoted => {
                self.access(tier.index(), |prices| prices.look, true);
            }
            // A partial write that misses needs the rest of its page from below.
            Outcome::Miss { .. } if update => self.access(self.below(), |prices| prices.read, true),
            _ => {}
        }
        if let Some(tier) = self.installed {
            let in_place = update && outcome.is_hit();
            self.access(tier, |prices| if in_place { prices.change } else { prices.write }, true);
            self.written += f64::from(u8::from(tier == self.terms.wears));
        }
        if self.to_send {
            self.access(self.below(), |prices| prices.write, true);
        }
        let waits = self.waits + self.terms.request;
        *into += Demand { requests: 1.0, waits, busy: self.busy, written: self.written };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Page;

    /// A read that misses: a modified page leaves NVM for the level below, and another one comes to NVM and goes up.
    #[test]
    fn a_requester_waits_for_what_the_terms_say() {
        let price = |waits| Prices::of(Access { waits, busy: 1.0 });
        let waits = |awaits| {
            let terms = Terms { places: vec![price(1.0), price(10.0), price(1000.0)], request: 0.5, awaits, wears: 1 };
            let mut counter = Counter::new(Request::read(7), &terms, Mode::WriteBack);
            let nvm = Tier::SECOND;
            for (page, verb) in [
                (3, Verb::WriteBack { from: nvm }),
                (3, Verb::Drop { from: nvm }),
                (7, Verb::Fetch { to: nvm }),
                (7, Verb::Copy { from: nvm, to: Tier::TOP }),
            ] {
                counter.movement(Movement { page: Page(page), verb, joined: false });
            }
            let mut demand = Demand::default();
            counter.end(Outcome::ADMITTED, &mut demand);
            assert_eq!((demand.busy, demand.written), ([1.0, 3.0, 2.0], 1.0), "whoever waits for it");
            demand.waits
        };
        // Read from below, read in NVM, written to DRAM.
        assert_eq!(waits(Awaits::Page), 1011.5);
        // Read in NVM for the write-back, written to NVM.
        assert_eq!(waits(Awaits::Copies), 1031.5);
        assert_eq!(waits(Awaits::All), 2031.5);
    }

    /// The page of a write is installed in NVM, for which a modified one leaves; then one is sent past NVM.
    #[test]
    fn a_write_goes_below_once_in_a_mode_without_dirty_pages() {
        let price = Prices::of(Access { waits: 1.0, busy: 1.0 });
        let terms = Terms { places: vec![price; 3], wears: 1, ..Terms::default() };
        let busy = |mode, movements: &[(u32, Verb)], outcome| {
            let mut counter = Counter::new(Request::write(7), &terms, mode);
            for &(page, verb) in movements {
                counter.movement(Movement { page: Page(page), verb, joined: false });
            }
            let mut demand = Demand::default();
            counter.end(outcome, &mut demand);
            demand.busy
        };
        let nvm = Tier::SECOND;
        let stored =
            [(3, Verb::WriteBack { from: nvm }), (3, Verb::Drop { from: nvm }), (7, Verb::Install { to: nvm })];
        assert_eq!(busy(Mode::WriteBack, &stored, Outcome::ADMITTED), [0.0, 2.0, 1.0]);
        assert_eq!(busy(Mode::WriteThrough, &stored, Outcome::ADMITTED), [0.0, 1.0, 1.0]);
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            assert_eq!(busy(mode, &[(7, Verb::Bypass)], Outcome::BYPASSED), [0.0, 0.0, 1.0], "{mode:?}");
        }
        assert_eq!(busy(Mode::WriteAround, &[], Outcome::BYPASSED), [0.0, 0.0, 1.0]);
    }
}
