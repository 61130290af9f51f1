//! Options of a policy as text, and their errors.

use crate::info::{Config, Info};
use entresol_core::Size;
use std::fmt::{Display, Write as _};
use std::ops::RangeBounds;
use std::str::FromStr;

/// The options given to one policy. Every other option has the default that the policy's [`Info`] states, so
/// documentation and behaviour cannot differ.
#[derive(Clone, Debug)]
pub struct Options {
    info: &'static Info,
    given: Vec<(String, String)>,
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No policy has this name.
    #[error("there is no policy '{name}'; nearest: {nearest} (`entresol policies` lists all)")]
    UnknownPolicy {
        /// The name that was given.
        name: String,
        /// The most similar names.
        nearest: String,
    },
    /// The policy has no such option.
    #[error("policy '{policy}' has no option '{option}'; it has: {known}")]
    UnknownOption {
        /// The policy.
        policy: &'static str,
        /// The option that was given.
        option: String,
        /// The options it has.
        known: String,
    },
    /// The value of an option makes no sense.
    #[error("policy '{policy}', option '{option}': '{value}' {why}")]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The option.
        option: String,
        /// The value that was given.
        value: String,
        /// Reason why the value makes no sense.
        why: String,
    },
    /// A tier is smaller than the policy can work with.
    #[error("policy '{policy}' needs at least {min} {} of {tier}, not {given}", pages(.min))]
    TooSmall {
        /// The policy.
        policy: &'static str,
        /// The tier.
        tier: &'static str,
        /// The smallest capacity in pages.
        min: usize,
        /// The capacity that was given.
        given: usize,
    },
    /// A tier is larger than any that is supported.
    #[error("policy '{policy}' takes at most {max} pages of {tier}, not {given}")]
    TooLarge {
        /// The policy.
        policy: &'static str,
        /// The tier.
        tier: &'static str,
        /// The largest capacity in pages.
        max: usize,
        /// The capacity that was given.
        given: usize,
    },
    /// Capacities were given for the wrong number of tiers.
    #[error("policy '{policy}' manages {expected} tiers, not {given}")]
    WrongTiers {
        /// The policy.
        policy: &'static str,
        /// The number it manages.
        expected: usize,
        /// The number that was given.
        given: usize,
    },
}

/// Pages of the largest tier, and the largest size of an option: an exbibyte in pages of 4 KiB. Sums and products of
/// such sizes cannot overflow.
pub(crate) const PAGES_MAX: usize = 1 << 48;

fn pages(count: &usize) -> &'static str {
    if *count == 1 { "page" } else { "pages" }
}

impl Options {
    /// The defaults of a policy.
    pub fn defaults(info: &'static Info) -> Self {
        Options { info, given: Vec::new() }
    }

    /// Parses `key=value` parts; a key that the policy does not have is an error.
    pub fn parse<'a>(info: &'static Info, parts: impl IntoIterator<Item = &'a str>) -> Result<Self, BuildError> {
        let mut options = Options::defaults(info);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if !info.options.iter().any(|option| option.name == key) {
                let known = info.options.iter().map(|o| o.name).collect::<Vec<_>>().join(", ");
                return Err(BuildError::UnknownOption {
                    policy: info.name,
                    option: key.to_owned(),
                    known: if known.is_empty() { "none".to_owned() } else { known },
                });
            }
            if options.given.iter().any(|(earlier, _)| earlier == key) {
                return Err(options.bad(key, value, "is given twice"));
            }
            options.given.push((key.to_owned(), value.to_owned()));
        }
        Ok(options)
    }

    /// These options for a driver that sends each write below at once. The policy's own option for that
    /// ([`Info::through`]) is added, unless a value of it was given.
    #[must_use]
    pub fn for_through(&self) -> Self {
        let mut options = self.clone();
        let own = self.info.through.and_then(|option| option.split_once('='));
        let own = own.filter(|(key, _)| self.given.iter().all(|(given, _)| given != key));
        options.given.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
        options
    }

    /// The text of an option: as given, else its default.
    ///
    /// # Panics
    /// When the policy asks for an option that its [`Info`] does not declare.
    pub fn text(&self, name: &str) -> &str {
        if let Some((_, value)) = self.given.iter().find(|(key, _)| key == name) {
            return value;
        }
        let declared = self.info.options.iter().find(|option| option.name == name);
        declared.unwrap_or_else(|| panic!("policy '{}' declares no option '{name}'", self.info.name)).default
    }

    /// A number within a range.
    pub fn number<T>(&self, name: &str, range: impl RangeBounds<T> + std::fmt::Debug) -> Result<T, BuildError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let text = self.text(name);
        let value: T = text.parse().map_err(|_| self.bad(name, text, "is not a number"))?;
        if !range.contains(&value) {
            return Err(self.bad(name, text, &format!("is not within {range:?}")));
        }
        Ok(value)
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, BuildError> {
        let text = self.text(name);
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words = choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            self.bad(name, text, &format!("is none of: {words}"))
        })
    }

    /// A size in pages: `25%` of `whole` pages, `100p`, `1MiB`.
    pub fn pages(&self, name: &str, config: &Config, whole: usize) -> Result<usize, BuildError> {
        let text = self.text(name);
        let size: Size = text.parse().map_err(|_| self.bad(name, text, "is not a size"))?;
        let pages = size.pages(config.page_bytes, whole as u64);
        if pages > PAGES_MAX as u64 {
            return Err(self.bad(name, text, &format!("is more than {PAGES_MAX} pages")));
        }
        Ok(pages as usize)
    }

    /// The options that were given, as they are written on a command line: `ties=most-recent:kin=30%`.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        for (key, value) in &self.given {
            let colon = if out.is_empty() { "" } else { ":" };
            write!(out, "{colon}{key}={value}").expect("writing to a string");
        }
        out
    }

    /// An error about the value of an option.
    pub fn bad(&self, name: &str, value: &str, why: &str) -> BuildError {
        BuildError::BadValue {
            policy: self.info.name,
            option: name.to_owned(),
            value: value.to_owned(),
            why: why.to_owned(),
        }
    }
}
