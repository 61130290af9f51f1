#!/usr/bin/env python3
"""The tables of reuse.md: the policy `reuse` beside others on the recorded streams.

`reuse_tables.py` simulates what target/results/reuse lacks (ten minutes of one core; ENTRESOL names another program)
and renews the page. An interrupted run goes on where it ended.
"""

import math

import face_tables
from face_tables import HERE, RESULTS, label, renew, table

FOUND = RESULTS / "reuse"
SIZES = ["5%", "10%", "20%"]
# Streams with writes. Those that no choice of a constant was made on are marked.
STREAMS = {
    "PostgreSQL, TPC-C": "recorded/pg_tpcc_w20_sb32m.csv.zst",
    "MariaDB, TPC-C": "recorded/my_tpcc_w20_bp64m.csv.zst",
    "PostgreSQL, AuctionMark": "recorded/pg_auctionmark_sb16m_first1.2M.csv.zst",
    "PostgreSQL, Voter (held out)": "recorded/pg_voter_sb16m.csv.zst",
    "Filebench, file server (held out)": "recorded/filebench_fileserver.csv.zst",
    "PostgreSQL, TPC-C before the pool (held out)": "recorded/pg_tpcc_w20_prebuf.csv.zst",
    "PostgreSQL, TPC-H (held out)": "recorded/pg_tpch_sf1_sb64m.csv.zst",
    "MariaDB, TPC-H (held out)": "recorded/my_tpch_sf1_bp64m.csv.zst",
}
LIRS = "2_pools backf cpp cs gli loop multi1 multi2 multi3 ps scan sprite zigzag".split()
READS = {
    "OLTP": "public/OLTP.lis.zst",
    "P3 (held out)": "public/P3.lis.zst",
    "P6": "public/P6.lis.zst",
} | {f"{name} (LIRS set)": f"public/lirs/{name}.trace.gz" for name in LIRS}
BASE = "heuristicdb"
THROUGH = [f"reuse:writes=through:price={price}" for price in ("0", "0.33", "0.65")]
OTHERS = ["face-gsc", "lru", "lirs", "s3-fifo", "w-tinylfu", "mq", "min"]
ONLINE = """lru lfu lfu-aging lru-2 2q mq arc car lirs clock-pro lecar cacheus expcache s3-fifo sieve w-tinylfu
    heuristicdb""".split()
COLD = 500_000
# Bound on the wear of a log, as in the design: for each page that is written, and for each that is read.
WEAR = "amplification=1.8+0.04"
IN_SEGMENTS = ["--layout", "segments", "--wear", WEAR, "--warmup", "0.5"]


def simulated(source, policies, which, sizes=SIZES):
    """Rows by policy with its options and size. `which` is half, whole, cold or segments."""
    path = FOUND / f"{source.split('/')[-1].split('.')[0]}-{which}.json"
    given = {"half": ["--warmup", "0.5"], "whole": [], "cold": ["--limit", COLD], "segments": IN_SEGMENTS}
    options = ["--policy", ",".join(policies), "--size", ",".join(sizes), "-j", "1", *given[which]]
    found = face_tables.simulated(path, source, *options)
    return {(label(row), row["size"]): row for row in found}


def written(source, which):
    return simulated(source, [BASE, "reuse", "reuse:price=0.33", *THROUGH, *OTHERS], which)


def disk(row):
    return row["fetches"] + row["write_backs"] + row["write_bypasses"]


def drained(row):
    return disk(row) + row["dirty_at_end"]


def flash(row):
    return sum(tier["fetched"] + tier["installed"] + tier["copied_in"] + tier["requeued"] for tier in row["tiers"][-1:])


def fetches(row):
    return row["fetches"]


def ratio(rows, policy, size, figure):
    return figure(rows[policy, size]) / max(1, figure(rows[BASE, size]))


def share_of_writes(source):
    row = written(source, "half")[BASE, SIZES[0]]
    return row["writes"] / row["requests"]


def mean(values):
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))


def pairs(policies, which, figure):
    """A line a stream and policy: a figure and the flash pages, relative to the base."""
    lines = []
    for name, source in STREAMS.items():
        rows = written(source, which)
        for policy in policies:
            both = [[ratio(rows, policy, size, of) for of in (figure, flash)] for size in SIZES]
            cells = [f"{disk_ios:.3f} / {pages:.2f}" for disk_ios, pages in both]
            lines.append([name, f"{100 * share_of_writes(source):.0f}", policy] + cells)
    return table(["stream", "writes, %", "policy"] + SIZES, lines)


def slots():
    return pairs(["reuse", "reuse:price=0.33"], "half", disk)


def slots_whole():
    return pairs(["reuse", "reuse:price=0.33"], "whole", drained)


def through():
    return pairs(THROUGH, "half", fetches)


def through_means():
    lines = []
    busy = [source for source in STREAMS.values() if share_of_writes(source) > 0.05]
    paged = [source for source in STREAMS.values() if "filebench" not in source]
    of_databases = ("all but the file server", paged)
    for what, sources in (("all streams", STREAMS.values()), of_databases, ("more than 5 % writes", busy)):
        for policy in THROUGH:
            cells = []
            for size in SIZES:
                of = [(written(source, "half"), policy, size) for source in sources]
                both = [mean([ratio(*one, figure) for one in of]) for figure in (fetches, flash)]
                cells.append(f"{both[0]:.3f} / {both[1]:.2f}")
            lines.append([what, policy] + cells)
    return table(["geometric mean over", "policy"] + SIZES, lines)


def others():
    lines = []
    for name, source in STREAMS.items():
        rows = written(source, "half")
        lines.append([name] + [f"{ratio(rows, policy, '10%', disk):.3f}" for policy in ["reuse", *OTHERS]])
    return table(["stream, 10 %", "reuse", *OTHERS], lines)


def reads():
    lines, within, cells_all = [], 0, 0
    for name, source in READS.items():
        rows = simulated(source, ["reuse", *ONLINE], "half")
        cells = []
        for size in SIZES:
            least, best = min((fetches(rows[policy, size]), policy) for policy in ONLINE)
            found = fetches(rows["reuse", size]) / max(1, least)
            within, cells_all = within + (found <= 1.02), cells_all + 1
            cells.append(f"{found:.3f} ({best})")
        lines.append([name] + cells)
    return table(["reads"] + SIZES, lines) + f"\n\n{within} of {cells_all} cells within 1.02."


def segments():
    """In a log of segments, against the base over slots."""
    lines = []
    for name, source in STREAMS.items():
        if share_of_writes(source) <= 0.05:
            continue
        rows = simulated(source, ["reuse"], "segments") | {(BASE, size): written(source, "half")[BASE, size] for size in SIZES}
        both = [[ratio(rows, "reuse", size, of) for of in (disk, flash)] for size in SIZES]
        spent = [flash(rows["reuse", size]) / rows["reuse", size]["writes"] for size in SIZES]
        cells = [f"{io:.3f} / {pages:.2f} / {amp:.2f}" for (io, pages), amp in zip(both, spent)]
        lines.append([name] + cells)
    return table(["disk I/O / flash / flash pages a written one"] + SIZES, lines)


def cold():
    lines = []
    for name, source in (STREAMS | dict(list(READS.items())[:3])).items():
        rows = simulated(source, [BASE, "reuse", "lru", "w-tinylfu"], "cold")
        cells = [f"{ratio(rows, policy, '10%', drained):.3f}" for policy in ("reuse", "lru", "w-tinylfu")]
        lines.append([name] + cells)
    return table(["first 500,000 requests, 10 %", "reuse", "lru", "w-tinylfu"], lines)


if __name__ == "__main__":
    made = [slots, slots_whole, through, through_means, others, reads, cold, segments]
    renew(HERE / "reuse.md", {function.__name__: function for function in made})
