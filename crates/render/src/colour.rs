//! Colours: one look per series name for a whole page, and a diverging scale for heat maps.
//!
//! Eight hues and seven dash patterns make 56 looks. Any two hues differ under deuteranopia and protanopia too. A name
//! keeps its look in every chart of a page, and no two names of one chart share a look. Light and dark pages have their
//! own values of the same hues.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Series colours on a light page, the best separated first.
const LIGHT: [&str; 8] = ["#2f86ea", "#bd3a23", "#38957a", "#660773", "#b27b00", "#734fd0", "#057287", "#612c06"];
/// Series colours on a dark page, in the same order.
const DARK: [&str; 8] = ["#b2d4ff", "#dd6c2b", "#82f3b5", "#d092f8", "#fdce46", "#7678e0", "#2f9ca9", "#d9a58e"];
/// Dash patterns in units of the line's width; the first is a full line.
const DASHES: [&str; 7] = ["none", "6 3", "2 2.5", "8 3 2 3", "12 4", "8 2.5 2 2.5 2 2.5", "4 5"];

/// Number of looks that differ.
pub(crate) const LOOKS: usize = LIGHT.len() * DASHES.len();

/// The names that one chart distinguishes: those in the foreground first, then the rest.
pub(crate) type Names<'a> = (Vec<&'a str>, Vec<&'a str>);

/// The look of each series name of a page.
#[derive(Default)]
pub(crate) struct Looks {
    by_name: HashMap<String, usize>,
}

impl Looks {
    /// Gives every name the first look that no other name in any of its charts has. Foregrounds choose first, so that
    /// they get full lines; names that share no chart may look alike. In a chart of more than [`LOOKS`] names the looks
    /// repeat.
    pub(crate) fn of(charts: &[Names<'_>]) -> Looks {
        let mut looks = Looks::default();
        let fronts = charts.iter().flat_map(|(front, _)| front);
        for name in fronts.chain(charts.iter().flat_map(|(_, rest)| rest)) {
            if !looks.by_name.contains_key(*name) {
                let look = looks.free(name, charts);
                looks.by_name.insert((*name).to_owned(), look);
            }
        }
        looks
    }

    /// A look for `name` that no other name in its charts has. If possible, its hue also differs from those of the
    /// names beside it in a foreground.
    fn free(&self, name: &str, charts: &[Names<'_>]) -> usize {
        let known = |names: &[&str]| names.iter().filter_map(|n| self.by_name.get(*n).copied()).collect::<Vec<_>>();
        let (mut taken, mut hues) = (HashSet::new(), HashSet::new());
        for (front, rest) in charts {
            if front.contains(&name) {
                hues.extend(known(front).into_iter().map(|look| look % LIGHT.len()));
            }
            if front.contains(&name) || rest.contains(&name) {
                taken.extend(known(front).into_iter().chain(known(rest)));
            }
        }
        let unlike = || (0..LOOKS).filter(|look| !taken.contains(look));
        let look = unlike().find(|look| !hues.contains(&(look % LIGHT.len()))).or_else(|| unlike().next());
        look.unwrap_or(self.by_name.len() % LOOKS)
    }

    /// The look of `name`.
    pub(crate) fn get(&self, name: &str) -> usize {
        *self.by_name.get(name).expect("looks are handed out before drawing")
    }
}

/// True if hue alone tells `looks` apart, so that their lines need no dashes.
pub(crate) fn hues_differ(looks: impl IntoIterator<Item = usize>) -> bool {
    let mut seen = HashSet::new();
    looks.into_iter().all(|look| seen.insert(look % LIGHT.len()))
}

/// The style classes of a look: its hue and its dash pattern.
pub(crate) fn classes(look: usize) -> String {
    debug_assert!(look < LOOKS, "there is no look {look}");
    format!("c{} d{}", look % LIGHT.len(), look / LIGHT.len())
}

/// The style sheet that [`classes`] refers to.
pub(crate) fn style_sheet() -> String {
    let mut css = String::new();
    let variables =
        |values: &[&str]| values.iter().enumerate().fold(String::new(), |s, (i, c)| s + &format!("--c{i}:{c};"));
    let _ = writeln!(css, ":root{{{}}}", variables(&LIGHT));
    let _ = writeln!(css, "@media (prefers-color-scheme:dark){{:root{{{}}}}}", variables(&DARK));
    // Paper is white, whatever the screen.
    let _ = writeln!(css, "@media print{{:root{{{}}}}}", variables(&LIGHT));
    for i in 0..LIGHT.len() {
        let _ = write!(css, ".c{i}{{--c:var(--c{i})}}");
    }
    for (i, dash) in DASHES.iter().enumerate() {
        let _ = write!(css, ".d{i}{{--d:{dash}}}");
    }
    css
}

/// The colours of one heat-map cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shade {
    /// Fill on a light page.
    pub(crate) light: String,
    /// Fill on a dark page.
    pub(crate) dark: String,
    /// Style classes of the text on it: `lw` white on a light page, `db` black on a dark page.
    pub(crate) ink: &'static str,
}

const MIDDLE: (&str, &str) = ("#f3f2ee", "#2b2c30");
const BETTER: (&str, &str) = ("#1f63a8", "#5b9fe0");
const WORSE: (&str, &str) = ("#b4451c", "#dd7a48");

/// The shade of `share` in -1 (as much worse as the scale goes) to 1 (as much better); 0 is neutral.
pub(crate) fn diverging(share: f64) -> Shade {
    let pole = if share >= 0.0 { BETTER } else { WORSE };
    let amount = share.abs().min(1.0);
    let light = mix(rgb(MIDDLE.0), rgb(pole.0), amount);
    let dark = mix(rgb(MIDDLE.1), rgb(pole.1), amount);
    let on_light = contrast(light, rgb(WHITE)) > contrast(light, rgb(BLACK));
    let on_dark = contrast(dark, rgb(WHITE)) < contrast(dark, rgb(BLACK));
    let ink = match (on_light, on_dark) {
        (false, false) => "",
        (true, false) => "lw",
        (false, true) => "db",
        (true, true) => "lw db",
    };
    Shade { light: hex(light), dark: hex(dark), ink }
}

const WHITE: &str = "#ffffff";
const BLACK: &str = "#1b1b1f";

type Rgb = [f64; 3];

/// Linear light of `#rrggbb`.
fn rgb(text: &str) -> Rgb {
    let channel = |i: usize| {
        let value = u8::from_str_radix(&text[1 + 2 * i..3 + 2 * i], 16).expect("colours of this file are #rrggbb");
        let v = f64::from(value) / 255.0;
        if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    };
    [channel(0), channel(1), channel(2)]
}

fn hex(linear: Rgb) -> String {
    let mut out = "#".to_owned();
    for v in linear {
        let s = if v <= 0.003_130_8 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 };
        let _ = write!(out, "{:02x}", (s.clamp(0.0, 1.0) * 255.0).round() as u8);
    }
    out
}

fn apply(matrix: [[f64; 3]; 3], v: Rgb) -> Rgb {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

/// Oklab (Ottosson 2020), in which equal distances look about equal.
fn oklab(linear: Rgb) -> Rgb {
    let cones = apply(
        [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ],
        linear,
    );
    apply(
        [
            [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
        ],
        cones.map(|c| c.max(0.0).cbrt()),
    )
}

fn from_oklab(lab: Rgb) -> Rgb {
    let roots = apply(
        [
            [1.0, 0.396_337_777_4, 0.215_803_757_3],
            [1.0, -0.105_561_345_8, -0.063_854_172_8],
            [1.0, -0.089_484_177_5, -1.291_485_548_0],
        ],
        lab,
    );
    apply(
        [
            [4.076_741_662_1, -3.307_711_591_3, 0.230_969_929_2],
            [-1.268_438_004_6, 2.609_757_401_1, -0.341_319_396_5],
            [-0.004_196_086_3, -0.703_418_614_7, 1.707_614_701_0],
        ],
        roots.map(|r| r * r * r),
    )
}

fn mix(a: Rgb, b: Rgb, amount: f64) -> Rgb {
    let (a, b) = (oklab(a), oklab(b));
    from_oklab([0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * amount))
}

/// Contrast ratio of WCAG 2: 1 (none) to 21.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let luminance = |c: Rgb| 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] + 0.05;
    let (a, b) = (luminance(a), luminance(b));
    a.max(b) / a.min(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colour blindness simulated as by Machado, Oliveira and Fernandes 2009, severity 1.
    const DEUTERANOPIA: [[f64; 3]; 3] =
        [[0.367_322, 0.860_646, -0.227_968], [0.280_085, 0.672_501, 0.047_413], [-0.011_820, 0.042_940, 0.968_881]];
    const PROTANOPIA: [[f64; 3]; 3] =
        [[0.152_286, 1.052_583, -0.204_868], [0.114_503, 0.786_281, 0.099_216], [-0.003_882, -0.048_116, 1.051_998]];

    fn distance(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (oklab(a), oklab(b));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn every_hue_differs_for_every_eye() {
        for (name, palette, page) in [("light", LIGHT, WHITE), ("dark", DARK, "#17181b")] {
            for (i, a) in palette.iter().enumerate() {
                assert!(contrast(rgb(a), rgb(page)) >= 3.0, "{name} {a} is too faint");
                for b in &palette[..i] {
                    assert!(distance(rgb(a), rgb(b)) > 0.12, "{name} {a} {b}");
                    for eye in [DEUTERANOPIA, PROTANOPIA] {
                        let seen = distance(apply(eye, rgb(a)), apply(eye, rgb(b)));
                        assert!(seen > 0.08, "{name} {a} {b}: {seen}");
                    }
                }
            }
        }
    }

    #[test]
    fn fifty_six_looks_are_unique_and_defined() {
        let css = style_sheet();
        let all: HashSet<String> = (0..LOOKS).map(classes).collect();
        assert_eq!(all.len(), 56);
        for class in all.iter().flat_map(|c| c.split(' ')) {
            assert!(css.contains(&format!(".{class}{{")), "{class} has no style");
        }
    }

    #[test]
    fn names_that_meet_look_different() {
        let many: Vec<String> = (0..50).map(|i| format!("p{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let charts = [(vec!["p7", "p8"], many.clone()), (vec!["p30", "p8"], vec![]), (vec!["reads", "writes"], vec![])];
        let looks = Looks::of(&charts);
        let distinct: HashSet<usize> = many.iter().map(|n| looks.get(n)).collect();
        assert_eq!(distinct.len(), 50);
        assert_eq!(["p7", "p8", "p30"].map(|n| looks.get(n)), [0, 1, 2], "foregrounds choose first");
        assert_eq!(["reads", "writes"].map(|n| looks.get(n)), [0, 1], "names that never meet p7 may look like it");
    }

    #[test]
    fn a_foreground_has_eight_hues_before_it_repeats_one() {
        let charts = [(vec!["a", "b", "c"], vec!["d", "e"]), (vec!["d", "e", "f", "c"], vec![])];
        let looks = Looks::of(&charts);
        assert!(hues_differ(["d", "e", "f", "c"].map(|n| looks.get(n))));
        assert!(!hues_differ([0, 3, LIGHT.len()]));
    }

    #[test]
    fn more_names_than_looks_repeat() {
        let many: Vec<String> = (0..LOOKS + 9).map(|i| format!("p{i}")).collect();
        let looks = Looks::of(&[(vec![], many.iter().map(String::as_str).collect())]);
        assert!(many.iter().all(|n| looks.get(n) < LOOKS));
    }

    #[test]
    fn numbers_on_every_shade_are_readable() {
        for step in -20..=20 {
            let shade = diverging(f64::from(step) / 20.0);
            let light_ink = if shade.ink.contains("lw") { WHITE } else { BLACK };
            let dark_ink = if shade.ink.contains("db") { BLACK } else { WHITE };
            assert!(contrast(rgb(&shade.light), rgb(light_ink)) >= 4.0, "{step}: {shade:?}");
            assert!(contrast(rgb(&shade.dark), rgb(dark_ink)) >= 4.0, "{step}: {shade:?}");
        }
        assert_eq!(diverging(0.0).light, MIDDLE.0);
        assert_eq!(diverging(7.0), diverging(1.0), "beyond the end of the scale the colour stays");
        assert_ne!(diverging(1.0), diverging(-1.0));
    }
}
