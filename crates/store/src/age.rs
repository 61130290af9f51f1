//! The age code of an entry: how long before the clock of its table a page first differed from the backing store.
//!
//! An age takes one byte of every entry. The age keeps two bits below its leading one and is rounded up, so that a page
//! is never taken for younger than it is.

/// Age of a clean page, and of a page whose age is not known.
pub const UNKNOWN: u8 = 0;
/// The bits of an entry's byte that are its age.
pub(super) const MASK: u8 = 127;
/// The oldest age.
const MAX: u8 = MASK;

/// The code of an age in seconds. No age is younger than a second.
pub fn encode(seconds: u64) -> u8 {
    (1..MAX).find(|&code| decode(code) >= seconds).unwrap_or(MAX)
}

/// Seconds that a code stands for; 0 where the age is not known.
pub fn decode(code: u8) -> u64 {
    let (exponent, mantissa) = (u32::from(code / 4).saturating_sub(1), u64::from(code % 4));
    if code < 4 { u64::from(code) } else { (4 + mantissa) << exponent }
}

/// The second since which a page differs, from its age code and the clock of that time. A page of unknown age has
/// differed since second 0.
pub(super) fn since(code: u8, clock: u64) -> u64 {
    // Rounding up may make the age greater than the clock.
    if code == UNKNOWN { 0 } else { clock.saturating_sub(decode(code)).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn an_age_is_rounded_up_and_by_no_more_than_a_quarter() {
        let mut random = Random::new(1);
        let some = (0..20_000).map(|_| 1 + (random.next_u64() >> (32 + random.below(32))));
        for seconds in (1..1000).chain(some) {
            let rounded = decode(encode(seconds));
            assert!(rounded >= seconds && rounded * 4 <= seconds * 5, "{seconds} s are kept as {rounded}");
        }
        assert!((1..MAX).all(|code| encode(decode(code)) == code && decode(code) < decode(code + 1)));
        assert_eq!((since(UNKNOWN, 50), since(encode(9), 50), since(encode(9), 8)), (0, 40, 1));
        assert_eq!((encode(0), decode(UNKNOWN), encode(u64::MAX), decode(MAX)), (1, 0, MAX, 7 << 30));
    }
}
