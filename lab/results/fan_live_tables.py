#!/usr/bin/env python3
"""Writes the tables of io-cache-hibachi-live.md from target/results, which `make bench-fan-live` fills."""

import json

from face_tables import HERE, RESULTS, renew, table

TRACES = ["pg-tpcc", "my-tpcc", "filebench", "postmark", "iozone"]


def results(kind, trace):
    return json.loads((RESULTS / f"live-{kind}-{trace}.json").read_text())["results"]


def order(found, side):
    """Policies from the least device time on; those within 1 % of the one before are equal to it."""
    ranked = sorted(found, key=lambda row: row["below_device"]["seconds"][side])
    text = ranked[0]["policy"]
    for before, row in zip(ranked, ranked[1:]):
        one, two = (other["below_device"]["seconds"][side] for other in (before, row))
        text += f"{' = ' if two <= 1.01 * one else ' < '}{row['policy']}"
    return text


def runs(kind):
    """Of each trace and policy what the device below did, simulated and live."""
    lines = []
    for trace in TRACES:
        for row in results(kind, trace):
            counts = row["simulated_and_live"].values()
            below = row["below_device"]
            seconds, reads, writes = below["seconds"], below["reads"], below["writes"]
            line = [trace, row["policy"], "yes" if all(one == two for one, two in counts) else "no"]
            line += [f"{value:,.0f}" for value in seconds] + [f"{seconds[1] / seconds[0]:.2f}"]
            line += [f"{value / 1e3:,.1f}" for value in (*reads, *writes)]
            line += [f"{value / 1024:.1f}" for value in below["mean_write_bytes"]]
            lines.append(line)
    head = ["trace", "policy", "counts equal", "s simulated", "s live", "live / simulated", "thousand reads simulated", "live"]
    return table(head + ["thousand writes simulated", "live", "KiB a write simulated", "live"], lines)


def orders(kind):
    """The order of the policies by the device's time."""
    return table(["trace", "simulated", "live"], [[trace] + [order(results(kind, trace), side) for side in (0, 1)] for trace in TRACES])


TABLES = {
    "array": lambda: runs("array"),
    "array, order": lambda: orders("array"),
    "disk": lambda: runs("disk"),
    "disk, order": lambda: orders("disk"),
}

if __name__ == "__main__":
    renew(HERE / "io-cache-hibachi-live.md", TABLES)
