//! The foreign formats: their names, their detection and their readers.

mod alibaba;
mod arc;
mod blkparse;
mod csv;
mod detect;
mod disksim;
mod fio;
mod fiu;
mod libcachesim_csv;
mod lirs;
mod msr;
mod oracle_general;
mod recorded;
mod spc;
mod systor;
mod tencent;
mod vscsi;

pub use detect::{Detection, detect};
pub use recorded::Meta;

use crate::input::{Input, without_cr};
use crate::parse::{Bad, excerpt};
use crate::record::{Source, TraceError};
use crate::text::{LineFormat, TextSource};
use std::fmt;
use std::str::FromStr;

/// A trace format. Its name, as `--format` takes it, comes from [`Format::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Entresol's own binary format, see docs/trace-format.md.
    Native,
    /// MSR Cambridge csv.
    Msr,
    /// FIU text derived from blkparse.
    Fiu,
    /// Default output of blkparse.
    Blkparse,
    /// SPC (Financial, WebSearch).
    Spc,
    /// CloudPhysics vscsi, both versions.
    Vscsi,
    /// fio iolog, versions 2 and 3.
    Fio,
    /// DiskSim ascii, time in milliseconds.
    DiskSim,
    /// MQSim and SSDSim ascii, time in nanoseconds.
    Mqsim,
    /// SYSTOR '17 csv.
    Systor,
    /// Tencent CBS csv.
    Tencent,
    /// Alibaba block csv.
    Alibaba,
    /// ARC `.lis`.
    Arc,
    /// LIRS, one page a line.
    Lirs,
    /// libCacheSim's binary oracleGeneral.
    OracleGeneral,
    /// libCacheSim's csv.
    LibCacheSimCsv,
    /// Database trace below the buffer pool.
    Recorded,
    /// Database trace in the buffer pool, hits included.
    Prebuf,
    /// Filebench trace.
    Filebench,
    /// Csv with named columns.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 20] = [
        Format::Native,
        Format::Msr,
        Format::Fiu,
        Format::Blkparse,
        Format::Spc,
        Format::Vscsi,
        Format::Fio,
        Format::DiskSim,
        Format::Mqsim,
        Format::Systor,
        Format::Tencent,
        Format::Alibaba,
        Format::Arc,
        Format::Lirs,
        Format::OracleGeneral,
        Format::LibCacheSimCsv,
        Format::Recorded,
        Format::Prebuf,
        Format::Filebench,
        Format::Csv,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Native => "native",
            Format::Msr => "msr",
            Format::Fiu => "fiu",
            Format::Blkparse => "blkparse",
            Format::Spc => "spc",
            Format::Vscsi => "vscsi",
            Format::Fio => "fio",
            Format::DiskSim => "disksim",
            Format::Mqsim => "mqsim",
            Format::Systor => "systor",
            Format::Tencent => "tencent",
            Format::Alibaba => "alibaba",
            Format::Arc => "arc",
            Format::Lirs => "lirs",
            Format::OracleGeneral => "oracle-general",
            Format::LibCacheSimCsv => "libcachesim-csv",
            Format::Recorded => "recorded",
            Format::Prebuf => "prebuf",
            Format::Filebench => "filebench",
            Format::Csv => "csv",
        }
    }

    /// True when the names of objects come from a file beside the trace, see [`Meta::beside`].
    pub fn needs_meta(self) -> bool {
        matches!(self, Format::Recorded | Format::Prebuf)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("unknown trace format `{name}`; known are {}", names.join(", "))
        })
    }
}

/// The first line that is not blank, empty when there is none.
fn first_line(head: &[u8]) -> &[u8] {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    head.split(|&b| b == b'\n').map(without_cr).find(|line| !line.trim_ascii().is_empty()).unwrap_or_default()
}

/// A line parser, and whether the first line is a header that it has consumed; `None` for the binary formats.
type TextFormat = Option<(Box<dyn LineFormat>, bool)>;

/// The line parser of this format for a trace with these first bytes.
fn text_format(format: Format, head: &[u8], meta: Meta) -> Result<TextFormat, Bad> {
    let first = first_line(head);
    let expect = |header: &[u8]| {
        if first == header {
            Ok(())
        } else {
            Err(Bad::from(format!("the first line should be {}, found {}", excerpt(header), excerpt(first))))
        }
    };
    Ok(Some(match format {
        Format::Native | Format::Vscsi | Format::OracleGeneral => return Ok(None),
        Format::Msr => (Box::new(msr::Msr), false),
        Format::Fiu => (Box::new(fiu::Fiu), false),
        Format::Blkparse => (Box::new(blkparse::Blkparse::new(head)), false),
        Format::Spc => (Box::new(spc::Spc), false),
        Format::Fio => match first {
            fio::HEADER_2 => (Box::new(fio::Fio::new(false)), true),
            fio::HEADER_3 => (Box::new(fio::Fio::new(true)), true),
            _ => return expect(fio::HEADER_3).map(|()| None),
        },
        Format::DiskSim => (Box::new(disksim::DiskSim), false),
        Format::Mqsim => (Box::new(disksim::Mqsim), false),
        Format::Systor => {
            expect(systor::HEADER)?;
            (Box::new(systor::Systor), true)
        }
        Format::Tencent => (Box::new(tencent::Tencent), false),
        Format::Alibaba => (Box::new(alibaba::Alibaba), first == alibaba::HEADER),
        Format::Arc => (Box::new(arc::Arc), false),
        Format::Lirs => (Box::new(lirs::Lirs), false),
        Format::LibCacheSimCsv => (Box::new(libcachesim_csv::LibCacheSimCsv), libcachesim_csv::is_header(first)),
        Format::Recorded => {
            expect(recorded::HEADER)?;
            (Box::new(recorded::Recorded::new(meta)), true)
        }
        Format::Prebuf => {
            expect(recorded::HEADER_PREBUF)?;
            (Box::new(recorded::Prebuf::new(meta)), true)
        }
        Format::Filebench => {
            expect(recorded::HEADER_FILEBENCH)?;
            (Box::new(recorded::Filebench::default()), true)
        }
        Format::Csv => (Box::new(csv::Csv::from_header(first)?), true),
    }))
}

/// Opens a foreign format. `meta` is used by the formats that need it ([`Format::needs_meta`]).
///
/// # Errors
/// When the header, or the first binary records, are not those of the format; and for [`Format::Native`], which is no
/// stream of records.
pub fn source(format: Format, input: Input, meta: Meta) -> Result<Box<dyn Source>, TraceError> {
    let path = input.path().to_owned();
    let text = text_format(format, input.head(), meta)
        .map_err(|Bad(what)| TraceError::malformed(&path, "line 1", format!("not a {format} trace: {what}")))?;
    Ok(match (text, format) {
        (Some((text, header)), _) => Box::new(TextSource::new(input, text, header)),
        (None, Format::OracleGeneral) => Box::new(oracle_general::OracleGeneral::new(input)),
        (None, Format::Vscsi) => {
            let version = vscsi::Version::of(input.head()).ok_or_else(|| {
                let what = "not a vscsi trace: the records state neither version 1 nor version 2";
                TraceError::malformed(&path, "byte 0", what)
            })?;
            Box::new(vscsi::Vscsi::new(input, version))
        }
        (None, _) => return Err(TraceError::refused(&path, format!("{format} is not read record by record"))),
    })
}
