//! Readings of chapter 5 (004) that its text allows. Each changes one property of the model, and only the rate of the
//! PFS is fitted again.

use super::figures::{Fit, Published, fit};
use super::model::{Cluster, StreamOf, Workload};
use super::run::run;
use crate::policy::{DrainPriority, Kind, Policy, Remote, Splitting};

/// Bytes of 4 GiB over those of 4 GB.
const GIB_OVER_GB: f64 = (1u64 << 30) as f64 / 1e9;
/// The testbed's figure for the links between nodes (section 5.4.2), in bytes per second.
const TESTBED_LINK: f64 = 3.0e9;

/// Everything that a reading may change.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cluster; its PFS rate is the initial value of the fit.
    pub cluster: Cluster,
    /// The programs.
    pub workload: Workload,
    /// Policy of the local buffer alone.
    pub ldbb: Policy,
    /// Policy of the coordinated buffers.
    pub cdbb: Policy,
    /// True if the two systems run with start times of their own. The ratios are then those of all pairs of different
    /// seeds.
    pub own_starts: bool,
}

/// One reading.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// A short name.
    pub name: &'static str,
    /// The words of the thesis, or its silence, that allow it.
    pub ground: &'static str,
    change: fn(&mut Setup),
}

fn whole(setup: &mut Setup) {
    setup.ldbb.object = Splitting::Whole;
    setup.cdbb.object = Splitting::Whole;
}

fn buffer_gib(setup: &mut Setup) {
    setup.cluster.buffer_bytes = 4 << 30;
}

fn objects_gib(setup: &mut Setup) {
    for program in &mut setup.workload.programs {
        program.bytes = (program.bytes as f64 * GIB_OVER_GB) as u64;
    }
}

fn drain_low(setup: &mut Setup) {
    setup.ldbb.drain = DrainPriority::Low;
    setup.cdbb.drain = DrainPriority::Low;
}

impl Reading {
    /// All readings, the model's own first.
    pub const ALL: [Reading; 20] = [
        Reading {
            name: "as the model is",
            ground: "objects split, 4.0 GB, links of 1.83 GB/s, fair drains",
            change: |_| {},
        },
        Reading { name: "object=whole", ground: "5.3.2: a buffer is chosen if it 'has enough space'", change: whole },
        Reading { name: "buffers of 4 GiB", ground: "5.4.2: '4 GB of memory'", change: buffer_gib },
        Reading {
            name: "object=whole, buffers of 4 GiB",
            ground: "5.3.2 and 5.4.2 together",
            change: |setup| {
                whole(setup);
                buffer_gib(setup);
            },
        },
        Reading {
            name: "buffers and checkpoints in GiB",
            ground: "5.4.2 and figure 5.5: one meaning of GB",
            change: |setup| {
                buffer_gib(setup);
                objects_gib(setup);
            },
        },
        Reading {
            name: "links 3 GB/s, a stream 1.83",
            ground: "5.4.2: 'can achieve 3 GB/s'; 5.1: 'write throughput to peer compute nodes'",
            change: |setup| {
                setup.cluster.link = TESTBED_LINK;
                setup.cluster.peer_stream = Cluster::thesis(1.0).link;
            },
        },
        Reading {
            name: "links 3 GB/s, a buffer's intake 1.83",
            ground: "5.4.1: one producer thread a buffer",
            change: |setup| {
                setup.cluster.link = TESTBED_LINK;
                setup.cluster.intake = Cluster::thesis(1.0).link;
            },
        },
        Reading {
            name: "remote buffers of other programs' nodes",
            ground: "5.1: 'in nodes running other applications'",
            change: |setup| setup.cdbb.remote = Remote::Others,
        },
        Reading {
            name: "batches of 16 MiB",
            ground: "5.3.3: 'one batch', of no given size",
            change: |setup| setup.cluster.batch_bytes = Some(16 << 20),
        },
        Reading {
            name: "batches of 256 MiB",
            ground: "5.3.3: 'one batch', of no given size",
            change: |setup| setup.cluster.batch_bytes = Some(256 << 20),
        },
        Reading {
            name: "local copies 1.83 GB/s",
            ground: "no local rate is given; the buffer's process takes in both by MPI",
            change: |setup| setup.cluster.copy = Cluster::thesis(1.0).link,
        },
        Reading {
            name: "0.52 GB/s to the PFS a node",
            ground: "5.1: 'write throughput to the PFS', of a stream or of a node",
            change: |setup| setup.cluster.stream_of = StreamOf::Node,
        },
        Reading {
            name: "the PFS on links of its own",
            ground: "5.4.2 does not say how the nodes reach it",
            change: |setup| setup.cluster.pfs_apart = true,
        },
        Reading {
            name: "drains in the background",
            ground: "5.3.1: 'drain their buffered data to the PFS in the background'",
            change: drain_low,
        },
        Reading {
            name: "space back by whole pieces",
            ground: "5.3.3 names batches and no size; this was the model before",
            change: |setup| setup.cluster.batch_bytes = None,
        },
        Reading {
            name: "the largest program first",
            ground: "5.4.3 does not say which nodes a program has",
            change: |setup| setup.workload.programs.reverse(),
        },
        Reading {
            name: "ten minutes from a checkpoint's end",
            ground: "5.2.2: 'after one checkpointing operation is done, the computation resumes'",
            change: |setup| setup.workload.from_end = true,
        },
        Reading {
            name: "five checkpoints",
            ground: "5.4.3: 'runs for one hour', none at its end",
            change: |setup| setup.workload.checkpoints = 5,
        },
        Reading {
            name: "starts of its own for each system",
            ground: "5.4.3: 'started randomly'; that both had the same starts is not said",
            change: |setup| setup.own_starts = true,
        },
        Reading {
            name: "the last, and drains in the background",
            ground: "5.4.3 and 5.3.1 together",
            change: |setup| {
                drain_low(setup);
                setup.own_starts = true;
            },
        },
    ];

    /// The model under this reading.
    pub fn setup(&self, cluster: Cluster, workload: Workload) -> Setup {
        let [ldbb, cdbb] = [Kind::Ldbb, Kind::Cdbb].map(Policy::new);
        let mut setup = Setup { cluster, workload, ldbb, cdbb, own_starts: false };
        (self.change)(&mut setup);
        setup
    }
}

/// Results of a reading beside the published numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// The fit, which also holds QE and pBWA under `ldbb` over the published times.
    pub fit: Fit,
    /// Ratio of `ldbb` to `cdbb`, over all checkpoints together.
    pub ratios: Vec<f64>,
}

/// Fits the rate of the PFS under a reading and compares the two systems. `map` is as for [`fit`].
pub fn sensitivity(
    setup: &Setup,
    published: &Published,
    map: impl Fn(&(dyn Fn(u64) -> (f64, f64) + Sync)) -> Vec<(f64, f64)>,
) -> Sensitivity {
    let Setup { cluster, workload, ldbb, cdbb, .. } = setup;
    let fit = fit(cluster, workload, *ldbb, published, &map);
    let cluster = Cluster { pfs: fit.pfs, ..*cluster };
    let totals = map(&|seed| {
        let total_s = |policy| run(&cluster, workload, policy, seed).total_s();
        (total_s(*ldbb), total_s(*cdbb))
    });
    let pairs = (0..totals.len()).flat_map(|a| (0..totals.len()).map(move |b| (a, b)));
    let compared = pairs.filter(|(a, b)| (a == b) != setup.own_starts);
    Sensitivity { fit, ratios: compared.map(|(a, b)| totals[a].0 / totals[b].1).collect() }
}

impl Sensitivity {
    /// True for each demand of the issue that a reading meets: both times within a tenth, the published ratio among the
    /// simulated ones, and the median within a quarter.
    pub fn meets(&self, published: &Published) -> [bool; 3] {
        let quantile = |share| super::quantile(self.ratios.iter().copied(), share);
        [
            [self.fit.qe, self.fit.pbwa].iter().all(|ratio| (0.9..=1.1).contains(ratio)),
            (quantile(0.0)..=quantile(1.0)).contains(&published.ratio),
            (quantile(0.5) / published.ratio - 1.0).abs() <= 0.25,
        ]
    }
}
