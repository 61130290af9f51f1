//! What can go wrong.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program that the distribution would have to provide.
    #[error("{program} is not installed here (Debian: apt-get install {package})")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A server or one of its tools, with the last lines that it said.
    #[error("{what}{}", Said(.said))]
    Server {
        /// What happened.
        what: String,
        /// Its last lines.
        said: Vec<String>,
    },
    /// The system refused something on a file.
    #[error("{}: {error}", path.display())]
    Path {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// No user of this name.
    #[error("there is no user '{0}' here to run a server as")]
    NoUser(String),
    /// A database refused something.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Somebody asked for an end.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// For `map_err`: what was refused on this path.
    pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Path { path, error }
    }
}

/// The last lines of a log, on the one line that an error is.
struct Said<'a>(&'a [String]);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "; it said: ";
        for line in self.0 {
            write!(f, "{separator}{}", line.trim())?;
            separator = " | ";
        }
        Ok(())
    }
}

/// What a failed statement means to who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A deadlock or a serialization failure: the transaction is rolled back, the same may be tried again.
    Transient,
    /// The connection is gone. If it was the commit that failed, nobody knows whether it was carried out.
    Lost,
    /// Anything else: the statement is wrong, or the database.
    Refused,
}

/// What a database answered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{database}: {text}")]
pub struct DriverError {
    /// Which.
    pub database: &'static str,
    /// What it means.
    pub failure: Failure,
    /// In its words.
    pub text: String,
}
