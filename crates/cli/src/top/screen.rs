//! The screen of `entresol top`: a function of two readings.

use crate::terminal::{self, bar, bold, keys, reversed};
use entresol_render::{NumberFormat, grouped, percent};
use entresol_service::choice::{CandidateFigures, ChoiceFigures};
use entresol_service::figures::{DeviceCalls, DeviceFigures, Figures, gauge};
use entresol_service::objects::{ObjectFigures, busiest};
use entresol_service::observed::CallFigures;
use entresol_service::top;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Selects a part of the figures.
type Part<A, B> = fn(&A) -> &B;

/// Everything on which the screen depends.
pub struct View<'a> {
    /// Name of the cache.
    pub name: &'a str,
    /// An earlier reading of the same process.
    pub before: Option<&'a Figures>,
    /// The last reading.
    pub now: Option<&'a Figures>,
    /// Why there is no newer reading.
    pub silent: Option<&'a str>,
    pub paused: bool,
    /// True if tables and files take the whole screen.
    pub tables: bool,
    pub colours: bool,
}

impl View<'_> {
    fn coloured(&self, colour: Color) -> Style {
        terminal::coloured(self.colours, colour)
    }

    /// A count that should be 0, highlighted if it is not.
    fn alarm(&self, text: String, count: u64) -> Span<'static> {
        terminal::alarm(self.colours, text, count)
    }

    /// Seconds between the readings.
    fn elapsed(&self, now: &Figures) -> f64 {
        top::elapsed(now, self.before)
    }

    /// Returns the increase of a counter between the two readings.
    fn since(&self, now: &Figures, of: impl Fn(&Figures) -> u64) -> u64 {
        top::since(now, self.before, of)
    }
}

/// A rate in events a second.
fn rate(events: f64) -> String {
    if events < 10.0 && events > 0.0 { format!("{events:.1}") } else { NumberFormat::Count.short(events.round()) }
}

fn ratio(hits: u64, all: u64) -> String {
    percent(hits as f64 / all as f64, 2)
}

fn time(us: f64) -> String {
    if us == 0.0 { "-".to_owned() } else { NumberFormat::Seconds.short(us / 1e6) }
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, view: &View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(view)), head);
    if let Some(now) = view.now {
        draw_body(frame, body, view, now);
    }
    frame.render_widget(Paragraph::new(keys(" q end   p pause   t tables")), foot);
}

fn head_lines(view: &View) -> Vec<Line<'static>> {
    let mut first = vec![bold(format!(" {}", view.name))];
    if let Some(now) = view.now {
        let open = NumberFormat::Seconds.short(now.open_s);
        first.push(Span::raw(format!("  {}, {}; process {}, for {open}", now.policy, now.mode, now.process)));
    }
    if view.paused {
        first.push(reversed("  PAUSED"));
    }
    let second = match (view.silent, view.now) {
        (Some(why), _) => Line::from(reversed(format!(" {why} "))),
        (None, None) => Line::raw(" asking"),
        (None, Some(now)) if now.failed => {
            let style = view.coloured(Color::Red).add_modifier(Modifier::REVERSED);
            let why = now.why_failed();
            Line::styled(format!(" the cache device has failed{why}; requests go to the backing store "), style)
        }
        (None, Some(_)) => Line::default(),
    };
    vec![Line::from(first), second]
}

fn draw_body(frame: &mut Frame, area: Rect, view: &View, now: &Figures) {
    let mut lines = request_lines(view, now);
    if !view.tables {
        lines.push(Line::default());
        lines.extend(device_lines(view, now));
        lines.push(Line::default());
        lines.extend(front_end_lines(view, now));
        if !now.policy_gauges.is_empty() {
            lines.push(Line::default());
            lines.extend(gauge_lines(now, area.width.into()));
        }
        lines.extend(now.choice.as_ref().map(choice_lines).unwrap_or_default());
    }
    if let Some(hints) = &now.hints {
        let begun = view.since(now, |figures| figures.hints.as_ref().map_or(0, |hints| hints.begins));
        lines.push(Line::from(vec![
            bold(" queries     "),
            Span::raw(format!(
                "{}/s begun, {} run; {} files known, {} unknown; ",
                rate(begun as f64 / view.elapsed(now)),
                hints.running,
                grouped(hints.files_known.into()),
                grouped(hints.files_unknown.into()),
            )),
            view.alarm(format!("{} malformed", grouped(hints.malformed.into())), hints.malformed),
        ]));
    }
    if now.objects.len() > 1 {
        lines.push(Line::default());
        lines.extend(object_lines(view, now, area.width.into()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn request_lines(view: &View, now: &Figures) -> Vec<Line<'static>> {
    let elapsed = view.elapsed(now);
    let since = |of: fn(&Figures) -> u64| view.since(now, of);
    let reads = since(|f| f.requests.reads);
    let writes = since(|f| f.requests.writes);
    let (read_hits, write_hits) = (since(|f| f.requests.read_hits), since(|f| f.requests.write_hits));
    let (hits, all) = (read_hits + write_hits, reads + writes);
    let total = &now.requests;
    let ever = ratio(total.read_hits + total.write_hits, total.reads + total.writes);
    let share = if all == 0 { 0.0 } else { hits as f64 / all as f64 };
    let per = |count: u64| rate(count as f64 / elapsed);
    let mut lines = vec![
        Line::from(vec![
            bold(" hit ratio   "),
            Span::styled(bar(share), view.coloured(Color::Green)),
            bold(format!(" {:>7}", ratio(hits, all))),
            Span::raw(format!("   since the start {ever}")),
        ]),
        Line::raw(format!(
            "             reads {}/s, {} hits; writes {}/s, {} hits",
            per(reads),
            ratio(read_hits, reads),
            per(writes),
            ratio(write_hits, writes)
        )),
    ];
    if now.tiers_pages.len() > 1 {
        let of = |tier: usize| view.since(now, |f| f.requests.tier_hits.get(tier).copied().unwrap_or(0));
        let (top, below) = (ratio(of(0), all), ratio(of(1), all));
        lines.push(Line::raw(format!("             in memory {top}, on the cache device {below}")));
    }
    let cached: u64 = now.tiers_pages.last().copied().unwrap_or(0);
    let dirty = now.dirty_pages as f64 / cached.max(1) as f64;
    if let Some(change) = &now.cache_file {
        lines.push(Line::from(view.alarm(format!(" {change}"), 1)));
    }
    lines.push(Line::from(vec![
        bold(" dirty       "),
        Span::styled(bar(dirty), view.coloured(Color::Yellow)),
        bold(format!(" {:>7}", percent(dirty, 2))),
        Span::raw(format!("   {} of {} pages", grouped(now.dirty_pages.into()), grouped(cached.into()))),
        view.alarm(format!("; {} lost", grouped(now.lost_pages.into())), now.lost_pages),
    ]));
    if let Some(age) = &now.dirty_age {
        let missed = age.over_s() > 0.0 || age.late_pages > 0;
        lines.push(Line::from(vec![bold(" dirty age   "), view.alarm(age.line(), u64::from(missed))]));
    }
    lines.push(Line::from(vec![
        bold(" movements   "),
        Span::raw(format!(
            "{}/s fetched, {} admitted, {} past, {} written back; {} copied",
            per(since(|f| f.requests.fetches)),
            per(since(|f| f.requests.admissions)),
            per(since(|f| f.requests.bypasses + f.requests.around)),
            per(since(|f| f.requests.write_backs)),
            per(since(|f| f.cache_device.copied_pages)),
        )),
    ]));
    lines
}

fn device_lines(view: &View, now: &Figures) -> Vec<Line<'static>> {
    let mut lines = vec![
        bold(format!(
            " {:<15}{:>9}{:>10}{:>9}{:>9}{:>9}{:>8}{:>7}",
            "device", "calls/s", "bytes/s", "mean", "half in", "99% in", "queue", "errors"
        ))
        .into(),
    ];
    let devices: [(&str, Part<Figures, DeviceFigures>); 2] =
        [("cache", |f| &f.cache_device.calls), ("backing", |f| &f.backing.calls)];
    for (name, of) in devices {
        let kinds: [(&str, Part<DeviceFigures, DeviceCalls>); 3] =
            [("reads", |d| &d.read), ("writes", |d| &d.write), ("syncs", |d| &d.sync)];
        for (kind, calls) in kinds {
            let since = calls(of(now)).since(view.before.map(|before| calls(of(before))));
            lines.push(device_line(view, format!("{name} {kind}"), &since, calls(of(now)).errors, view.elapsed(now)));
        }
    }
    let unsynced = now.backing.directory_sync_errors;
    if unsynced > 0 {
        let text = format!(" {} syncs of directories below failed", grouped(unsynced.into()));
        lines.push(view.alarm(text, unsynced).into());
    }
    lines
}

fn device_line(view: &View, name: String, since: &DeviceCalls, errors: u64, elapsed: f64) -> Line<'static> {
    let some = since.calls > 0;
    let times = [since.mean_us(), since.quantile_us(0.5), since.quantile_us(0.99)];
    let [mean, p50, p99] = times.map(|us| time(if some { us } else { 0.0 }));
    let queue = since.busy_us as f64 / 1e6 / elapsed;
    let bytes = NumberFormat::Bytes.short(since.bytes as f64 / elapsed);
    Line::from(vec![
        Span::raw(format!(
            " {name:<15}{:>9}{bytes:>10}{mean:>9}{p50:>9}{p99:>9}{queue:>8.2}",
            rate(since.calls as f64 / elapsed)
        )),
        view.alarm(format!("{errors:>7}"), errors),
    ])
}

fn front_end_lines(view: &View, now: &Figures) -> Vec<Line<'static>> {
    let elapsed = view.elapsed(now);
    let head = format!(
        " {:<15}{:>9}{:>10}{:>9}{:>9}{:>9}{:>8}{:>7}",
        "front-end, ever", "calls/s", "bytes/s", "", "half in", "99% in", "", "errors"
    );
    let mut lines = vec![bold(head).into()];
    let calls: [(&str, Part<Figures, CallFigures>); 4] = [
        ("reads", |f| &f.front_end.read),
        ("writes", |f| &f.front_end.write),
        ("flushes", |f| &f.front_end.flush),
        ("discards", |f| &f.front_end.discard),
    ];
    for (name, of) in calls.into_iter().filter(|(_, of)| of(now).calls > 0) {
        let figures = of(now);
        let per = |count: u64| count as f64 / elapsed;
        let bytes = NumberFormat::Bytes.short(per(view.since(now, |f| of(f).bytes)));
        let (p50, p99) = (time(figures.p50_us), time(figures.p99_us));
        let calls = rate(per(view.since(now, |f| of(f).calls)));
        lines.push(Line::from(vec![
            Span::raw(format!(" {name:<15}{calls:>9}{bytes:>10}{:>9}{p50:>9}{p99:>9}{:>8}", "", "")),
            view.alarm(format!("{:>7}", figures.errors), figures.errors),
        ]));
    }
    lines
}

/// State of the choice and a line for each candidate, if the policy has some.
fn choice_lines(choice: &ChoiceFigures) -> Vec<Line<'static>> {
    let mut lines = vec![Line::raw(format!(" {}", choice.state()))];
    let candidate = |candidate: &CandidateFigures| {
        let text = Span::raw(format!(" {:<12}{}", candidate.name, candidate.figures()));
        Line::from(if candidate.name == choice.active { text.patch_style(Modifier::BOLD) } else { text })
    };
    lines.extend(choice.candidates.iter().map(candidate));
    lines.extend(choice.last_switch.iter().map(|why| Line::raw(format!(" {why}"))));
    lines
}

/// The policy's own gauges, as many in a line as fit.
fn gauge_lines(now: &Figures, width: usize) -> Vec<Line<'static>> {
    let policy = now.policy.split(':').next().unwrap_or_default();
    let mut lines = vec![Line::from(bold(format!(" inside {policy}")))];
    let mut line = String::new();
    for (name, &value) in &now.policy_gauges {
        let part = format!(" {:<25}", format!("{name} {}", gauge(value)));
        if !line.is_empty() && line.len() + part.trim_end().len() > width {
            lines.push(Line::raw(std::mem::take(&mut line)));
        }
        line += &part;
    }
    lines.push(Line::raw(line));
    lines
}

/// The busiest tables and files, as many as fit.
fn object_lines(view: &View, now: &Figures, width: usize) -> Vec<Line<'static>> {
    /// Cells taken by the numbers.
    const NUMBERS: usize = 60;
    let name_cells = width.saturating_sub(NUMBERS).clamp(12, 60);
    let elapsed = view.elapsed(now);
    let mut lines = vec![
        bold(format!(
            " {:<name_cells$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}",
            "table or file", "reads/s", "hits", "writes/s", "in cache", "dirty", "found"
        ))
        .into(),
    ];
    let before = view.before.map_or(&[][..], |before| &before.objects);
    let line = |object: ObjectFigures| {
        let per = |count: u64| rate(count as f64 / elapsed);
        let (hits, all) = (object.read_hits() + object.write_hits(), object.requests());
        let hits = if all == 0 { "-".to_owned() } else { ratio(hits, all) };
        let held = NumberFormat::Count.short((object.resident_memory + object.resident_device) as f64);
        Line::raw(format!(
            " {:<name_cells$}{:>9}{hits:>9}{:>9}{held:>9}{:>9}{:>12}",
            tail(object.label(), name_cells - 1),
            per(object.reads),
            per(object.writes),
            NumberFormat::Count.short(object.dirty as f64),
            object.verdict.as_deref().unwrap_or_default(),
        ))
    };
    lines.extend(busiest(&now.objects, before).into_iter().map(line));
    lines
}

/// The end of a name that is too long; the end is more specific than the beginning.
fn tail(name: &str, cells: usize) -> String {
    let letters = name.chars().count();
    if letters <= cells {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(letters + 1 - cells).collect::<String>())
    }
}
