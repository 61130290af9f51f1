#!/usr/bin/env python3
"""The table of sequential-cutoff.md: policies on recorded traces with and without a sequential cutoff.

`cutoff_tables.py` simulates what target/results/cutoff lacks (two minutes of one core; ENTRESOL names another program) and renews
the page.
"""

import csv
import os
import subprocess

from face_tables import HERE, RESULTS, renew, table

RECORDED = HERE.parents[2] / "shared" / "data" / "traces" / "recorded"
FOUND = RESULTS / "cutoff"
TRACES = {
    "PostgreSQL, TPC-H": "pg_tpch_sf1_sb64m",
    "MariaDB, TPC-H": "my_tpch_sf1_bp64m",
    "PostgreSQL, TPC-C": "pg_tpcc_w20_sb32m",
    "MariaDB, TPC-C": "my_tpcc_w20_bp64m",
    "PostgreSQL, AuctionMark": "pg_auctionmark_sb16m_first1.2M",
    "a scan between requests": "generate:ZIPF:seed=3+scan:n=200k+ZIPF:seed=4",
}
# Pages in use in the order of their numbers' hashes, and one scan of all of them.
ZIPF = "zipf:n=1M:pages=200k:write=30:ids=scattered"
CUTOFFS = ["0", "1MiB", "4MiB"]
POLICIES = ["lru", "arc", "h-arc", "face-gsc", "reuse"]


def simulated(trace, cutoff):
    path = FOUND / f"{trace.replace(':', '_')}-{cutoff}.csv"
    if not path.exists():
        FOUND.mkdir(parents=True, exist_ok=True)
        program = os.environ.get("ENTRESOL", HERE.parents[1] / "target" / "release" / "entresol")
        source = trace.replace("ZIPF", ZIPF) if ":" in trace else RECORDED / f"{trace}.csv.zst"
        which = ["--policy", ",".join(POLICIES), "--size", "10%", "--sequential-cutoff", cutoff, "--csv", path]
        subprocess.run([program, "--quiet", "simulate", source, *which], check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        return {row["policy"]: row for row in csv.DictReader(file)}


def cutoffs():
    head = ["trace", "policy"] + [f"{what}, {cutoff}" for what in ("hits, %", "bypassed, %") for cutoff in CUTOFFS]
    lines = []
    for name, trace in TRACES.items():
        found = [simulated(trace, cutoff) for cutoff in CUTOFFS]
        for policy in POLICIES:
            rows = [one[policy] for one in found]
            hits = [f"{100 * float(row['hit_ratio']):.1f}" for row in rows]
            passed = [f"{100 * int(row['bypasses']) / int(row['requests']):.1f}" for row in rows]
            lines.append([name, policy] + hits + passed)
    return table(head, lines)


if __name__ == "__main__":
    renew(HERE / "sequential-cutoff.md", {"cutoffs": cutoffs})
