//! The pages of a trace's requests, numbered a few requests late.
//!
//! The table of pages is far larger than the processor's cache. Looking up a page at once would wait for memory: more
//! than half of the time of loading a binary trace. So a request first prefetches its entry in the table, and is
//! numbered when 16 more have come.

use crate::page_map::{PAGES_MAX, PageMap};

/// Requests that wait for their table entry.
const AHEAD: usize = 16;

#[derive(Clone, Copy, Default)]
struct Coming {
    object: u32,
    place: u64,
    block: u64,
}

/// See the module.
pub struct Numbering {
    map: PageMap,
    /// A ring: request `i` is at `i % AHEAD`.
    coming: [Coming; AHEAD],
    /// Number of requests that are numbered; the pages of later ones are not yet known.
    numbered: usize,
    pages: Vec<u32>,
    page_object: Vec<u32>,
    page_block: Vec<u64>,
    /// True if there were more distinct pages than numbers.
    too_many: bool,
}

/// Result of a numbering.
pub struct Numbered {
    /// Page of each request.
    pub pages: Vec<u32>,
    /// Object of each page.
    pub page_object: Vec<u32>,
    /// Block of each page.
    pub page_block: Vec<u64>,
}

impl Numbering {
    /// No request yet.
    pub fn new() -> Self {
        Numbering {
            map: PageMap::new(),
            coming: [Coming::default(); AHEAD],
            numbered: 0,
            pages: Vec::new(),
            page_object: Vec::new(),
            page_block: Vec::new(),
            too_many: false,
        }
    }

    /// Requests so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Takes the requests so far out, numbered; the pages stay known.
    pub fn drain(&mut self) -> Vec<u32> {
        self.number_all();
        self.numbered = 0;
        std::mem::take(&mut self.pages)
    }

    /// Address of a page: its object and block.
    pub fn address(&self, page: u32) -> (u32, u64) {
        (self.page_object[page as usize], self.page_block[page as usize])
    }

    /// Adds a request to the page that is called by its object and place; `block` is its address should it be new.
    ///
    /// # Errors
    /// When there are more distinct pages than numbers; the error may come up to 16 requests later, or in
    /// [`Numbering::finish`].
    #[inline]
    pub fn push(&mut self, object: u32, place: u64, block: u64) -> Result<(), String> {
        if self.pages.len() - self.numbered == AHEAD {
            self.number_next();
        }
        if self.too_many {
            return Err(too_many());
        }
        self.map.prefetch(object, place);
        self.coming[self.pages.len() % AHEAD] = Coming { object, place, block };
        self.pages.push(0);
        Ok(())
    }

    /// Adds requests to pages of one object, whose places are also their addresses. The caller has checked
    /// [`Numbering::space`].
    pub fn push_all(&mut self, object: u32, places: &[u64]) {
        self.number_all();
        for &place in &places[..places.len().min(AHEAD)] {
            self.map.prefetch(object, place);
        }
        self.pages.extend(places.iter().enumerate().map(|(i, &place)| {
            if let Some(&coming) = places.get(i + AHEAD) {
                self.map.prefetch(object, coming);
            }
            let (page, new) = self.map.number(object, place).expect("there is room");
            if new {
                self.page_object.push(object);
                self.page_block.push(place);
            }
            page
        }));
        self.numbered = self.pages.len();
    }

    /// Number of distinct pages that may still be added.
    pub fn space(&mut self) -> usize {
        self.number_all();
        PAGES_MAX as usize - self.page_object.len()
    }

    /// Reserves memory for this many more requests, if that much is available.
    pub fn reserve(&mut self, requests: usize) {
        // The reservation is only a hint, so its failure is no error.
        let _ = self.pages.try_reserve_exact(requests);
    }

    #[inline(always)]
    fn number_next(&mut self) {
        let Coming { object, place, block } = self.coming[self.numbered % AHEAD];
        match self.map.number(object, place) {
            Some((page, new)) => {
                self.pages[self.numbered] = page;
                if new {
                    self.page_object.push(object);
                    self.page_block.push(block);
                }
            }
            None => self.too_many = true,
        }
        self.numbered += 1;
    }

    /// The page of the last request, numbered at once.
    pub fn last_page(&mut self) -> Option<u32> {
        self.number_all();
        self.pages.last().copied()
    }

    /// The number of a page that was requested.
    pub fn get(&mut self, object: u32, place: u64) -> Option<u32> {
        self.number_all();
        self.map.get(object, place)
    }

    fn number_all(&mut self) {
        while self.numbered < self.pages.len() {
            self.number_next();
        }
    }

    /// All requests, numbered.
    ///
    /// # Errors
    /// When there are more distinct pages than numbers.
    pub fn finish(mut self) -> Result<Numbered, String> {
        self.number_all();
        if self.too_many {
            return Err(too_many());
        }
        Ok(Numbered { pages: self.pages, page_object: self.page_object, page_block: self.page_block })
    }
}

fn too_many() -> String {
    format!("more than {PAGES_MAX} distinct pages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::HashMap;

    #[test]
    fn late_numbers_are_those_of_a_map_asked_at_once() {
        for requests in [0, 1, 15, 16, 17, 5_000] {
            let seed = 7 + requests as u64;
            println!("seed {seed}");
            let mut random = Random::new(seed);
            let mut numbering = Numbering::new();
            let mut model: HashMap<(u32, u64), u32> = HashMap::new();
            let (mut pages, mut blocks) = (Vec::new(), Vec::new());
            for _ in 0..requests {
                let (object, place) = (random.below(3) as u32, random.below(700));
                let next = model.len() as u32;
                let page = *model.entry((object, place)).or_insert(next);
                if page == next {
                    blocks.push(place + 1);
                }
                pages.push(page);
                numbering.push(object, place, place + 1).expect("few pages");
                if random.below(40) == 0 {
                    assert_eq!(numbering.last_page(), Some(page));
                    assert_eq!(numbering.get(object, place), Some(page));
                    assert_eq!(numbering.get(9, 9), None);
                }
            }
            assert_eq!(numbering.len(), requests);
            let numbered = numbering.finish().expect("few pages");
            assert_eq!((numbered.pages, numbered.page_block), (pages, blocks), "{requests} requests");
            assert_eq!(numbered.page_object.len(), model.len());
        }
    }
}
