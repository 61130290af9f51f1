#!/usr/bin/env python3
"""The tables of memory.md: policies below memory of the cache's own.

`memory_tables.py` simulates what target/results/memory lacks (ENTRESOL names another program) and renews the page.
"""

from math import exp, log

from face_tables import HERE, RESULTS, pages_in, renew, simulated, table
from policy_choice_tables import STREAMS

LEFT_OUT = ["OLTP", "P3", "phases"]
MEMORY = ["1%", "5%"]
MODES = ["write-back", "write-through"]
# Policies of one tier below a pool, which pages enter when they leave it; a stack's pages enter at a miss.
BELOW = ["lru", "heuristicdb", "reuse"]
POLICIES = ["face-gsc", "lc", "tac", "lru", "arc", "h-arc", "heuristicdb", "reuse"]


def cells(stream, memory, mode):
    """Rows by policy."""
    name = f"{stream.replace(' ', '-').replace(',', '')}-{memory}-{mode}"
    options = ["--size", "10%", "--dram", memory, "--mode", mode, "--warmup", "0.25", "--policy", ",".join(POLICIES)]
    rows = simulated(RESULTS / "memory" / f"{name}.json", STREAMS[stream], *options)
    return {row["policy"].removeprefix("lru+"): row for row in rows}


def disk(row):
    """Pages read and written below by evictions. In write-through all policies write what users write."""
    return row["fetches"] + row["write_backs"] + row["write_bypasses"]


def flash(row):
    return pages_in(row["tiers"][1])


def streams():
    return [stream for stream in STREAMS if stream not in LEFT_OUT]


def stacked(stream, memory):
    """Rows by policy of an LRU layer above another layer."""
    name = f"{stream.replace(' ', '-').replace(',', '')}-{memory}-stack"
    options = [word for policy in BELOW for word in ("--stack", f"lru:{memory},{policy}:10%")]
    rows = simulated(RESULTS / "memory" / f"{name}.json", STREAMS[stream], *options, "--warmup", "0.25")
    return {row["policy"].removeprefix("lru+"): row for row in rows}


def mean(of):
    return exp(sum(log(max(ratio, 1e-9)) for ratio in of) / len(of))


def exit_over_entry():
    lines, ratios = [], []
    for stream in streams():
        for memory in MEMORY:
            on_exit, on_entry = cells(stream, memory, "write-back"), stacked(stream, memory)
            pairs = [(figure(on_exit[policy]), max(figure(on_entry[policy]), 1)) for policy in BELOW for figure in (disk, flash)]
            ratios.append([one / other for one, other in pairs])
            lines.append([stream, memory] + [f"{ratio:.2f}" for ratio in ratios[-1]])
    lines.append(["**geometric mean**", ""] + [f"**{mean(column):.2f}**" for column in zip(*ratios)])
    return table(["stream", "memory"] + [f"{policy}, {of}" for policy in BELOW for of in ("below", "cache")], lines)


def compared(mode, figure):
    lines, ratios = [], {policy: [] for policy in POLICIES[1:]}
    for stream in streams():
        for memory in MEMORY:
            rows = cells(stream, memory, mode)
            line = [stream, memory]
            for policy in POLICIES[1:]:
                ratio = figure(rows[policy]) / max(figure(rows["face-gsc"]), 1)
                ratios[policy].append(ratio)
                line.append(f"{ratio:.2f}")
            lines.append(line)
    lines.append(["**geometric mean**", ""] + [f"**{mean(of):.2f}**" for of in ratios.values()])
    return table(["stream", "memory"] + POLICIES[1:], lines)


if __name__ == "__main__":
    renew(
        HERE / "memory.md",
        {
            "exit over entry": exit_over_entry,
            "disk, write-back": lambda: compared("write-back", disk),
            "flash, write-back": lambda: compared("write-back", flash),
            "disk, write-through": lambda: compared("write-through", disk),
            "flash, write-through": lambda: compared("write-through", flash),
        },
    )
