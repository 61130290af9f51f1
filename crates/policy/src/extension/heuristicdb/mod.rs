//! HeuristicDB: an NVM block device as a cache under a database, with query hints and detection of access patterns.
//!
//! Yang, "High performance storage system design using emerging storage technologies", thesis, University of Minnesota,
//! 2021 (000), chapter 3: seven rules
//! (sections 3.3.3, 3.3.4) and the four programs of section 3.5, one file each:
//! the query profile queue, the eviction and demotion program, the access pattern detector, the page placement
//! controller.
//!
//! Readings. An object of unknown status is admitted like a random one. The detector decides once as many accesses
//! as 1 % of the object's pages have been seen, 16 at least, and within the request that completes them; writes
//! count as accessed, not as read ahead. Reuse makes an object repeated only after that decision ("a sequentially or
//! randomly accessed table"), and what is hot stays hot until a query says otherwise. A first query has nothing
//! before it and demotes. Of concurrent queries those in the queue of two are known, so what the last one requires
//! is verified again if it still runs. Dirty pages are written back when they leave, or before by the driver. Without
//! query hints no frequency is ever reset and only the detector is at work.

mod detector;
mod eviction;
mod placement;
mod profile;

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use detector::{AccessPatternDetector, Status};
use entresol_core::{Hint, ObjectId, Outcome, Page, Request, Tier};
use eviction::EvictionProgram;
use placement::PlacementController;
use profile::QueryProfileQueue;

/// HeuristicDB.
#[derive(Clone, Debug)]
pub struct HeuristicDb {
    queries: QueryProfileQueue,
    pages: EvictionProgram,
    detector: AccessPatternDetector,
    controller: PlacementController,
}

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "watched",
        default: "1",
        help: "per cent of an object's pages whose accesses decide how it is accessed (section 3.5.3)",
    },
    OptionInfo { name: "watched-min", default: "16", help: "the fewest accesses that decide it" },
    OptionInfo {
        name: "ratio",
        default: "90",
        help: "per cent of them that must have come by read-ahead, and more, for it to be sequential (section 3.5.3)",
    },
    OptionInfo {
        name: "counted",
        default: "0",
        help: "pages outside NVM whose accesses are counted, the least recently accessed is forgotten; 0: all",
    },
];

impl Policy for HeuristicDb {
    const INFO: Info = Info {
        name: "heuristicdb",
        family: "extension",
        summary: "HeuristicDB: rules for sequential, random, repeated and hot tables, priorities reset by queries",
        paper: "Yang: High performance storage system design using emerging storage technologies, thesis, University of \
                Minnesota, 2021, chapter 3",
        options: OPTIONS,
        tiers: &["nvm"],
        write_aware: true,
        addresses: true,
        known_bound: Some("counted"),
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        Ok(HeuristicDb {
            queries: QueryProfileQueue::new(config.objects),
            pages: EvictionProgram::new(config.pages, capacity, options.number("counted", 0..)?),
            detector: AccessPatternDetector::new(
                config.objects,
                options.number::<f64>("watched", 0.0..=100.0)? / 100.0,
                options.number("watched-min", 1..)?,
                options.number::<f64>("ratio", 0.0..=100.0)? / 100.0,
            ),
            controller: PlacementController::new(config.pages, capacity),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let object = driver.address(request.page).object;
        let frequency = self.pages.count(request.page);
        let status = self.detector.observe(request, object, frequency > 1, || driver.object_pages(object));
        let outcome = self.controller.serve(request, frequency, status, &mut self.pages, driver);
        if outcome.is_hit() {
            self.queries.hit();
        }
        outcome
    }

    fn hint<D: Driver>(&mut self, hint: Hint, _driver: &mut D) {
        match hint {
            Hint::QueryBegin { query, objects } => {
                let adjustment = self.queries.submit(query, objects, &mut self.detector);
                self.pages.adjust(adjustment);
            }
            Hint::QueryEnd { query } => self.queries.end(query),
            Hint::Place { .. } | Hint::Unplace { .. } => {}
        }
    }

    fn state(&self, page: Page) -> PageState {
        PageState {
            tiers: TierSet::only(Tier::TOP, self.pages.is_cached(page)),
            dirty: self.controller.is_dirty(page),
            known: self.pages.is_known(page),
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.pages.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let (queries, objects, running) = self.queries.told();
        visit("queries", f64::from(queries));
        visit("query_objects", objects as f64);
        visit("query_running", f64::from(u8::from(running)));
        visit("query_hits", self.queries.hits() as f64);
        visit("coldest", self.pages.min_frequency().map_or(0.0, f64::from));
        visit("sequential_objects", self.detector.count(Status::Sequential) as f64);
        visit("random_objects", self.detector.count(Status::Random) as f64);
        visit("repeated_objects", self.detector.count(Status::Repeated) as f64);
        visit("hot_objects", self.detector.count(Status::Hot) as f64);
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        self.detector.status(object).word()
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pages.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.queries.memory_bytes()
            + self.pages.memory_bytes()
            + self.detector.memory_bytes()
            + self.controller.memory_bytes()
    }
}
