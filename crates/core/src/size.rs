//! The one parser of sizes: `5%`, `64MiB`, `2000p`, `64Ki`.

use std::fmt;
use std::str::FromStr;

/// A size as a user writes it. It can be converted to pages once the page size and the footprint are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Share of the footprint, in per cent: `5%`.
    Percent(f64),
    /// Bytes: `64MiB`, `1.5GiB`, `4096B`, `10GB`.
    Bytes(u64),
    /// Pages: `2000p`, or a bare number with an optional multiplier: `2000`, `64Ki`.
    Pages(u64),
}

/// Reason why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a size: {why} (examples: 5%, 64MiB, 2000p, 64Ki pages)")]
pub struct SizeError {
    text: String,
    why: &'static str,
}

impl Size {
    /// The size in whole pages, rounded down.
    ///
    /// `page_bytes` is the page size; `footprint_pages` the number of distinct pages that per cents refer to.
    pub fn pages(self, page_bytes: u32, footprint_pages: u64) -> u64 {
        match self {
            // The small addend keeps 7 % of 100 from becoming 6 by a rounding in the last binary place.
            Size::Percent(percent) => (footprint_pages as f64 * percent / 100.0 + 1e-9) as u64,
            Size::Bytes(bytes) => bytes / u64::from(page_bytes),
            Size::Pages(pages) => pages,
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let err = |why| SizeError { text: text.to_owned(), why };
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(digits_end);
        if digits.is_empty() {
            return Err(err("it does not start with a number"));
        }
        let number: f64 = digits.parse().map_err(|_| err("the number does not parse"))?;
        let scaled = |multiplier: f64| -> Result<u64, SizeError> {
            let value = number * multiplier;
            if value > (1u64 << 62) as f64 {
                return Err(err("it is too large"));
            }
            if value.fract() != 0.0 {
                return Err(err("it is not a whole number of bytes or pages"));
            }
            Ok(value as u64)
        };
        if unit == "%" {
            return Ok(Size::Percent(number));
        }
        let (prefix, is_bytes) = match unit.strip_suffix('B') {
            Some(prefix) => (prefix, true),
            None => (unit.strip_suffix('p').unwrap_or(unit), false),
        };
        let multiplier = match prefix {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            "Ki" => 1024.0,
            "Mi" => 1_048_576.0,
            "Gi" => 1_073_741_824.0,
            "Ti" => 1_099_511_627_776.0,
            _ => return Err(err("the unit is unknown")),
        };
        let value = scaled(multiplier)?;
        Ok(if is_bytes { Size::Bytes(value) } else { Size::Pages(value) })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Percent(percent) => write!(f, "{percent}%"),
            Size::Bytes(bytes) => {
                let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
                match units.iter().find(|(_, unit)| *bytes >= *unit && bytes % unit == 0) {
                    Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
                    None => write!(f, "{bytes}B"),
                }
            }
            Size::Pages(pages) => write!(f, "{pages}p"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(text: &str) -> u64 {
        text.parse::<Size>().expect("a size").pages(4096, 1000)
    }

    #[test]
    fn every_unit_is_understood() {
        assert_eq!(pages("5%"), 50);
        assert_eq!(pages("7%"), 70);
        assert_eq!(pages("0.1%"), 1);
        assert_eq!(pages("64MiB"), 16384);
        assert_eq!(pages("1.5GiB"), 393_216);
        assert_eq!(pages("10GB"), 2_441_406);
        assert_eq!(pages("4096B"), 1);
        assert_eq!(pages("2000p"), 2000);
        assert_eq!(pages("2000"), 2000);
        assert_eq!(pages("64Ki"), 65_536);
        assert_eq!(pages("64k"), 64_000);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "%", "MiB", "5 %x", "1.2.3", "5X", "-1", "1e400", "0.3p", "99999999999999999999"] {
            assert!(text.parse::<Size>().is_err(), "{text} was taken for a size");
        }
    }

    proptest! {
        #[test]
        fn display_parses_back(bytes in 0u64..1 << 50, count in 0u64..1 << 40) {
            for size in [Size::Bytes(bytes), Size::Pages(count)] {
                prop_assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
            }
        }
    }
}
