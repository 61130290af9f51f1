#!/usr/bin/env python3
"""The tables of overhead.md, from what `make bench-overhead` writes to target/bench.

`overhead_tables.py` renews the page; `overhead_tables.py NAME` prints a table.
"""

import json
import sys
from statistics import median

from face_tables import HERE, renew, table

BENCH = HERE.parents[1] / "target" / "bench"
DATABASES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}


def read(database, name):
    whose = BENCH / "nobody" if name.startswith("pool") else BENCH
    with open(whose / f"overhead-{database}-{name}.json", encoding="utf-8") as file:
        return json.load(file)


def lines(told, load, title, unit):
    """A line for each place: its median rate, the processor time of an operation, and medians of the rounds' factors."""
    against = {one["on"]: one for one in told["against_first"] if one["load"] == load}
    for at, (place, factors) in enumerate(against.items()):
        passes = [one for run in told["runs"] if run["on"] == place for one in run["loads"] if one["load"] == load]
        rate = median(one["operations"] / one["seconds"] for one in passes)
        spent = median(sum(one["processor_s"].values()) / one["operations"] for one in passes)
        mount = median(one["processor_s"]["mount"] / one["operations"] for one in passes)
        factor, processor = [f"{factors[what]:.2f}" if at else "" for what in ("throughput", "processor")]
        rate = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.2f}"
        last = f"{mount * unit:.1f}" if place != "directory" else ""
        yield [title if not at else "", place, rate, factor, f"{spent * unit:.1f}", processor, last]


def costs(parts, unit, what, each):
    """`parts`: file, load and title of each group of lines."""

    def tell():
        rows = []
        for database, name in DATABASES.items():
            for file, load, title in parts:
                rows += lines(read(database, file), load, f"{name}{title}", unit)
        return table(["", "on", f"{what}/s", "factor", f"processor {each}", "factor", "of it the mount"], rows)

    return tell


def factors(load, last):
    """Throughput by the first place's, at each cutoff."""

    def tell():
        rows = []
        for name, title in DATABASES.items():
            by_cutoff = []
            for cutoff in ("0", "4MiB"):
                against = [one for one in read(name, f"disks-{cutoff}")["against_first"] if one["load"] == load]
                by_cutoff.append(f"{against[-1]['throughput']:.2f}")
            rows.append([f"{title}, {last}", *by_cutoff])
        return rows

    return tell


def disks():
    rows = factors("cold-scan", "cold scan")() + factors("scan", "scan")()
    return table(["factor of throughput, by the mount without a cache", "no cutoff", "cutoff of 4 MiB"], sorted(rows))


POOL = [("pool", "reads", ", reads"), ("pool", "updates", ", updates"), ("pool-served", "updates", ", updates, `--passthrough off`")]
COLD = [("cold-0", "cold-scan", ", no cutoff"), ("cold-4MiB", "cold-scan", ", cutoff of 4 MiB")]
TABLES = {
    "pool": costs(POOL, 1e6, "operations", "us"),
    "cold": costs(COLD, 1e3, "scans", "ms"),
    "memory": costs([("scan", "scan", "")], 1e3, "scans", "ms"),
    "disks": disks,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "overhead.md", TABLES)
