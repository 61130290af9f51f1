#!/usr/bin/env python3
"""The tables of tpcc-databases.md, from what `make bench-tpcc` writes to target/bench.

`tpcc_tables.py` renews the page; `tpcc_tables.py NAME` prints a table.
"""

import json
import sys

from face_tables import HERE, renew, table

BENCH = HERE.parents[1] / "target" / "bench"
DATABASES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}
DRIVES = ("840-pro", "s3500")
SIZES = (5, 10, 20)
NONE = "–"


def runs(database, drive, size):
    path = BENCH / f"tpcc-{database}-{drive}-{size}.json"
    with open(path, encoding="utf-8") as file:
        return json.load(file)["runs"]


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


def gains(database):
    """New orders against none, one column for each drive and size."""

    def tell():
        columns = [(drive, size) for drive in DRIVES for size in SIZES]
        found = {column: {run["cache"]: run for run in runs(database, *column)} for column in columns}
        first = found[columns[0]]
        lines = [["none, new orders/min"] + [f"{found[column]['none']['new_orders_per_minute']:.0f}" for column in columns]]
        for cache in first:
            if cache == "none":
                continue
            line = [cache]
            for column in columns:
                runs_here = found[column]
                gain = runs_here[cache]["new_orders_per_minute"] / runs_here["none"]["new_orders_per_minute"]
                hits = hit_ratio(runs_here[cache])
                line.append(f"{gain:.2f}" + (f" ({hits})" if hits != NONE else ""))
            lines.append(line)
        return table(["cache"] + [f"{drive}, {size} %" for drive, size in columns], lines)

    return tell


TABLES = {f"{database} {drive} {size}": whole(database, drive, size) for database in DATABASES for drive in DRIVES for size in SIZES}
TABLES |= {f"{database} gains": gains(database) for database in DATABASES}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "tpcc-databases.md", TABLES)
