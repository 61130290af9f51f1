//! `entresol top`: a cache in use on a terminal, second by second.

mod screen;
#[cfg(test)]
mod tests;

use crate::arguments::NameArgs;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_service::tables::Tables;
use entresol_service::top::{Reading, Readings, readings};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, crossterm};
use screen::{View, draw};
use std::io::IsTerminal;
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
#[derive(Default)]
struct State {
    readings: Readings,
    paused: bool,
    /// True if only tables and files are shown.
    tables: bool,
}

impl State {
    /// Handles a key; false if the program shall end.
    fn key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('t') => self.tables = !self.tables,
            _ => {}
        }
        true
    }
}

/// Runs the command.
pub fn run(arguments: &TopArgs) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal; `entresol stats --watch` writes to files and pipes");
    }
    // A path without a file is an error now, on one line.
    std::fs::metadata(&arguments.place).with_context(|| arguments.place.display().to_string())?;
    let tables = Tables::new(&arguments.names.source());
    let readings = readings(&arguments.place, tables, Duration::from_secs_f64(arguments.every))?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let shown = show(&mut terminal, arguments, &readings);
    ratatui::try_restore().context("the terminal")?;
    shown
}

fn show(terminal: &mut DefaultTerminal, arguments: &TopArgs, taken: &Receiver<Reading>) -> Result<()> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let name = arguments.place.display().to_string();
    let mut state = State::default();
    loop {
        while let Ok(reading) = taken.try_recv() {
            if !state.paused {
                state.readings.take(reading);
            }
        }
        let State { readings: Readings { before, now, silent }, paused, tables } = &state;
        let (before, now, silent) = (before.as_ref(), now.as_ref(), silent.as_deref());
        let view = View { name: &name, before, now, silent, paused: *paused, tables: *tables, colours };
        terminal.draw(|frame| draw(frame, &view)).context("the terminal")?;
        if event::poll(Duration::from_millis(100)).context("the terminal")?
            && let Event::Key(key) = crossterm::event::read().context("the terminal")?
            && key.kind == KeyEventKind::Press
            && !state.key(key)
        {
            return Ok(());
        }
    }
}
