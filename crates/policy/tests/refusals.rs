//! A policy whose first choice is refused finds any other page that may be evicted, and bypasses only when there is
//! none.

use entresol_core::{Address, Movement, NEVER, ObjectId, Outcome, Page, Request, Tier, Verb};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Driver, Options, Policy};

const CAPACITY: usize = 12;
/// Families in which every page held is a candidate sooner or later.
const FAMILIES: &[&str] = &["classic", "offline", "modern"];

/// Allows the eviction of one page at most, once it is armed.
#[derive(Default)]
struct Pins {
    armed: bool,
    free: Option<Page>,
    dropped: Vec<Page>,
    next_use: u32,
}

impl Driver for Pins {
    fn may_evict(&mut self, page: Page, _tier: Tier) -> bool {
        !self.armed || self.free == Some(page)
    }
    fn emit(&mut self, movement: Movement) {
        if let Verb::Drop { .. } = movement.verb {
            self.dropped.push(movement.page);
        }
    }
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        self.next_use
    }
    fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(0), block: u64::from(page.0) }
    }
    fn successor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn predecessor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}

/// Fills the cache, uses some pages again, then requests new pages with all but one page pinned, each time another one,
/// and last with all of them pinned. Returns the dropped pages of each of these requests and the last outcome.
struct FillAndPin {
    order: Vec<Page>,
    uses: u32,
}

impl Visitor for FillAndPin {
    type Output = (Vec<Vec<Page>>, Outcome);

    fn visit<P: Policy>(self, mut policy: P) -> Self::Output {
        let mut driver = Pins::default();
        let filling = (0..CAPACITY as u32).chain((0..self.uses).map(|i| i * 5 % CAPACITY as u32));
        for (page, later) in filling.zip(1_000..) {
            // For offline policies: half of the pages are never used again, the others after all requests of this test.
            driver.next_use = if page % 2 == 0 { NEVER } else { later };
            policy.access(Request::read(page), &mut driver);
        }
        let ask = |(i, free)| {
            let mut driver = Pins { armed: true, free, dropped: Vec::new(), next_use: NEVER };
            let outcome = policy.access(Request::read(50 + i as u32), &mut driver);
            (driver.dropped, outcome)
        };
        let answers: Vec<_> = self.order.into_iter().map(Some).chain([None]).enumerate().map(ask).collect();
        let last = answers.last().expect("a request with all pages pinned").1;
        (answers.into_iter().map(|(dropped, _)| dropped).collect(), last)
    }
}

#[test]
fn the_only_page_that_may_go_is_found() {
    let config = Config::single(100, CAPACITY);
    for info in catalogue::ALL.iter().filter(|info| FAMILIES.contains(&info.family)) {
        for (uses, first) in [0, 7, 40].into_iter().flat_map(|uses| (0..CAPACITY).map(move |first| (uses, first))) {
            let order: Vec<Page> = (0..CAPACITY).map(|i| Page(((first + 5 * i) % CAPACITY) as u32)).collect();
            let run = FillAndPin { order: order.clone(), uses };
            let (dropped, last) =
                catalogue::build(info, &config, &Options::defaults(info), run).expect("a buildable policy");
            let expected: Vec<Vec<Page>> = order.iter().map(|&page| vec![page]).chain([vec![]]).collect();
            assert_eq!(dropped, expected, "{}: {uses} more uses", info.name);
            assert_eq!(last, Outcome::BYPASSED, "{}: nothing may go, {uses} more uses", info.name);
        }
    }
}
