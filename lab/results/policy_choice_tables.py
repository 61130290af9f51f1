#!/usr/bin/env python3
"""The tables of policy-choice.md: `auto` beside each of its candidates.

`policy_choice_tables.py` simulates what target/results/choice lacks (six minutes of one core; ENTRESOL names another
program) and renews the page.
"""

from face_tables import HERE, RESULTS, renew, simulated, table

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
POLICIES = FIXED + ["auto", BEFORE, FETCHES]


def cells(stream):
    """Rows by policy, for each size."""
    path = RESULTS / "choice" / f"{stream.replace(' ', '-').replace(',', '')}.json"
    rows = simulated(path, STREAMS[stream], "--size", ",".join(SIZES), "--policy", ",".join(POLICIES))
    return {size: dict(zip(POLICIES, (row for row in rows if row["size"] == size), strict=True)) for size in SIZES}


def fetches(row):
    return row["fetches"] / row["requests"]


def cost(row):
    written = row["write_backs"] + row["write_bypasses"] + 0.1 * row["tiers"][0]["write_ios"]
    return fetches(row) + written / row["requests"]


def best(rows, figure):
    """The candidate with the least."""
    return min((rows[name] for name in FIXED), key=figure)


def ratio(rows, name, figure):
    return figure(rows[name]) / figure(best(rows, figure))


def over(rows, name, figure):
    found = ratio(rows, name, figure)
    return f"**{found:.3f}**" if found > 1.02 else f"{found:.3f}"


def recorded():
    lines = []
    for stream in STREAMS:
        for size, rows in cells(stream).items():
            line = [stream, size, best(rows, cost)["policy"], f"{cost(best(rows, cost)):.4f}"]
            line += [over(rows, name, cost) for name in ("lru", "reuse", BEFORE, "auto")]
            line += [f"{dict(rows['auto']['gauges'])['switches']:.0f}", best(rows, fetches)["policy"]]
            lines.append(line + [over(rows, name, fetches) for name in ("reuse", FETCHES)])
    head = "stream, cache, best, its cost, lru, reuse, auto before, auto, switches, fewest fetches, reuse, auto by fetches"
    return table(head.split(", "), lines)


def summary():
    all_cells = [rows for stream in STREAMS for rows in cells(stream).values()]
    lines = []
    for title, name, figure in [
        ("lru", "lru", cost),
        ("auto before", BEFORE, cost),
        ("auto", "auto", cost),
        ("reuse", "reuse", cost),
        ("auto by fetches", FETCHES, fetches),
        ("reuse, fetches alone", "reuse", fetches),
    ]:
        ratios = [ratio(rows, name, figure) for rows in all_cells]
        worse = sum(figure(rows[name]) > 1.01 * figure(rows["lru"]) for rows in all_cells)
        within = f"{sum(found <= 1.02 for found in ratios)} of {len(ratios)}"
        lines.append([title, f"{sum(ratios) / len(ratios):.3f}", f"{max(ratios):.3f}", within, worse])
    return table(["policy", "mean", "worst", "within 1.02", "cells in which LRU has 1 % less"], lines)


if __name__ == "__main__":
    renew(HERE / "policy-choice.md", {"summary": summary, "recorded": recorded})
