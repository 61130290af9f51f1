#!/usr/bin/env python3
"""The table of sequential-cutoff.md: policies on recorded traces with and without a sequential cutoff.

`cutoff_tables.py` simulates what target/results/cutoff lacks (two minutes of one core; ENTRESOL names another program) and renews
the page.
"""

from face_tables import HERE, RESULTS, renew, simulated, table

# Pages in use in the order of their numbers' hashes, and one scan of all of them.
ZIPF = "zipf:n=1M:pages=200k:write=30:ids=scattered"
STREAMS = {
    "PostgreSQL, TPC-H": "recorded/pg_tpch_sf1_sb64m.csv.zst",
    "MariaDB, TPC-H": "recorded/my_tpch_sf1_bp64m.csv.zst",
    "PostgreSQL, TPC-C": "recorded/pg_tpcc_w20_sb32m.csv.zst",
    "MariaDB, TPC-C": "recorded/my_tpcc_w20_bp64m.csv.zst",
    "PostgreSQL, AuctionMark": "recorded/pg_auctionmark_sb16m_first1.2M.csv.zst",
    "a scan between requests": f"generate:{ZIPF}:seed=3+scan:n=200k+{ZIPF}:seed=4",
}
CUTOFFS = ["0", "1MiB", "4MiB"]
POLICIES = ["lru", "arc", "h-arc", "face-gsc", "reuse"]


def found(stream, cutoff):
    """Rows by policy."""
    path = RESULTS / "cutoff" / f"{stream.replace(', ', '-')}-{cutoff}.json"
    options = ["--policy", ",".join(POLICIES), "--size", "10%", "--sequential-cutoff", cutoff]
    return {row["policy"]: row for row in simulated(path, STREAMS[stream], *options)}


def cutoffs():
    head = ["trace", "policy"] + [f"{what}, {cutoff}" for what in ("hits, %", "bypassed, %") for cutoff in CUTOFFS]
    lines = []
    for stream in STREAMS:
        each = [found(stream, cutoff) for cutoff in CUTOFFS]
        for policy in POLICIES:
            rows = [one[policy] for one in each]
            hits = [f"{100 * (row['read_hits'] + row['write_hits']) / row['requests']:.1f}" for row in rows]
            bypassed = [f"{100 * row['bypasses'] / row['requests']:.1f}" for row in rows]
            lines.append([stream, policy] + hits + bypassed)
    return table(head, lines)


if __name__ == "__main__":
    renew(HERE / "sequential-cutoff.md", {"cutoffs": cutoffs})
