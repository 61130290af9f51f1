//! The records of the table, as bytes: words of 8 bytes, little endian, and texts (`docs/fuse-take-over.md`).

use std::path::PathBuf;

/// Reason why a table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table of the former server: {0}")]
pub struct Bad(pub &'static str);

/// A name in a directory, which is given by its number.
pub type Place = (u64, Vec<u8>);

/// Facts of the mount, and of the kernel's side of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    pub mountpoint: PathBuf,
    /// Numbers of the mount, as in [`Unmounter`](crate::Unmounter).
    pub device: u32,
    pub id: Option<u64>,
    pub unique: Option<u64>,
    /// Version of the protocol that the kernel offered, and its features.
    pub version: (u32, u32),
    pub capabilities: u64,
}

/// A node that the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remembered {
    /// A name that leads to the file; none once it was removed.
    pub place: Option<Place>,
    /// Time of making in seconds and nanoseconds, if the file system keeps it.
    pub made: Option<(i64, u32)>,
    /// Lookups by the kernel that it has not forgotten.
    pub lookups: u64,
    /// True if the holder has the file's descriptor.
    pub kept: bool,
    /// True if the kernel has read and written the file by itself.
    pub passed: bool,
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub node: u64,
    /// Flags of `open`.
    pub flags: u32,
    pub directory: bool,
    /// The request by which it was opened.
    pub unique: u64,
}

/// A request that must not be repeated, with the facts that tell later whether it was carried out. An inode number of
/// 0 means that the name did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Makes a name, unless it led to a file already.
    Make { at: Place, before: u64 },
    /// Removes a name.
    Remove { at: Place, before: u64 },
    /// Renames, or exchanges two names. `moved` and `replaced` had the names before.
    Rename { from: Place, to: Place, moved: u64, replaced: u64, exchange: bool },
    /// Sets (`set`) or removes an extended attribute, which was there `before` or not.
    Attribute { node: u64, name: Vec<u8>, set: bool, before: bool },
}

/// One change of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Mounted(Facts),
    /// No handle has had this number or a higher one.
    NextHandle(u64),
    /// A node that is new, or is another file than before.
    Node(u64, Remembered),
    Named(u64, Place),
    /// The request counted a lookup of the node, which is in the node's own number if `added` is false.
    Counted {
        number: u64,
        unique: u64,
        added: bool,
    },
    /// Lookups were taken back: by the kernel, or (with `unique`) because the request that counted one failed.
    Forgotten {
        number: u64,
        count: u64,
        unique: u64,
    },
    Kept(u64),
    Opened(u64, Open),
    Closed(u64),
    Began(u64, Change),
    /// The request was carried out, or failed with an error of this number.
    Ended {
        unique: u64,
        errno: i32,
    },
    /// The kernel has the answer.
    Answered(u64),
    /// No entered backing id had this number or a higher one.
    NextBacking(u32),
    /// A backing id was registered for a node.
    Registered {
        node: u64,
        id: u32,
    },
    /// A node's backing id was closed.
    Unregistered {
        node: u64,
        id: u32,
    },
    /// The kernel has read and written a node's file by itself.
    Passed(u64),
}

/// Writes words and texts.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
    }

    /// Length and bytes, with zeros up to a whole word.
    fn text(&mut self, text: &[u8]) {
        self.words(&[text.len() as u64]);
        self.0.extend_from_slice(text);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn place(&mut self, place: &Place) {
        self.words(&[place.0]);
        self.text(&place.1);
    }

    fn option(&mut self, value: Option<u64>) {
        self.words(&[value.is_some().into(), value.unwrap_or(0)]);
    }
}

/// Reads words and texts; every error is [`Bad`].
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Result<u64, Bad> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Bad("a record is too short"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Bad> {
        T::try_from(self.word()?).map_err(|_| Bad("a number is too large"))
    }

    fn flag(&mut self) -> Result<bool, Bad> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Bad("neither true nor false")),
        }
    }

    fn text(&mut self) -> Result<Vec<u8>, Bad> {
        let length: usize = self.small()?;
        let padded = length.checked_next_multiple_of(8).ok_or(Bad("a text is too long"))?;
        let text = self.0.get(..length).ok_or(Bad("a text is too long"))?.to_vec();
        self.0 = self.0.get(padded..).ok_or(Bad("a text is too long"))?;
        Ok(text)
    }

    fn place(&mut self) -> Result<Place, Bad> {
        let place = (self.word()?, self.text()?);
        let name = &place.1;
        if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(Bad("not a name"));
        }
        Ok(place)
    }

    fn option(&mut self) -> Result<Option<u64>, Bad> {
        let (there, value) = (self.flag()?, self.word()?);
        Ok(there.then_some(value))
    }
}

impl Record {
    /// Appends the body to `body`; returns the kind.
    pub fn encode(&self, body: &mut Vec<u8>) -> u8 {
        use std::os::unix::ffi::OsStrExt;
        let mut out = Writer(body);
        match self {
            Self::Mounted(facts) => {
                out.text(facts.mountpoint.as_os_str().as_bytes());
                out.words(&[facts.device.into()]);
                out.option(facts.id);
                out.option(facts.unique);
                out.words(&[facts.version.0.into(), facts.version.1.into(), facts.capabilities]);
                1
            }
            Self::NextHandle(next) => {
                out.words(&[*next]);
                2
            }
            Self::Node(number, node) => {
                let (seconds, nanoseconds) = node.made.unwrap_or_default();
                out.words(&[*number, node.lookups, node.kept.into()]);
                out.words(&[node.made.is_some().into(), seconds as u64, nanoseconds.into()]);
                out.words(&[node.place.is_some().into()]);
                node.place.iter().for_each(|place| out.place(place));
                3
            }
            Self::Named(number, place) => {
                out.words(&[*number]);
                out.place(place);
                4
            }
            Self::Counted { number, unique, added } => {
                out.words(&[*number, *unique, (*added).into()]);
                5
            }
            Self::Forgotten { number, count, unique } => {
                out.words(&[*number, *count, *unique]);
                6
            }
            Self::Kept(number) => {
                out.words(&[*number]);
                7
            }
            Self::Opened(handle, open) => {
                out.words(&[*handle, open.node, open.flags.into(), open.directory.into(), open.unique]);
                8
            }
            Self::Closed(handle) => {
                out.words(&[*handle]);
                9
            }
            Self::Began(unique, change) => {
                out.words(&[*unique]);
                match change {
                    Change::Make { at, before } => {
                        out.words(&[1, *before]);
                        out.place(at);
                    }
                    Change::Remove { at, before } => {
                        out.words(&[2, *before]);
                        out.place(at);
                    }
                    Change::Rename { from, to, moved, replaced, exchange } => {
                        out.words(&[3, *moved, *replaced, (*exchange).into()]);
                        out.place(from);
                        out.place(to);
                    }
                    Change::Attribute { node, name, set, before } => {
                        out.words(&[4, *node, (*set).into(), (*before).into()]);
                        out.text(name);
                    }
                }
                10
            }
            Self::Ended { unique, errno } => {
                out.words(&[*unique, *errno as u32 as u64]);
                11
            }
            Self::Answered(unique) => {
                out.words(&[*unique]);
                12
            }
            Self::NextBacking(next) => {
                out.words(&[(*next).into()]);
                13
            }
            Self::Registered { node, id } => {
                out.words(&[(*id).into(), *node]);
                14
            }
            Self::Unregistered { node, id } => {
                out.words(&[(*id).into(), *node]);
                15
            }
            Self::Passed(number) => {
                out.words(&[*number]);
                16
            }
        }
    }

    /// The record of a kind with this body.
    ///
    /// # Errors
    /// [`Bad`] for all bytes that [`encode`](Self::encode) does not write.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, Bad> {
        use std::os::unix::ffi::OsStringExt;
        let mut body = Reader(body);
        let record = match kind {
            1 => Self::Mounted(Facts {
                mountpoint: std::ffi::OsString::from_vec(body.text()?).into(),
                device: body.small()?,
                id: body.option()?,
                unique: body.option()?,
                version: (body.small()?, body.small()?),
                capabilities: body.word()?,
            }),
            2 => Self::NextHandle(body.word()?),
            3 => {
                let (number, lookups, kept) = (body.word()?, body.word()?, body.flag()?);
                let (has_made, seconds, nanoseconds) = (body.flag()?, body.word()? as i64, body.small()?);
                let place = if body.flag()? { Some(body.place()?) } else { None };
                let made = has_made.then_some((seconds, nanoseconds));
                Self::Node(number, Remembered { place, made, lookups, kept, passed: false })
            }
            4 => Self::Named(body.word()?, body.place()?),
            5 => Self::Counted { number: body.word()?, unique: body.word()?, added: body.flag()? },
            6 => Self::Forgotten { number: body.word()?, count: body.word()?, unique: body.word()? },
            7 => Self::Kept(body.word()?),
            8 => {
                let handle = body.word()?;
                let (node, flags, directory, unique) = (body.word()?, body.small()?, body.flag()?, body.word()?);
                Self::Opened(handle, Open { node, flags, directory, unique })
            }
            9 => Self::Closed(body.word()?),
            10 => {
                let unique = body.word()?;
                let change = match body.word()? {
                    1 => {
                        let before = body.word()?;
                        Change::Make { at: body.place()?, before }
                    }
                    2 => {
                        let before = body.word()?;
                        Change::Remove { at: body.place()?, before }
                    }
                    3 => {
                        let (moved, replaced, exchange) = (body.word()?, body.word()?, body.flag()?);
                        Change::Rename { from: body.place()?, to: body.place()?, moved, replaced, exchange }
                    }
                    4 => {
                        let (node, set, before) = (body.word()?, body.flag()?, body.flag()?);
                        Change::Attribute { node, name: body.text()?, set, before }
                    }
                    _ => return Err(Bad("an unknown change")),
                };
                Self::Began(unique, change)
            }
            11 => Self::Ended { unique: body.word()?, errno: body.small::<u32>()? as i32 },
            12 => Self::Answered(body.word()?),
            13 => Self::NextBacking(body.small()?),
            14 => Self::Registered { id: body.small()?, node: body.word()? },
            15 => Self::Unregistered { id: body.small()?, node: body.word()? },
            16 => Self::Passed(body.word()?),
            _ => return Err(Bad("an unknown kind of record")),
        };
        if body.0.is_empty() { Ok(record) } else { Err(Bad("a record is too long")) }
    }
}
