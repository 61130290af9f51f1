//! State that a policy has learned, in a form that outlives it.

use entresol_core::Page;

/// A policy whose decisions rest on what it has learned of its pages. What one has learned can be given to another, which has not
/// been shown a page yet.
pub trait Learned {
    /// All that is known of classes of pages, as bytes. There is a bound on them, whatever the number of pages.
    fn tables(&self) -> Vec<u8>;

    /// History of a page that the policy holds, with the time since its last access; none for any other page.
    fn history(&self, page: Page) -> Option<u32>;

    /// Goes on from the [`tables`](Learned::tables) of another policy. Any bytes are accepted or refused: false, with nothing
    /// changed, unless they are of a policy with the same capacity and with options that count the same events.
    fn go_on_from(&mut self, tables: &[u8]) -> bool;

    /// Gives a held page the [`history`](Learned::history) that it had in another policy. To be called after the page is shown,
    /// and before the next request: the page is then as old as it was, and the time in which it was shown does not count.
    fn recall(&mut self, page: Page, history: u32);
}
