#!/usr/bin/env python3
"""The tables of default.md, from what `make bench-default` writes to target/bench and from simulations.

`default_tables.py` simulates what target/results/default lacks (a minute of one core; ENTRESOL names another
program) and renews the page.
"""

from face_tables import HERE, RESULTS, renew, simulated, table
from layouts_live import live

TRACE = "recorded/pg_tpcc_w20_sb32m.csv.zst"
FOUND = RESULTS / "default"
# Flash of several kinds, a network volume and a disk as the device of the cache.
CACHES = ["p4800x", "p3700", "s3500", "840-pro", "850-evo", "gp3-16000", "gp3-3000", "face-disk"]
DRIVES = ["p3700", "s3500", "840-pro", "850-evo"]
BACKINGS = ["gp3-3000", "io2", "face-raid0x16", "face-disk"]
MODES = ["write-through", "write-back"]
WEAR = "amplification=1.8+0.04"
BASE = "none"


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
    made = {
        "layouts": layouts,
        "write_through": lambda: live("default-postgresql-p3700-write-through", BASE),
        "write_back": lambda: live("default-postgresql-840-pro-write-back", BASE),
    }
    renew(HERE / "default.md", made)
