//! Bounds on what is written to a cache's device, as users state them.

use std::fmt;
use std::str::FromStr;

/// Bound on the bytes written to the device of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Wear {
    /// No bound.
    #[default]
    Unbounded,
    /// So many times the size of the cache a day: `1DWPD`.
    DeviceWritesPerDay(f64),
    /// Bytes a day: `200GB`.
    BytesPerDay(u64),
    /// Bytes for each byte that users write, and for each that they read: `amplification=1.8`,
    /// `amplification=1.8+0.04`.
    Amplification {
        /// Bytes for each byte written.
        written: f64,
        /// Bytes for each byte read.
        read: f64,
    },
}

/// Reason why a text is not a bound on wear.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no bound on wear (examples: 1DWPD, the size of the cache a day; 200GB, bytes a day; amplification=1.8, \
     bytes for each byte that users write; unbounded)"
)]
pub struct WearError(String);

impl FromStr for Wear {
    type Err = WearError;

    fn from_str(text: &str) -> Result<Self, WearError> {
        let error = || WearError(text.to_owned());
        let number = |text: &str| {
            let number: f64 = text.trim().parse().map_err(|_| error())?;
            if number.is_finite() && (0.0..=1e6).contains(&number) { Ok(number) } else { Err(error()) }
        };
        let trimmed = text.trim();
        if trimmed == "unbounded" {
            return Ok(Wear::Unbounded);
        }
        if let Some(times) = trimmed.strip_suffix("DWPD") {
            return number(times).map(Wear::DeviceWritesPerDay);
        }
        if let Some(shares) = trimmed.strip_prefix("amplification=") {
            let (written, read) = shares.split_once('+').unwrap_or((shares, "0"));
            return Ok(Wear::Amplification { written: number(written)?, read: number(read)? });
        }
        match trimmed.parse::<entresol_core::Size>() {
            Ok(entresol_core::Size::Bytes(bytes)) => Ok(Wear::BytesPerDay(bytes)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Wear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wear::Unbounded => f.write_str("unbounded"),
            Wear::DeviceWritesPerDay(times) => write!(f, "{times}DWPD"),
            Wear::BytesPerDay(bytes) => write!(f, "{bytes}B"),
            Wear::Amplification { written, read: 0.0 } => write!(f, "amplification={written}"),
            Wear::Amplification { written, read } => write!(f, "amplification={written}+{read}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_they_are_written() {
        for text in ["unbounded", "1DWPD", "0.3DWPD", "200000000B", "amplification=1.8", "amplification=1.8+0.04"] {
            assert_eq!(text.parse::<Wear>().expect("valid").to_string(), text);
        }
        assert_eq!("200GB".parse(), Ok(Wear::BytesPerDay(200_000_000_000)));
    }

    #[test]
    fn nonsense_is_refused_with_examples() {
        for text in ["", "1", "5%", "-1DWPD", "infDWPD", "NaNDWPD", "amplification=", "amplification=1+", "12p"] {
            let error = text.parse::<Wear>().expect_err(text).to_string();
            assert!(error.contains("1DWPD"), "{error}");
        }
    }
}
