//! Runs of consecutive dirty pages, recomputed from the whole set each time: the model of `parts::Runs`.

/// Every run with the step at which it became as it is.
#[derive(Default)]
pub struct SlowRuns {
    runs: Vec<(Vec<u32>, u64)>,
    steps: u64,
}

impl SlowRuns {
    /// Finds the runs of these pages; existing runs keep their age. Pages are blocks of objects of equal length.
    pub fn update(&mut self, pages: impl Iterator<Item = u32>, object_pages: u32) {
        let mut pages: Vec<u32> = pages.collect();
        pages.sort_unstable();
        let mut found: Vec<Vec<u32>> = vec![];
        for page in pages {
            match found.last_mut() {
                Some(run) if *run.last().unwrap() + 1 == page && page % object_pages != 0 => run.push(page),
                _ => found.push(vec![page]),
            }
        }
        let old = std::mem::take(&mut self.runs);
        for run in found {
            self.steps += 1;
            let age = old.iter().find(|(known, _)| *known == run).map_or(self.steps, |known| known.1);
            self.runs.push((run, age));
        }
    }

    /// The longest run, of several the oldest; empty if there is none.
    pub fn longest(&self) -> Vec<u32> {
        let first = self.runs.iter().min_by_key(|(run, age)| (std::cmp::Reverse(run.len()), *age));
        first.map_or(vec![], |(run, _)| run.clone())
    }
}
