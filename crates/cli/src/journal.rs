//! What an interrupted sweep leaves for the next one: a file of finished cells beside the results.

use crate::output;
use anyhow::{Context, Result};
use entresol_sim::Row;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Finished cells of a sweep, kept in `RESULTS.partial` while it runs. The first line says what the sweep is; the
/// others are a key and a row each. Without a path nothing is kept.
pub struct Journal {
    path: Option<PathBuf>,
    file: Option<File>,
    rows: HashMap<String, Row>,
}

impl Journal {
    /// Opens the journal beside a results file. Cells of an earlier run are taken over when it was the same sweep.
    pub fn open(results: Option<&Path>, fingerprint: &str) -> Result<Self> {
        let Some(results) = results else { return Ok(Journal { path: None, file: None, rows: HashMap::new() }) };
        let path = output::beside(results, "partial");
        let rows = read(&path, fingerprint).unwrap_or_default();
        let written = start(&path, fingerprint, &rows);
        let file = written.with_context(|| path.display().to_string())?;
        Ok(Journal { path: Some(path), file: Some(file), rows })
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
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(&(key, row))?;
        writeln!(file, "{line}").context("the journal of finished cells")
    }

    /// Removes the journal: the results are written.
    pub fn finish(self) -> Result<()> {
        self.path.map_or(Ok(()), |path| std::fs::remove_file(&path).with_context(|| path.display().to_string()))
    }
}

/// The finished cells of a journal of the same sweep. A last line that was cut off in the middle is left out, and so
/// are all cells of a journal that does not begin as expected.
fn read(path: &Path, fingerprint: &str) -> Option<HashMap<String, Row>> {
    let mut lines = BufReader::new(File::open(path).ok()?).lines();
    if lines.next()?.ok()? != fingerprint {
        return None;
    }
    Some(lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<(String, Row)>(&line).ok()).collect())
}

fn start(path: &Path, fingerprint: &str, rows: &HashMap<String, Row>) -> Result<File> {
    let mut text = format!("{fingerprint}\n");
    for entry in rows {
        text += &serde_json::to_string(&entry)?;
        text.push('\n');
    }
    output::write_file(path, text.as_bytes())?;
    Ok(File::options().append(true).open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_cells_survive_a_kill_and_foreign_ones_are_ignored() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let results = scratch.path().join("results.json");
        let row = |requests| Row { policy: "lru".to_owned(), requests, ..Row::default() };
        let mut journal = Journal::open(Some(&results), "sweep 1").expect("a journal");
        journal.keep("a", &row(1)).expect("room");
        journal.keep("b", &row(2)).expect("room");
        drop(journal);
        // The last line of a killed run may be cut off.
        let partial = output::beside(&results, "partial");
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
        assert_eq!(Journal::open(Some(&results), "sweep 2").expect("a journal").len(), 0);
    }
}
