#!/usr/bin/env python3
"""HeuristicDB on a recorded TPC-E-like load (000, figure 3.6): the tables of tpce.md.

1. PostgreSQL runs the load of lab/benches/loads/tpce with a small pool over an emulated device without a cache; what passes the pool is
   recorded, and the load is checked.
2. Policies are simulated on the recording, and on its reads alone, at the thesis's shares of the pages that it touches.

`tpce.py` makes what target/results/tpce lacks, with the program that ENTRESOL names (target/release/entresol, and entresol-lab beside it), and
renews the page; `tpce.py NAME` prints one table. Delete target/results/tpce to record anew: another recording has other requests, as it depends on
the machine's speed how many transactions two minutes have. TPCE_SCRATCH (/dev/shm) needs 2 GB. Four minutes.
"""

import json
import os
import subprocess
import sys

from face_tables import ENTRESOL, HERE, label, percent, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "tpce"
SCRATCH = os.environ.get("TPCE_SCRATCH", "/dev/shm")
LOAD = ROOT / "lab" / "benches" / "loads" / "tpce"
# The weights of lab/benches/loads/README.md, in tenths of a percent.
MIX = {"broker_volume": 49, "customer_position": 130, "market_feed": 10, "market_watch": 180, "security_detail": 140, "trade_lookup": 80}
MIX |= {"trade_order": 101, "trade_result": 100, "trade_status": 190, "trade_update": 20}
MEMORY, CLIENTS, WARM_S, COUNTED_S = "16MiB", 4, 10, 120
# Few wait for what the pool lacks.
RECORDED_ON = "p4800x"

SIZES = ["11%", "22%", "33%", "44%", "67%"]
POLICIES = ["heuristicdb", "lru", "lfu", "lfu:counts=all", "mq", "tac", "tac:age=100%", "tac:age=10000%"]


def entresol(*words):
    program = f"{ENTRESOL}-lab" if words[0] == "bench" else ENTRESOL
    subprocess.run([str(word) for word in (program, "-q", *words)], check=True, stdout=subprocess.DEVNULL)


def made(path, make):
    """A file that is there, or else is made under another name first."""
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{path.name}")
        make(part)
        part.rename(path)
    return path


def recorded():
    """The requests that passed the pool."""
    scripts = ",".join(f"{LOAD / name}.sql@{weight}" for name, weight in MIX.items())
    return made(OUT / "all.etr", lambda part: entresol(
        "bench", "pgbench", "--db", "postgresql", "--init", LOAD / "init.sql", "--script", scripts, "--check", LOAD / "check.sql",
        "--memory", MEMORY, "--clients", CLIENTS, "--warmup", f"{WARM_S}s", "--duration", f"{COUNTED_S}s", "--policy", "none",
        "--backing-profile", RECORDED_ON, "--scratch", SCRATCH, "--record", part, "--json", OUT / "run.json",
    ))


def run():
    recorded()
    return json.loads((OUT / "run.json").read_text())


def reads_alone():
    """The recording without its writes."""
    def make(part):
        text = made(OUT / "all.csv", lambda path: entresol("trace", "convert", recorded(), path))
        with text.open() as lines, part.open("w") as left:
            left.writelines(line for line in lines if line.split(",")[1] not in ("W", "U"))

    return made(OUT / "reads.csv", make)


def simulated(name):
    trace = {"all": recorded, "reads": reads_alone}[name]
    words = ["--page-size", 8192] if name == "reads" else []
    path = made(OUT / f"{name}.json", lambda part: entresol(
        "simulate", trace(), *words, "--policy", ",".join(POLICIES), "--size", ",".join(SIZES), "--json", part,
    ))
    return json.loads(path.read_text())


def by_size(name, figure):
    results = simulated(name)["results"]
    found = {(label(row), row["size"]): row for row in results}
    lines = [[policy, *(figure(found, policy, size) for size in SIZES)] for policy in POLICIES]
    return table(["policy", *SIZES], lines)


def hits(name, kinds):
    """Hits of the kinds of requests, in percent of them."""
    def figure(found, policy, size):
        row = found[policy, size]
        return percent(sum(row[f"{kind}_hits"] for kind in kinds), sum(row[f"{kind}s"] for kind in kinds))

    return by_size(name, figure)


def moved(row):
    """The thesis's measure: pages fetched into the cache, and written back from it or, where both are written at once, through it."""
    return sum(tier["fetched"] for tier in row["tiers"]) + row["write_backs"]


def migrated(name):
    """Thousands of pages, and how many times HeuristicDB's."""
    def figure(found, policy, size):
        pages, least = moved(found[policy, size]), moved(found["heuristicdb", size])
        return f"{pages / 1000:.1f} ({pages / least:.1f}x)" if least else f"{pages / 1000:.1f}"

    return by_size(name, figure)


def recording():
    about, of = run(), run()["runs"][0]
    found = simulated("all")
    row, trace = found["results"][0], found.get("trace") or found["traces"][0]["trace"]
    lines = [
        ["transactions, in two minutes", of["transactions"]],
        ["the same, a second", f"{of['transactions_per_second']:.0f}"],
        ["database, MiB", f"{about['database_bytes'] / 2**20:.0f}"],
        ["pages that PostgreSQL looked for in its pool", of["pool"]["asked"]],
        ["of these, not there, %", percent(of["pool"]["read"], of["pool"]["asked"])],
        ["page requests in the recording", row["requests"]],
        ["of these, writes, %", percent(row["writes"], row["requests"])],
        ["pages read for one written", f"{row['reads'] / row['writes']:.1f}"],
        ["page requests a transaction", f"{row['requests'] / of['transactions']:.1f}"],
        ["touched pages", trace["footprint_pages"]],
        ["the same, MiB", f"{trace['footprint_pages'] * 8192 / 2**20:.0f}"],
    ]
    return table(["", "recording"], lines)


TABLES = {
    "recording": recording,
    "hits": lambda: hits("all", ("read", "write")),
    "read hits": lambda: hits("all", ("read",)),
    "migrated": lambda: migrated("all"),
    "reads alone": lambda: hits("reads", ("read",)),
    "reads alone migrated": lambda: migrated("reads"),
}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "tpce.md", TABLES)
