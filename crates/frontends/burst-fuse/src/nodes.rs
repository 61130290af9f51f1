//! The names that the kernel knows, by number.

use entresol_burst::CheckpointId;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of the root.
pub(super) const ROOT: u64 = 1;

/// Locks a mutex. A thread that panicked has left the state as one of its steps does.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file by its path.
pub(super) type Path = (CheckpointId, OsString);

/// A name in the mount.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The directory of the job.
    Root,
    /// The link to the newest complete checkpoint.
    Newest,
    Checkpoint(CheckpointId),
    File(Path),
}

/// The checkpoint of a directory's name: a number as it is printed.
pub(super) fn checkpoint(name: &OsStr) -> Option<CheckpointId> {
    let text = name.to_str()?;
    text.parse::<u64>().ok().filter(|number| number.to_string() == text).map(CheckpointId)
}

/// Numbers of nodes, each with the kernel's count of its uses.
pub(super) struct Nodes(Mutex<Table>);

struct Table {
    nodes: HashMap<u64, (Node, u64)>,
    numbers: HashMap<Node, u64>,
    next: u64,
}

impl Nodes {
    pub fn new() -> Nodes {
        let nodes = HashMap::from([(ROOT, (Node::Root, 1))]);
        Nodes(Mutex::new(Table { nodes, numbers: HashMap::from([(Node::Root, ROOT)]), next: ROOT + 1 }))
    }

    pub fn get(&self, number: u64) -> Option<Node> {
        lock(&self.0).nodes.get(&number).map(|(node, _)| node.clone())
    }

    /// Number of a node, of which the kernel hears now.
    pub fn enter(&self, node: &Node) -> u64 {
        let mut table = lock(&self.0);
        let number = table.numbers.get(node).copied().unwrap_or(table.next);
        if number == table.next {
            table.next += 1;
            table.numbers.insert(node.clone(), number);
        }
        table.nodes.entry(number).or_insert_with(|| (node.clone(), 0)).1 += 1;
        number
    }

    /// Forgets uses of a node.
    pub fn forget(&self, number: u64, uses: u64) {
        let mut table = lock(&self.0);
        let Some((_, left)) = table.nodes.get_mut(&number).filter(|_| number != ROOT) else { return };
        *left = left.saturating_sub(uses);
        if *left == 0
            && let Some((node, _)) = table.nodes.remove(&number)
        {
            table.numbers.remove(&node);
        }
    }
}

/// A path as messages show it.
pub(super) fn named((checkpoint, name): &Path) -> String {
    format!("{}/{}", checkpoint.0, name.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_long_as_they_are_used() {
        let nodes = Nodes::new();
        let file = Node::File((CheckpointId(1), "a".into()));
        let number = nodes.enter(&file);
        assert_eq!((nodes.enter(&file), nodes.get(number)), (number, Some(file.clone())));
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), Some(file.clone()));
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), None);
        assert_ne!(nodes.enter(&file), number);
        nodes.forget(ROOT, 9);
        assert_eq!(nodes.get(ROOT), Some(Node::Root));
    }

    #[test]
    fn a_checkpoint_has_one_name() {
        assert_eq!(checkpoint(OsStr::new("12")), Some(CheckpointId(12)));
        for other in ["012", "+1", "-1", "", "1.tmp", "newest", "18446744073709551616"] {
            assert_eq!(checkpoint(OsStr::new(other)), None, "{other}");
        }
    }
}
