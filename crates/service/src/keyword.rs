//! Keywords: the words by which users and programs name the values of an option or a setting.

use entresol_cache::Mode;
use entresol_files::Keep;
use entresol_store::Doubtful;

/// A value with a keyword.
pub trait Keyword: Copy + PartialEq + Send + Sync + 'static {
    /// All values, in the order in which users see them.
    const ALL: &'static [Entry<Self>];

    /// The keyword of this value.
    fn keyword(self) -> &'static str {
        Self::ALL.iter().find(|entry| entry.value == self).map_or("", |entry| entry.keyword)
    }

    /// The value with this keyword, in capitals or not.
    fn named(keyword: &str) -> Option<Self> {
        let is_named = |entry: &&Entry<Self>| {
            entry.keyword.eq_ignore_ascii_case(keyword)
                || entry.alias.is_some_and(|alias| alias.eq_ignore_ascii_case(keyword))
        };
        Self::ALL.iter().find(is_named).map(|entry| entry.value)
    }
}

/// A value, its keywords and its meaning.
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// Its keyword.
    pub keyword: &'static str,
    /// Another keyword that is accepted and not shown.
    pub alias: Option<&'static str>,
    /// Its meaning, as help texts give it.
    pub meaning: &'static str,
}

impl<T: Copy> Entry<T> {
    pub(crate) const fn new(value: T, keyword: &'static str, meaning: &'static str) -> Self {
        Entry { value, keyword, alias: None, meaning }
    }

    const fn or(self, alias: &'static str) -> Self {
        Entry { alias: Some(alias), ..self }
    }
}

impl Keyword for Mode {
    const ALL: &'static [Entry<Self>] = &[
        Entry::new(
            Mode::WriteBack,
            "write-back",
            "Writes stay in the cache until the policy writes them back; a flush makes them durable in the cache",
        )
        .or("writeback"),
        Entry::new(
            Mode::WriteThrough,
            "write-through",
            "Writes go to the cache and the backing store; a flush makes them durable in the backing store",
        )
        .or("writethrough"),
        Entry::new(
            Mode::WriteAround,
            "write-around",
            "Writes go to the backing store, and to the cache if it already holds the page",
        )
        .or("writearound"),
        Entry::new(Mode::ReadOnly, "read-only", "Writes are refused"),
    ];
}

impl Keyword for entresol_sim::Mode {
    const ALL: &'static [Entry<Self>] = &[
        Entry::new(
            entresol_sim::Mode::WriteBack,
            "write-back",
            "Writes stay in the cache until the policy writes them back",
        )
        .or("writeback"),
        Entry::new(
            entresol_sim::Mode::WriteThrough,
            "write-through",
            "Writes go to the backing store, and to the cache if the policy admits or holds the page",
        )
        .or("writethrough"),
        Entry::new(
            entresol_sim::Mode::WriteAround,
            "write-around",
            "Writes go to the backing store, and to the cache if it already holds the page",
        )
        .or("writearound"),
    ];
}

impl Keyword for Keep {
    const ALL: &'static [Entry<Self>] =
        &[Entry::new(Keep::Cache, "cache", "The cache's"), Entry::new(Keep::Below, "below", "The file's own")];
}

impl Keyword for Doubtful {
    const ALL: &'static [Entry<Self>] = &[
        Entry::new(Doubtful::Keep, "keep", "The pages are kept"),
        Entry::new(Doubtful::Lose, "lose", "The pages are errors until they are written again"),
    ];
}
