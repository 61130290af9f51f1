//! Errors of servers, databases, files and users.

use std::fmt;
use std::path::{Path, PathBuf};

/// Reason for which a step could not be done.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program that the distribution has to provide is missing.
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
        /// Description of the failure.
        what: String,
        /// Last lines that the server or the tool wrote.
        said: Vec<String>,
    },
    /// The system refused an operation on a file.
    #[error("{}: {error}", path.display())]
    Path {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// No user of this name.
    #[error("there is no user '{0}' here to run a server as")]
    NoUser(String),
    /// A database refused something.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The user asked for an end.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// For `map_err`: an error on this path.
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

/// Meaning of a failed statement for the session that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A deadlock or a serialization failure: the transaction is rolled back, and may be tried again.
    Transient,
    /// The connection is gone. If the commit failed, it may have been carried out or not.
    Lost,
    /// Any other error: the statement is wrong, or the database.
    Refused,
}

/// Error that a database answered with.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{database}: {text}")]
pub struct DriverError {
    /// Name of the database system.
    pub database: &'static str,
    /// Meaning of the error for the session.
    pub failure: Failure,
    /// Message, in the database's own words.
    pub text: String,
}
