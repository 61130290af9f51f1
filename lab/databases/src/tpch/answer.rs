//! Digest of a query's answer: enough to compare the rows of two answers.

use crate::driver::TextRow;

/// The rows of an answer, counted and summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of rows.
    pub rows: u64,
    /// Checksum of the rows' texts, independent of their order, because rows that a query sorts as equal may come in
    /// another order.
    pub checksum: u64,
}

impl Answer {
    /// The digest of these rows.
    pub fn of(rows: &[TextRow]) -> Self {
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        lines.sort_unstable();
        // FNV-1a.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let checksum = lines.iter().flat_map(|line| line.bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
        Answer { rows: rows.len() as u64, checksum }
    }
}

/// A row as a line, different for different rows.
fn line(row: &TextRow) -> String {
    let mut line = String::new();
    for field in row {
        // Some databases pad with blanks at the end.
        line.push_str(field.as_deref().map_or("\0", str::trim_end));
        line.push('\x1f');
    }
    line.push('\x1e');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fields: &[&str]) -> TextRow {
        fields.iter().map(|field| Some((*field).to_owned())).collect()
    }

    #[test]
    fn order_and_padding_do_not_matter_and_everything_else_does() {
        let rows = [row(&["1", "a "]), row(&["2", "b"])];
        let answer = Answer::of(&rows);
        assert_eq!(Answer::of(&[row(&["2", "b"]), row(&["1", "a"])]), answer);
        let others = [
            vec![row(&["1", "a"])],
            vec![row(&["1", "a"]), row(&["2", "c"])],
            vec![row(&["1", "b"]), row(&["2", "a"])],
            vec![row(&["1a", ""]), row(&["2", "b"])],
            vec![row(&["1", "a"]), vec![Some("2".into()), None]],
            vec![row(&["1", "a"]), row(&["2", "b"]), row(&["2", "b"])],
        ];
        for other in others {
            assert_ne!(Answer::of(&other), answer, "{other:?}");
        }
        assert_ne!(Answer::of(&[row(&[""])]), Answer::of(&[vec![None]]));
        assert_eq!(Answer::of(&[]).rows, 0);
    }
}
