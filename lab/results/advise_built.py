#!/usr/bin/env python3
"""A recommendation from a trace, built from emulated devices and run live: the table of advise-built.md.

1. PostgreSQL runs a TPC-C-like load over an emulated array without a cache; what it asks of the array is recorded.
2. `entresol advise hierarchy` says what cache to buy, from that trace and built.toml, and predicts what each candidate does.
3. The recommended one and two others are built, each with a load and a start of its own, and run.
4. Predicted and measured stand side by side.

`advise_built.py` measures what target/results/built lacks, with the program that ENTRESOL names (target/release/entresol, and entresol-lab beside it), and renews
the page. Delete target/results/built to measure anew. About seven minutes; BUILT_SCRATCH (/dev/shm) needs 2 GB.
"""

import json
import os
import subprocess

from face_tables import ENTRESOL, HERE, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "built"
SCRATCH = os.environ.get("BUILT_SCRATCH", "/dev/shm")

LOAD = ["--db", "postgresql", "--memory", "16MiB"]
LOAD += os.environ.get("BUILT_LOAD", "--warehouses 3 --clients 16").split()
RECORDED = os.environ.get("BUILT_RECORDED", "--warmup 10s --duration 50s").split()
BUILT = os.environ.get("BUILT_BUILT", "--warmup 12s --duration 30s").split()
BACKING = "face-raid0x16"
POLICY = os.environ.get("BUILT_POLICY", "face")  # over a log it copies nothing: lab/results/tpcc-databases.md
FOOTPRINT = "50GB"  # 001, section 6.2: its database
BUDGET = "426"  # the array and ten dollars


def entresol(*words):
    program = f"{ENTRESOL}-lab" if words[0] == "bench" else ENTRESOL
    subprocess.run([program, "-q", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def result(name, make):
    """What is in NAME.json, or else is after `make` has been told to put it there."""
    path = OUT / f"{name}.json"
    if not path.exists():
        make(path)
    return json.loads(path.read_text())


def bench(policy, *words):
    return lambda path: entresol(
        "bench", "tpcc", *LOAD, *words, "--backing-profile", BACKING, "--waf", "curve", "--scratch", SCRATCH,
        "--policy", policy, "--json", path,
    )


def recorded():
    return result("recorded", bench("none", *RECORDED, "--record", OUT / "recorded.etr"))


def load_of(run):
    """What the recording says of who asks: requests under way, processors busy, processor time of a request."""
    asked, seconds = run["asked"], run["looked_s"]
    return {
        "rate": asked["requests"] / seconds,
        "waiting": asked["waited_s"] / seconds,
        "computing": run["processor_s"] / seconds,
        "work_us": 1e6 * run["processor_s"] / asked["requests"],
        "per_order": asked["requests"] / seconds * 60 / run["new_orders_per_minute"],
    }


def advice(load):
    clients = max(1, round(load["waiting"] + load["computing"]))
    return result("advice", lambda path: entresol(
        "advise", "hierarchy", OUT / "recorded.etr", "--below-pool", "--catalogue", HERE / "built.toml",
        "--footprint", FOOTPRINT, "--budget", BUDGET, "--flash-policy", POLICY, "--every",
        "--clients", clients, "--work", f"{load['work_us']:.1f}", "--processors", os.cpu_count(), "--json", path,
    ))


def name(candidate):
    parts = [f"{part['gb']:g} GB {part['name']}" for part in candidate["parts"]]
    return " over ".join(parts) if len(parts) > 1 else f"{parts[0]} alone"


def built(candidate):
    """The candidate with its cache, live."""
    cache = candidate["parts"][0]
    drive = {"840 Pro": "840-pro", "DC S3500": "s3500"}[cache["name"]]
    words = ["--cache-profile", drive, "--cache-size", f"{cache['pages']}p"]
    return result(f"{drive}-{cache['gb']:g}", bench(POLICY, *BUILT, *words))["runs"][0]


def rate_of(run):
    """Pages asked for a second: of a cache as it counts them, else as they were recorded."""
    asked = run["asked"] and run["asked"]["requests"] or run["pages"]["reads"] + run["pages"]["writes"]
    return asked / run["looked_s"]


def chosen(advised):
    """The recommended candidate, none, and of the others with a cache the worst and the one in the middle."""
    all_of = [c for c in advised["candidates"] if "simulated" in c["fate"]]
    best = advised["candidates"][advised["choice"]["best"]]
    none = next(c for c in all_of if len(c["parts"]) == 1)
    others = [c for c in all_of if len(c["parts"]) == 2 and c is not best]
    others.sort(key=lambda c: c["fate"]["simulated"]["requests_per_second"])
    return none, others[0], others[len(others) // 2], best


def late(figures):
    """How long after the model's time this machine handed an I/O over."""
    if figures is None:
        return "–"
    if "late_s" not in figures:
        return "not measured"
    return f"{1e6 * figures['late_s'] / (figures['reads'] + figures['writes'] + figures['flushes']):.0f}"


def error(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.1f} %"


def compared():
    first = recorded()["runs"][0]
    load = load_of(first)
    advised = advice(load)
    none, *caches = chosen(advised)
    lines = []
    for candidate in (none, *caches):
        run = first if candidate is none else built(candidate)
        if run["faults"]:
            raise SystemExit(f"{name(candidate)}: {run['faults']}")
        told = candidate["fate"]["simulated"]
        rate, orders = told["requests_per_second"], 60 * told["requests_per_second"] / load["per_order"]
        live, live_orders = rate_of(run), run["new_orders_per_minute"]
        title = name(candidate)
        if candidate is caches[-1]:
            title = f"**{title}**"
        array, drive = run["backing_device"], run["cache_device"]
        device = lambda figures, at: "–" if figures is None else (
            f"{100 * told['devices'][at]['utilisation']:.0f} / {100 * figures['busy_s'] / run['looked_s']:.0f} %")
        lines.append([
            title, f"{candidate['dollars']:.2f}", f"{rate:.0f}", f"{live:.0f}", error(rate, live),
            f"{orders:.0f}", f"{live_orders:.0f}", error(orders, live_orders), f"{live * 60 / live_orders:.1f}",
            device(drive, 0), device(array, -1), f"{late(drive)} / {late(array)}",
        ])
    head = ["hierarchy", "dollars", "requests/s: predicted", "measured", "error", "new orders/min: predicted", "measured",
            "error", "requests per new order", "drive busy: predicted / measured", "array busy", "handed over late, us: drive / array"]
    return table(head, lines)


def load_table():
    load = load_of(recorded()["runs"][0])
    values = [f"{load['rate']:.0f}", f"{load['per_order']:.1f}", f"{load['waiting']:.2f}", f"{load['computing']:.2f}",
              f"{load['work_us']:.0f}"]
    return table(["requests/s", "per new order", "waited for at a time", "processors busy", "processor time of a request, us"],
                 [values])


TABLES = {"load": load_table, "compared": compared}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    renew(HERE / "advise-built.md", TABLES)
    for make in TABLES.values():
        print(make(), end="\n\n")
