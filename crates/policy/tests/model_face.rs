//! A plain model of FaCE, from algorithm 1 and the description of group second chance in 001, section 4.3, compared
//! event by event. It keeps version numbers where the policy keeps flags.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::extension::{Face, FaceGsc};
use entresol_policy::{Config, Options, Policy};

const LAYOUT: Layout = Layout::one_object(60);
const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Staged {
    Mixed,
    Clean,
    Dirty,
}

#[derive(Clone, Copy)]
struct Variant {
    gsc: bool,
    staged: Staged,
    write_through: bool,
    evict_pulled: bool,
    scan: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    page: Page,
    version: u32,
    valid: bool,
    referenced: bool,
}

struct Model {
    variant: Variant,
    dram_max: usize,
    flash_max: usize,
    /// Least recently used first.
    dram: Vec<(Page, u32)>,
    /// Front of the queue first.
    flash: Vec<Frame>,
    /// Frames ever written: the place of the next one on the device.
    appended: usize,
    latest: Vec<u32>,
    disk: Vec<u32>,
    out: Vec<Movement>,
}

impl Model {
    fn new(config: &Config, variant: Variant) -> Self {
        Model {
            variant,
            dram_max: config.tiers[0],
            flash_max: config.tiers[1],
            dram: Vec::new(),
            flash: Vec::new(),
            appended: 0,
            latest: vec![0; config.pages],
            disk: vec![0; config.pages],
            out: Vec::new(),
        }
    }

    fn emit(&mut self, page: Page, verb: Verb) {
        self.out.push(Movement { page, verb, joined: false });
    }

    fn batch(&self) -> usize {
        if self.variant.gsc { self.variant.scan.min(self.flash_max.div_ceil(2)) } else { 1 }
    }

    fn valid(&self, page: Page) -> Option<usize> {
        self.flash.iter().position(|frame| frame.page == page && frame.valid)
    }

    fn in_dram(&self, page: Page) -> Option<u32> {
        self.dram.iter().find(|(held, _)| *held == page).map(|(_, version)| *version)
    }

    fn write_back(&mut self, page: Page, version: u32, from: Tier) {
        self.emit(page, Verb::WriteBack { from });
        self.disk[page.index()] = version;
    }

    fn invalidate(&mut self, page: Page) {
        if let Some(at) = self.valid(page) {
            self.flash[at].valid = false;
            self.emit(page, Verb::Supersede { tier: FLASH });
        }
    }

    /// One write at the rear: part of the batch-sized segment before it unless it opens a new one.
    fn append(&mut self, frame: Frame, verb: Verb) {
        let joined = !(self.appended % self.flash_max).is_multiple_of(self.batch());
        self.appended += 1;
        self.flash.push(frame);
        self.out.push(Movement { page: frame.page, verb, joined });
    }

    fn enqueue(&mut self, page: Page, version: u32, verb: Verb) {
        self.invalidate(page);
        self.append(Frame { page, version, valid: true, referenced: false }, verb);
    }

    /// "p.fdirty or p not in flash cache", for a page of the kind that is staged.
    fn to_be_enqueued(&self, page: Page) -> bool {
        let version = self.in_dram(page).unwrap();
        let dirty = version > self.disk[page.index()];
        let kind = match self.variant.staged {
            Staged::Mixed => true,
            Staged::Clean => !dirty,
            Staged::Dirty => dirty,
        };
        kind && self.valid(page).is_none_or(|at| self.flash[at].version < version)
    }

    fn enqueue_from_dram(&mut self, page: Page) {
        let version = self.in_dram(page).unwrap();
        if self.variant.write_through && version > self.disk[page.index()] {
            self.write_back(page, version, DRAM);
        }
        self.enqueue(page, version, Verb::Copy { from: DRAM, to: FLASH });
    }

    fn drop_from_dram(&mut self, page: Page) {
        self.dram.retain(|(held, _)| *held != page);
        self.emit(page, Verb::Drop { from: DRAM });
    }

    fn evict_from_flash(&mut self, frame: Frame) {
        if frame.version > self.disk[frame.page.index()] {
            self.write_back(frame.page, frame.version, FLASH);
        }
        self.emit(frame.page, Verb::Drop { from: FLASH });
    }

    fn dequeue_batch(&mut self) {
        let depth = self.batch().min(self.flash.len());
        let batch: Vec<Frame> = self.flash.drain(..depth).collect();
        let mut again = Vec::new();
        for frame in batch {
            if !frame.valid {
                self.emit(frame.page, Verb::Reclaim { tier: FLASH });
            } else if self.variant.gsc && frame.referenced {
                again.push(frame);
            } else {
                self.evict_from_flash(frame);
            }
        }
        if again.len() == depth {
            let front = again.remove(0);
            self.evict_from_flash(front);
        }
        for frame in again {
            self.append(Frame { referenced: false, ..frame }, Verb::Requeue { tier: FLASH });
        }
    }

    fn space(&mut self, entering: Option<Page>) {
        if self.flash.len() < self.flash_max {
            return;
        }
        self.dequeue_batch();
        let Some(entering) = entering.filter(|_| self.variant.gsc) else { return };
        let tail: Vec<Page> = self.dram.iter().take(self.batch()).map(|(page, _)| *page).collect();
        for page in tail {
            if self.flash.len() + 1 == self.flash_max {
                return;
            }
            if page != entering && self.to_be_enqueued(page) {
                self.enqueue_from_dram(page);
                if self.variant.evict_pulled {
                    self.drop_from_dram(page);
                }
            }
        }
    }

    fn leave_dram(&mut self) {
        let (page, version) = self.dram[0];
        if self.to_be_enqueued(page) {
            self.space(Some(page));
            self.enqueue_from_dram(page);
        } else if version > self.disk[page.index()]
            && self.valid(page).is_none_or(|at| self.flash[at].version < version)
        {
            self.invalidate(page);
            self.write_back(page, version, DRAM);
        }
        self.drop_from_dram(page);
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let outcome = if self.dram_max == 0 { self.flash_only(request) } else { self.two_tiers(request) };
        (outcome, std::mem::take(&mut self.out))
    }

    fn two_tiers(&mut self, Request { page, op, .. }: Request) -> Outcome {
        let outcome = if self.in_dram(page).is_some() {
            Outcome::Hit(DRAM)
        } else {
            if self.dram.len() == self.dram_max {
                self.leave_dram();
            }
            match self.valid(page) {
                Some(at) => {
                    self.flash[at].referenced = true;
                    if op != Op::Write {
                        self.emit(page, Verb::Copy { from: FLASH, to: DRAM });
                    }
                    Outcome::Hit(FLASH)
                }
                None => {
                    if op == Op::Read {
                        self.emit(page, Verb::Fetch { to: DRAM });
                    }
                    Outcome::ADMITTED
                }
            }
        };
        self.dram.retain(|(held, _)| *held != page);
        if op != Op::Read {
            self.latest[page.index()] += 1;
            self.emit(page, Verb::Install { to: DRAM });
        }
        self.dram.push((page, self.latest[page.index()]));
        outcome
    }

    fn flash_only(&mut self, Request { page, op, .. }: Request) -> Outcome {
        if op == Op::Read {
            if let Some(at) = self.valid(page) {
                self.flash[at].referenced = true;
                return Outcome::Hit(FLASH);
            }
            if self.variant.staged == Staged::Dirty {
                self.emit(page, Verb::Bypass);
                return Outcome::BYPASSED;
            }
            self.space(None);
            self.enqueue(page, self.latest[page.index()], Verb::Fetch { to: FLASH });
            return Outcome::ADMITTED;
        }
        let takes_writes = self.variant.staged != Staged::Clean;
        if takes_writes {
            self.space(None);
        }
        let held = self.valid(page).is_some();
        self.latest[page.index()] += 1;
        let version = self.latest[page.index()];
        if takes_writes {
            self.enqueue(page, version, Verb::Install { to: FLASH });
            if self.variant.write_through {
                self.write_back(page, version, FLASH);
            }
        } else {
            self.invalidate(page);
            self.emit(page, Verb::Bypass);
            self.disk[page.index()] = version;
        }
        if held { Outcome::Hit(FLASH) } else { Outcome::Miss { admitted: takes_writes } }
    }
}

fn compare<P: Policy>(variant: Variant, options: &[&str]) {
    for (dram, flash) in [(0, 1), (0, 7), (0, 30), (1, 1), (2, 3), (5, 4), (4, 20), (12, 37), (25, 6)] {
        for seed in 0..6 {
            println!("{} {options:?}, dram {dram}, flash {flash}, seed {seed}", P::INFO.name);
            let config = Config::two_tiers(60, dram, flash);
            let options = Options::parse(&P::INFO, options.iter().copied()).unwrap();
            let mut policy = P::new(&config, &options).unwrap();
            let mut model = Model::new(&config, variant);
            let requests = check::workload(seed, LAYOUT, 1_500);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
        }
    }
}

#[test]
fn face_does_what_its_model_does_with_all_options() {
    for (pages, staged) in
        [("pages=mixed", Staged::Mixed), ("pages=clean", Staged::Clean), ("pages=dirty", Staged::Dirty)]
    {
        for (sync, write_through) in [("sync=write-back", false), ("sync=write-through", true)] {
            let plain = Variant { gsc: false, staged, write_through, evict_pulled: false, scan: 1 };
            compare::<Face>(plain, &[pages, sync]);
            for (pull, evict_pulled) in [("pull=copy", false), ("pull=evict", true)] {
                for (scan, depth) in [("scan=1", 1), ("scan=4", 4), ("scan=64", 64)] {
                    let variant = Variant { gsc: true, staged, write_through, evict_pulled, scan: depth };
                    compare::<FaceGsc>(variant, &[pages, sync, pull, scan]);
                }
            }
        }
    }
}

/// The pool's tail fills a batch that was taken from a full queue; it is not drained while the queue fills up.
#[test]
fn nothing_is_pulled_before_the_queue_is_full() {
    let config = Config::two_tiers(60, 10, 20);
    let mut policy = FaceGsc::new(&config, &Options::defaults(&FaceGsc::INFO)).unwrap();
    let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
    for page in 0..30 {
        checker.request(&mut policy, Request::write(page), 0);
        let staged = checker.movements.iter().filter(|m| matches!(m.verb, Verb::Copy { .. })).count();
        assert_eq!(staged, usize::from(page >= 10), "page {page}");
    }
    checker.request(&mut policy, Request::write(30), 0);
    let staged = checker.movements.iter().filter(|m| matches!(m.verb, Verb::Copy { .. })).count();
    assert_eq!(staged, 10, "half the queue was dequeued and is filled in one go");
}
