//! The list of processes that write to a backing store without its cache.

use std::sync::{Arc, Mutex, PoisonError};

/// Writers seen at the last look, each in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers(Arc<Mutex<Vec<String>>>);

impl Writers {
    /// The writers seen at the last look.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the list by the writers of a new look.
    pub(crate) fn note(&self, writers: &[String]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = writers.to_vec();
    }
}
