//! Fields and numbers of text traces, parsed from bytes without allocation.

use entresol_core::Op;
use std::borrow::Cow;

/// Reason for which a line, record or field is malformed.
#[derive(Debug)]
pub struct Bad(pub Cow<'static, str>);

impl From<&'static str> for Bad {
    fn from(what: &'static str) -> Self {
        Bad(Cow::Borrowed(what))
    }
}

impl From<String> for Bad {
    fn from(what: String) -> Self {
        Bad(Cow::Owned(what))
    }
}

/// Bytes made readable for a message: at most 80 characters, control characters escaped.
pub fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(80)];
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("`{}{dots}`", shown.escape_ascii())
}

#[cold]
fn not_a(what: &str, field: &[u8]) -> Bad {
    format!("{} is not {what}", excerpt(field)).into()
}

#[cold]
fn out_of_range(field: &[u8], digits: u32) -> Bad {
    format!("{} is out of range: at most {} is expected", excerpt(field), i64::MAX / 10i64.pow(digits)).into()
}

/// An unsigned decimal integer below 2^64, spaces around it allowed.
#[inline]
pub fn uint(field: &[u8]) -> Result<u64, Bad> {
    let digits = field.trim_ascii();
    if digits.is_empty() || digits.len() > 20 {
        return Err(not_a("an unsigned 64-bit number", field));
    }
    let mut value = 0u64;
    // Nineteen digits cannot overflow.
    for &byte in &digits[..digits.len().min(19)] {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(not_a("an unsigned 64-bit number", field));
        }
        value = value * 10 + u64::from(digit);
    }
    if let Some(&byte) = digits.get(19) {
        let digit = byte.wrapping_sub(b'0');
        let last = if digit > 9 { None } else { value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))) };
        return last.ok_or_else(|| not_a("an unsigned 64-bit number", field));
    }
    Ok(value)
}

/// An unsigned decimal integer below 2^32.
#[inline]
pub fn uint32(field: &[u8]) -> Result<u32, Bad> {
    u32::try_from(uint(field)?).map_err(|_| not_a("an unsigned 32-bit number", field))
}

/// A decimal integer within 63 bits and a sign.
#[inline]
pub fn int(field: &[u8]) -> Result<i64, Bad> {
    decimal(field, 0)
}

/// A decimal number such as `-12.345` as an integer scaled by 10^`digits`; further digits are cut off. `digits` 0
/// takes integers only.
#[inline]
pub fn decimal(field: &[u8], digits: u32) -> Result<i64, Bad> {
    let text = field.trim_ascii();
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let point = if digits == 0 { None } else { memchr::memchr(b'.', text) };
    let (whole, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(not_a("a number", field));
    }
    let mut value = if whole.is_empty() { 0 } else { uint(whole).map_err(|_| not_a("a number", field))? };
    if !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(not_a("a number", field));
    }
    for i in 0..digits as usize {
        let digit = fraction.get(i).map_or(0, |&byte| u64::from(byte - b'0'));
        value = value.checked_mul(10).and_then(|v| v.checked_add(digit)).ok_or_else(|| out_of_range(field, digits))?;
    }
    let value = i64::try_from(value).map_err(|_| out_of_range(field, digits))?;
    Ok(if negative { -value } else { value })
}

/// Read or write, as most formats spell it: `R`, `r`, `Read`, `W`, `w`, `Write`, in any case.
#[inline]
pub fn read_or_write(field: &[u8]) -> Result<Op, Bad> {
    match field.trim_ascii() {
        b"R" | b"r" => Ok(Op::Read),
        b"W" | b"w" => Ok(Op::Write),
        word if word.eq_ignore_ascii_case(b"read") => Ok(Op::Read),
        word if word.eq_ignore_ascii_case(b"write") => Ok(Op::Write),
        word => Err(not_a("an operation: R or W expected", word)),
    }
}

/// `sectors` of 512 bytes, in bytes.
#[inline]
pub fn sectors(sectors: u64) -> Result<u64, Bad> {
    sectors.checked_mul(512).ok_or_else(|| format!("sector number {sectors} is beyond 2^64 bytes").into())
}

/// Exactly `N` fields separated by commas.
#[inline]
pub fn commas<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], Bad> {
    let (fields, count) = leading_commas(line);
    if count != N {
        return Err(format!("{N} fields separated by commas expected, found {count}: {}", excerpt(line)).into());
    }
    Ok(fields)
}

/// At least `N` fields separated by commas; further fields are ignored.
#[inline]
pub fn commas_at_least<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], Bad> {
    let (fields, count) = leading_commas(line);
    if count < N {
        return Err(
            format!("at least {N} fields separated by commas expected, found {count}: {}", excerpt(line)).into()
        );
    }
    Ok(fields)
}

/// The first `N` fields and the number of all.
#[inline]
pub fn leading_commas<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut fields = [&line[..0]; N];
    let (mut from, mut count) = (0, 0);
    for at in memchr::memchr_iter(b',', line).chain([line.len()]) {
        if count < N {
            fields[count] = &line[from..at];
        }
        from = at + 1;
        count += 1;
    }
    (fields, count)
}

/// Exactly `N` fields separated by blanks or tabs.
#[inline]
pub fn words<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], Bad> {
    let mut fields = [&line[..0]; N];
    let mut count = 0;
    for word in split_words(line) {
        if count < N {
            fields[count] = word;
        }
        count += 1;
    }
    if count != N {
        return Err(format!("{N} fields separated by blanks expected, found {count}: {}", excerpt(line)).into());
    }
    Ok(fields)
}

/// Fields separated by any number of blanks or tabs.
#[inline]
pub fn split_words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ' || byte == b'\t').filter(|word| !word.is_empty())
}

/// `part` of `line`, both slices of the same line, as an index range from the start of `from` to the end of `to`.
#[inline]
pub fn joined<'a>(line: &'a [u8], from: &[u8], to: &[u8]) -> &'a [u8] {
    let base = line.as_ptr() as usize;
    let start = (from.as_ptr() as usize).saturating_sub(base);
    let end = (to.as_ptr() as usize).saturating_sub(base) + to.len();
    line.get(start..end).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_their_limits() {
        assert_eq!(uint(b"18446744073709551615").unwrap(), u64::MAX);
        assert_eq!(uint(b" 0007 ").unwrap(), 7);
        for bad in ["18446744073709551616", "", "-1", "1x", "1.0", "99999999999999999999", "000000000000000000001"] {
            assert!(uint(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(uint32(b"4294967296").is_err());
        assert_eq!(int(b"-9223372036854775807").unwrap(), -i64::MAX);
    }

    #[test]
    fn decimals_are_cut_not_rounded() {
        assert_eq!(decimal(b"7961.833", 6).unwrap(), 7_961_833_000);
        assert_eq!(decimal(b"0.0262149999999", 9).unwrap(), 26_214_999);
        assert_eq!(decimal(b".5", 3).unwrap(), 500);
        assert_eq!(decimal(b"-2.", 1).unwrap(), -20);
        for bad in [".", "-", "", "1.2.3", "1e3", "1,2", "99999999999999999999.0"] {
            assert!(decimal(bad.as_bytes(), 9).is_err(), "{bad}");
        }
        assert!(decimal(b"1.5", 0).is_err());
        let Bad(what) = decimal(b"9223372037", 9).unwrap_err();
        assert_eq!(what, "`9223372037` is out of range: at most 9223372036 is expected");
        assert!(decimal(b"9223372036", 9).is_ok());
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(commas::<3>(b"a,,c").unwrap(), [&b"a"[..], b"", b"c"]);
        assert!(commas::<3>(b"a,b").unwrap_err().0.contains("found 2"));
        assert!(commas::<2>(b"a,b,c").is_err());
        assert_eq!(commas_at_least::<2>(b"a,b,c").unwrap(), [&b"a"[..], b"b"]);
        assert_eq!(words::<2>(b"  a\t b ").unwrap(), [&b"a"[..], b"b"]);
        let line = b"x,hm,0,y";
        let [_, host, disk, _] = commas::<4>(line).unwrap();
        assert_eq!(joined(line, host, disk), b"hm,0");
    }
}
