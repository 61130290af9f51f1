#!/usr/bin/env python3
"""HeuristicDB on a recorded TPC-E-like load (000, figure 3.6): the tables of tpce.md.

1. PostgreSQL runs the load of lab/benches/loads/tpce twice with a small pool over an emulated device without a cache; what passes the pool is
   recorded, and the load is checked.
2. Policies are simulated on each recording, and on its reads alone, at the thesis's shares of the pages that it touches.

`tpce.py` makes what target/results/tpce lacks, with the program that ENTRESOL names (target/release/entresol, and entresol-lab beside it), and
renews the page; `tpce.py NAME` prints one table. Delete target/results/tpce to record anew: another recording has other requests, as it depends on
the machine's speed how many transactions two minutes have. TPCE_SCRATCH (/dev/shm) needs 2 GB. Eight minutes.
"""

import json
import os
import sys

from face_tables import HERE, entresol, label, made, percent, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "tpce"
SCRATCH = os.environ.get("TPCE_SCRATCH", "/dev/shm")
LOAD = ROOT / "lab" / "benches" / "loads" / "tpce"
# The weights of lab/benches/loads/README.md, in tenths of a percent.
MIX = {"broker_volume": 49, "customer_position": 130, "market_feed": 10, "market_watch": 180, "security_detail": 140, "trade_lookup": 80}
MIX |= {"trade_order": 101, "trade_result": 100, "trade_status": 190, "trade_update": 20}
MEMORY, CLIENTS, WARM_S, COUNTED_S = "16MiB", 4, 10, 120
SEEDS = (42, 43)
# Few wait for what the pool lacks.
RECORDED_ON = "p4800x"

SIZES = ["11%", "22%", "33%", "44%", "67%"]
POLICIES = ["heuristicdb", "lru", "lfu", "lfu:counts=all", "mq", "tac", "tac:age=100%", "tac:age=10000%"]


def recorded(seed):
    """The requests that passed the pool."""
    scripts = ",".join(f"{LOAD / name}.sql@{weight}" for name, weight in MIX.items())
    return made(OUT / f"{seed}.etr", lambda part: entresol(
        "bench", "pgbench", "--db", "postgresql", "--init", LOAD / "init.sql", "--script", scripts, "--check", LOAD / "check.sql",
        "--memory", MEMORY, "--clients", CLIENTS, "--seed", seed, "--warmup", f"{WARM_S}s", "--duration", f"{COUNTED_S}s", "--policy", "none",
        "--backing-profile", RECORDED_ON, "--scratch", SCRATCH, "--record", part, "--json", OUT / f"{seed}.run.json",
    ))


def run(seed):
    recorded(seed)
    return json.loads((OUT / f"{seed}.run.json").read_text())


def reads_alone(seed):
    """The recording without its writes."""
    def make(part):
        text = made(OUT / f"{seed}.csv", lambda path: entresol("trace", "convert", recorded(seed), path))
        with text.open() as lines, part.open("w") as left:
            left.writelines(line for line in lines if line.split(",")[1] not in ("W", "U"))

    return made(OUT / f"{seed}-reads.csv", make)


def simulated(seed, reads=False):
    trace, words = (reads_alone(seed), ["--page-size", 8192]) if reads else (recorded(seed), [])
    path = made(OUT / (f"{seed}-reads.json" if reads else f"{seed}.json"), lambda part: entresol(
        "simulate", trace, *words, "--policy", ",".join(POLICIES), "--size", ",".join(SIZES), "--json", part,
    ))
    return json.loads(path.read_text())


def by_size(results, figure):
    found = {(label(row), row["size"]): row for row in results}
    lines = [[policy, *(figure(found, policy, size) for size in SIZES)] for policy in POLICIES]
    return table(["policy", *SIZES], lines)


def hits(results, *kinds):
    """Hits of the kinds of requests, in percent of them."""
    def figure(found, policy, size):
        row = found[policy, size]
        return percent(sum(row[f"{kind}_hits"] for kind in kinds), sum(row[f"{kind}s"] for kind in kinds))

    return by_size(results, figure)


def moved(row):
    """The thesis's measure: pages fetched into the cache, and written back from it or, where both are written at once, through it."""
    return sum(tier["fetched"] for tier in row["tiers"]) + row["write_backs"]


def migrated(results):
    """Thousands of pages, and how many times HeuristicDB's."""
    def figure(found, policy, size):
        pages, least = moved(found[policy, size]), moved(found["heuristicdb", size])
        return f"{pages / 1000:.1f} ({pages / least:.1f}x)" if least else f"{pages / 1000:.1f}"

    return by_size(results, figure)


def about(seed):
    of_run, found = run(seed), simulated(seed)
    of, row = of_run["runs"][0], found["results"][0]
    pages = found["trace"]["footprint_pages"]
    return {
        "transactions, in two minutes": of["transactions"],
        "the same, a second": f"{of['transactions_per_second']:.0f}",
        "database, MiB": f"{of_run['database_bytes'] / 2**20:.0f}",
        "pages that PostgreSQL looked for in its pool": of["pool"]["asked"],
        "of these, not there, %": percent(of["pool"]["read"], of["pool"]["asked"]),
        "page requests in the recording": row["requests"],
        "of these, writes, %": percent(row["writes"], row["requests"]),
        "pages read for one written": f"{row['reads'] / row['writes']:.1f}",
        "page requests a transaction": f"{row['requests'] / of['transactions']:.1f}",
        "touched pages": pages,
        "the same, MiB": f"{pages * 8192 / 2**20:.0f}",
    }


def recordings():
    columns = [about(seed) for seed in SEEDS]
    return table(["", *(f"seed {seed}" for seed in SEEDS)], [[name, *(column[name] for column in columns)] for name in columns[0]])


TABLES = {"recordings": recordings}
for seed in SEEDS:
    TABLES[f"hits {seed}"] = lambda seed=seed: hits(simulated(seed)["results"], "read", "write")
    TABLES[f"read hits {seed}"] = lambda seed=seed: hits(simulated(seed)["results"], "read")
    TABLES[f"migrated {seed}"] = lambda seed=seed: migrated(simulated(seed)["results"])
    TABLES[f"reads alone {seed}"] = lambda seed=seed: hits(simulated(seed, reads=True)["results"], "read")
    TABLES[f"reads alone migrated {seed}"] = lambda seed=seed: migrated(simulated(seed, reads=True)["results"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "tpce.md", TABLES)
