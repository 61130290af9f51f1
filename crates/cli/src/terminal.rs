//! The terminal of a command that shows a screen until a key ends it.

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::{DefaultTerminal, Frame};
use std::io::IsTerminal;
use std::time::Duration;

/// Time between two drawings without a key.
const PAUSE: Duration = Duration::from_millis(100);
/// Width of a bar in cells.
const BAR: usize = 20;

/// A screen that is drawn ten times a second.
pub trait Screen {
    /// Takes the readings that have arrived, and draws.
    fn draw(&mut self, frame: &mut Frame);

    /// Handles a key that does not end the program.
    fn key(&mut self, key: KeyCode);
}

/// Fails where there is no terminal; `instead` is a command that needs none, and its use.
pub fn need(instead: &str) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal; {instead}");
    }
    Ok(())
}

/// Shows a screen until q, Escape or Control-C.
pub fn show(screen: &mut dyn Screen) -> Result<()> {
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let shown = draw_until_ended(&mut terminal, screen);
    ratatui::try_restore().context("the terminal")?;
    shown
}

fn draw_until_ended(terminal: &mut DefaultTerminal, screen: &mut dyn Screen) -> Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame)).context("the terminal")?;
        if event::poll(PAUSE).context("the terminal")?
            && let Event::Key(key) = event::read().context("the terminal")?
            && key.kind == KeyEventKind::Press
        {
            if ends(key) {
                return Ok(());
            }
            screen.key(key.code);
        }
    }
}

/// True for the keys that end the program.
fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// True unless NO_COLOR is set.
pub fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A style with a colour, or without one where colours are not wanted.
pub fn coloured(colours: bool, colour: Color) -> Style {
    if colours { Style::new().fg(colour) } else { Style::new() }
}

/// A count that should be 0, highlighted if it is not.
pub fn alarm(colours: bool, text: String, count: u64) -> Span<'static> {
    let style = if count == 0 { Style::new() } else { coloured(colours, Color::Red).add_modifier(Modifier::BOLD) };
    Span::styled(text, style)
}

/// Bold text.
pub fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

/// Highlighted text of the head of a screen.
pub fn reversed(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::REVERSED))
}

/// The keys, for the last line of a screen.
pub fn keys(text: &'static str) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::DIM))
}

/// A bar for a share between 0 and 1.
pub fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_end_a_program() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(ends(key(KeyCode::Char('q'))) && ends(key(KeyCode::Esc)));
        assert!(ends(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!ends(key(KeyCode::Char('c'))) && !ends(key(KeyCode::Char('p'))));
    }
}
