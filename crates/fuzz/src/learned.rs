//! Learned state of a cache, as it is kept beside the record of a backing store.

use entresol_cache::LearnedState;
use entresol_core::{NEVER, Page, Request};
use entresol_policy::check::{Checker, Layout, Refusals, workload};
use entresol_policy::learned::Reuse;
use entresol_policy::{Config, Learned, Options, Policy};

const PAGES: u32 = 300;
const CAPACITY: usize = 64;

/// A state with a valid checksum. A decoded state has the same bytes when it is encoded, and a policy that goes on from it keeps
/// the rules of the interface.
pub(crate) fn learned(data: &[u8]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32;
    let bytes = [data, &crc.to_le_bytes()].concat();
    let Ok(state) = LearnedState::decode(&bytes) else { return };
    assert_eq!(state.encode(), bytes);
    let layout = Layout::one_object(PAGES);
    let config = Config { objects: 1, ..Config::single(PAGES as usize, CAPACITY) };
    let mut reuse = Reuse::new(&config, &Options::defaults(&Reuse::INFO)).expect("a policy");
    let mut checker = Checker::new(layout, &[CAPACITY], Refusals::NONE);
    reuse.go_on_from(state.tables());
    for (page, history) in state.histories().take(CAPACITY) {
        let page = (page % u64::from(PAGES)) as u32;
        checker.request(&mut reuse, Request::read(page), NEVER);
        reuse.recall(Page(page), history);
    }
    for request in workload(1, layout, 500) {
        checker.request(&mut reuse, request, NEVER);
    }
    checker.verify_all(&reuse);
}
