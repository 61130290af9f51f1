#!/usr/bin/env python3
"""Tuners over seeds beside a grid of fixed settings: the tables `seeds`, `seeds recorded` and `epochs` of adaptive-migration.md.

`tuner_seeds.py` runs what target/results/tune lacks, with the program that ENTRESOL names (target/release/entresol), and
renews the page; `tuner_seeds.py NAME` prints a table. The policies of the grid draw at random only where a probability is
neither 0 nor 1, so the grid is run with one seed. CH, Voter and AuctionMark are the recordings of figures_003.py, and made if
they are not there.
"""

import json
import statistics
import subprocess
import sys

from face_tables import ENTRESOL, HERE, renew, table
from figures_003 import ABOUT, trace

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "tune"
RECORDED = ROOT.parent / "shared" / "data" / "traces" / "recorded"

SEEDS = (1, 2, 3)
TRYING = ("annealing", "climb", "halving")
TUNERS = (*TRYING, "shadows")
TIERS = "dram=dram:1.2%,cache=optane-dimm:75.8%,backing=arulraj-ssd"
TPCC, TPCH = RECORDED / "pg_tpcc_w20_prebuf.csv.zst", RECORDED / "pg_tpch_sf0.1_prebuf.csv.zst"
# What is run, and the levels of each option in the grid.
RUNS = {
    "recorded TPC-C": ([TPCC, "--warmup", "10%"], 3),
    "recorded TPC-H": ([TPCH, "--warmup", "10%", "--epoch", "5000"], 3),
    "generated TPC-C": (["generate:tpcc:n=2M:warehouses=10:seed=9", "--page-size", "8192", "--warmup", "10%"], 2),
    "TPC-H, TPC-C, TPC-H": ([TPCH, TPCC, TPCH, "--limit", "1500k"], 2),
}
# As multi-tier-003.md has it: all that the server's pool is asked.
RECORDED_RUNS = {
    "recorded CH": (["ch", "--warmup", "10%"], 3),
    "CH, epochs of 5000": (["ch", "--warmup", "10%", "--epoch", "5000"], 3),
    "CH, TPC-C, CH": (["ch", TPCC, "ch", "--limit", "1500k"], 2),
    "recorded Voter": (["voter", "--warmup", "10%"], 2),
    "recorded AuctionMark": (["auctionmark", "--warmup", "10%"], 2),
    "all five in turn": ([TPCH, TPCC, "ch", "voter", "auctionmark", "--limit", "1500k"], 2),
}


# Requests of an epoch, and epochs not counted after a change.
EPOCHS = ((20000, 1), (20000, 3), (10000, 3), (50000, 1), (100000, 1))


def tune(name, seed, grid, tuners, more=()):
    which = "-".join(str(part) for part in (name.replace(", ", " "), seed, grid, *tuners, *more))
    path = OUT / f"{which.replace(' ', '-').replace('--', '')}.json"
    if not path.exists():
        given = [trace(word) if word in ABOUT else word for word in (RUNS | RECORDED_RUNS)[name][0]]
        words = ["-q", "tune", *given, *more, "--clients", 8, "--tiers", TIERS, "--seed", seed, "--grid", grid]
        part = path.with_suffix(".part")
        command = [ENTRESOL, *words, "--tuner", ",".join(tuners), "--json", part]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        part.rename(path)
    return json.loads(path.read_text())


def rate(run):
    return run["requests_per_second"]


def over(a, b):
    return f"{100 * (a / b - 1):+.1f}"


def seeds(runs):
    lines = []
    for name, (_, grid) in runs.items():
        fixed = tune(name, SEEDS[0], grid, TUNERS[:1])
        best, start = fixed["grid"][0], rate(fixed["start"])
        settings = " ".join(f"{value:g}" for value in best["values"])
        found = [tune(name, seed, 0, TUNERS) for seed in SEEDS]
        for tuner in TUNERS:
            runs = [rate(run) for each in found for run in each["tuners"] if run["tuner"] == tuner]
            middle = statistics.median(runs)
            cells = [over(middle, start), over(min(runs), start), over(max(runs), start), over(middle, rate(best))]
            lines.append([name, tuner] + cells + [f"{settings} of {len(fixed['grid'])}"])
    head = ["trace", "tuner", "over the start, %", "worst", "best", "over the best fixed, %", "which has D_r D_w N_r N_w"]
    return table(head, lines)


def epochs():
    """The recorded TPC-C with other epochs: throughput over the best fixed settings, all seeds."""
    name = "recorded TPC-C"
    best = rate(tune(name, SEEDS[0], RUNS[name][1], TUNERS[:1])["grid"][0])
    lines = []
    for epoch, settle in EPOCHS:
        more = () if (epoch, settle) == EPOCHS[0] else ("--epoch", epoch, "--settle", settle)
        found = [tune(name, seed, 0, TUNERS, more) for seed in SEEDS]
        of = lambda tuner: [run for each in found for run in each["tuners"] if run["tuner"] == tuner]
        cells = [", ".join(over(rate(run), best) for run in of(tuner)) for tuner in TUNERS]
        lines.append([epoch, settle] + cells)
    return table(["epoch", "settle"] + list(TUNERS), lines)


TABLES = {"seeds": lambda: seeds(RUNS), "seeds recorded": lambda: seeds(RECORDED_RUNS), "epochs": epochs}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    if not RECORDED.exists():
        sys.exit(f"the recorded traces are not in {RECORDED}: nothing to simulate")
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "adaptive-migration.md", TABLES)
