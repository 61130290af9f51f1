//! The sections of a profile: tables of numbers, read and checked as parameters.

use crate::check::Parameters;
use serde::de::DeserializeOwned;

/// Takes a section out of a file.
pub(crate) fn section(table: &mut toml::Table, key: &str) -> Result<Option<toml::Table>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(toml::Value::Table(section)) => Ok(Some(section)),
        Some(other) => Err(format!("key `{key}` is {other}, expected a section [{key}]")),
    }
}

/// Reads and checks the parameters of a section.
pub(crate) fn parameters<P: Parameters + DeserializeOwned>(table: toml::Table) -> Result<P, String> {
    let parameters: P = table.try_into().map_err(|e| one_line(&e))?;
    parameters.check()?;
    Ok(parameters)
}

/// An error of the TOML reader in a line, in a user's words.
pub(crate) fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string().replace("expected u64", "expected a whole number, 0 or more");
    let text =
        text.replace("expected u32", "expected a whole number, 0 or more").replace("expected f64", "expected a number");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
