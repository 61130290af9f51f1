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

/// True for a name under which programs write a file that they rename when it is whole: `x.tmp`, `x.tmp.npz`, `.tmp1f2e`,
/// `x.temp`, `x.part`, `x.partial`, and the names of Python's `tempfile`, `tmp` and eight more characters. Others are final:
/// a final name that was taken for a temporary one would never be committed.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    const OF_PYTHON: usize = 8;
    let name = name.as_encoded_bytes();
    let is_random = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let is_of_python = name.strip_prefix(b"tmp").is_some_and(|rest| {
        let random = rest.iter().take_while(|byte| is_random(byte)).count();
        random == OF_PYTHON && rest.get(random).is_none_or(|&byte| byte == b'.')
    });
    let ends = [&b".temp"[..], b".part", b".partial"].iter().any(|end| name.ends_with(end));
    ends || is_of_python || name.windows(4).any(|within| within == b".tmp")
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
            && table.numbers.get(&node) == Some(&number)
        {
            table.numbers.remove(&node);
        }
    }

    /// Gives the number of a node to another one, as the kernel does with a name that is renamed. A number that the other one
    /// had is of it still, for those who have it open.
    pub fn rename(&self, from: &Node, to: &Node) {
        let mut table = lock(&self.0);
        let Some(number) = table.numbers.remove(from) else { return };
        table.numbers.insert(to.clone(), number);
        table.nodes.entry(number).and_modify(|(node, _)| *node = to.clone());
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
    fn a_renamed_node_keeps_its_number_and_the_replaced_one_too() {
        let nodes = Nodes::new();
        let file = |name: &str| Node::File((CheckpointId(1), name.into()));
        let (from, to) = (file("a.tmp"), file("a"));
        let numbers = (nodes.enter(&from), nodes.enter(&to));
        nodes.rename(&from, &to);
        assert_eq!((nodes.get(numbers.0), nodes.get(numbers.1)), (Some(to.clone()), Some(to.clone())));
        assert_eq!(nodes.enter(&to), numbers.0);
        nodes.forget(numbers.1, 1);
        assert_eq!((nodes.get(numbers.1), nodes.enter(&to)), (None, numbers.0));
        assert!(![numbers.0, numbers.1].contains(&nodes.enter(&from)));
        nodes.rename(&file("unknown"), &to);
        assert_eq!(nodes.enter(&to), numbers.0);
    }

    #[test]
    fn temporary_names_are_those_that_programs_rename() {
        for name in [
            "state.tmp",
            ".metadata.tmp",
            "__0.metadata.tmp",
            "state.tmp.npz",
            ".state.npz.4711.tmp",
            "state.tmp0a1b2c",
            "state.tmp-12",
            ".tmpAbC12d",
            "ckpt_prog_1.dmtcp.temp",
            "state.part",
            "state.partial",
            "tmp0_abz9qr",
            "tmp0_abz9qr.npz",
        ] {
            assert!(is_temporary(OsStr::new(name)), "{name}");
        }
        for name in [
            "state",
            ".metadata",
            "__0_0.distcp",
            "part-0",
            "part",
            "tmp",
            "tmpfiles",
            "tmp_2m.nc",
            "tmp0_abz9qr2",
            "tmpABCDEFGH",
            "state_tmp",
            "template.npz",
            "state.temp.npz",
            "state.parts",
            "a.tm",
            "tmp0_abz9qr-1",
        ] {
            assert!(!is_temporary(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_checkpoint_has_one_name() {
        assert_eq!(checkpoint(OsStr::new("12")), Some(CheckpointId(12)));
        for other in ["012", "+1", "-1", "", "1.tmp", "newest", "18446744073709551616"] {
            assert_eq!(checkpoint(OsStr::new(other)), None, "{other}");
        }
    }
}
