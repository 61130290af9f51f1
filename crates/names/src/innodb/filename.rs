//! Names of tables as names of files: a character other than an ASCII letter, digit or `_` is `@` and four hexadecimal
//! digits.
//!
//! Some letters of other scripts have a shorter form, which is left as it is: such a name is shown as the file has it.

/// The name of a table or database, from the name of its file or directory.
pub fn decode(file: &str) -> String {
    let mut name = String::with_capacity(file.len());
    let mut rest = file;
    while let Some(at) = rest.find('@') {
        name.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 5).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?)) {
            Some(character) => {
                name.push(character);
                rest = &rest[at + 5..];
            }
            None => {
                name.push('@');
                rest = &rest[at + 1..];
            }
        }
    }
    name + rest
}

/// The name of a table's or database's file or directory, in the form that [`decode`] reads.
pub fn encode(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || character == '_' {
            file.push(character);
        } else {
            file.push_str(&format!("@{:04x}", character as u32));
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_that_the_server_makes() {
        for (name, file) in [("orders", "orders"), ("a b", "a@0020b"), ("my-shop", "my@002dshop"), ("x@y", "x@0040y")] {
            assert_eq!((encode(name).as_str(), decode(file).as_str()), (file, name));
        }
        assert_eq!(decode("caf@1q"), "caf@1q", "a form of its own stays");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(name in "[ -~\u{a0}-\u{d7ff}]{0,20}", noise in ".*") {
            prop_assert_eq!(decode(&encode(&name)), name);
            let _ = decode(&noise);
        }
    }
}
