#!/usr/bin/env python3
"""The tables of wear-budget.md: what a log of segments writes under bounds on its wear.

`budget_tables.py` simulates what target/results/budget lacks (two minutes of one core; ENTRESOL names another program)
and renews the page. An interrupted run goes on where it ended.
"""

from face_tables import HERE, RESULTS, renew, simulated, table
from reuse_tables import STREAMS, disk, flash

FOUND = RESULTS / "budget"
AMPLIFICATIONS = [1.1, 1.5, 2, 3]
# Times the cache's size a day. A load lasts ten days.
WRITES_A_DAY = [0.3, 1, 3]
DAYS = 10
REQUESTS = 2_000_000
GAP_US = DAYS * 86_400_000_000 // REQUESTS
LOADS = {
    "Zipf 1, 30 % writes": f"generate:zipf:n={REQUESTS}:pages=100000:exponent=1:write=30:gap={GAP_US}",
    "Zipf 0.8, 5 % writes": f"generate:zipf:n={REQUESTS}:pages=100000:exponent=0.8:write=5:gap={GAP_US}",
    "Zipf 0.8, reads alone": f"generate:zipf:n={REQUESTS}:pages=100000:exponent=0.8:write=0:gap={GAP_US}",
    "Zipf 0.8, 90 % writes": f"generate:zipf:n={REQUESTS}:pages=100000:exponent=0.8:write=90:gap={GAP_US}",
    "TPC-C-like": f"generate:tpcc:warehouses=2:n={REQUESTS}:gap={GAP_US}",
}
NONE = "unbounded"
# Loads on an empty cache, counted from the beginning.
YOUNG = {f"Zipf {exponent}": f"generate:zipf:n=1M:pages=500000:exponent={exponent}:write=30:seed=1" for exponent in ("1", "1.2")}
YOUNG_BOUNDS = ["amplification=1.6", "amplification=1.8+0.04", "amplification=3"]


def run(name, source, wear):
    options = ["--policy", "reuse", "--size", "10%", "-j", "1", "--warmup", "0.5", "--layout", "segments", "--wear", wear]
    [row] = simulated(FOUND / f"{name}-{wear}.json", source, *options)
    return row


def young():
    lines = []
    for at, (name, source) in enumerate(YOUNG.items()):
        ios = []
        for bound in [NONE, *YOUNG_BOUNDS]:
            options = ["--policy", "reuse", "--size", "50000p", "-j", "1", "--layout", "segments", "--wear", bound]
            [row] = simulated(FOUND / f"young-{at}-{bound}.json", source, *options)
            ios.append(disk(row))
        lines.append([name] + [f"{bounded / ios[0]:.2f}" for bounded in ios[1:]])
    return table(["load", *YOUNG_BOUNDS], lines)


def file_name(source):
    return source.split("/")[-1].split(".")[0]


def verdict(spent, allowed, freely):
    """The share of a budget that was spent, and whether that is as it should be."""
    if allowed == spent == 0:
        return "0 of 0"
    share = spent / max(1, allowed)
    return f"{share:.3f}" + ("" if 0.95 <= share <= 1 or freely < allowed else " *")


def amplification():
    lines = []
    for name, source in STREAMS.items():
        free = run(file_name(source), source, NONE)
        line = [name, f"{flash(free) / max(1, free['writes']):.2f}"]
        for bound in AMPLIFICATIONS:
            row = run(file_name(source), source, f"amplification={bound}")
            line.append(verdict(flash(row), bound * row["writes"], flash(free)))
        lines.append(line)
    return table(["stream", "pages a written one, no bound"] + [f"bound {bound}" for bound in AMPLIFICATIONS], lines)


def speed():
    lines = []
    for name, source in STREAMS.items():
        ios = [disk(run(file_name(source), source, f"amplification={bound}")) for bound in AMPLIFICATIONS]
        ios.append(disk(run(file_name(source), source, NONE)))
        lines.append([name] + [f"{more / less:.3f}" + (" *" if more > 1.01 * less else "") for less, more in zip(ios, ios[1:])])
    bounds = [*map(str, AMPLIFICATIONS), "none"]
    return table(["stream"] + [f"{more} : {less}" for less, more in zip(bounds, bounds[1:])], lines)


def days():
    lines = []
    for at, (name, source) in enumerate(LOADS.items()):
        free, days = run(f"load-{at}", source, NONE), DAYS / 2
        a_day = flash(free) / free["capacity_pages"] / days
        line = [name, f"{a_day:.2f}"]
        for bound in WRITES_A_DAY:
            row = run(f"load-{at}", source, f"{bound}DWPD")
            line.append(verdict(flash(row), bound * row["capacity_pages"] * days, flash(free)))
        lines.append(line)
    return table(["load", "times its size a day, no bound"] + [f"{bound}DWPD" for bound in WRITES_A_DAY], lines)


def days_speed():
    lines = []
    for at, name in enumerate(LOADS):
        bounds = [*(f"{bound}DWPD" for bound in WRITES_A_DAY), NONE]
        ios = [disk(run(f"load-{at}", LOADS[name], bound)) for bound in bounds]
        lines.append([name] + [f"{more / less:.3f}" + (" *" if more > 1.01 * less else "") for less, more in zip(ios, ios[1:])])
    bounds = [f"{bound}DWPD" for bound in WRITES_A_DAY] + ["none"]
    return table(["load"] + [f"{more} : {less}" for less, more in zip(bounds, bounds[1:])], lines)


if __name__ == "__main__":
    renew(HERE / "wear-budget.md", {made.__name__: made for made in (amplification, speed, days, days_speed, young)})
