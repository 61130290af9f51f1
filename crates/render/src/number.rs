//! Forms of numbers: short on an axis, exact in a tooltip, in a table and in a file.

/// The unit of a quantity and so the way to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// A bare number, with decimal prefixes on an axis: `1.5M`.
    Count,
    /// A bare number, with binary prefixes on an axis: `64Ki`. For pages and other powers of two.
    Binary,
    /// Bytes, with binary prefixes: `64 MiB`.
    Bytes,
    /// A fraction written in per cent: 0.125 is `12.5%`.
    Percent,
    /// A fraction or other plain decimal: `0.125`.
    Decimal,
    /// A factor: `1.5×`.
    Factor,
    /// Seconds, down to nanoseconds: `12 µs`.
    Seconds,
}

/// A prefix: its power and its letters.
type Prefix = (f64, &'static str);

const PLAIN: &[Prefix] = &[(1.0, "")];
const DECIMAL: &[Prefix] = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")];
const BINARY: &[Prefix] = &[
    (1.0, ""),
    (1024.0, "Ki"),
    (1_048_576.0, "Mi"),
    (1_073_741_824.0, "Gi"),
    (1_099_511_627_776.0, "Ti"),
    (1_125_899_906_842_624.0, "Pi"),
];
const BYTES: &[Prefix] = &[
    (1.0, " B"),
    (1024.0, " KiB"),
    (1_048_576.0, " MiB"),
    (1_073_741_824.0, " GiB"),
    (1_099_511_627_776.0, " TiB"),
    (1_125_899_906_842_624.0, " PiB"),
];
const SECONDS: &[Prefix] = &[(1e-9, " ns"), (1e-6, " µs"), (1e-3, " ms"), (1.0, " s")];
const PERCENT: &[Prefix] = &[(0.01, "%")];
const FACTOR: &[Prefix] = &[(1.0, "×")];

/// Text in place of a number that is not finite.
pub(crate) const MISSING: &str = "–";

impl NumberFormat {
    fn prefixes(self) -> &'static [Prefix] {
        match self {
            NumberFormat::Count => DECIMAL,
            NumberFormat::Binary => BINARY,
            NumberFormat::Bytes => BYTES,
            NumberFormat::Percent => PERCENT,
            NumberFormat::Decimal => PLAIN,
            NumberFormat::Factor => FACTOR,
            NumberFormat::Seconds => SECONDS,
        }
    }

    /// True if round numbers are multiples of powers of two.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, NumberFormat::Binary | NumberFormat::Bytes)
    }

    /// The largest prefix that leaves at least 1, or the smallest there is.
    fn prefix_for(self, magnitude: f64) -> Prefix {
        let all = self.prefixes();
        // The margin keeps 1e-3 s, computed as 0.00099999999, from being written in microseconds.
        *all.iter().rev().find(|(power, _)| magnitude >= power * (1.0 - 1e-9)).unwrap_or(&all[0])
    }

    /// About three significant digits and a prefix, for a label: `1.23M`, `64 KiB`, `12.3%`.
    pub fn short(self, value: f64) -> String {
        let (number, letters) = self.three_digits(value);
        format!("{}{letters}", trim_zeros(&number))
    }

    /// Like [`short`](Self::short), but with trailing zeros, for labels in a column.
    pub(crate) fn even(self, value: f64) -> String {
        let (number, letters) = self.three_digits(value);
        if value.fract() == 0.0 && value.abs() < 1000.0 && self != NumberFormat::Percent {
            return format!("{}{letters}", trim_zeros(&number));
        }
        format!("{number}{letters}")
    }

    fn three_digits(self, value: f64) -> (String, &'static str) {
        if !value.is_finite() {
            return (MISSING.to_owned(), "");
        }
        let (mut power, mut letters) = self.prefix_for(value.abs());
        if value == 0.0 && self == NumberFormat::Seconds {
            (power, letters) = (1.0, " s");
        }
        let scaled = value / power;
        let digits = match scaled.abs() {
            s if s >= 100.0 => 0,
            s if s >= 10.0 => 1,
            s if s >= 0.1 || s == 0.0 => 2,
            _ => 4,
        };
        if scaled.abs() >= 1e7 || (scaled != 0.0 && scaled.abs() < 1e-4) {
            return (scientific(scaled, 2), letters);
        }
        (format!("{scaled:.digits$}"), letters)
    }

    /// The exact value, for a tooltip: every digit of a count, a per cent to four decimals, bytes in both ways.
    pub fn full(self, value: f64) -> String {
        if !value.is_finite() {
            return MISSING.to_owned();
        }
        match self {
            NumberFormat::Count | NumberFormat::Binary | NumberFormat::Decimal => shortest(value),
            NumberFormat::Factor => format!("{}×", shortest(value)),
            NumberFormat::Percent => format!("{:.4}%", value * 100.0),
            NumberFormat::Seconds if value == 0.0 || value.abs() >= 1e-3 => format!("{} s", shortest(value)),
            NumberFormat::Seconds => format!("{} ({} s)", self.short(value), shortest(value)),
            NumberFormat::Bytes if value.abs() < 1024.0 => format!("{} B", shortest(value)),
            NumberFormat::Bytes => format!("{} ({} B)", self.short(value), shortest(value)),
        }
    }

    /// Labels of the ticks of one axis. On a linear axis (`shared`) they have the same prefix and number of decimals,
    /// so that they line up; on a logarithmic axis each label has its own.
    pub(crate) fn tick_labels(self, ticks: &[f64], shared: bool) -> Vec<String> {
        if !shared {
            return ticks.iter().flat_map(|&t| self.tick_labels(&[t], true)).collect();
        }
        let largest = ticks.iter().fold(0.0_f64, |m, t| m.max(t.abs()));
        let (power, letters) = self.prefix_for(largest);
        if largest / power >= 1e7 || (largest != 0.0 && largest / power < 1e-6) {
            return ticks.iter().map(|t| format!("{}{letters}", scientific(t / power, 10))).collect();
        }
        let smallest_step = ticks.windows(2).map(|w| (w[1] - w[0]).abs()).fold(largest, f64::min) / power;
        let exact = |digits: i32| {
            let scale = 10f64.powi(digits);
            ticks.iter().all(|t| ((t / power * scale).round() / scale - t / power).abs() <= smallest_step * 1e-3)
        };
        let digits = (0..12).find(|&d| exact(d)).unwrap_or(12) as usize;
        let zero = if letters.starts_with(' ') || letters == "%" || letters == "×" { letters } else { "" };
        let write = |t: &f64| match *t {
            0.0 if letters.is_empty() || digits > 0 && zero.is_empty() => format!("{:.digits$}", 0.0),
            0.0 => format!("0{zero}"),
            t => format!("{:.digits$}{letters}", t / power),
        };
        ticks.iter().map(write).collect()
    }
}

/// An integer with narrow no-break spaces between the thousands, for a terminal: `12 345 678`.
pub fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    if value < 0 {
        out.push('-');
    }
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

/// A fraction in per cent with a fixed number of decimals: `percent(0.12345, 2)` is `12.35%` (or `12.34%`: the last
/// digit is rounded from the binary value). A fraction that is not finite gives `–`.
pub fn percent(fraction: f64, digits: usize) -> String {
    if fraction.is_finite() { format!("{:.digits$}%", fraction * 100.0) } else { MISSING.to_owned() }
}

/// The shortest decimal that reads back as the same value; whole numbers without a point.
pub(crate) fn shortest(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-7..1e17).contains(&magnitude) { format!("{value:e}") } else { format!("{}", value + 0.0) }
}

fn scientific(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", trim_zeros(mantissa)),
        None => text,
    }
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') && !text.contains('e') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms() {
        for (format, value, expected) in [
            (NumberFormat::Count, 1_234_567.0, "1.23M"),
            (NumberFormat::Count, 950.0, "950"),
            (NumberFormat::Bytes, 67_108_864.0, "64 MiB"),
            (NumberFormat::Bytes, 512.0, "512 B"),
            (NumberFormat::Binary, 65_536.0, "64Ki"),
            (NumberFormat::Percent, 0.125, "12.5%"),
            (NumberFormat::Seconds, 0.001, "1 ms"),
            (NumberFormat::Seconds, 1.2e-5, "12 µs"),
            (NumberFormat::Seconds, 0.0, "0 s"),
            (NumberFormat::Factor, 1.5, "1.5×"),
            (NumberFormat::Decimal, f64::NAN, "–"),
            (NumberFormat::Decimal, f64::INFINITY, "–"),
        ] {
            assert_eq!(format.short(value), expected, "{format:?} of {value}");
        }
    }

    #[test]
    fn even_forms_keep_their_zeros() {
        let shown = |f: NumberFormat, values: &[f64]| values.iter().map(|&v| f.even(v)).collect::<Vec<_>>().join(" ");
        assert_eq!(shown(NumberFormat::Percent, &[0.57, 0.566]), "57.0% 56.6%");
        assert_eq!(shown(NumberFormat::Count, &[12.0, 950.0, 2e6]), "12 950 2.00M");
    }

    #[test]
    fn full_forms_lose_nothing() {
        assert_eq!(NumberFormat::Count.full(1_234_567_890.0), "1234567890");
        assert_eq!(NumberFormat::Bytes.full(67_108_865.0), "64 MiB (67108865 B)");
        assert_eq!(NumberFormat::Decimal.full(0.1), "0.1");
        assert_eq!(NumberFormat::Percent.full(0.123456), "12.3456%");
        assert_eq!(NumberFormat::Seconds.full(1.5e-5), "15 µs (0.000015 s)");
    }

    #[test]
    fn tick_labels_line_up() {
        let labels = |f: NumberFormat, t: &[f64]| f.tick_labels(t, true).join(" ");
        assert_eq!(labels(NumberFormat::Decimal, &[0.0, 0.05, 0.1]), "0.00 0.05 0.10");
        assert_eq!(labels(NumberFormat::Count, &[0.0, 500_000.0, 1_000_000.0]), "0.0 0.5M 1.0M");
        assert_eq!(labels(NumberFormat::Percent, &[0.0, 0.2, 0.4]), "0% 20% 40%");
        assert_eq!(NumberFormat::Bytes.tick_labels(&[4096.0, 1_048_576.0], false).join(" "), "4 KiB 1 MiB");
        assert_eq!(NumberFormat::Seconds.tick_labels(&[1e-5, 1e-3], false).join(" "), "10 µs 1 ms");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(-1_234_567), "-1\u{202f}234\u{202f}567");
        assert_eq!(grouped(i128::from(u64::MAX)).chars().filter(char::is_ascii_digit).count(), 20);
        assert_eq!(percent(0.5, 2), "50.00%");
        assert_eq!(percent(f64::NAN, 2), "–");
    }
}
