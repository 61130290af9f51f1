#!/usr/bin/env python3
"""The tables of policy-choice.md: `auto` beside each of its candidates.

`policy_choice_tables.py` simulates what target/results/choice lacks (six minutes of one core; ENTRESOL names another
program) and renews the page.
"""

import json
import os
import subprocess

from face_tables import HERE, RESULTS, renew, table

TRACES = HERE.parents[2] / "shared" / "data" / "traces"
FOUND = RESULTS / "choice"
STREAMS = {
    "TPC-C above PostgreSQL's pool": "recorded/pg_tpcc_w20_prebuf.csv.zst",
    "PostgreSQL, TPC-C": "recorded/pg_tpcc_w20_sb32m.csv.zst",
    "MariaDB, TPC-C": "recorded/my_tpcc_w20_bp64m.csv.zst",
    "TPC-H above PostgreSQL's pool": "recorded/pg_tpch_sf0.1_prebuf.csv.zst",
    "PostgreSQL, TPC-H": "recorded/pg_tpch_sf1_sb64m.csv.zst",
    "MariaDB, TPC-H": "recorded/my_tpch_sf1_bp64m.csv.zst",
    "PostgreSQL, AuctionMark": "recorded/pg_auctionmark_sb16m_first1.2M.csv.zst",
    "PostgreSQL, Voter": "recorded/pg_voter_sb16m.csv.zst",
    "Filebench, file server": "recorded/filebench_fileserver.csv.zst",
    "OLTP": "public/OLTP.lis.zst",
    "P3": "public/P3.lis.zst",
    "phases": "generate:zipf:n=2M:pages=200k:exponent=0.9:ids=scattered:seed=1:write=20+loop:n=2M:pages=30k:base=300k"
    "+zipf:n=1500k:pages=200k:exponent=0.9:ids=scattered:seed=2:write=60|scan:n=500k:base=400k+uniform:n=2M:pages=22k:base=1M:write=30",
}
SIZES = ["2%", "5%", "10%", "20%"]
FIXED = ["reuse", "lru", "2q", "arc", "lirs", "s3-fifo", "w-tinylfu", "mq", "h-arc"]
BEFORE = "auto:of=lru/arc/s3-fifo/h-arc:first=1:gain=0.05:errors=2"
FETCHES = "auto:write=0:admission=0"
AUTOS = ["auto", BEFORE, FETCHES]


def simulated(stream):
    """Rows by size, each in the order of the policies."""
    path = FOUND / f"{stream.replace(' ', '-').replace(',', '')}.json"
    if not path.exists():
        FOUND.mkdir(parents=True, exist_ok=True)
        program = os.environ.get("ENTRESOL", HERE.parents[1] / "target" / "release" / "entresol")
        source = STREAMS[stream] if ":" in STREAMS[stream] else TRACES / STREAMS[stream]
        command = [program, "--quiet", "simulate", source, "--size", ",".join(SIZES), "--policy", ",".join(FIXED + AUTOS)]
        subprocess.run(command + ["--json", path], check=True, stdout=subprocess.DEVNULL)
    rows = json.loads(path.read_text())["results"]
    return {size: [row for row in rows if row["size"] == size] for size in SIZES}


def fetches(row):
    return row["fetches"] / row["requests"]


def cost(row):
    written = row["write_backs"] + row["write_bypasses"] + 0.1 * row["tiers"][0]["write_ios"]
    return fetches(row) + written / row["requests"]


def over(row, best, figure):
    ratio = figure(row) / figure(best)
    return f"**{ratio:.3f}**" if ratio > 1.02 else f"{ratio:.3f}"


def switches(row):
    return f"{dict(row['gauges'])['switches']:.0f}"


def recorded():
    lines = []
    for stream in STREAMS:
        for size, rows in simulated(stream).items():
            fixed, (auto, before, by_fetches) = rows[: len(FIXED)], rows[len(FIXED) :]
            best, least = min(fixed, key=cost), min(fixed, key=fetches)
            reuse, lru = fixed[FIXED.index("reuse")], fixed[FIXED.index("lru")]
            line = [stream, size, best["policy"], f"{cost(best):.4f}", over(lru, best, cost), over(reuse, best, cost)]
            line += [over(before, best, cost), over(auto, best, cost), switches(auto)]
            line += [least["policy"], over(reuse, least, fetches), over(by_fetches, least, fetches)]
            lines.append(line)
    head = "stream, cache, best, its cost, lru, reuse, auto before, auto, switches, fewest fetches, reuse, auto by fetches"
    return table(head.split(", "), lines)


def summary():
    cells = [rows for stream in STREAMS for rows in simulated(stream).values()]
    lines = []
    for name, at, figure in [
        ("lru", FIXED.index("lru"), cost),
        ("auto before", len(FIXED) + 1, cost),
        ("auto", len(FIXED), cost),
        ("reuse", FIXED.index("reuse"), cost),
        ("auto by fetches", len(FIXED) + 2, fetches),
        ("reuse, fetches alone", FIXED.index("reuse"), fetches),
    ]:
        lru = FIXED.index("lru")
        ratios = [figure(rows[at]) / min(map(figure, rows[: len(FIXED)])) for rows in cells]
        worse = sum(figure(rows[at]) > 1.01 * figure(rows[lru]) for rows in cells)
        within = f"{sum(ratio <= 1.02 for ratio in ratios)} of {len(ratios)}"
        lines.append([name, f"{sum(ratios) / len(ratios):.3f}", f"{max(ratios):.3f}", within, worse])
    return table(["policy", "mean", "worst", "within 1.02", "cells in which LRU has 1 % less"], lines)


if __name__ == "__main__":
    renew(HERE / "policy-choice.md", {"summary": summary, "recorded": recorded})
