#!/usr/bin/env python3
"""Recommendations from traces, built from emulated devices and run live: the tables of advise-built.md.

1. PostgreSQL runs three TPC-C-like loads over an emulated array without a cache; what each asks of the array is recorded.
2. `entresol advise hierarchy` predicts from such a trace what a cache over a backing store does, for ten pairs of a load and of
   devices and for the smallest cache of each load.
3. Each is built, with a load and a start of its own, and run, in three rounds of all.
4. Predicted and the mean of the three measured stand side by side.

`advise_built.py` measures what target/results/built lacks, with the program that ENTRESOL names (target/release/entresol, and entresol-lab beside it), and renews
the page. Delete target/results/built to measure anew. BUILT_SCRATCH (/dev/shm) needs 2 GB.
"""

import json
import os

from face_tables import HERE, entresol, made, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "built"
SCRATCH = os.environ.get("BUILT_SCRATCH", "/dev/shm")

MEMORY = "16MiB"
WARM_S = 10  # before what is recorded counts
COUNTED_S = 30
WARM_MAX_S = 60
ROUNDS = 3
POLICY = os.environ.get("BUILT_POLICY", "reuse")  # the default of a new cache
FOOTPRINT = "50GB"  # 001, section 6.2: its database
RECORDED_ON = "face-raid0x16"

# Warehouses and clients of each load, and the seconds for which it is recorded.
LOADS = {"A": (8, 16, 60), "B": (3, 4, 90), "C": (2, 8, 75)}

# A load, the drive of the cache and its gigabytes, the backing store. 50 GB stand for the pages of the trace. Two processors emulate these in
# time: none asks for more than 6,000 pages a second, and no drive answers within 30 us.
PAIRS = [
    ("A", "840-pro", 8, "face-raid0x4"),
    ("A", "850-evo", 8, "sas-raid5x6"),
    ("B", "840-pro", 16, "face-raid0x16"),
    ("B", "850-evo", 8, "face-raid0x4"),
    ("B", "s3500", 8, "gp3-3000"),
    ("B", "s3500", 16, "sas-raid5x6"),
    ("C", "840-pro", 8, "face-raid0x4"),
    ("C", "850-evo", 16, "sas-raid5x6"),
    ("C", "s3500", 8, "face-raid0x16"),
    ("C", "s3500", 8, "gp3-3000"),
]
SMALLEST = [("A", "840-pro", 4, "face-raid0x16"), ("B", "s3500", 4, "face-raid0x16"), ("C", "840-pro", 4, "face-raid0x4")]

# Dollars a GB of 001, table 1. The prices of backing stores decide nothing here: there is one in each catalogue.
DRIVES = {"840-pro": ("840 Pro", 0.62), "850-evo": ("850 Evo", 0.39), "s3500": ("DC S3500", 1.15)}


def result(name, make):
    """What is in NAME.json, or else is after `make` has been told to put it there."""
    return json.loads(made(OUT / f"{name}.json", make).read_text())


def bench(load, backing, policy, *words):
    warehouses, clients, _ = LOADS[load]
    return lambda path: entresol(
        "bench", "tpcc", "--db", "postgresql", "--memory", MEMORY, "--warehouses", warehouses, "--clients", clients, *words,
        "--backing-profile", backing, "--waf", "curve", "--scratch", SCRATCH, "--policy", policy, "--json", path,
    )


def recorded(load):
    times = ["--warmup", f"{WARM_S}s", "--duration", f"{LOADS[load][2] - WARM_S}s"]
    make = bench(load, RECORDED_ON, "none", *times, "--record", OUT / f"{load}.etr")
    return result(f"recorded-{load}", make)["runs"][0]


def load_of(run):
    """What the recording says of who asks: requests of sessions under way, processors busy, processor time and way to the mount of a request."""
    asked, seconds = run["asked"], run["looked_s"]
    # Of the mount's processor time what a real device would leave; the way to the mount and back contains it.
    mounting_s = run["mounting_s"] - run["backing_device"]["spun_s"]
    mounting_us = 1e6 * mounting_s / asked["requests"]
    return {
        "rate": asked["requests"] / seconds,
        "waiting": run["waiting"],
        "path_us": run["path_us"],
        "idle_us": max(0, run["path_us"] - mounting_us),
        "computing": run["processor_s"] / seconds,
        "server_us": 1e6 * run["processor_s"] / asked["requests"],
        "mounting_us": mounting_us,
        "work_us": 1e6 * (run["processor_s"] + mounting_s) / asked["requests"],
        "per_order": asked["requests"] / seconds * 60 / run["new_orders_per_minute"],
    }


def catalogue(drive, backing):
    """A catalogue of one drive over one backing store."""
    path = OUT / f"{drive}-{backing}.toml"
    name, price = DRIVES[drive]
    path.write_text(
        'date = "2015"\nsource = "001 (Kang, Lee, Moon, Kee, Oh 2016), table 1"\n'
        f'[[item]]\nname = "{name}"\ntier = "ssd"\nprofile = "{drive}"\ncapacities_gb = [4, 8, 16]\ndollars_per_gb = {price}\n'
        f"endurance_writes = 3000\n"
        f'[[item]]\nname = "{backing}"\ntier = "disk"\nprofile = "{backing}"\ncapacities_gb = [2340]\ndollars = [0]\n'
    )
    return path


def advice(load, drive, backing, clients):
    asks = load_of(recorded(load))
    return result(f"advice-{load}-{drive}-{backing}-{clients}", lambda path: entresol(
        "advise", "hierarchy", OUT / f"{load}.etr", "--below-pool", "--catalogue", catalogue(drive, backing),
        "--footprint", FOOTPRINT, "--budget", "1000", "--flash-policy", POLICY, "--every",
        "--clients", clients, "--think", round(asks["idle_us"]), "--work", f"{asks['work_us']:.1f}", "--processors", os.cpu_count(), "--json", path,
    ))


def predicted(load, drive, gb, backing):
    """Pages of the cache and what is foretold of it; the requesters are no whole number, so between the two next ones."""
    asks = load_of(recorded(load))
    requesters = asks["waiting"] + asks["computing"]
    fewer = max(1, int(requesters))
    found = []
    for clients in (fewer, fewer + 1):
        of_size = [c for c in advice(load, drive, backing, clients)["candidates"] if gb in [part["gb"] for part in c["parts"][:-1]]]
        found.append(of_size[0])
    low, high = (candidate["fate"]["simulated"] for candidate in found)
    share = min(1, max(0, requesters - fewer))
    rate = low["requests_per_second"] * (1 - share) + high["requests_per_second"] * share
    return found[0]["parts"][0]["pages"], {**(low if share < 0.5 else high), "requests_per_second": rate}


def built(load, drive, backing, pages, rate, turn):
    """A live run, warmed with as many requests as the simulation: half of what was recorded."""
    first = recorded(load)
    requests = first["asked"]["requests"] / first["looked_s"] * LOADS[load][2] / 2
    warm = min(WARM_MAX_S, round(requests / rate))
    words = ["--warmup", f"{warm}s", "--duration", f"{COUNTED_S}s", "--cache-profile", drive, "--cache-size", f"{pages}p"]
    return result(f"built-{load}-{drive}-{pages}-{backing}-{turn}", bench(load, backing, POLICY, *words))["runs"][0]


def rounds():
    """All live runs, a round after the other, so that what changes in the machine meets each pair: three runs of each."""
    runs = {pair: [] for pair in PAIRS + SMALLEST}
    for turn in range(ROUNDS):
        for (load, drive, gb, backing), of in runs.items():
            pages, told = predicted(load, drive, gb, backing)
            run = built(load, drive, backing, pages, told["requests_per_second"], turn)
            if run["faults"]:
                raise SystemExit(f"{load} {drive} {gb} {backing}: {run['faults']}")
            of.append(run)
    return runs


def late_us(figures):
    """How long after the model's time this machine handed an I/O over."""
    return 1e6 * figures["late_s"] / (figures["reads"] + figures["writes"] + figures["flushes"])


def error(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.1f}"


def compared(pairs):
    measured, lines = rounds(), []
    for load, drive, gb, backing in pairs:
        (pages, told), runs = predicted(load, drive, gb, backing), measured[load, drive, gb, backing]
        mean = lambda of: sum(map(of, runs)) / len(runs)
        each = [(run["pages"]["reads"] + run["pages"]["writes"]) / run["looked_s"] for run in runs]
        asked, rate = sum(each) / len(each), told["requests_per_second"]
        orders, ordered = 60 * rate / load_of(recorded(load))["per_order"], mean(lambda run: run["new_orders_per_minute"])
        array, cache = "backing_device", "cache_device"
        busy = lambda device, at: f"{100 * told['devices'][at]['utilisation']:.0f} / {100 * mean(lambda run: run[device]['busy_s'] / run['looked_s']):.0f} %"
        late = lambda device: f"{mean(lambda run: late_us(run[device])):.0f}"
        lines.append([
            load, f"{gb} GB {DRIVES[drive][0]}, {pages} pages", backing, f"{rate:.0f}", f"{asked:.0f}", f"{error(rate, asked)} %",
            ", ".join(error(rate, one) for one in each), f"{orders:.0f}", f"{ordered:.0f}", f"{error(orders, ordered)} %",
            busy(cache, 0), busy(array, -1), f"{late(cache)} / {late(array)}",
            f"{mean(lambda run: (run['processor_s'] + run['mounting_s']) / run['looked_s']):.2f}",
        ])
    head = ["load", "cache", "backing store", "requests/s: predicted", "measured", "error", "of each run, %", "new orders/min: predicted", "measured",
            "error", "drive busy: predicted / measured", "backing store busy", "handed over late, us: drive / backing store", "processors busy"]
    return table(head, lines)


def loads():
    lines = []
    for load, (warehouses, clients, seconds) in LOADS.items():
        of = load_of(recorded(load))
        lines.append([load, warehouses, clients, seconds, f"{of['rate']:.0f}", f"{of['per_order']:.1f}", f"{of['waiting']:.2f}",
                      f"{of['computing']:.2f}", f"{of['server_us']:.0f}", f"{of['mounting_us']:.0f}", f"{of['path_us']:.0f}"])
    return table(["load", "warehouses", "clients", "seconds", "requests/s", "per new order", "waited for by sessions at a time", "processors busy",
                  "processor time of a request, us: clients and server", "mount", "way to the mount and back, us"], lines)


TABLES = {"loads": loads, "pairs": lambda: compared(PAIRS), "smallest": lambda: compared(SMALLEST)}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    renew(HERE / "advise-built.md", TABLES)
    for make in TABLES.values():
        print(make(), end="\n\n")
