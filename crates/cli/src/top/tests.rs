//! The screen, drawn from readings as a server could give them.

use super::screen::{View, draw};
use super::{Readings, Shown};
use crate::terminal::Screen;
use entresol_render::grouped;
use entresol_service::figures::Figures;
use entresol_service::figures::HintFigures;
use entresol_service::objects::ObjectFigures;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;
use serde_json::{Value, json};
use std::sync::mpsc::sync_channel;

fn calls(calls: u64, busy_us: u64, took: &[u64]) -> Value {
    json!({ "calls": calls, "errors": 0, "bytes": calls * 4096, "busy_us": busy_us, "under_way": 0, "took": took })
}

fn front_end(calls: u64) -> Value {
    json!({ "calls": calls, "errors": 0, "bytes": calls * 8192, "p50_us": 12.0, "p99_us": 500.0, "max_us": 900.0 })
}

/// A reading after so many seconds; in each second a hundred pages are read and half of them hit.
fn reading(open_s: u64) -> Figures {
    let none = calls(0, 0, &[]);
    let value = json!({
        "process": 77, "open_s": open_s, "policy": "expcache:window=8", "mode": "write-back", "failed": false,
        "page_bytes": 4096, "tiers_pages": [100, 1000], "room_pages": 1200, "dirty_pages": 250, "lost_pages": 0,
        "dirty_age": {
            "bound_s": 3600.0, "oldest_s": 3610.0, "written_pages": 7, "late_pages": 0, "late_by_s": 0.0, "waits": 2, "pages_per_s": null
        },
        "requests": {
            "reads": 100 * open_s, "read_hits": 50 * open_s, "writes": 0, "write_hits": 0,
            "tier_hits": [20 * open_s, 30 * open_s], "fetches": 50 * open_s, "admissions": 40 * open_s,
            "admissions_failed": 0, "bypasses": 10 * open_s, "around": 0, "write_backs": 5 * open_s,
            "write_back_ios": open_s, "directory_full": 0
        },
        "cache_device": {
            "writes": 9, "written_bytes": 4096, "written_pages": 1, "syncs": 1, "read_pages": 3, "copied_pages": 0,
            "segments_reclaimed": 0, "clean_copies_bad": 0,
            "calls": { "read": calls(30 * open_s, 6000 * open_s, &[0, 0, 0, 0, 0, 0, 0, 0, 30 * open_s]), "write": none, "sync": none }
        },
        "backing": {
            "writes": 0, "written_pages": 0, "syncs": 0, "read_pages": 0, "rescued_pages": 0,
            "calls": { "read": calls(50 * open_s, 400_000 * open_s, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50 * open_s]), "write": none, "sync": none }
        },
        "policy_gauges": { "weight lru": 0.25, "weight lfu": 0.75, "window": 8.0 },
        "door": { "read": front_end(25 * open_s), "write": front_end(0), "flush": front_end(0), "discard": front_end(0) }
    });
    serde_json::from_value(value).expect("figures")
}

struct Drawn {
    text: String,
    /// Colours of all cells that do not have the default.
    colours: Vec<Color>,
}

fn drawn(view: &View, width: u16, height: u16) -> Drawn {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| draw(frame, view)).expect("memory");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let text = (0..height).map(row).collect::<Vec<_>>().join("\n");
    let colours = buffer.content().iter().map(|cell| cell.fg).filter(|&colour| colour != Color::Reset).collect();
    Drawn { text, colours }
}

fn view<'a>(before: Option<&'a Figures>, now: Option<&'a Figures>) -> View<'a> {
    View { name: "fast/cache", before, now, silent: None, paused: false, tables: false, colours: false }
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn rates_are_those_of_the_time_between_and_all_fits_80_by_24() {
    let (before, now) = (reading(10), reading(12));
    let Drawn { text, colours } = drawn(&view(Some(&before), Some(&now)), 80, 24);
    println!("{text}");
    says(
        &text,
        &[
            " fast/cache  expcache:window=8, write-back; process 77, for 12 s",
            " hit ratio   [##########..........]  50.00%   since the start 50.00%",
            "reads 100/s, 50.00% hits; writes 0/s",
            "in memory 20.00%, on the cache device 30.00%",
            &format!(" dirty       [#####...............]  25.00%   250 of {} pages; 0 lost", grouped(1000)),
            " movements   50/s fetched, 40 admitted, 10 past, 5.0 written back; 0 copied",
            " cache reads           30   120 KiB   200 µs   256 µs   256 µs    0.01      0",
            " backing reads         50   200 KiB     8 ms  8.19 ms  8.19 ms    0.40      0",
            " reads                 25   200 KiB             12 µs   500 µs              0",
            " inside expcache",
            " weight lfu 0.750          weight lru 0.250          window 8",
            " q end   p pause   t tables",
        ],
    );
    assert_eq!(colours, [], "nothing but letters where colours are not wanted");
    let coloured = View { colours: true, ..view(Some(&before), Some(&now)) };
    assert!(!drawn(&coloured, 80, 24).colours.is_empty());
    assert_eq!(drawn(&coloured, 80, 24).text, text, "colours carry nothing that the text does not");
}

#[test]
fn why_a_candidate_decides_is_told() {
    let mut now = reading(12);
    let choice = json!({
        "candidates": [{ "name": "lru", "hit_ratio": 0.5, "cost": 0.55 }, { "name": "h-arc", "hit_ratio": 0.75, "cost": 0.3 }],
        "active": "h-arc", "sampled_requests": 900, "switches": 2, "last_switch": "switched from lru to h-arc: so"
    });
    now.choice = Some(serde_json::from_value(choice).expect("figures"));
    let parts = [
        " h-arc decides; 2 switches; 900 sampled requests",
        " lru         hit ratio 50.00%, cost 0.5500",
        " h-arc       hit ratio 75.00%, cost 0.3000",
        " switched from lru to h-arc: so",
    ];
    says(&drawn(&view(None, Some(&now)), 80, 30).text, &parts);
    says(
        &now.table(None),
        &["choice         h-arc decides; 2 switches", "  lru          hit ratio 50.00%", "  last         "],
    );
}

#[test]
fn what_is_wrong_stands_out_and_what_is_missing_is_said() {
    let mut now = reading(5);
    (now.failed, now.lost_pages, now.backing.calls.read.errors) = (true, 3, 1234);
    now.failure = Some("no such device".to_owned());
    let coloured = View { colours: true, ..view(None, Some(&now)) };
    let Drawn { text, colours } = drawn(&coloured, 80, 24);
    says(&text, &["the cache device has failed: no such device; requests go to the", "; 3 lost", "   1234\n"]);
    assert!(colours.contains(&Color::Red));
    let silent = View { silent: Some("no process serves this cache"), paused: true, ..view(None, None) };
    let text = drawn(&silent, 80, 24).text;
    says(&text, &[" fast/cache  PAUSED", " no process serves this cache"]);
    says(&drawn(&view(None, None), 80, 24).text, &[" asking"]);
    // A terminal may have any size.
    for (width, height) in [(1, 1), (5, 40), (300, 2), (79, 3)] {
        drawn(&coloured, width, height);
    }
}

#[test]
fn another_process_counts_anew_and_a_server_that_goes_is_waited_for() {
    let mut readings = Readings::default();
    readings.take(Ok(Some(reading(10))));
    assert!(readings.before.is_none());
    readings.take(Ok(Some(reading(11))));
    assert_eq!(readings.before.as_ref().map(|before| before.open_s), Some(10.0));
    readings.take(Ok(None));
    assert!(readings.silent.as_ref().is_some_and(|why| why.contains("waiting for one")));
    assert!(readings.now.is_some(), "the last figures stay");
    readings.take(Ok(Some(Figures { process: 78, ..reading(3) })));
    assert!(readings.before.is_none() && readings.silent.is_none());
    readings.take(Err("no".to_owned()));
    assert!(readings.silent.as_ref().is_some_and(|why| why.contains("no; trying again")));
}

#[test]
fn tables_go_by_their_names_and_can_have_the_screen_for_themselves() {
    let with_tables = |open_s: u64| {
        let mut reading = reading(open_s);
        let long = "a_database.with_a_schema.and_a_table_of_a_very_long_name_indeed";
        for (number, name, reads) in [(1, "shop.public.orders", 40), (2, long, 4), (3, long, 6)] {
            reading.objects.push(ObjectFigures {
                object: number,
                path: format!("base/5/{number}"),
                name: Some(name.to_owned()),
                verdict: Some("random".to_owned()),
                reads: reads * open_s,
                read_hits_device: reads / 2 * open_s,
                resident_device: 100,
                dirty: 7,
                ..ObjectFigures::default()
            });
        }
        reading.hints =
            Some(HintFigures { begins: 3 * open_s, malformed: 1, files_known: 12, ..HintFigures::default() });
        reading
    };
    let (before, now) = (with_tables(10), with_tables(12));
    let all = drawn(&view(Some(&before), Some(&now)), 80, 40).text;
    println!("{all}");
    let tables = [
        " queries     3.0/s begun, 0 run; 12 files known, 0 unknown; 1 malformed",
        " table or file         reads/s     hits writes/s in cache    dirty       found",
        " shop.public.orders         40   50.00%        0      100        7      random",
        " …y_long_name_indeed        10   50.00%        0      200       14      random",
    ];
    says(&all, &tables);
    says(&all, &[" cache reads ", " inside expcache"]);
    let alone = drawn(&View { tables: true, ..view(Some(&before), Some(&now)) }, 80, 24).text;
    says(&alone, &tables);
    assert!(!alone.contains("cache reads"), "{alone}");
}

#[test]
fn keys_pause_and_show_tables() {
    let (_readings, taken) = sync_channel(1);
    let (name, readings) = (String::new(), Readings::default());
    let mut shown = Shown { name, taken, readings, paused: false, tables: false, colours: false };
    for expected in [true, false] {
        shown.key(KeyCode::Char('p'));
        assert_eq!((shown.paused, shown.tables), (expected, false));
    }
    shown.key(KeyCode::Char('t'));
    assert!(shown.tables);
}
