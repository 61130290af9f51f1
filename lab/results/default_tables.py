#!/usr/bin/env python3
"""The tables of default.md, from what `make bench-default` writes to target/bench and from simulations.

`default_tables.py` simulates what target/results/default lacks (a minute of one core; ENTRESOL names another
program) and renews the page.
"""

import statistics

from face_tables import HERE, RESULTS, renew, simulated, table
from layouts_live import interval, late, worn
from tpcc_tables import device, hit_ratio, read

TRACE = "recorded/pg_tpcc_w20_sb32m.csv.zst"
FOUND = RESULTS / "default"
# Flash of several kinds, a network volume and a disk as the device of the cache.
CACHES = ["p4800x", "p3700", "s3500", "840-pro", "850-evo", "gp3-16000", "gp3-3000", "face-disk"]
DRIVES = ["p3700", "s3500", "840-pro", "850-evo"]
BACKINGS = ["gp3-3000", "io2", "face-raid0x16", "face-disk"]
MODES = ["write-through", "write-back"]
WEAR = "amplification=1.8+0.04"
BASE = "none"


def live(drive, mode):
    rounds = {}
    for run in read(f"default-postgresql-{drive}-{mode}"):
        rounds.setdefault(run["cache"], []).append(run)
    lines = []
    for cache, its in rounds.items():
        rates = [run["new_orders_per_minute"] for run in its]
        line = [cache, f"{statistics.median(rates):.0f}"]
        line.append(interval([mine / base["new_orders_per_minute"] for mine, base in zip(rates, rounds[BASE])]))
        if its[0]["cache_device"]:
            line += [hit_ratio(its[len(its) // 2]), f"{statistics.median(map(worn, its)):.0f}"]
            line.append(device(its[0]["cache_device"], its[0]["looked_s"])["waf"])
        else:
            line += ["–"] * 3
        lines.append(line + [f"{max(map(late, its)):.1f} %"])
    head = f"cache, new orders/min (median), against {BASE}, hit ratio, KiB programmed an order, WAF, late at most"
    return table(head.split(", "), lines)


def rate(cache, backing, mode, layout):
    """Requests a second in the second half of the first 600,000."""
    options = ["--limit", "600000", "--warmup", "0.5", "--policy", "reuse", "--clients", "12", "--mode", mode]
    options += ["--tiers", f"cache={cache}:10%,backing={backing}"]
    if cache in DRIVES:
        options += ["--waf", "curve"]
    if layout == "segments":
        options += ["--layout", layout, "--wear", WEAR]
    [row] = simulated(FOUND / f"{cache}-{backing}-{mode}-{layout}.json", TRACE, *options)
    return row["timed"]["requests_per_second"]


def layouts():
    lines = []
    for cache in CACHES:
        line = [cache]
        for backing in BACKINGS:
            both = [rate(cache, backing, mode, "slots") / rate(cache, backing, mode, "segments") for mode in MODES]
            line.append(" / ".join(f"{it:.2f}" for it in both))
        lines.append(line)
    return table(["cache's device"] + BACKINGS, lines)


if __name__ == "__main__":
    made = {"layouts": layouts, "write_through": lambda: live("p3700", MODES[0]), "write_back": lambda: live("840-pro", MODES[1])}
    renew(HERE / "default.md", made)
