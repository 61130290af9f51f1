//! The simulated model: a cluster, and the programs of the thesis (section 5.4, figure 5.5).

use entresol_core::Random;

/// Default size in bytes of a drain's batch, after which a node reports its space (5.3.3). The thesis names no size;
/// the results do not depend on it below 256 MiB.
pub const BATCH_BYTES: u64 = 64 << 20;

/// Rates in bytes per second; one PFS for all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Compute nodes, each with a buffer.
    pub nodes: u32,
    /// Writers on a node; the first node has one fewer, because it runs the coordinator.
    pub writers_per_node: u32,
    /// Bytes of a node's buffer.
    pub buffer_bytes: u64,
    /// Throughput of a node's link in each direction.
    pub link: f64,
    /// Rate at which the writers of one node, together, copy into their own buffer.
    pub copy: f64,
    /// Upper bound of one stream to another node's buffer; if infinite, the links are the bound.
    pub peer_stream: f64,
    /// Rate at which a buffer takes bytes from other nodes, all streams together; if infinite, its node's link is the
    /// bound.
    pub intake: f64,
    /// Upper bound of one stream to the PFS, or of all streams of one node together.
    pub stream: f64,
    /// Scope of `stream`.
    pub stream_of: StreamOf,
    /// True if bytes to the PFS take other links than those to other nodes.
    pub pfs_apart: bool,
    /// Sender of the second copy of a part.
    pub copies_by: CopiesBy,
    /// Rate at which the PFS takes bytes, all streams together.
    pub pfs: f64,
    /// Bytes of a drain after which their space is freed; with `None`, the whole piece.
    pub batch_bytes: Option<u64>,
}

/// Scope of the limit of streams to the PFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOf {
    /// Every stream by itself.
    Stream,
    /// All streams of one node together.
    Node,
}

/// Sender of the second copy of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiesBy {
    /// The node that has the part, while the writer sends its next part.
    Node,
    /// The writer, before its next part, as the live client does.
    Writer,
}

impl Cluster {
    /// The thesis's 46 nodes, with the rates that the design measured or assumed: links 1.83 GB/s, a stream to the PFS
    /// 0.52 GB/s, local copies 3.0 GB/s (assumed), buffers of 4.0 GB. The rate of the PFS is the one fitted number.
    pub const fn thesis(pfs: f64) -> Cluster {
        Cluster {
            nodes: 46,
            writers_per_node: 7,
            buffer_bytes: 4_000_000_000,
            link: 1.83e9,
            copy: 3.0e9,
            peer_stream: f64::INFINITY,
            intake: f64::INFINITY,
            stream: 0.52e9,
            stream_of: StreamOf::Stream,
            pfs_apart: false,
            copies_by: CopiesBy::Node,
            pfs,
            batch_bytes: Some(BATCH_BYTES),
        }
    }

    /// Largest number of writers.
    pub const fn writers(&self) -> u32 {
        self.nodes * self.writers_per_node - 1
    }

    /// The node of a writer: nodes are filled in order.
    pub const fn node_of(&self, writer: u32) -> u32 {
        (writer + 1) / self.writers_per_node
    }
}

/// One parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the program.
    pub name: &'static str,
    /// Bytes of a checkpoint, all writers together.
    pub bytes: u64,
    /// Number of writers.
    pub writers: u32,
}

/// Programs that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name of the workload.
    pub name: &'static str,
    /// The programs, in the order in which they get nodes.
    pub programs: Vec<Program>,
    /// Checkpoints of each program.
    pub checkpoints: u32,
    /// Seconds from one checkpoint's beginning to the next one's; with `from_end`, from its end.
    pub interval_s: f64,
    /// True if the interval begins when a checkpoint is complete.
    pub from_end: bool,
    /// Length in seconds of the interval in which programs start at random.
    pub starts_s: f64,
}

/// Size in gigabytes of a checkpoint of each program of figure 5.5.
const PROGRAMS: [(&str, u64); 15] = [
    ("NAMD", 10),
    ("Espresso++", 17),
    ("openfoam", 17),
    ("echam", 18),
    ("mpiblast", 33),
    ("gromacs", 34),
    ("eulag", 35),
    ("phylobayes", 39),
    ("nwchem", 42),
    ("CP2K", 43),
    ("LAMMPS", 52),
    ("ray", 75),
    ("bowtie", 94),
    ("QE", 99),
    ("pBWA", 132),
];

impl Workload {
    /// The five smallest programs.
    pub fn light() -> Workload {
        Workload::of("light", &[0, 1, 2, 3, 4])
    }

    /// The two smallest, the middle one, and the two largest.
    pub fn medium() -> Workload {
        Workload::of("medium", &[0, 1, 7, 13, 14])
    }

    /// The five largest programs.
    pub fn heavy() -> Workload {
        Workload::of("heavy", &[10, 11, 12, 13, 14])
    }

    /// One job on all nodes, whose writers checkpoint at the same time: as many bytes as the heavy workload's programs
    /// together.
    pub fn in_phase() -> Workload {
        let bytes = Workload::heavy().programs.iter().map(|program| program.bytes).sum();
        Workload { programs: vec![Program { name: "one job", bytes, writers: 320 }], ..Workload::of("in-phase", &[]) }
    }

    fn of(name: &'static str, programs: &[usize]) -> Workload {
        let program =
            |&at: &usize| Program { name: PROGRAMS[at].0, bytes: PROGRAMS[at].1 * 1_000_000_000, writers: 64 };
        Workload {
            name,
            programs: programs.iter().map(program).collect(),
            checkpoints: 6,
            interval_s: 600.0,
            from_end: false,
            starts_s: 600.0,
        }
    }

    /// Start time of each program: the same for every policy.
    pub fn starts(&self, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        self.programs.iter().map(|_| random.next_f64() * self.starts_s).collect()
    }
}
