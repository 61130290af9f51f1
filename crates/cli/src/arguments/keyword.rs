//! Options whose values are keywords.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use entresol_service::keyword::Keyword;

/// Parser of the keywords of a type, with their meanings for the help text.
pub fn keyword<T: Keyword>() -> impl TypedValueParser<Value = T> {
    let possible =
        T::ALL.iter().map(|entry| PossibleValue::new(entry.keyword).help(entry.meaning).aliases(entry.alias));
    PossibleValuesParser::new(possible).map(|word| T::named(&word).expect("a possible value"))
}

/// Choice for a feature: on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// The feature is wanted.
    #[value(help = None)]
    On,
    /// The feature is not wanted.
    #[value(help = None)]
    Off,
}

impl OnOff {
    /// True for on.
    pub fn is_on(self) -> bool {
        self == OnOff::On
    }
}

/// The word for a value on the command line.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
