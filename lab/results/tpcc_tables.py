#!/usr/bin/env python3
"""The tables of tpcc-databases.md, tpcc-figures.md and restart.md, from what `make bench-tpcc`, `bench-tpcc-modes`, `-money`, `-disks`
and `bench-restart` write to target/bench.

`tpcc_tables.py` renews the pages; `tpcc_tables.py NAME` prints a table.
"""

import json
import sys

from face_tables import HERE, renew, table

BENCH = HERE.parents[1] / "target" / "bench"
DATABASES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}
DRIVES = ("840-pro", "s3500")
SIZES = (5, 10, 20)
NONE = "–"


def read(name):
    with open(BENCH / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)["runs"]


def runs(database, drive, size):
    return read(f"tpcc-{database}-{drive}-{size}")


def device(figures, seconds):
    """Share of the time busy, I/Os a second, MiB and mean KiB of writes, share of them sequential, WAF, share late."""
    if not figures:
        return None
    ios, writes = figures["reads"] + figures["writes"], max(1, figures["writes"])
    return {
        "busy": f"{100 * figures['busy_s'] / seconds:.0f} %",
        "ios": f"{ios / seconds:.0f}",
        "mib": f"{figures['written_bytes'] / 2**20:.0f}",
        "mean": f"{figures['written_bytes'] / writes / 1024:.0f}",
        "sequential": f"{100 * figures['sequential_writes'] / writes:.0f} %",
        "waf": f"{figures['media_written_bytes'] / max(1, figures['written_bytes']):.2f}",
        "late": 100 * figures["late"] / max(1, ios),
    }


def devices(run):
    """The array and the SSD; without a cache the latter is missing, with the SSD alone the former."""
    backing, cache = (device(run[which], run["looked_s"]) for which in ("backing_device", "cache_device"))
    return (None, backing) if run["cache"] == "ssd-only" else (backing, cache)


def hit_ratio(run):
    pages = run["pages"]
    requests = pages and pages["reads"] + pages["writes"]
    return f"{100 * (pages['read_hits'] + pages['write_hits']) / requests:.1f} %" if requests else NONE


def whole(database, drive, size):
    def tell():
        head = "cache, new orders/min, against none, hit ratio, write reduction, array busy, array I/Os/s, SSD busy, SSD I/Os/s"
        head += ", written MiB, mean write KiB, sequential, WAF, late"
        found = runs(database, drive, size)
        lines = []
        for run in found:
            rate, pages = run["new_orders_per_minute"], run["pages"]
            array, ssd = devices(run)
            reduction = f"{100 * (1 - pages['write_backs'] / max(1, pages['writes'])):.1f} %" if pages else NONE
            line = [run["cache"], f"{rate:.0f}", f"{rate / found[0]['new_orders_per_minute']:.2f}", hit_ratio(run), reduction]
            line += [array[what] if array else NONE for what in ("busy", "ios")]
            line += [ssd[what] if ssd else NONE for what in ("busy", "ios", "mib", "mean", "sequential", "waf")]
            lines.append(line + [f"{max(one['late'] for one in (array, ssd) if one):.1f} %"])
        return table(head.split(", "), lines)

    return tell


def by_column(database):
    """The runs of each drive and size, by their caches, and the heads of their columns."""
    columns = [(drive, size) for drive in DRIVES for size in SIZES]
    found = [{run["cache"]: run for run in runs(database, *column)} for column in columns]
    return found, [f"{drive}, {size} %" for drive, size in columns]


def gains(database):
    """New orders against none, one column for each drive and size."""

    def tell():
        found, heads = by_column(database)
        lines = [["none, new orders/min"] + [f"{caches['none']['new_orders_per_minute']:.0f}" for caches in found]]
        for cache in found[0]:
            if cache == "none":
                continue
            line = [cache]
            for runs_here in found:
                gain = runs_here[cache]["new_orders_per_minute"] / runs_here["none"]["new_orders_per_minute"]
                hits = hit_ratio(runs_here[cache])
                line.append(f"{gain:.2f}" + (f" ({hits})" if hits != NONE else ""))
            lines.append(line)
        return table(["cache"] + heads, lines)

    return tell


def wear(database):
    """KiB programmed into the drive for each new order, one column for each drive and size."""

    def tell():
        found, heads = by_column(database)
        lines = []
        for cache in [name for name in found[0] if name != "none"]:
            line = [cache]
            for run in (caches[cache] for caches in found):
                drive = run["backing_device" if cache == "ssd-only" else "cache_device"]
                orders = run["new_orders_per_minute"] * run["looked_s"] / 60
                line.append(f"{drive['media_written_bytes'] / 1024 / orders:.0f}")
            lines.append(line)
        return table(["cache"] + heads, lines)

    return tell


def modes(database):
    """Write-back beside write-through: figure 11."""

    def tell():
        lines = []
        for mode in ("write-back", "write-through"):
            found = read(f"tpcc-{database}-{mode}")
            for run in found:
                rate = run["new_orders_per_minute"]
                array, ssd = devices(run)
                line = [run["cache"], mode if ssd else NONE, f"{rate:.0f}", f"{rate / found[0]['new_orders_per_minute']:.2f}"]
                line += [hit_ratio(run), array["busy"], ssd["busy"] if ssd else NONE]
                lines.append(line)
        return table(["cache", "mode", "new orders/min", "against none", "hit ratio", "array busy", "SSD busy"], lines)

    return tell


def disks():
    """Arrays of one to sixteen disks: figure 13."""
    lines = []
    for count, profile in [(1, "face-disk")] + [(count, f"face-raid0x{count}") for count in (2, 4, 8, 16)]:
        rates = {run["cache"]: run["new_orders_per_minute"] for run in read(f"tpcc-{profile}")}
        gains = [f"{rates[cache]:.0f} ({rates[cache] / rates['none']:.2f})" for cache in ("lc", "face-gsc")]
        lines.append([count, f"{rates['none']:.0f}"] + gains)
    return table(["disks", "none, new orders/min", "lc", "face-gsc"], lines)


def money():
    """More memory or more flash for the same money: figure 12."""
    start = read("tpcc-money-4MiB,40MiB")[0]["new_orders_per_minute"]
    lines = [["nothing", f"{start:.0f}", f"{start:.0f}"]]
    for step in (1, 2, 3):
        memory = read(f"tpcc-money-{4 + 4 * step}MiB,0")[0]
        flash = read(f"tpcc-money-4MiB,{40 * step}MiB")[1]
        bought = f"{4 * step} MiB of memory or {40 * step} MiB of flash"
        lines.append([bought] + [f"{run['new_orders_per_minute']:.0f}" for run in (memory, flash)])
    return table(["bought", "memory, new orders/min", "flash (face-gsc), new orders/min"], lines)


def restart(database):
    """Crashes in the middle between two checkpoints: table 8."""

    def tell():
        stories, lines = read(f"restart-{database}"), []
        for at in range(len(stories[0]["restarts"])):
            for story in stories:
                one = story["restarts"][at]
                served = one["read_from_cache"]
                line = [f"{one['interval_s']:.0f}", story["cache"], f"{one['log_bytes'] / 2**20:.1f}", f"{one['mounted_s']:.2f}"]
                line += [f"{one['answered_s']:.2f}", f"{one['read_bytes'] / 2**20:.1f}"]
                line += [NONE if served is None else f"{100 * served:.1f} %"]
                before = one["new_orders_per_minute_before"]
                line += [NONE if before is None else f"{before:.0f}", f"{one['new_orders_per_minute_after']:.0f}"]
                lines.append(line)
        head = "checkpoints, s apart; cache; log, MiB; mounted after s; answered after s; read, MiB; from the cache"
        return table((head + "; new orders/min before; after").split("; "), lines)

    return tell


TABLES = {f"{database} {drive} {size}": whole(database, drive, size) for database in DATABASES for drive in DRIVES for size in SIZES}
TABLES |= {f"{database} gains": gains(database) for database in DATABASES}
TABLES |= {f"{database} wear": wear(database) for database in DATABASES}
TABLES |= {f"{database} modes": modes(database) for database in DATABASES}
TABLES |= {f"{database} restart": restart(database) for database in DATABASES}
TABLES |= {"disks": disks, "money": money}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        for page in ("tpcc-databases.md", "tpcc-figures.md", "restart.md"):
            renew(HERE / page, TABLES)
