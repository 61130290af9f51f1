//! `entresol burst top`: the nodes of a burst buffer on a terminal, second by second.

use super::access::{administrator, key_file};
use crate::stats::interval;
use crate::terminal::{self, Screen, alarm, bar, bold, coloured, keys, reversed};
use anyhow::Result;
use clap::Args;
use entresol_burst::NodeId;
use entresol_burst_live::Credential;
use entresol_burst_live::client::{Figures, figures};
use entresol_burst_live::message::NodeStatus;
use entresol_render::NumberFormat;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Watch the nodes of a burst buffer on the terminal
///
/// A line for each node: memory in use, bytes that are not on the parallel file system (PFS), the time for which the oldest
/// of them have been in the buffer, the rate of the drain between two readings, and failed writes to the PFS. Keys: q quits,
/// p pauses and resumes. Colours are omitted if NO_COLOR is set.
#[derive(Args)]
pub struct BurstTopArgs {
    /// Address of the coordinator
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub coordinator: String,
    /// File with the key of the cluster, if it has one [default: $ENTRESOL_BURST_KEY]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub every: f64,
}

/// Figures and the time at which they were asked for.
type Reading = (Instant, Result<Figures, String>);

/// State of the screen.
struct Shown {
    coordinator: String,
    taken: Receiver<Reading>,
    before: Option<(Instant, Figures)>,
    now: Option<(Instant, Figures)>,
    /// Reason why there is no newer reading.
    silent: Option<String>,
    paused: bool,
    colours: bool,
}

impl Shown {
    fn take(&mut self, (at, reading): Reading) {
        match reading {
            Ok(figures) => {
                self.before = self.now.replace((at, figures));
                self.silent = None;
            }
            Err(why) => self.silent = Some(format!("{why}; trying again")),
        }
    }

    /// Bytes a second that a node has drained between the two readings. A node that has started anew counts from zero.
    fn drained_per_s(&self, node: NodeId, status: &NodeStatus) -> Option<f64> {
        let ((now, _), (before, earlier)) = (self.now.as_ref()?, self.before.as_ref()?);
        let (_, then) = earlier.nodes.iter().find(|(of, _)| *of == node)?;
        let bytes = status.drained.checked_sub(then.as_ref()?.drained)?;
        Some(bytes as f64 / now.duration_since(*before).as_secs_f64().max(1e-6))
    }

    fn head(&self) -> [Line<'static>; 2] {
        let mut first = vec![bold(format!(" {}", self.coordinator))];
        if let Some((_, now)) = &self.now {
            let up = now.nodes.iter().filter(|(_, status)| status.is_some()).count();
            first.push(Span::raw(format!("  epoch {}; {up} of {} nodes up; ", now.epoch, now.nodes.len())));
            first.push(Span::raw(format!("checkpoints: {} not on the PFS, ", now.undrained)));
            first.push(alarm(self.colours, format!("{} on one node alone", now.at_risk), now.at_risk));
        }
        if self.paused {
            first.push(reversed("  PAUSED"));
        }
        let second = match (&self.silent, &self.now) {
            (Some(why), _) => Line::from(reversed(format!(" {why} "))),
            (None, None) => Line::raw(" asking"),
            (None, Some(_)) => Line::default(),
        };
        [Line::from(first), second]
    }

    fn lines(&self, now: &Figures) -> Vec<Line<'static>> {
        let head = format!(
            " {:>5}  {:<22}{:>8}{:>10}{:>11}{:>9}{:>11}{:>9}",
            "node", "memory", "taken", "of", "not on PFS", "oldest", "drained/s", "failures"
        );
        let mut lines = vec![bold(head).into()];
        for (node, status) in &now.nodes {
            match status {
                Some(status) => lines.push(self.node(*node, status)),
                None => {
                    let text = format!(" {:>5}  does not answer", node.0);
                    lines.push(alarm(self.colours, text, 1).into());
                }
            }
        }
        let failing = now.nodes.iter().filter_map(|(node, status)| Some((node, status.as_ref()?.failing.as_ref()?)));
        for (node, why) in failing {
            lines.push(alarm(self.colours, format!(" node {}, PFS: {why}", node.0), 1).into());
        }
        lines
    }

    fn node(&self, node: NodeId, status: &NodeStatus) -> Line<'static> {
        let bytes = |bytes: f64| NumberFormat::Bytes.short(bytes);
        let share = status.used as f64 / status.capacity.max(1) as f64;
        let oldest = match status.undrained {
            0 => "-".to_owned(),
            _ => NumberFormat::Seconds.short((status.undrained_for_ms as f64 / 1e3).round()),
        };
        let drained = self.drained_per_s(node, status).map_or("-".to_owned(), bytes);
        let failures = format!("{:>9}", status.pfs_failures);
        Line::from(vec![
            Span::raw(format!(" {:>5}  ", node.0)),
            Span::styled(bar(share), coloured(self.colours, Color::Yellow)),
            Span::raw(format!(
                "{:>8}{:>10}{:>11}{oldest:>9}{drained:>11}",
                NumberFormat::Percent.short(share),
                bytes(status.capacity as f64),
                bytes(status.undrained as f64),
            )),
            alarm(self.colours, failures, status.pfs_failures),
        ])
    }
}

impl Screen for Shown {
    fn draw(&mut self, frame: &mut Frame) {
        while let Ok(reading) = self.taken.try_recv() {
            if !self.paused {
                self.take(reading);
            }
        }
        let rows = [Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head().to_vec()), head);
        if let Some((_, now)) = &self.now {
            frame.render_widget(Paragraph::new(self.lines(now)), body);
        }
        frame.render_widget(Paragraph::new(keys(" q end   p pause")), foot);
    }

    fn key(&mut self, key: KeyCode) {
        if key == KeyCode::Char('p') {
            self.paused = !self.paused;
        }
    }
}

/// Reads repeatedly on a thread of its own: nodes that hang answer late.
fn readings(coordinator: &str, credential: Option<Credential>, every: Duration) -> Result<Receiver<Reading>> {
    let (readings, taken) = sync_channel(1);
    let coordinator = coordinator.to_owned();
    std::thread::Builder::new().name("readings".into()).spawn(move || {
        let figures = || figures(&coordinator, credential.as_ref()).map_err(|error| error.to_string());
        while readings.send((Instant::now(), figures())).is_ok() {
            std::thread::sleep(every);
        }
    })?;
    Ok(taken)
}

/// Runs the command.
pub fn top(arguments: &BurstTopArgs) -> Result<()> {
    let metrics = format!("entresol burst metrics --coordinator {}", arguments.coordinator);
    terminal::need(&format!("`{metrics}` serves the same figures over HTTP"))?;
    let credential = administrator(key_file(arguments.key.as_deref()).as_deref())?;
    terminal::show(&mut Shown {
        coordinator: arguments.coordinator.clone(),
        taken: readings(&arguments.coordinator, credential, Duration::from_secs_f64(arguments.every))?,
        before: None,
        now: None,
        silent: None,
        paused: false,
        colours: terminal::has_colours(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn node(number: u32, drained: u64) -> (NodeId, Option<NodeStatus>) {
        let status = NodeStatus {
            node: number,
            capacity: 8 << 30,
            used: 2 << 30,
            undrained: 1 << 30,
            undrained_for_ms: 3100,
            drained,
            ..NodeStatus::default()
        };
        (NodeId(number), Some(status))
    }

    fn shown(colours: bool) -> Shown {
        let (_, taken) = sync_channel(1);
        let (coordinator, silent) = ("10.0.0.1:7700".to_owned(), None);
        Shown { coordinator, taken, before: None, now: None, silent, paused: false, colours }
    }

    fn drawn(shown: &mut Shown) -> (String, Vec<Color>) {
        let mut terminal = Terminal::new(TestBackend::new(100, 10)).expect("memory");
        terminal.draw(|frame| shown.draw(frame)).expect("memory");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        let text = (0..10).map(row).collect::<Vec<_>>().join("\n");
        let colours = buffer.content().iter().map(|cell| cell.fg).filter(|&colour| colour != Color::Reset).collect();
        (text, colours)
    }

    #[test]
    fn rates_failures_and_lost_nodes_are_shown() {
        let start = Instant::now();
        let mut shown = shown(false);
        assert!(drawn(&mut shown).0.contains("asking"));
        let nodes = vec![node(0, 100 << 20), node(1, 5 << 20), (NodeId(2), None)];
        shown.take((start, Ok(Figures { epoch: 3, undrained: 2, at_risk: 1, nodes })));
        let mut failing = node(0, 300 << 20);
        let status = failing.1.as_mut().expect("a status");
        (status.pfs_failures, status.failing) = (7, Some("no space".to_owned()));
        // Node 1 has started anew.
        let nodes = vec![failing, node(1, 1 << 20), (NodeId(2), None)];
        let at = start + Duration::from_secs(2);
        shown.take((at, Ok(Figures { epoch: 3, undrained: 2, at_risk: 1, nodes })));
        let (text, colours) = drawn(&mut shown);
        println!("{text}");
        let expected = [
            " 10.0.0.1:7700  epoch 3; 2 of 3 nodes up; checkpoints: 2 not on the PFS, 1 on one node alone",
            "     0  [#####...............]     25%     8 GiB      1 GiB      3 s    100 MiB        7",
            "     1  [#####...............]     25%     8 GiB      1 GiB      3 s          -        0",
            "     2  does not answer",
            " node 0, PFS: no space",
            " q end   p pause",
        ];
        expected.iter().for_each(|line| assert!(text.contains(line.trim_end()), "{line}"));
        assert_eq!(colours, [], "nothing but letters where colours are not wanted");
        shown.colours = true;
        assert!(drawn(&mut shown).1.contains(&Color::Red));
        shown.key(KeyCode::Char('p'));
        shown.take((at, Err("no answer".to_owned())));
        let (text, _) = drawn(&mut shown);
        assert!(
            text.contains("PAUSED") && text.contains("no answer; trying again") && text.contains("8 GiB"),
            "{text}"
        );
    }
}
