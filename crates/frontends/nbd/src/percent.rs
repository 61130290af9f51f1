//! Bytes as a part of a URI (RFC 3986, 2.1): bytes with a meaning there, and bytes beyond ASCII, become a percent sign
//! and two hexadecimal digits.

/// Encodes any bytes as letters, digits and `/-._~%`.
pub fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

/// Decodes the bytes. A percent sign without two digits stands for itself.
pub fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_and_a_plain_path_stays_as_it_is() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encoded(&all);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte)), "{text}");
        assert_eq!(decoded(text.as_bytes()), all);
        assert_eq!(encoded(b"/run/user/1000/a_b-c.sock~"), "/run/user/1000/a_b-c.sock~");
        assert_eq!(encoded("/a b%\u{e9}&#?=,+".as_bytes()), "/a%20b%25%C3%A9%26%23%3F%3D%2C%2B");
        assert_eq!(decoded(b"50%/%4"), b"50%/%4");
    }
}
