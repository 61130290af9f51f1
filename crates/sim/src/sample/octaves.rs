//! Extrapolation from a sample to the whole trace, hot pages and cold ones apart.
//!
//! The pages are divided into octaves by their requests: 1, 2 to 3, 4 to 7, ... How many pages of the whole trace are in
//! each, and how many requests they have, is known exactly (post-stratification). Octaves of too few sampled pages are
//! joined with those below. Within a group, misses per page go with a power of the requests per page, whose exponent
//! is that between the group and the one below it: near 1 if hot pages miss always, near 0 if they hardly do.

use entresol_trace::{Population, Trace};

/// Fewest sampled pages of a group. Fewer would let one page stand for many, more would join pages that differ.
const GROUP_PAGES_MIN: f64 = 3.0;

/// Pages of a sample by octave.
pub(super) struct Octaves<'p> {
    population: &'p Population,
    /// Octave of each page.
    octave: Vec<u8>,
    /// Sampled pages and their requests by octave.
    pages: [f64; Population::OCTAVES],
    requests: [f64; Population::OCTAVES],
}

/// Neighbouring octaves: sums over their sampled pages.
#[derive(Clone, Copy, Default)]
struct Group {
    first: usize,
    last: usize,
    pages: f64,
    requests: f64,
    figure: f64,
}

impl Group {
    fn add(&mut self, pages: f64, requests: f64, figure: f64) {
        self.pages += pages;
        self.requests += requests;
        self.figure += figure;
    }

    /// Requests of a page.
    fn mean_requests(&self) -> f64 {
        self.requests / self.pages
    }

    /// The figure of a page.
    fn mean(&self) -> f64 {
        self.figure / self.pages
    }

    /// The power of the requests that the figure goes with, between this group and another.
    fn exponent(&self, other: &Group) -> f64 {
        let figures = (self.mean() / other.mean()).ln();
        let exponent = (figures / (self.mean_requests() / other.mean_requests()).ln()).clamp(0.0, 1.0);
        if exponent.is_nan() { 0.5 } else { exponent }
    }
}

impl<'p> Octaves<'p> {
    /// The octaves of a sample of a trace with the counts `population`.
    pub fn new(population: &'p Population, sample: &Trace) -> Self {
        let mut requests = vec![0u64; sample.footprint()];
        sample.pages.iter().for_each(|&page| requests[page as usize] += 1);
        let octave: Vec<u8> = requests.iter().map(|&requests| Population::octave(requests) as u8).collect();
        let mut octaves = Octaves { population, octave, pages: Default::default(), requests: Default::default() };
        for (&octave, &requests) in octaves.octave.iter().zip(&requests) {
            octaves.pages[octave as usize] += 1.0;
            octaves.requests[octave as usize] += requests as f64;
        }
        octaves
    }

    /// Sum of a figure over all pages of the whole trace, from its values for the sampled pages. With `bounded`, a page
    /// has at most one for each request.
    pub fn total(&self, figure: impl Fn(usize) -> u64, bounded: bool) -> f64 {
        let mut figures = [0.0; Population::OCTAVES];
        for (page, &octave) in self.octave.iter().enumerate() {
            figures[octave as usize] += figure(page) as f64;
        }
        let groups = self.groups(&figures);
        let total = |(at, group): (usize, &Group)| {
            let below = groups.get(at + 1).or_else(|| groups.get(at.checked_sub(1)?)).unwrap_or(group);
            let exponent = group.exponent(below);
            let octaves = &self.population.octaves[group.first..=group.last];
            let filled = octaves.iter().filter(|octave| octave.pages > 0);
            let parts = filled.map(|octave| {
                let (pages, requests) = (octave.pages as f64, octave.requests as f64);
                let part = pages * group.mean() * (requests / pages / group.mean_requests()).powf(exponent);
                if bounded { part.min(requests) } else { part }
            });
            parts.sum::<f64>()
        };
        groups.iter().enumerate().map(total).sum()
    }

    /// Groups of octaves, the hottest first. All octaves are in one.
    fn groups(&self, figures: &[f64; Population::OCTAVES]) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut next = Group { last: Population::OCTAVES - 1, ..Group::default() };
        for octave in (0..Population::OCTAVES).rev() {
            next.first = octave;
            next.add(self.pages[octave], self.requests[octave], figures[octave]);
            if next.pages >= GROUP_PAGES_MIN {
                groups.push(next);
                next = Group { last: octave.saturating_sub(1), ..Group::default() };
            }
        }
        match groups.last_mut() {
            // The coldest pages that are left over go with those above them.
            Some(coldest) if next.last < coldest.first => {
                coldest.add(next.pages, next.requests, next.figure);
                coldest.first = 0;
            }
            Some(_) => {}
            None => groups.push(next),
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use entresol_trace::{GenerateSpec, generate};

    fn zipf() -> Trace {
        generate(
            &GenerateSpec::parse("zipf:n=200000:pages=20000:seed=5:exponent=1.1:ids=hashed", 4096).expect("a trace"),
        )
    }

    #[test]
    fn requests_are_extrapolated_exactly_and_no_page_misses_more_than_it_is_requested() {
        let trace = zipf();
        for seed in 0..20 {
            println!("seed {seed}");
            let mut random = Random::new(seed);
            let salt = random.below(1 << 30);
            let sampled = trace.sampled(&|at| Random::mix(at.block ^ salt).is_multiple_of(50));
            let octaves = Octaves::new(&sampled.population, &sampled.trace);
            let mut requests = vec![0u64; sampled.trace.footprint()];
            sampled.trace.pages.iter().for_each(|&page| requests[page as usize] += 1);
            let total = octaves.total(|page| requests[page], false);
            assert!((total / trace.len() as f64 - 1.0).abs() < 1e-9, "{total} of {}", trace.len());
            // As many misses as requests for cold pages, few for hot ones, and far too many.
            for most in [1, 10, 1_000_000] {
                let total = octaves.total(|page| requests[page].min(most), true);
                assert!(total <= trace.len() as f64 * (1.0 + 1e-9), "{total} misses of {}", trace.len());
            }
        }
    }

    #[test]
    fn the_whole_trace_is_its_own_sample() {
        let sampled = zipf().sampled(&|_| true);
        let octaves = Octaves::new(&sampled.population, &sampled.trace);
        let total = octaves.total(|page| page as u64 % 7, false);
        let exact: u64 = (0..sampled.trace.footprint() as u64).map(|page| page % 7).sum();
        assert!((total / exact as f64 - 1.0).abs() < 0.01, "{total} is not {exact}");
    }
}
