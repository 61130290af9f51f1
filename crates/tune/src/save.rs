//! The state of a tuner as text.

use crate::space::{Point, Space};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the format, to be raised when the fields of the tuners or searches change.
const VERSION: u32 = 1;

/// The state of a tuner: a line of JSON, `{"version":1,"tuner":{...}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved(String);

/// Why a tuner cannot be restored from a text.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The text is no state of this tuner.
    #[error("no state of this tuner: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The state is of another version.
    #[error("a tuner's state of version {found}; this program reads version {VERSION}")]
    Version {
        /// Version of the state.
        found: u32,
    },
    /// The state is of other knobs.
    #[error("a tuner's state of the knobs {found}, not {expected}")]
    Knobs {
        /// Knobs of the state, with their levels.
        found: String,
        /// Knobs of this tuner.
        expected: String,
    },
    /// The state points outside its own knobs.
    #[error("a tuner's state with settings that its knobs do not have: {point:?}")]
    Outside {
        /// Settings as levels.
        point: Point,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    tuner: T,
}

impl Saved {
    /// Wraps the text of a state that was saved earlier. The text is not checked here.
    pub fn from_text(text: impl Into<String>) -> Self {
        Saved(text.into())
    }

    /// The text to keep.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn write(tuner: &impl Serialize) -> Self {
        Saved(
            serde_json::to_string(&Envelope { version: VERSION, tuner }).expect("a state has finite numbers and names"),
        )
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, RestoreError> {
        // The version is checked first: a state of another version need not have this shape.
        let Envelope { version: found, tuner } = serde_json::from_str::<Envelope<serde_json::Value>>(&self.0)?;
        if found != VERSION {
            return Err(RestoreError::Version { found });
        }
        Ok(serde_json::from_value(tuner)?)
    }

    pub(crate) fn check<'p>(
        &self,
        found: &Space,
        expected: &Space,
        points: impl IntoIterator<Item = &'p Point>,
    ) -> Result<(), RestoreError> {
        let list = |space: &Space| {
            let knobs = space.knobs().iter().map(|knob| format!("{} {:?}", knob.name, knob.levels));
            knobs.collect::<Vec<_>>().join(", ")
        };
        let knobs = found.knobs().iter().map(|knob| (&knob.name, &knob.levels));
        if !knobs.eq(expected.knobs().iter().map(|knob| (&knob.name, &knob.levels))) {
            return Err(RestoreError::Knobs { found: list(found), expected: list(expected) });
        }
        match points.into_iter().find(|point| !found.contains(point)) {
            Some(point) => Err(RestoreError::Outside { point: point.clone() }),
            None => Ok(()),
        }
    }
}
