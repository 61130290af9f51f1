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
import subprocess

from face_tables import ENTRESOL, HERE, renew, table

OUT = HERE.parents[1] / "target" / "results" / "multi-tier-live"
SCRATCH = os.environ.get("LIVE_SCRATCH", "/dev/shm")

POLICIES = [f"multi-tier:preset={preset}" for preset in ("eager", "a", "b", "c", "d")]
NAMES = ["eager", "A", "B", "C", "D"]
DRAM, NVM = "8MiB", "64MiB"
SECONDS = 25  # of warm-up, and of measurement
CLIENTS, WAREHOUSES, POOL = 4, 3, "16MiB"
PROFILES = {"dram": "arulraj-dram", "cache": "arulraj-pcm", "backing": "arulraj-ssd"}


def run(path, *words):
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        subprocess.run([str(word) for word in (*words, "--json", part)], check=True, stdout=subprocess.DEVNULL)
        part.rename(path)
    return json.loads(path.read_text())


def live():
    """The runs, the one without a cache first."""
    return run(
        OUT / "live.json", f"{ENTRESOL}-lab", "-q", "bench", "tpcc", "--db", "postgresql", "--memory", POOL, "--warehouses", WAREHOUSES,
        "--clients", CLIENTS, "--warmup", f"{SECONDS}s", "--duration", f"{SECONDS}s", "--scratch", SCRATCH, "--record", OUT / "load.etr",
        "--policy", ",".join(["none", *POLICIES]), "--dram", DRAM, "--cache-size", NVM, "--cache-profile", PROFILES["cache"],
        "--backing-profile", PROFILES["backing"],
    )["runs"]


def simulated(policy, name, recorded):
    """The policy on the recording. Its first half warms, as the first half of the time does live."""
    asked = recorded["asked"]["requests"]
    sessions = recorded["waiting"] + recorded["processor_s"] / recorded["looked_s"]
    found = run(
        OUT / f"simulated-{name}.json", ENTRESOL, "-q", "simulate", OUT / "load.etr", "--policy", policy, "--tiers",
        f"dram={PROFILES['dram']}:{DRAM},cache={PROFILES['cache']}:{NVM},backing={PROFILES['backing']}", "--warmup", "0.5",
        "--clients", max(1, round(sessions)), "--think", round(recorded["path_us"]), "--work", round(1e6 * recorded["processor_s"] / asked), "--processors", os.cpu_count(),
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
    asked, seconds = recorded["asked"], recorded["looked_s"]
    return table(
        ["requests/s", "writes, %", "waited for by sessions at a time", "processor time of a request, us", "way to the mount and back, us"],
        [[f"{asked['requests'] / seconds:.0f}", f"{100 * asked['writes'] / asked['requests']:.1f}", f"{recorded['waiting']:.2f}",
          f"{1e6 * recorded['processor_s'] / asked['requests']:.0f}", f"{recorded['path_us']:.0f}"]],
    )


if __name__ == "__main__":
    renew(HERE / "multi-tier-live.md", {"load": load, "compared": compared})
