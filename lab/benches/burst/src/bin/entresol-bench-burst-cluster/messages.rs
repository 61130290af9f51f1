//! Check 8: the messages of a checkpoint of 320 writers, and the coordinator's own time. The network has no buckets, and an object has
//! a few bytes, so that little but messages is left.

use crate::cluster::Cluster;
use crate::meter::Message;
use crate::result::read;
use crate::role::Planned;
use crate::run::date;
use anyhow::{Context, Result};
use entresol_bench_common::{load_average, median};
use entresol_burst::simulate::Cluster as Model;
use entresol_burst::{LEASE_NS, Policy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Checkpoints, and the seconds between two of them.
const CHECKPOINTS: u32 = 6;
const INTERVAL_S: f64 = 4.0;
/// Bytes of one rank's object.
const OBJECT_BYTES: u64 = 4096;

/// Messages of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    pub kind: String,
    /// Mean over nodes and checkpoints.
    pub per_node: f64,
    /// Mean of the bytes of one.
    pub bytes: f64,
}

/// The journal's entry of one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub policy: String,
    pub date: String,
    pub load: String,
    pub checkpoints: u32,
    /// Requests to the coordinator over the whole run.
    pub requests: Vec<Counted>,
    /// Answers of the coordinator.
    pub answers: Vec<Counted>,
    /// Seconds from a checkpoint's due time to its last acknowledgement, without the meter: median over checkpoints, and the longest.
    pub checkpoint_s: f64,
    pub longest_s: f64,
    /// Seconds from the first opening that the coordinator has logged to the last commit, without the meter.
    pub logged_s: f64,
    /// Processor time of the coordinator for a checkpoint, without the meter, and without what it takes when no checkpoint is written.
    pub processor_s: f64,
    /// Processor time of the coordinator in a second without a checkpoint.
    pub idle_processor_s: f64,
}

struct Measured {
    /// Time from the start of the processes to their end.
    elapsed_s: f64,
    processor_s: f64,
    checkpoint_s: Vec<f64>,
    logged_s: Vec<f64>,
}

/// Runs checkpoints of 320 writers.
fn checkpoints(policy: Policy, checkpoints: u32, is_metered: bool, scratch: &Path) -> Result<Measured> {
    std::fs::create_dir(scratch)?;
    let model = Model::thesis(1.0);
    let model = Model { buffer_bytes: model.buffer_bytes / crate::setup::SIZES, ..model };
    let mut plans = vec![Vec::new(); model.nodes as usize];
    let ranks = model.writers() - 1;
    for rank in 0..ranks {
        let at_s = (0..CHECKPOINTS).map(|number| f64::from(number) * INTERVAL_S + 1.0);
        // A plan without checkpoints has the writers' processes run as long, and is the measure of the coordinator when idle.
        let at_s = at_s.take(checkpoints as usize).collect();
        plans[model.node_of(rank) as usize].push(Planned { job: 0, rank, ranks, bytes: OBJECT_BYTES, at_s });
    }
    let cluster =
        Cluster { model: &model, policy: policy.to_string(), lease_ns: LEASE_NS, is_paced: false, is_metered, scratch };
    let begin = std::time::Instant::now();
    let whole_s = f64::from(CHECKPOINTS) * INTERVAL_S;
    let is_drained = |pfs: &Path| {
        let all = (0..checkpoints).all(|number| pfs.join(format!("job-0/checkpoint-{number}/manifest.json")).exists());
        all && (checkpoints > 0 || begin.elapsed().as_secs_f64() > whole_s)
    };
    let outcome = cluster.run(&plans, is_drained)?;
    let puts: Vec<_> = outcome.writers.into_iter().flat_map(|results| results.puts).collect();
    let mut checkpoint_s = Vec::new();
    for number in 0..u64::from(checkpoints) {
        let due_ns = outcome.begin_ns + ((number as f64 * INTERVAL_S + 1.0) * 1e9) as u64;
        let ends = puts.iter().filter(|put| put.checkpoint == number).map(|put| put.end_ns);
        checkpoint_s.push(ends.max().context("an object")?.saturating_sub(due_ns) as f64 / 1e9);
    }
    let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for line in std::fs::read_to_string(cluster.grant_log())?.lines().skip(1) {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let event = &line["applied"]["Event"];
        let number = ["Open", "Commit"].iter().find_map(|kind| event[kind]["object"]["checkpoint"].as_u64());
        let (Some(number), Some(at_ns)) = (number, line["now_ns"].as_u64()) else { continue };
        spans.entry(number).or_insert((at_ns, at_ns)).1 = at_ns;
    }
    let logged_s = spans.values().map(|(first, last)| (last - first) as f64 / 1e9).collect();
    let elapsed_s = begin.elapsed().as_secs_f64();
    Ok(Measured { elapsed_s, processor_s: outcome.coordinator.processor_s, checkpoint_s, logged_s })
}

/// Messages to or from nodes and their writers by kind. Polls without an event are a kind of their own.
fn count(messages: &[Message], nodes: u32, is_answer: bool) -> Vec<Counted> {
    let mut kinds: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for message in messages.iter().filter(|message| message.node.is_some() && message.is_answer == is_answer) {
        let kind = kinds.entry(&message.kind).or_default();
        *kind = (kind.0 + 1, kind.1 + message.bytes);
    }
    let counted = |(kind, (count, bytes)): (&str, (u64, u64))| Counted {
        kind: kind.to_owned(),
        per_node: count as f64 / f64::from(nodes) / f64::from(CHECKPOINTS),
        bytes: bytes as f64 / count as f64,
    };
    kinds.into_iter().map(counted).collect()
}

/// Measures one policy.
pub fn run(policy: Policy, scratch: &Path) -> Result<Entry> {
    let load = load_average();
    let idle = checkpoints(policy, 0, false, &scratch.join("idle"))?;
    let busy = checkpoints(policy, CHECKPOINTS, false, &scratch.join("busy"))?;
    let metered = scratch.join("metered");
    checkpoints(policy, CHECKPOINTS, true, &metered)?;
    let messages: Vec<Message> = read(&metered.join("messages.json"))?;
    let nodes = Model::thesis(1.0).nodes;
    let idle_processor_s = idle.processor_s / idle.elapsed_s;
    Ok(Entry {
        policy: policy.kind.name().to_owned(),
        date: date(),
        load,
        checkpoints: CHECKPOINTS,
        requests: count(&messages, nodes, false),
        answers: count(&messages, nodes, true),
        checkpoint_s: median(&busy.checkpoint_s),
        longest_s: busy.checkpoint_s.iter().copied().fold(0.0, f64::max),
        logged_s: median(&busy.logged_s),
        processor_s: (busy.processor_s - idle_processor_s * busy.elapsed_s) / f64::from(CHECKPOINTS),
        idle_processor_s,
    })
}
