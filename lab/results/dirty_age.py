#!/usr/bin/env python3
"""The tables of dirty-age.md: what a bound on the age of dirty pages costs under a TPC-C-like load on PostgreSQL.

`dirty_age.py` runs the rounds that target/results/dirty-age lacks, with the program that ENTRESOL names (target/release/entresol, and entresol-lab beside it),
and renews the page; `dirty_age.py tables` only renews it. A round goes once through all bounds, each on a fresh copy of the database.
Delete target/results/dirty-age to measure anew. A run that was stopped goes on with the round it was in. DIRTY_AGE_SCRATCH (/dev/shm,
2 GB) is where the databases lie.
"""

import json
import os
import statistics
import subprocess
import sys

from face_tables import ENTRESOL, HERE, RESULTS, renew, table

OUT = RESULTS / "dirty-age"
SCRATCH = os.environ.get("DIRTY_AGE_SCRATCH", "/dev/shm")
ROUNDS = 5
LOAD = ["--db", "postgresql", "--warehouses", 1, "--clients", 8, "--memory", "16MiB", "--policy", "face-gsc", "--cache-size", "30%"]
ARRAY = ["--backing-profile", "face-raid0x16", "--cache-profile", "840-pro", "--waf", "curve"]
DISK = ["--backing-profile", "face-disk", "--cache-profile", "840-pro", "--waf", "curve"]
# Bounds have acted once at the least when counting begins.
SHORT = ["--dirty-age", "none,10s", "--warmup", "12s", "--duration", "20s"]
LONG = ["--dirty-age", "none,30s,10s", "--warmup", "32s", "--duration", "30s"]
GROUNDS = {
    "machine": ("files of this machine", SHORT),
    "array": ("an array of 16 disks, emulated, below an SSD", LONG + ARRAY),
    "disk": ("one disk, emulated, below an SSD", SHORT + DISK),
}


def path(ground, round):
    return OUT / f"{ground}.{round}.json"


def measure():
    OUT.mkdir(parents=True, exist_ok=True)
    for round in range(1, ROUNDS + 1):
        for ground, (_, words) in GROUNDS.items():
            done = path(ground, round)
            if done.exists():
                continue
            part = done.with_suffix(".part")
            command = [f"{ENTRESOL}-lab", "-q", "bench", "tpcc", *LOAD, *words, "--seed", 41 + round, "--scratch", SCRATCH, "--json", part]
            subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
            part.rename(done)


def rounds(ground):
    found = [path(ground, round) for round in range(1, ROUNDS + 1)]
    return [json.loads(one.read_text()) for one in found if one.exists() or one is found[0]]


def figures(run, page_bytes):
    pages, commits = run["pages"], run["transactions_per_second"] * run["looked_s"]
    writes = pages["below_pages"]
    return {
        "rate": run["transactions_per_second"],
        "written": writes * page_bytes / run["looked_s"] / 2**20,
        "each": writes / commits,
        "ios": pages["below_writes"] / run["looked_s"],
        "syncs": pages["below_syncs"] / run["looked_s"],
        "aged": 100 * pages["aged_pages"] / max(1, writes),
        "dirty": pages["dirty_pages"] * page_bytes / 2**20,
        "waits": pages["aged_waits"],
        "processor": 1e6 * run["mounting_s"] / commits,
    }


def tell(ground):
    def lines():
        found, of = rounds(ground), {}
        for round in found:
            for run in round["runs"]:
                of.setdefault(run["cache"], []).append(figures(run, round["page_bytes"]))
        first = next(iter(of.values()))
        rows = []
        for name, runs in of.items():
            middle = lambda what: statistics.median(run[what] for run in runs)
            against = [run["rate"] / other["rate"] for run, other in zip(runs, first)]
            spread = "" if runs is first else f"{statistics.median(against):.2f} ({min(against):.2f} to {max(against):.2f})"
            rows.append([
                name.rpartition("age ")[2], len(runs), f"{middle('rate'):.0f}", spread, f"{middle('written'):.2f}", f"{middle('each'):.2f}",
                f"{middle('ios'):.0f}", f"{middle('syncs'):.1f}", f"{middle('aged'):.0f}", f"{middle('dirty'):.0f}",
                f"{sum(run['waits'] for run in runs)}", f"{middle('processor'):.0f}",
            ])
        head = ["bound", "rounds", "transactions/s", "against none", "MiB/s below", "pages below each", "writes/s", "syncs/s", "for age, %"]
        return table(head + ["dirty MiB", "waits", "us of the mount's processor each"], rows)

    return lines


if __name__ == "__main__":
    if sys.argv[1:] != ["tables"]:
        measure()
    renew(HERE / "dirty-age.md", {ground: tell(ground) for ground in GROUNDS})
