#!/usr/bin/env python3
"""The tables of burst-cluster.md, from the journal of `make bench-burst-cluster` in target/results/burst-cluster.

`burst_cluster.py` renews the page; `burst_cluster.py NAME` prints a table. `BURST_CLUSTER=DIR` is another journal.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median

from face_tables import HERE, renew, table

JOURNAL = Path(os.environ.get("BURST_CLUSTER", HERE.parents[1] / "target" / "results" / "burst-cluster"))
POLICIES = ["ldbb", "cdbb", "chunked"]
SEEDS = {"medium": range(5), "heavy": range(2)}


def read(name):
    with open(JOURNAL / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)


def wanted():
    return [(workload, seed, policy) for workload, seeds in SEEDS.items() for seed in seeds for policy in POLICIES]


def runs():
    """Runs of the journal that are not void."""
    found = []
    for workload, seed, policy in wanted():
        path = JOURNAL / f"{workload}-seed{seed}-{policy}.json"
        if path.exists():
            found.append(read(path.stem))
    if not found:
        raise FileNotFoundError(2, "no run", str(JOURNAL))
    return [run for run in found if not run["is_void"]]


def times(of, which):
    return [checkpoint[which] for run in of for checkpoint in run["checkpoints"]]


def ratios(of, which):
    return [checkpoint["live_s"] / checkpoint[which] for run in of for checkpoint in run["checkpoints"]]


def grouped():
    for workload in SEEDS:
        for policy in POLICIES:
            of = [run for run in runs() if run["workload"] == workload and run["policy"] == policy]
            if of:
                yield workload, policy, of


def checkpoint_times():
    """Medians of the time of a checkpoint, and of the ratios checkpoint by checkpoint."""
    lines = []
    for workload, policy, of in grouped():
        ratio = median(ratios(of, "simulated_s"))
        lines.append([
            f"{workload}, {policy}",
            len(of),
            len(times(of, "live_s")),
            f"{median(times(of, 'live_s')):.3f}",
            f"{median(times(of, 'simulated_s')):.3f}",
            f"{ratio:.2f} {'met' if abs(ratio - 1) <= 0.15 else 'missed'}",
            f"{median(ratios(of, 'simulated_as_live_s')):.2f}",
        ])
    head = ["", "runs", "checkpoints", "emulated, s", "simulated, s", "ratio of a checkpoint (0.85 to 1.15)", "to the model of the live code"]
    return table(head, lines)


def order():
    """The sum of all checkpoints of a run, by policy."""
    lines = []
    for workload, seeds in SEEDS.items():
        for seed in seeds:
            of = {run["policy"]: run for run in runs() if run["workload"] == workload and run["seed"] == seed}
            if len(of) < len(POLICIES):
                continue
            totals = {which: [sum(times([of[policy]], which)) for policy in POLICIES] for which in ("live_s", "simulated_s", "simulated_as_live_s")}
            ranked = {which: sorted(POLICIES, key=lambda policy, own=own: own[POLICIES.index(policy)]) for which, own in totals.items()}
            cells = [" / ".join(f"{total:.2f}" for total in own) for own in totals.values()]
            same = "same" if ranked["live_s"] == ranked["simulated_s"] else "other"
            lines.append([f"{workload}, seed {seed}", *cells, f"{same}: {', '.join(ranked['live_s'])}"])
    return table(["sums of a run's checkpoints, s: " + " / ".join(POLICIES), "emulated", "simulated", "model of the live code", "order"], lines)


def by_program(groups):
    lines = []
    for title, of in groups:
        names = list(dict.fromkeys(checkpoint["program"] for run in of for checkpoint in run["checkpoints"]))
        for name in names:
            own = [checkpoint for run in of for checkpoint in run["checkpoints"] if checkpoint["program"] == name]
            middle = {which: median(checkpoint[which] for checkpoint in own) for which in ("live_s", "simulated_s", "simulated_as_live_s")}
            ratio = median(checkpoint["live_s"] / checkpoint["simulated_s"] for checkpoint in own)
            live = median(checkpoint["live_s"] / checkpoint["simulated_as_live_s"] for checkpoint in own)
            lines.append([f"{title}, {name}", *[f"{time:.3f}" for time in middle.values()], f"{ratio:.2f}", f"{live:.2f}"])
    return table(["median of a checkpoint, s", "emulated", "simulated", "model of the live code", "ratio", "ratio to that model"], lines)


def programs():
    return by_program((f"{workload}, {policy}", of) for workload, policy, of in grouped())


def voids():
    """Runs with too many late transfers, which do not count."""
    found = [(path.stem, read(path.stem)) for path in sorted(JOURNAL.glob("*.void*.json"))]
    found += [(path.stem, run) for path in sorted(JOURNAL.glob("*-seed?-*.json")) if path.stem.count(".") == 0 and (run := read(path.stem))["is_void"]]
    if not found:
        raise FileNotFoundError(2, "no void run", str(JOURNAL))
    lines = []
    for name, run in found:
        total = [sum(times([run], which)) for which in ("live_s", "simulated_s", "simulated_as_live_s")]
        middle = [median(ratios([run], which)) for which in ("simulated_s", "simulated_as_live_s")]
        load = f"{run['load_before'].split()[0]} to {run['load_after'].split()[0]}"
        cells = [f"{100 * run['late_share']:.2f} %", load, len(run["failures"])]
        lines.append([f"{name}, {run['date']}", *cells, *[f"{value:.2f}" for value in total + middle]])
    head = ["void run", "late", "load", "failed attempts", "emulated, s", "simulated, s", "model of the live code, s", "ratio of a checkpoint", "to that model"]
    return table(head, lines) + "\n\n" + by_program((name, [run]) for name, run in found)


def lateness():
    lines = []
    for workload, policy, of in grouped():
        for kind in range(len(of[0]["lateness"])):
            own = [run["lateness"][kind] for run in of]
            count = sum(one["transfers"] for one in own)
            if count == 0:
                continue
            late = sum(one["late"] for one in own)
            took = median(one["over_allowed"] for one in own if one["over_allowed"] is not None)
            lines.append([f"{workload}, {policy}: {own[0]['kind']}", count, late, f"{100 * late / count:.2f} %", f"{took:.2f}"])
        shares = ", ".join(f"{100 * run['late_share']:.2f} %" for run in of)
        lines.append([f"{workload}, {policy}: all, run by run", sum(one["transfers"] for run in of for one in run["lateness"]), "", shares, ""])
    return table(["transfers of", "number", "late", "share", "taken over allowed, median"], lines)


def links():
    """Bytes over all links of a run: counted by the interfaces, sent by the programs, simulated."""
    lines = []
    for workload, policy, of in grouped():
        for way, title in (("out", "out of the nodes"), ("into", "into the nodes"), ("copied", "over their loopbacks")):
            sums = [sum(link[by][way] for run in of for link in run["links"]) / 1e6 / len(of) for by in ("counted", "sent", "simulated")]
            pairs = [(link["sent"][way], link["simulated"][way]) for run in of for link in run["links"] if link["simulated"][way]]
            worst = max((abs(sent / simulated - 1) for sent, simulated in pairs), default=0)
            lines.append([f"{workload}, {policy}: {title}", *[f"{value:.1f}" for value in sums], f"{100 * worst:.1f} %"])
        sums = [sum(run["pfs"][by] for run in of) / 1e6 / len(of) for by in ("counted", "sent", "simulated")]
        lines.append([f"{workload}, {policy}: into the PFS", *[f"{value:.1f}" for value in sums], ""])
    head = ["MB a run", "counted by the interfaces", "sent", "simulated", "largest difference of a node, sent to simulated"]
    return table(head, lines)


def every_link(workload="medium", seed=0):
    """Every node's link in one run of each policy."""
    of = [read(f"{workload}-seed{seed}-{policy}") for policy in POLICIES]

    def cell(link, way):
        return " / ".join(f"{link[by][way] / 1e6:.1f}" for by in ("counted", "sent", "simulated"))

    lines = []
    for node in range(len(of[0]["links"])):
        lines.append([node, *[cell(run["links"][node], way) for run in of for way in ("out", "into")]])
    head = ["node"] + [f"{policy}, {way}" for policy in POLICIES for way in ("out", "in")]
    return table(head, lines)


def state():
    """Runs that are there, void or missing."""
    done = {(run["workload"], run["seed"], run["policy"]): run for run in runs()}
    lines = []
    for workload, seeds in SEEDS.items():
        for policy in POLICIES:
            has = [seed for seed in seeds if (workload, seed, policy) in done]
            of = [done[workload, seed, policy] for seed in has]
            void = len(list(JOURNAL.glob(f"{workload}-seed*-{policy}.void*.json")))
            void += sum(read(path.stem)["is_void"] for path in JOURNAL.glob(f"{workload}-seed?-{policy}.json"))
            lines.append([
                f"{workload}, {policy}",
                f"{len(has)} of {len(seeds)}",
                ", ".join(run["date"] for run in of) or "–",
                ", ".join(run["load_before"].split()[0] for run in of) or "–",
                void,
                sum(len(run["failures"]) for run in of),
                sum(run["dropped"] for run in of),
                f"{sum(run['compared_bytes'] for run in of) / 1e6:.0f}",
            ])
    head = ["", "runs", "when", "load before", "void", "failed attempts", "dropped frames", "MB compared on the PFS"]
    return table(head, lines)


def processors():
    lines = []
    for workload, policy, of in grouped():
        spent = [median(run[who] for run in of) for who in ("coordinator_processor_s", "nodes_processor_s", "writers_processor_s")]
        lines.append([f"{workload}, {policy}", *[f"{value:.1f}" for value in spent], f"{median(run['events'] for run in of):,.0f}"])
    return table(["processor time of a run, s", "coordinator", "46 nodes", "writers", "events at the coordinator"], lines)


def messages():
    of = [read(f"messages-{policy}") for policy in POLICIES]
    kinds = list(dict.fromkeys(one["kind"] for entry in of for one in entry["requests"]))
    lines = []
    for kind in kinds:
        cells = [next((f"{one['per_node']:.2f}" for one in entry["requests"] if one["kind"] == kind), "0") for entry in of]
        lines.append([f"`{kind}`", *cells])
    polls = ("Events, none", "Hello", "Report")
    sums = [sum(one["per_node"] for one in entry["requests"] if one["kind"] not in polls) for entry in of]
    lines.append(["requests without polls and joining (asked: <= 2)", *[f"{value:.2f}" for value in sums]])
    answers = [sum(one["per_node"] for one in entry["answers"]) for entry in of]
    requests = [sum(one["per_node"] for one in entry["requests"]) for entry in of]
    lines.append(["answers over requests", *[f"{one / other:.2f}" for one, other in zip(answers, requests)]])
    return table(["a node and checkpoint, means", *POLICIES], lines)


def coordinator():
    of = [read(f"messages-{policy}") for policy in POLICIES]
    rows = [
        ("processor time of the coordinator for a checkpoint, s (asked: <= 0.124)", "processor_s"),
        ("from the first opening to the last commit in its log, s (asked: <= 0.124)", "logged_s"),
        ("from the due time to the last acknowledgement at a writer, s", "checkpoint_s"),
        ("the longest of these, s", "longest_s"),
        ("processor time of the coordinator in an idle second, s", "idle_processor_s"),
    ]
    return table(["320 writers", *POLICIES], [[title, *[f"{entry[what]:.4f}" for entry in of]] for title, what in rows])


TABLES = {
    "state": state,
    "times": checkpoint_times,
    "order": order,
    "programs": programs,
    "void": voids,
    "lateness": lateness,
    "links": links,
    "every link": every_link,
    "processors": processors,
    "messages": messages,
    "coordinator": coordinator,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "burst-cluster.md", TABLES)
