#!/usr/bin/env python3
"""The tables of layouts-live.md, from what `make bench-layouts` writes to target/bench.

`layouts_live.py` renews the page; `layouts_live.py NAME` prints a table.
"""

import math
import statistics
import sys

from face_tables import HERE, renew, table
from tpcc_tables import DATABASES, device, hit_ratio, read

BASE = "heuristicdb"
# Student's t for 95 % of both sides, by the number of rounds.
T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}


def interval(ratios):
    """Geometric mean of paired ratios, with its interval of 95 %."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), T[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (math.exp(it) for it in (mean - half, mean, mean + half))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def worn(run):
    """KiB programmed into the cache device for each new order."""
    orders = run["new_orders_per_minute"] * run["looked_s"] / 60
    return run["cache_device"]["media_written_bytes"] / 1024 / orders


def late(run):
    figures = (device(run[which], run["looked_s"]) for which in ("backing_device", "cache_device"))
    return max(its["late"] for its in figures if its)


def layouts(database):
    def tell():
        rounds = {}
        for run in read(f"layouts-{database}"):
            rounds.setdefault(run["cache"], []).append(run)
        head = f"cache, new orders/min (median), against {BASE}, hit ratio, KiB programmed an order, against {BASE}, WAF, late at most"
        lines = []
        for cache, its in rounds.items():
            rates = [run["new_orders_per_minute"] for run in its]
            line = [cache, f"{statistics.median(rates):.0f}"]
            line.append(interval([mine / base["new_orders_per_minute"] for mine, base in zip(rates, rounds[BASE])]))
            line.append(hit_ratio(its[len(its) // 2]))
            if its[0]["cache_device"]:
                line.append(f"{statistics.median(map(worn, its)):.0f}")
                line.append(interval([worn(mine) / worn(base) for mine, base in zip(its, rounds[BASE])]))
                line.append(device(its[0]["cache_device"], its[0]["looked_s"])["waf"])
            else:
                line += ["–"] * 3
            lines.append(line + [f"{max(map(late, its)):.1f} %"])
        return table(head.split(", "), lines)

    return tell


TABLES = {database: layouts(database) for database in DATABASES}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[sys.argv[1]]())
    else:
        renew(HERE / "layouts-live.md", TABLES)
