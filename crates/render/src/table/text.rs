//! The table of a terminal: columns that do not fit are dropped, least important first, and named.

use super::{Table, Tone};
use console::{Style, Term, measure_text_width, truncate_str};

/// Style of a table in a terminal or a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns of the terminal; `None` for as wide as the table is.
    pub width: Option<usize>,
    /// True for colours and bold text.
    pub colour: bool,
    /// True for narrow spaces between the thousands of integers.
    pub separate: bool,
}

impl TextStyle {
    /// For a pipe or a file: every column, no colour, plain digits.
    pub const PLAIN: TextStyle = TextStyle { width: None, colour: false, separate: false };

    /// The style of standard output: its width and colours where it is a terminal (`NO_COLOR` is honoured), else
    /// [`PLAIN`](Self::PLAIN).
    pub fn stdout() -> TextStyle {
        let term = Term::stdout();
        match term.size_checked() {
            Some((_, columns)) if term.is_term() => {
                TextStyle { width: Some(columns.into()), colour: console::colors_enabled(), separate: true }
            }
            _ => TextStyle::PLAIN,
        }
    }
}

/// Spaces between two columns.
const GAP: usize = 2;
/// Least width to which a column of text is cut.
const NARROWEST: usize = 8;

impl Table {
    /// The table as text: a heading, a rule, and one line per row, each ended by `\n`. Columns that do not fit a narrow
    /// terminal are named in a last line. Control characters in cells are replaced, so that a file name cannot steer
    /// the terminal.
    pub fn to_text(&self, style: TextStyle) -> String {
        let tamed: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|c| tame(&c.shown(style.separate))).collect()).collect();
        let heads: Vec<String> = self.columns.iter().map(|c| tame(&c.name)).collect();
        let mut widths: Vec<usize> = heads.iter().map(|h| measure_text_width(h)).collect();
        for row in &tamed {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(text));
            }
        }
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        if let Some(limit) = style.width {
            self.fit(&mut kept, &mut widths, limit);
        }
        let mut out = String::new();
        let line = |texts: &[String], paint: &dyn Fn(usize, &str) -> String| self.line(&kept, &widths, texts, paint);
        let head = Style::new().bold().force_styling(style.colour);
        out += &line(&heads, &|_, text| head.apply_to(text).to_string());
        let rule = "─".repeat(kept.iter().map(|&c| widths[c] + GAP).sum::<usize>().saturating_sub(GAP));
        out += &format!("{}\n", Style::new().dim().force_styling(style.colour).apply_to(rule));
        for (row, texts) in self.rows.iter().zip(&tamed) {
            out +=
                &line(texts, &|c, text| tone_style(row[c].tone).force_styling(style.colour).apply_to(text).to_string());
        }
        let hidden: Vec<&str> = (0..heads.len()).filter(|c| !kept.contains(c)).map(|c| heads[c].as_str()).collect();
        if !hidden.is_empty() {
            out += &format!("no room for: {}\n", hidden.join(", "));
        }
        out
    }

    /// Drops columns, then cuts text, until the line is at most `limit` wide or nothing more can go.
    fn fit(&self, kept: &mut Vec<usize>, widths: &mut [usize], limit: usize) {
        let total = |kept: &[usize], widths: &[usize]| kept.iter().map(|&c| widths[c] + GAP).sum::<usize>() - GAP;
        while total(kept, widths) > limit {
            // `max_by_key` returns the last of equals, which is the rightmost.
            match (0..kept.len()).max_by_key(|&i| self.columns[kept[i]].priority) {
                Some(i) if self.columns[kept[i]].priority > 0 => drop(kept.remove(i)),
                _ => break,
            }
        }
        while total(kept, widths) > limit {
            let excess = total(kept, widths) - limit;
            let texts = kept.iter().copied().filter(|&c| !self.columns[c].right && widths[c] > NARROWEST);
            let Some(widest) = texts.max_by_key(|&c| widths[c]) else { break };
            widths[widest] = widths[widest].saturating_sub(excess).max(NARROWEST);
        }
    }

    fn line(
        &self,
        kept: &[usize],
        widths: &[usize],
        texts: &[String],
        paint: &dyn Fn(usize, &str) -> String,
    ) -> String {
        let mut line = String::new();
        for (i, &c) in kept.iter().enumerate() {
            let text = truncate_str(&texts[c], widths[c], "…");
            let pad = " ".repeat(widths[c] - measure_text_width(&text));
            if i > 0 {
                line += &" ".repeat(GAP);
            }
            let painted = paint(c, &text);
            let last = i + 1 == kept.len();
            match (self.columns[c].right, last) {
                (true, _) => line += &(pad + &painted),
                (false, false) => line += &(painted + &pad),
                (false, true) => line += &painted,
            }
        }
        line.push('\n');
        line
    }
}

fn tone_style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Strong => Style::new().bold(),
        Tone::Good => Style::new().green(),
        Tone::Bad => Style::new().red(),
        Tone::Muted => Style::new().dim(),
    }
}

fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Column};
    use proptest::prelude::*;

    fn sample() -> Table {
        let mut table = Table::new(
            "t",
            [
                Column::text("policy"),
                Column::text("paper").priority(9),
                Column::number("hits").priority(1),
                Column::number("ratio"),
            ],
        );
        table.push(["lru".into(), "textbook".into(), 1_234_567u64.into(), Cell::percent(0.5, 2)]);
        table.push(["multi-tier".into(), "van Renen".into(), 5u64.into(), Cell::percent(0.25, 2).tone(Tone::Bad)]);
        table
    }

    #[test]
    fn a_pipe_gets_everything_plain() {
        let expected = "\
policy      paper         hits   ratio
──────────────────────────────────────
lru         textbook   1234567  50.00%
multi-tier  van Renen        5  25.00%
";
        assert_eq!(sample().to_text(TextStyle::PLAIN), expected);
    }

    #[test]
    fn a_narrow_terminal_loses_the_least_important_first() {
        let at = |width| sample().to_text(TextStyle { width: Some(width), colour: false, separate: true });
        assert!(at(40).contains("1\u{202f}234\u{202f}567"));
        assert!(at(35).ends_with("no room for: paper\n") && at(35).contains("hits"), "{}", at(35));
        assert!(at(20).ends_with("no room for: paper, hits\n"), "{}", at(20));
        assert!(at(16).contains("multi-t…"), "{}", at(16));
    }

    #[test]
    fn colour_only_where_asked_for() {
        let painted = sample().to_text(TextStyle { width: None, colour: true, separate: false });
        assert!(painted.contains("\u{1b}[31m"), "the bad cell is red: {painted:?}");
        assert_eq!(console::strip_ansi_codes(&painted), sample().to_text(TextStyle::PLAIN));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let mut table = Table::new("t", [Column::text("file\u{7}")]);
        table.push(["\u{1b}]0;owned\u{7}\n\u{9b}2J".into()]);
        let text = table.to_text(TextStyle::PLAIN);
        assert_eq!(text.lines().count(), 3);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn no_line_is_wider_than_the_terminal(names in proptest::collection::vec("\\PC{0,30}", 1..5), width in 30..90_usize) {
            let mut table = Table::new("t", [
                Column::text("name"), Column::text("second").priority(2), Column::number("n").priority(1),
            ]);
            for name in &names {
                table.push([name.as_str().into(), name.as_str().into(), 123_456u64.into()]);
            }
            let text = table.to_text(TextStyle { width: Some(width), colour: false, separate: true });
            for line in text.lines() {
                prop_assert!(measure_text_width(line) <= width, "{line:?}");
            }
        }
    }
}
