//! Loading of tables from rows of any contents.

use crate::BenchError;
use crate::driver::{Row, Session, Table};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Makes the tables and their indexes and fills them. `progress` receives the number of further rows; `ended` ends the
/// load early.
///
/// # Errors
/// The database's error, or [`BenchError::Interrupted`].
pub(crate) fn fill(
    session: &mut dyn Session,
    tables: &'static [Table],
    rows: impl Fn(&'static Table) -> Box<dyn Iterator<Item = Row>>,
    indexes: &[&str],
    ended: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    for table in tables {
        let mut since = 0;
        let counted = rows(table).inspect(|_| {
            since += 1;
            if since == 1000 {
                progress(since);
                since = 0;
            }
        });
        session.load(table, &mut counted.take_while(|_| !ended.load(Relaxed)))?;
        if ended.load(Relaxed) {
            return Err(BenchError::Interrupted);
        }
    }
    for index in indexes {
        session.batch(index)?;
    }
    Ok(session.settle()?)
}
