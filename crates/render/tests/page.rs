//! The page as a reader's browser and a strict parser see it. Drawings are checked by structure and numbers, not by
//! whole strings, so that their look may change.

use entresol_render::*;
use proptest::prelude::*;
use roxmltree::{Document, Node};
use std::collections::HashSet;

#[path = "../examples/gallery.rs"]
#[allow(dead_code)]
mod gallery;

/// Parses `html` as XML, which the writer promises, so that an unclosed or unescaped piece is an error.
fn parsed<R>(html: &str, check: impl FnOnce(&Document<'_>) -> R) -> R {
    let xml = html.strip_prefix("<!DOCTYPE html>\n").expect("a page starts with its document type");
    check(&Document::parse(xml).unwrap_or_else(|e| panic!("not well-formed: {e}")))
}

fn with_class<'a>(root: Node<'a, 'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    root.descendants().filter(move |n| n.attribute("class").is_some_and(|c| c.split(' ').any(|one| one == class)))
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap_or_else(|| panic!("no {attribute}")).parse().expect("a number")
}

fn page_of(chart: impl Into<Chart>) -> String {
    Page::new("t").section(Section::new("s").chart(chart)).to_html()
}

fn plain(label: &str) -> Axis {
    Axis::new(label, NumberFormat::Decimal)
}

#[test]
fn the_gallery_is_well_formed_and_needs_no_network() {
    let html = gallery::page().to_html();
    assert_eq!(html, gallery::page().to_html(), "the same content gives the same bytes");
    for outside in ["http://", "https://", "url(", "@import", " src=", "<link"] {
        // A hostile name in the gallery contains such a string; the page has it as escaped text.
        assert!(!html.replace("&lt;img src=", "").contains(outside), "{outside} in the page");
    }
    parsed(&html, |doc| {
        let ids: Vec<&str> = doc.descendants().filter_map(|n| n.attribute("id")).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "ids are unique");
        for link in doc.descendants().filter(|n| n.has_tag_name("a")) {
            let target = link.attribute("href").and_then(|h| h.strip_prefix('#')).expect("links stay on the page");
            assert!(ids.contains(&target), "{target} is nowhere");
        }
        for svg in with_class(doc.root(), "plot").flat_map(|p| p.children()).filter(|n| n.has_tag_name("svg")) {
            assert!(svg.attribute("viewBox").is_some() && svg.attribute("aria-label").is_some());
        }
        assert_eq!(doc.descendants().filter(|n| n.has_tag_name("script")).count(), 1);
    });
}

#[test]
fn every_mark_lies_within_its_drawing() {
    parsed(&gallery::page().to_html(), |doc| {
        let mut marks = 0;
        for svg in doc.descendants().filter(|n| n.has_tag_name("svg") && n.attribute("viewBox").is_some()) {
            let size: Vec<f64> = svg.attribute("viewBox").unwrap().split(' ').map(|v| v.parse().unwrap()).collect();
            for node in svg.descendants() {
                let (x, y) = match node.tag_name().name() {
                    "circle" => ("cx", "cy"),
                    "rect" | "text" => ("x", "y"),
                    _ => continue,
                };
                marks += 1;
                let (x, y) = (number(node, x), number(node, y));
                let width = node.attribute("width").map_or(0.0, |w| w.parse().unwrap());
                // The width of text is estimated; the tolerance covers the error.
                let half = node.text().map_or(0.0, |t| t.trim().chars().count() as f64 * 3.5);
                let (x, right) = match node.attribute("class") {
                    Some("tick") | Some("number") | Some("nothing") => (x - half, x + half),
                    Some("tick y") => (x - 2.0 * half, x),
                    _ => (x, x + width),
                };
                assert!(x >= -3.0 && right <= size[2] + 3.0, "{x}..{right} of {} in {node:?}", size[2]);
                assert!((0.0..=size[3]).contains(&y), "{y} of {} in {node:?}", size[3]);
            }
        }
        assert!(marks > 1000, "{marks}");
    });
}

#[test]
fn forty_five_series_look_different_and_are_all_in_the_legend() {
    parsed(&gallery::page().to_html(), |doc| {
        let figure = with_class(doc.root(), "chart").next().unwrap();
        let keys: Vec<&str> = with_class(figure, "key").map(|k| k.attribute("class").unwrap()).collect();
        assert_eq!(keys.len(), 45);
        let looks: HashSet<String> = keys.iter().map(|c| c.replace(" strong", "")).collect();
        assert_eq!(looks.len(), 45, "two series share colour and dashes");
        assert_eq!(with_class(figure, "end").count(), 6, "five best and the baseline");
        assert_eq!(with_class(figure, "quiet").count(), 39);
        assert!(!figure.attribute("class").unwrap().contains("solid"));
    });
}

#[test]
fn a_name_has_one_look_on_the_page() {
    parsed(&gallery::page().to_html(), |doc| {
        let mut looks: Vec<(&str, String)> = with_class(doc.root(), "series")
            .filter_map(|s| {
                Some((s.attribute("data-name")?, s.attribute("class")?.replace(" quiet", "").replace(" mark", "")))
            })
            .collect();
        looks.sort();
        looks.dedup();
        let names: HashSet<&str> = looks.iter().map(|l| l.0).collect();
        assert!(names.contains("lru") && names.len() == looks.len(), "{looks:?}");
    });
}

#[test]
fn hostile_names_stay_text() {
    let evil = "<script>alert(1)</script>\"'&\u{0}\u{1b}]]>--></style></svg>";
    let mut table = Table::new(evil, [Column::text(evil).help(evil)]);
    table.push([evil.into()]);
    let axis = || Axis::new(evil, NumberFormat::Count);
    let line = LineChart::new(evil, axis(), axis()).series(Series::new(evil, [(0.0, 1.0), (1.0, 2.0)]));
    let bars = BarChart::new(evil, axis(), BarLayout::Stacked, [evil]).series(evil, [1.0]).series("b", [2.0]);
    let heat = HeatMap::ratios(evil, Better::Lower).columns(evil, [evil]).row(evil, [0.5]);
    let histogram = Histogram::new(evil, evil, NumberFormat::Count).series(evil, [1, 2]);
    let time = TimeSeries::new(evil, axis()).panel(Panel::new(axis()).series(Series::new(evil, [(0.0, 1.0)])));
    let section = Section::new(evil).text(evil).note(evil).facts([(evil, evil)]).table(table).chart(line.clone());
    let section = section.grid([bars.into(), heat.into(), histogram.into(), time.into()]);
    let html = Page::new(evil).subtitle(evil).command(evil).section(section).to_html();
    parsed(&html, |doc| {
        assert_eq!(doc.descendants().filter(|n| n.has_tag_name("script")).count(), 1);
        let shown = evil.replace(['\u{0}', '\u{1b}'], "\u{fffd}");
        let texts = doc.descendants().filter(|n| n.is_element() && n.text() == Some(shown.as_str())).count();
        assert!(texts >= 15, "{texts}");
    });
    Document::parse(&Chart::from(line).to_svg()).expect("the drawing alone is well-formed too");
}

#[test]
fn nothing_to_draw_is_said() {
    let nan = Series::new("nan", [(1.0, f64::NAN), (f64::INFINITY, 2.0)]);
    let charts: Vec<(Chart, usize)> = vec![
        (LineChart::new("t", plain("x"), plain("y")).into(), 0),
        (LineChart::new("t", plain("x"), plain("y")).series(nan.clone()).into(), 2),
        (TimeSeries::new("t", plain("x")).panel(Panel::new(plain("y")).series(nan)).into(), 2),
        (HeatMap::differences("t", Better::Higher).into(), 0),
        (BarChart::new("t", plain("v"), BarLayout::Grouped, ["a"]).into(), 0),
        (Histogram::new("t", "x", NumberFormat::Count).series("s", [0, 0]).into(), 0),
    ];
    for (chart, left_out) in charts {
        let html = page_of(chart);
        parsed(&html, |doc| {
            assert_eq!(with_class(doc.root(), "nothing").count(), 1, "{html}");
            let said = with_class(doc.root(), "left-out").filter_map(|p| p.text()).next();
            assert_eq!(said.is_some_and(|t| t.starts_with(&left_out.to_string())), left_out > 0);
        });
    }
}

#[test]
fn a_single_point_is_visible() {
    for spread in [Spread::Linear, Spread::Log2, Spread::Log10] {
        let chart = LineChart::new("t", plain("x").spread(spread), plain("y")).series(Series::new("s", [(3.0, 7.0)]));
        parsed(&page_of(chart), |doc| {
            let point = with_class(doc.root(), "pt").next().expect("a dot");
            assert_eq!((point.attribute("data-x"), point.attribute("data-y")), (Some("3"), Some("7")));
            assert_eq!(with_class(doc.root(), "nothing").count(), 0);
        });
    }
}

#[test]
fn a_gap_breaks_the_line() {
    let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 3.0), (4.0, 1.0), (5.0, f64::INFINITY), (6.0, 2.0)];
    let chart = LineChart::new("t", plain("x"), plain("y")).series(Series::new("s", points));
    parsed(&page_of(chart), |doc| {
        let path = with_class(doc.root(), "line").next().unwrap().attribute("d").unwrap();
        assert_eq!(path.matches('M').count(), 3, "{path}");
        assert!(path.ends_with("h0"), "a lone point is a dot: {path}");
        assert_eq!(with_class(doc.root(), "pt").count(), 5);
        let said = with_class(doc.root(), "left-out").next().and_then(|p| p.text()).unwrap();
        assert_eq!(said, "2 values are not drawn: not a finite number.");
    });
}

#[test]
fn bars_are_as_long_as_their_values() {
    let chart = BarChart::new("t", Axis::new("n", NumberFormat::Count), BarLayout::Grouped, ["a", "b"])
        .series("s", [10.0, 40.0])
        .series("u", [-20.0, f64::NAN]);
    parsed(&page_of(chart), |doc| {
        let plot = with_class(doc.root(), "plot").next().unwrap();
        let widths: Vec<f64> = with_class(plot, "fill").map(|r| number(r, "width")).collect();
        assert_eq!(widths.len(), 3, "the missing value has no bar");
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.02 && (widths[2] / widths[0] - 4.0).abs() < 0.02, "{widths:?}");
    });
}

#[test]
fn a_heat_map_shows_every_number_once() {
    let map = HeatMap::differences("t", Better::Higher)
        .columns("size", ["1%", "5%"])
        .row("a", [0.1, -0.2])
        .row("b", [f64::NAN, 0.0]);
    parsed(&page_of(map), |doc| {
        let cells: Vec<&str> = with_class(doc.root(), "number").filter_map(|n| n.text()).collect();
        assert_eq!(cells, ["+0.100", "-0.200", "–", "0.000"]);
        let titles: Vec<&str> = with_class(doc.root(), "mark").filter_map(|g| g.last_element_child()?.text()).collect();
        assert_eq!(titles[1], "a\nsize 5%: -0.2");
    });
}

#[test]
fn a_table_on_the_page_keeps_full_precision() {
    let mut table = Table::new("t", [Column::text("policy"), Column::number("ratio"), Column::number("count")]);
    table.push(["arc".into(), Cell::percent(1.0 / 3.0, 1), 12_345_678u64.into()]);
    table.push(["lru".into(), Cell::missing(), 0u64.into()]);
    let html = Page::new("t").section(Section::new("s").table(table)).to_html();
    parsed(&html, |doc| {
        let cells: Vec<Node<'_, '_>> = doc.descendants().filter(|n| n.has_tag_name("td")).collect();
        assert_eq!((cells[1].text(), cells[1].attribute("data-v")), (Some("33.3%"), Some("0.3333333333333333")));
        assert_eq!(cells[1].attribute("title"), cells[1].attribute("data-v"));
        assert_eq!((cells[2].text(), cells[2].attribute("data-v")), (Some("12345678"), Some("12345678")));
        assert_eq!((cells[4].text(), cells[4].attribute("data-v")), (Some("–"), Some("")));
        assert!(cells[1].attribute("class").unwrap().contains('n') && cells[0].attribute("class").is_none());
    });
}

#[test]
fn a_drawing_alone_has_its_styles() {
    let chart = LineChart::new("t", plain("x"), plain("y")).series(Series::new("s", [(0.0, 1.0), (1.0, 3.0)]));
    let svg = Chart::from(chart).to_svg();
    let doc = Document::parse(&svg).expect("well-formed");
    assert_eq!(doc.root_element().tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
    assert!(doc.descendants().any(|n| n.tag_name().name() == "style" && n.text().is_some_and(|t| t.contains("--c0"))));
}

fn seeded() -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(0x0e17_7e50);
    ProptestConfig { rng_seed, failure_persistence: None, cases: 200, ..ProptestConfig::default() }
}

/// Mostly plain values, and some of every unusual kind.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![4 => -1e4..1e4_f64, 2 => Just(0.0), 1 => 1e-12..1e12_f64, 1 => proptest::num::f64::ANY, 1 => Just(f64::INFINITY)]
}

proptest! {
    #![proptest_config(seeded())]

    /// For any numbers and names the page is well-formed, no coordinate is NaN, and every value is drawn or counted.
    #[test]
    fn any_numbers_make_a_page(
        series in proptest::collection::vec((".*", proptest::collection::vec((value(), value()), 0..30)), 0..12),
        log in any::<bool>(),
    ) {
        let spread = if log { Spread::Log10 } else { Spread::Linear };
        let axis = |name| Axis::new(name, NumberFormat::Count).spread(spread);
        let total: usize = series.iter().map(|s| s.1.len()).sum();
        let mut line = LineChart::new("t", axis("x"), axis("y")).best(2, Better::Higher);
        let mut panel = Panel::new(axis("y"));
        let mut bars = BarChart::new("t", axis("v"), BarLayout::Grouped, ["a", "b"]);
        for (name, points) in series {
            let value = |i: usize| points.get(i).map_or(f64::NAN, |p| p.1);
            bars = bars.series(name.as_str(), [value(0), value(1)]);
            line = line.series(Series::new(name.as_str(), points.clone()));
            panel = panel.series(Series::new(name, points));
        }
        let section = Section::new("s").chart(line).grid([TimeSeries::new("t", axis("x")).panel(panel).into(), bars.into()]);
        let html = Page::new("t").section(section).to_html();
        parsed(&html, |doc| {
            for node in doc.descendants().filter(|n| n.has_tag_name("path") || n.has_tag_name("circle")) {
                for a in node.attributes().filter(|a| ["d", "cx", "cy"].contains(&a.name())) {
                    assert!(!a.value().contains("NaN") && !a.value().contains("inf"), "{}", a.value());
                }
            }
            let first = with_class(doc.root(), "chart").next().unwrap();
            let counted = with_class(first, "left-out").filter_map(|p| p.text()?.split(' ').next()?.parse::<usize>().ok()).sum::<usize>();
            assert_eq!(with_class(first, "pt").count() + counted, total);
        });
    }
}
