#!/usr/bin/env python3
"""Why rows of book.md are not reproduced: one assumption varied at a time, beside the paper's number.

`make reasons` fills `<!-- reason: NAME -->` in the pages of PAGES; `reasons_tables.py NAME` prints one table. Inputs are the recorded traces of
../shared; a table whose trace is absent is left as it is. Two to three minutes.
"""

import collections
import json
import re
import subprocess
import sys

from face_tables import HERE, RESULTS, SHARED, renew
from models_tables import PROFILES, run, table

RECORDED = SHARED / "recorded"
WORK = RESULTS / "reasons"
DATABASES = {"PostgreSQL": "pg_tpcc_w20_sb32m", "MariaDB": "my_tpcc_w20_bp64m"}


def simulated(trace, *options):
    """Results of a simulation by policy with its options, and size."""
    if not trace.exists():
        raise FileNotFoundError(2, "no trace", str(trace))
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / "simulated.json"
    run("-q", "simulate", trace, *options, "--json", path)
    found = {}
    for row in json.loads(path.read_text())["results"]:
        options = row["options"].strip("+")
        found[row["policy"] + (f":{options}" if options else ""), row["size"]] = row
    return found


def recorded(name):
    return RECORDED / f"{name}.csv.zst"


def reads_only(name):
    """A recorded trace without its writes."""
    WORK.mkdir(parents=True, exist_ok=True)
    if not recorded(name).exists():
        raise FileNotFoundError(2, "no trace", str(recorded(name)))
    path = WORK / f"{name}.csv"
    lines = subprocess.run(["zstdcat", recorded(name)], check=True, capture_output=True, text=True).stdout.splitlines()
    path.write_text("\n".join(line for line in lines if line.split(",")[1] != "W") + "\n")
    (WORK / f"{name}.meta.json").write_bytes((RECORDED / f"{name}.meta.json").read_bytes())
    pages = RECORDED / f"{name}.pages.csv.zst"
    if pages.exists():
        (WORK / pages.name).write_bytes(pages.read_bytes())
    return path


def checkpoints():
    """004, figure 5.8: the median checkpoint of each program by the rate of the file system."""
    rates, times = (1, 2, 4), {}
    for load in ("medium", "heavy"):
        for rate in rates:
            out = run("burst", "simulate", "--workload", load, "--pfs", rate, "--figures", "-p", "ldbb", "-p", "cdbb")
            part = out[out.index("(figure 5.8)") :]
            for program, policy, third in re.findall(r"^(\S+) +(ldbb|cdbb) +[\d.]+ +[\d.]+ +([\d.]+)", part, re.MULTILINE):
                times.setdefault((load, program), {})[policy, rate] = float(third)
    lines = []
    for (load, program), found in times.items():
        cells = [f"{load}, {program}"]
        for policy in ("ldbb", "cdbb"):
            at = [found[policy, rate] for rate in rates]
            cells += [f"{value:.2f}" for value in at] + [f"{max(at) / min(at):.2f}"]
        lines.append(cells)
    head = ["third checkpoint, s"] + [f"{policy}, {rate} GB/s" if rate else f"{policy}, slowest / fastest" for policy in ("ldbb", "cdbb") for rate in (*rates, None)]
    return table(head, lines)


def direct_writes():
    """003, figure 12: pages written to NVM by B, over those of C and D, by D_w."""
    shares, turned = ("0.01", "0.1", "0.5", "1"), {"B": "1", "C": "0.5", "D": "0.3"}
    name = "multi-tier:dr=0.01:dw={}:nr=0.2:nw={}"
    policies = [name.format(share, n) for share in shares for n in turned.values()]
    found = simulated(recorded("pg_tpcc_w20_prebuf"), "-p", ",".join(policies), "--dram", "1.2%", "--size", "77%", "--warmup", "0.5")
    written = {}
    for row in found.values():
        options = dict(option.split("=") for option in row["options"].strip("+").split(":"))
        nvm = row["tiers"][1]
        written[options["dw"], options["nw"]] = nvm["installed"] + nvm["copied_in"] + nvm["fetched"]
    lines = []
    for share in shares:
        of = {policy: written[share, n] for policy, n in turned.items()}
        lines.append([share, *(f"{of[policy] / 1e3:.0f}" for policy in of), f"{of['B'] / of['C']:.2f}", f"{of['B'] / of['D']:.2f}"])
    lines.append(["003, figure 12", "", "", "", "1.4", "2.1"])
    return table(["D_w", "B, thousand pages", "C", "D", "B / C", "B / D"], lines)


def aging():
    """004, figure 4.9: write hits of Hibachi by its aging and its threshold, beside Hybrid-LRU's."""
    limits, lines = ("1", "2", "5.5", "20", "1000000"), []
    policies = ["hybrid-lru"] + [f"hibachi:threshold={threshold}:aging={limit}" for threshold in ("10", "100000") for limit in limits]
    for database, name in DATABASES.items():
        found = simulated(recorded(name), "-p", ",".join(policies), "--size", "16384p")
        rows = list(found.values())
        share = lambda row: f"{100 * row['write_hits'] / row['writes']:.1f} · {100 * row['read_hits'] / row['reads']:.1f}"
        for start, threshold in ((1, "10"), (1 + len(limits), "never")):
            cells = [share(row) for row in rows[start : start + len(limits)]]
            lines.append([database, threshold, *cells, share(rows[0])])
    return table(["write · read hits, %", "groups above", "aging 1", "2", "5.5", "20", "never", "hybrid-lru"], lines, 2)


def reads():
    """000, figure 3.6: hits on the recorded TPC-C, and without its writes."""
    policies, sizes, lines = ["heuristicdb", "lru", "mq", "lfu", "lfu:counts=all", "tac"], ["10%", "21%"], []
    for database, name in DATABASES.items():
        for what, trace in (("all", recorded(name)), ("reads alone", reads_only(name))):
            found = simulated(trace, "-p", ",".join(policies), "--size", ",".join(sizes))
            for size in sizes:
                row = [found[policy, size] for policy in policies]
                lines.append([f"{database}, {what}", size] + [f"{100 * (of['read_hits'] + of['write_hits']) / of['requests']:.1f}" for of in row])
    return table(["hits, %", "size", *policies], lines, 2)


def rates():
    """001, figure 7: I/Os of FaCE-GSC and LC to the 840 Pro by the disks below and by what is counted."""
    profile, lines = (PROFILES / "face-raid0x16.toml").read_text(), []
    free = profile.split("\n# Sixteen such disks")[0] + "\n"
    WORK.mkdir(parents=True, exist_ok=True)
    for disks, text in ((16, profile), (32, free), (64, free)):
        below = WORK / f"raid0x{disks}.toml"
        below.write_text(text.replace("members = 16", f"members = {disks}"))
        tiers = f"dram=dram:0.4%,cache=840-pro,backing={below}"
        options = "--page-size", 4096, "--warmup", "0.5", "--clients", 50, "--waf", "curve", "-p", "face-gsc,lc", "--size", "16%", "--tiers", tiers
        found = {policy: row["timed"] for (policy, _), row in simulated(recorded("pg_tpcc_w20_prebuf"), *options).items()}
        cells = [f"{disks}" if disks > 16 else "16, controller"]
        for what in ("ios", "pages"):
            rate = {}
            for policy, timed in found.items():
                flash = timed["devices"][1]
                moved = (flash["read_bytes"] + flash["write_bytes"]) / 4096
                rate[policy] = (flash["reads"] + flash["writes"] if what == "ios" else moved) / timed["elapsed_seconds"] / 1e3
            cells += [f"{rate['face-gsc']:.1f}", f"{rate['lc']:.1f}", f"{rate['face-gsc'] / rate['lc']:.2f}"]
        lines.append(cells)
    return table(["disks", "thousand I/Os a second: FaCE-GSC", "LC", "ratio", "thousand pages a second: FaCE-GSC", "LC", "ratio"], lines)


def cut(trace, first, requests):
    """A part of P6: its lines by the page requests before them."""
    lines, before = [], 0
    for line in subprocess.run(["zstdcat", trace], check=True, capture_output=True, text=True).stdout.splitlines():
        if first <= before < first + requests:
            lines.append(line)
        before += int(line.split()[1])
    path = WORK / "part.lis"
    path.write_text("\n".join(lines) + "\n")
    return path


def phases():
    """000, figure 4.5: hits of ExpCache and LeCaR in parts of P6, in the whole run and begun anew with an empty cache."""
    trace, each, lines = SHARED / "public" / "P6.lis.zst", 2_000_000, []
    policies = ["expcache", "lecar"]
    whole = simulated(trace, "-p", ",".join(policies), "--size", "10%", "--interval", each)
    pages = next(iter(whole.values()))["capacity_pages"]
    for part, first in enumerate(range(0, 12_000_000, each)):
        anew = simulated(cut(trace, first, each), "-p", ",".join(policies), "--size", f"{pages}p")
        cells = [f"{first // 1_000_000} to {(first + each) // 1_000_000}"]
        for policy in policies:
            of = whole[policy, "10%"]["series"][part]
            now = anew[policy, f"{pages}p"]
            cells += [f"{100 * of['hits'] / of['requests']:.1f}", f"{100 * now['read_hits'] / now['reads']:.1f}"]
        lines.append(cells)
    return table(["million requests", "ExpCache, whole run, %", "begun anew", "LeCaR, whole run", "begun anew"], lines)


def skew():
    """003, figure 3: references to the hottest quarter of the pages of the recorded TPC-C, below an LRU pool of so many pages."""
    if not recorded("pg_tpcc_w20_prebuf").exists():
        raise FileNotFoundError(2, "no trace", str(recorded("pg_tpcc_w20_prebuf")))
    pages = []
    lines = subprocess.run(["zstdcat", recorded("pg_tpcc_w20_prebuf")], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        kind, _, item, block = line.split(",")
        if kind in ("G", "M", "X"):
            pages.append((item, block))
    touched, cells, counted = len(set(pages)), [], []
    pools = (0, 16, 64, 256, 1024, 4096)
    for size in pools:
        pool, counts = collections.OrderedDict(), collections.Counter()
        for page in pages:
            if page in pool:
                pool.move_to_end(page)
                continue
            counts[page] += 1
            if size:
                pool[page] = None
                if len(pool) > size:
                    pool.popitem(last=False)
        total, quarter = sum(counts.values()), touched // 4
        cells.append(f"{100 * sum(count for _, count in counts.most_common(quarter)) / total:.1f}")
        counted.append(f"{total / 1e3:.0f}")
    head = ["pool above, pages"] + [str(size) for size in pools] + ["003"]
    return table(head, [["references counted, thousands", *counted, ""], ["to the hottest quarter, %", *cells, "87"]])


PAGES = {
    "recorded-tpcc.md": {"phases": phases},
    "burst-simulated.md": {"checkpoints": checkpoints},
    "multi-tier-003.md": {"skew": skew, "direct-writes": direct_writes},
    "io-cache-hibachi.md": {"aging": aging},
    "recorded-tpch-heuristicdb.md": {"reads": reads},
    "face-lc-with-time.md": {"rates": rates},
}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(next(reasons for reasons in PAGES.values() if sys.argv[1] in reasons)[sys.argv[1]]())
    else:
        for name, reasons in PAGES.items():
            renew(HERE / name, reasons, "reason")
