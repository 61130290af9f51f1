//! `entresol top`: a cache in use on a terminal, second by second.

mod screen;
#[cfg(test)]
mod tests;

use crate::arguments::NameArgs;
use crate::terminal::{self, Screen};
use anyhow::{Context, Result};
use clap::Args;
use entresol_service::tables::Tables;
use entresol_service::top::{Reading, Readings, readings};
use entresol_service::words::quoted_path;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use screen::{View, draw};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Watch a cache in use on the terminal
///
/// Rates are those of the time between two readings. Keys: q quits, p pauses and resumes, t shows tables and files
/// alone. While no process serves the cache, `top` reports that and waits. Colours are omitted if NO_COLOR is set.
#[derive(Args)]
pub struct TopArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(value_name = "CACHE|SOCKET|DIR")]
    pub place: PathBuf,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::stats::interval)]
    pub every: f64,
    #[command(flatten)]
    pub names: NameArgs,
}

/// State of the screen: the readings of the cache, and the choices made by keys.
struct Shown {
    name: String,
    taken: Receiver<Reading>,
    readings: Readings,
    paused: bool,
    /// True if only tables and files are shown.
    tables: bool,
    colours: bool,
}

impl Screen for Shown {
    fn draw(&mut self, frame: &mut Frame) {
        while let Ok(reading) = self.taken.try_recv() {
            if !self.paused {
                self.readings.take(reading);
            }
        }
        let Readings { before, now, silent } = &self.readings;
        let (before, now, silent) = (before.as_ref(), now.as_ref(), silent.as_deref());
        let Shown { name, paused, tables, colours, .. } = self;
        draw(frame, &View { name, before, now, silent, paused: *paused, tables: *tables, colours: *colours });
    }

    fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('t') => self.tables = !self.tables,
            _ => {}
        }
    }
}

/// Runs the command.
pub fn run(arguments: &TopArgs) -> Result<()> {
    let place = quoted_path(&arguments.place);
    terminal::need(&format!("`entresol stats {place} --watch 1` writes to files and pipes"))?;
    // A path without a file is an error now, on one line.
    std::fs::metadata(&arguments.place).with_context(|| arguments.place.display().to_string())?;
    let tables = Tables::new(&arguments.names.source());
    terminal::show(&mut Shown {
        name: arguments.place.display().to_string(),
        taken: readings(&arguments.place, tables, Duration::from_secs_f64(arguments.every))?,
        readings: Readings::default(),
        paused: false,
        tables: false,
        colours: terminal::has_colours(),
    })
}
