//! Learned state for the policy after a restart: tables as bytes, and histories page by page.
//!
//! Little endian. 2 bytes each: number of classes, of buckets. 4: accesses in a tick. 1: 1 if writes reach the backing store at
//! once. 3: zeros. 8: mean rank of recent victims, a double. 8: requests between two builds. Then the classes with news, ascending,
//! of 462 bytes each: 2 for the number; for each bucket three weights of 4 bytes, two ranks and two values of 2.
//!
//! Ranks are saved though they follow from weights: a build counts pages that wait as well, and at a start none is known.

use super::history::{BUCKETS, CLASSES, History};
use super::{FIRST_PERIOD, Reuse};
use crate::state::Learned;
use entresol_core::Page;

const HEAD_BYTES: usize = 28;

impl Reuse {
    /// Bytes that name the shape of the tables and the events that they count.
    fn shape(&self) -> [u8; 12] {
        let mut shape = [0; 12];
        shape[..2].copy_from_slice(&(CLASSES as u16).to_le_bytes());
        shape[2..4].copy_from_slice(&(BUCKETS as u16).to_le_bytes());
        shape[4..8].copy_from_slice(&self.tick_requests.to_le_bytes());
        shape[8] = u8::from(self.through);
        shape
    }
}

impl Learned for Reuse {
    fn tables(&self) -> Vec<u8> {
        let mut bytes = self.shape().to_vec();
        bytes.extend(self.theta.to_le_bytes());
        bytes.extend(self.period.to_le_bytes());
        self.tables.save(&mut bytes);
        bytes
    }

    fn history(&self, page: Page) -> Option<u32> {
        let history = self.pages.history(page);
        history.is_resident().then(|| history.aged(self.tick))
    }

    fn go_on_from(&mut self, tables: &[u8]) -> bool {
        let Some((head, classes)) = tables.split_first_chunk::<HEAD_BYTES>() else { return false };
        let eight = |at: usize| head[at..at + 8].try_into().expect("eight bytes");
        let (theta, period) = (f64::from_le_bytes(eight(12)), u64::from_le_bytes(eight(20)));
        if head[..12] != self.shape() || !(0.0..=2.0).contains(&theta) || !self.tables.restore(classes) {
            return false;
        }
        self.theta = theta;
        self.period = period.clamp(FIRST_PERIOD, self.period_max);
        self.until_build = self.period;
        true
    }

    fn recall(&mut self, page: Page, history: u32) {
        let shown = self.pages.history(page);
        if !shown.is_resident() {
            return;
        }
        // Time stands still while a page is shown.
        self.pause = self.paused.min(self.pause + 1);
        if let Some(history) = shown.recalled(history, self.tick) {
            let (tick, tables) = (self.tick, &self.tables);
            let rank = |history: History| tables.rank(history.cell(tick), history.is_dirty());
            self.pages.recall(page, history, rank);
        }
    }
}
