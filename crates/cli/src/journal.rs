//! Journal of an interrupted sweep or probe, for a later run to continue: a file of finished cells beside the results.

use crate::output;
use anyhow::{Context, Result};
use entresol_service::words::beside;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Finished cells of a sweep, kept in `RESULTS.partial` while it runs. The first line identifies the sweep; each other
/// line is a key and a row. Without a path nothing is kept.
///
/// The file is touched only once there is a cell to keep. An invalid command line thus leaves alone the journal of an
/// interrupted run.
pub struct Journal<Row> {
    path: Option<PathBuf>,
    fingerprint: String,
    file: Option<File>,
    rows: HashMap<String, Row>,
}

impl<Row: Serialize + DeserializeOwned> Journal<Row> {
    /// The journal beside a results file. Cells of an earlier run are taken over if the sweep was the same.
    pub fn open(results: Option<&Path>, fingerprint: &str) -> Result<Self> {
        let mut journal = Self::anew(results, fingerprint);
        if let Some(rows) = journal.path.as_deref().and_then(|path| read(path, fingerprint)) {
            journal.start(&rows)?;
            journal.rows = rows;
        }
        Ok(journal)
    }

    /// The journal beside a results file, ignoring any earlier run.
    pub fn anew(results: Option<&Path>, fingerprint: &str) -> Self {
        let path = results.map(|results| beside(results, "partial"));
        Journal { path, fingerprint: fingerprint.to_owned(), file: None, rows: HashMap::new() }
    }

    /// Path of the journal, which may not exist before the first finished cell.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The row of a cell that an earlier run finished.
    pub fn take(&mut self, key: &str) -> Option<Row> {
        self.rows.remove(key)
    }

    /// Cells taken over from an earlier run.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Keeps a finished cell.
    pub fn keep(&mut self, key: &str, row: &Row) -> Result<()> {
        if self.path.is_none() {
            return Ok(());
        }
        if self.file.is_none() {
            self.start(&HashMap::new())?;
        }
        let line = serde_json::to_string(&(key, row))?;
        writeln!(self.file.as_mut().expect("it was started"), "{line}").context("the journal of finished cells")
    }

    /// Removes the journal, because the results are written, or an error shows that they never will be.
    pub fn finish(self) -> Result<()> {
        match self {
            Journal { path: Some(path), file: Some(_), .. } => {
                std::fs::remove_file(&path).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// Begins the file with the rows of an earlier run, which drops a truncated line.
    fn start(&mut self, rows: &HashMap<String, Row>) -> Result<()> {
        let path = self.path.as_ref().expect("a journal with a place is started");
        let mut text = format!("{}\n", self.fingerprint);
        for entry in rows {
            text += &serde_json::to_string(&entry)?;
            text.push('\n');
        }
        output::write_file(path, text.as_bytes())?;
        let file = File::options().append(true).open(path).with_context(|| path.display().to_string())?;
        self.file = Some(file);
        Ok(())
    }
}

/// The finished cells of a journal of the same sweep. A truncated last line is left out, and so are all cells of a
/// journal whose first line differs.
fn read<Row: DeserializeOwned>(path: &Path, fingerprint: &str) -> Option<HashMap<String, Row>> {
    let mut lines = BufReader::new(File::open(path).ok()?).lines();
    if lines.next()?.ok()? != fingerprint {
        return None;
    }
    Some(lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<(String, Row)>(&line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_sim::Row;

    #[test]
    fn finished_cells_survive_a_kill_and_foreign_ones_are_ignored() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let results = scratch.path().join("results.json");
        let row = |requests| Row { policy: "lru".to_owned(), requests, ..Row::default() };
        let mut journal = Journal::open(Some(&results), "sweep 1").expect("a journal");
        journal.keep("a", &row(1)).expect("room");
        journal.keep("b", &row(2)).expect("room");
        drop(journal);
        // The last line of a killed run may be truncated.
        let partial = beside(&results, "partial");
        let text = std::fs::read_to_string(&partial).expect("the journal");
        std::fs::write(&partial, &text[..text.len() - 10]).expect("the journal");
        let mut again = Journal::open(Some(&results), "sweep 1").expect("a journal");
        assert_eq!(again.take("a"), Some(row(1)));
        assert_eq!(again.take("b"), None);
        again.finish().expect("its removal");
        assert!(!partial.exists());

        let mut journal = Journal::open(Some(&results), "sweep 1").expect("a journal");
        journal.keep("a", &row(1)).expect("room");
        drop(journal);
        let other = Journal::<Row>::open(Some(&results), "sweep 2").expect("a journal");
        assert_eq!(other.len(), 0);
        other.finish().expect("nothing to remove");
        let again = Journal::<Row>::open(Some(&results), "sweep 1").expect("a journal");
        assert_eq!(again.len(), 1, "a sweep that kept nothing leaves the journal of another alone");
    }
}
