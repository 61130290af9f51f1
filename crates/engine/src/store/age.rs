//! The age code of an entry: how long before the clock of its table a page first differed from the backing store.
//!
//! One byte of it is in every entry, so an age is kept with two bits of precision below its leading one, rounded up: a page is
//! never taken for younger than it is.

/// The age of what is clean, and of what nobody knows the age of.
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

/// The second since which a page differs that had an age of this code when the clock showed that; one whose age is not known has
/// differed for as long as can be.
pub(super) fn since(code: u8, clock: u64) -> u64 {
    // Rounded up an age may be more than there was of time.
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
