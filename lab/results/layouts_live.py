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


def late(run):
    figures = (device(run[which], run["looked_s"]) for which in ("backing_device", "cache_device"))
    return max(its["late"] for its in figures if its)


def amount(kib):
    return f"{kib:.0f}" if kib >= 10 else f"{kib:.2f}"


def live(name, base, rate="new_orders_per_minute", unit="new orders/min", a_second=1 / 60):
    """A line a contender: medians of its rounds, and how it compares with the base in the same round."""
    rounds = {}
    for run in read(name):
        rounds.setdefault(run["cache"], []).append(run)
    one = unit.split("/")[0].removesuffix("s")

    def worn(run):
        """KiB programmed into the cache device for each operation."""
        return run["cache_device"]["media_written_bytes"] / 1024 / (run[rate] * run["looked_s"] * a_second)

    bases = rounds[base]
    head = ["cache", f"{unit} (median)", f"against {base}", "hit ratio", f"KiB programmed a {one}", f"flash against {base}", "WAF", "late at most"]
    lines = []
    for cache, its in rounds.items():
        line = [cache, f"{statistics.median(run[rate] for run in its):.0f}"]
        line.append(interval([mine[rate] / other[rate] for mine, other in zip(its, bases)]))
        if its[0]["cache_device"]:
            line += [hit_ratio(its[len(its) // 2]), amount(statistics.median(map(worn, its)))]
            flash = [worn(mine) / worn(other) for mine, other in zip(its, bases) if other["cache_device"]]
            line += [interval(flash) if flash else "–", device(its[0]["cache_device"], its[0]["looked_s"])["waf"]]
        else:
            line += ["–"] * 4
        lines.append(line + [f"{max(map(late, its)):.1f} %"])
    if not bases[0]["cache_device"]:
        head, *lines = [row[:5] + row[6:] for row in [head, *lines]]
    return table(head, lines)


TABLES = {database: lambda database=database: live(f"layouts-{database}", BASE) for database in DATABASES}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[sys.argv[1]]())
    else:
        renew(HERE / "layouts-live.md", TABLES)
