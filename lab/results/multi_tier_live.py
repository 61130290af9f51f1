#!/usr/bin/env python3
"""The migration policies of 003 under PostgreSQL, live and simulated side by side: the table of multi-tier-live.md.

1. `entresol-lab bench tpcc` runs a TPC-C-like load over an emulated SSD, first without a cache, which is recorded, then with DRAM and an
   emulated NVM above under each policy.
2. `entresol simulate` runs the same policies on the recording, over models of the same devices.

`multi_tier_live.py` measures what target/results/multi-tier-live lacks, with the program that ENTRESOL names (target/release/entresol, and
entresol-lab beside it), and renews the page. Delete that directory to measure anew. LIVE_SCRATCH (/dev/shm) needs 2 GB.
"""

import json
import os

from advise_built import load_of
from face_tables import HERE, entresol, made, renew, table

OUT = HERE.parents[1] / "target" / "results" / "multi-tier-live"
SCRATCH = os.environ.get("LIVE_SCRATCH", "/dev/shm")

POLICIES = [f"multi-tier:preset={preset}" for preset in ("eager", "a", "b", "c", "d")]
NAMES = ["eager", "A", "B", "C", "D"]
DRAM, NVM = "8MiB", "64MiB"
SECONDS = 25  # of warm-up, and of measurement
CLIENTS, WAREHOUSES, POOL = 4, 3, "16MiB"
PROFILES = {"dram": "arulraj-dram", "cache": "arulraj-pcm", "backing": "arulraj-ssd"}


def run(path, *words):
    return json.loads(made(path, lambda part: entresol(*words, "--json", part)).read_text())


def live():
    """The runs, the one without a cache first."""
    return run(
        OUT / "live.json", "bench", "tpcc", "--db", "postgresql", "--memory", POOL, "--warehouses", WAREHOUSES,
        "--clients", CLIENTS, "--warmup", f"{SECONDS}s", "--duration", f"{SECONDS}s", "--scratch", SCRATCH, "--record", OUT / "load.etr",
        "--policy", ",".join(["none", *POLICIES]), "--dram", DRAM, "--cache-size", NVM, "--cache-profile", PROFILES["cache"],
        "--backing-profile", PROFILES["backing"],
    )["runs"]


def simulated(policy, name, recorded):
    """The policy on the recording. Its first half warms, as the first half of the time does live."""
    asks = load_of(recorded)
    found = run(
        OUT / f"simulated-{name}.json", "simulate", OUT / "load.etr", "--policy", policy, "--tiers",
        f"dram={PROFILES['dram']}:{DRAM},cache={PROFILES['cache']}:{NVM},backing={PROFILES['backing']}", "--warmup", "0.5",
        "--clients", max(1, round(asks["waiting"] + asks["computing"])), "--think", round(asks["idle_us"]), "--work", round(asks["work_us"]),
        "--processors", os.cpu_count(),
    )
    return found["results"][0]


def row(run, row, name):
    pages, cache, below = run["pages"], run["cache_device"], run["backing_device"]
    requests = pages["reads"] + pages["writes"]
    _, nvm, ssd = row["timed"]["devices"]
    each = lambda count: f"{1000 * count / requests:.1f}"
    each_simulated = lambda count: f"{1000 * count / row['requests']:.1f}"
    return [
        name,
        f"{100 * pages['read_hits'] / pages['reads']:.1f}", f"{100 * row['read_hits'] / row['reads']:.1f}",
        f"{100 * pages['write_hits'] / pages['writes']:.1f}", f"{100 * row['write_hits'] / row['writes']:.1f}",
        each(below["reads"]), each_simulated(ssd["reads"]),
        each(below["written_bytes"] / 8192), each_simulated(ssd["write_bytes"] / 8192),
        each(cache["written_bytes"] / 8192), each_simulated(nvm["write_bytes"] / 8192),
    ]


def compared():
    recorded, *runs = live()
    lines = [row(run, simulated(policy, name, recorded), name) for run, policy, name in zip(runs, POLICIES, NAMES)]
    pairs = ["read hits, %", "write hits, %", "read below", "written below", "written to NVM"]
    return table(["policy", *(f"{pair}: {which}" for pair in pairs for which in ("live", "simulated"))], lines)


def load():
    recorded = live()[0]
    asks, asked = load_of(recorded), recorded["asked"]
    return table(
        ["requests/s", "writes, %", "waited for by sessions at a time", "processor time of a request, us", "way to the mount and back, us"],
        [[f"{asks['rate']:.0f}", f"{100 * asked['writes'] / asked['requests']:.1f}", f"{asks['waiting']:.2f}", f"{asks['server_us']:.0f}",
          f"{asks['path_us']:.0f}"]],
    )


if __name__ == "__main__":
    renew(HERE / "multi-tier-live.md", {"load": load, "compared": compared})
