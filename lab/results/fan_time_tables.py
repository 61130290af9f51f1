#!/usr/bin/env python3
"""Writes the tables of io-cache-hibachi-time.md from target/results, which the page's commands fill.

`fan_time_tables.py` renews the page, `fan_time_tables.py NAME` prints one table. `fan_time_tables.py seconds TRACE` prints after how many seconds of a
trace to flush for as many requests in between as 30 seconds of rsrch_0 have.
"""

import json
import sys

from face_tables import HERE, RESULTS, percent, renew, rows, table, thousands, written

DISK_TRACES = ["pg-tpcc", "my-tpcc", "filebench", "postmark", "iozone"]
TRACES = DISK_TRACES + ["tencent"]
PAGES = ["1024p", "2048p", "4096p", "8192p", "16384p", "32768p"]
WEEK = 7 * 24 * 3600
MIB = [8, 16, 32, 64, 128, 256]
RIVALS = ["lru", "lru-dram", "cflru", "lru-wsr", "longest"]
ARRIVALS = {"disk": "by the trace's times", "alone": "one at a time"}


def busy(row):
    """Seconds in which the disk had work: the thesis's I/O completion time."""
    return row["timed"]["devices"][-1]["utilisation"] * row["timed"]["elapsed_seconds"]


def cells(name):
    return {(row["policy"], row["size"]): row for row in rows(name)}


def io_cache_over(kind):
    """I/O-Cache's I/O time in per cent of the others': mean over the sizes, least, greatest."""
    lines = [["004, rsrch_0", "74.3, 49.1", "73.4, 49.9", "73.8, 49.3", "74.3, 49.3", "51.4, 25.7"]]
    lines.append(["004, wdev_0", "78.3, 56.1", "69.8, 52.7", "78.2, 56.2", "78.5, 56.3", "70.4, 31.8"])
    for trace in DISK_TRACES:
        found = cells(f"{kind}-{trace}")
        line = [trace]
        for rival in RIVALS:
            shares = [100 * busy(found["io-cache", size]) / busy(found[rival, size]) for size in PAGES]
            line.append(f"{sum(shares) / len(shares):.1f}, {min(shares):.1f} (to {max(shares):.1f})")
        lines.append(line)
    return table(["trace"] + RIVALS, lines)


def by_pages():
    """I/O-Cache's I/O time in per cent of LRU's at each size."""
    lines = []
    for trace in DISK_TRACES:
        for kind, name in ARRIVALS.items():
            found = cells(f"{kind}-{trace}")
            line = [trace, name]
            line += [f"{100 * busy(found['io-cache', size]) / busy(found['lru', size]):.1f}" for size in PAGES]
            for policy in ("io-cache", "lru"):
                line.append(f"{100 * busy(found[policy, '32768p']) / busy(found[policy, '1024p']):.1f}")
            lines.append(line)
    return table(["trace", "requests"] + PAGES + ["I/O-Cache, 32 Ki of 1 Ki", "LRU, 32 Ki of 1 Ki"], lines)


def disk_io(size):
    """What the disk is asked for, one request at a time: thousand reads and writes, their mean latencies."""
    lines = []
    for trace in DISK_TRACES:
        found = cells(f"alone-{trace}")
        for policy in ("lru", "io-cache", "longest"):
            row = found[policy, size]
            disk = row["timed"]["devices"][-1]
            lines.append([trace, policy, f"{busy(row):.0f}", thousands(disk["reads"]), thousands(disk["writes"])])
            lines[-1] += [f"{disk['mean_write_bytes'] / 1024:.0f}", percent(disk["sequential_writes"], 1)]
            lines[-1] += [f"{disk['mean_read_us'] / 1000:.2f}", f"{disk['mean_write_us'] / 1000:.2f}"]
    head = ["trace", "policy", "I/O time, s", "thousand reads", "thousand writes", "kB a write", "sequential, %"]
    return table(head + ["ms a read", "ms a write"], lines)


def throughput(row):
    """MB a second while a write is under way: what a writer sees that waits for each."""
    array = row["timed"]["devices"][-1]
    return array["write_bytes"] / (array["writes"] * array["mean_write_us"])


def array(kind):
    lines = []
    for trace in DISK_TRACES:
        found = {mib: {row["policy"]: row for row in rows(f"{kind}-{trace}-{mib // 2}")} for mib in MIB}
        for policy in ("hybrid-lru", "hybrid-arc", "hibachi"):
            lines.append([trace, policy] + [f"{throughput(found[mib][policy]):.2f}" for mib in MIB])
        for rival in ("hybrid-lru", "hybrid-arc"):
            times = [throughput(found[mib]["hibachi"]) / throughput(found[mib][rival]) for mib in MIB]
            lines.append([trace, f"hibachi / {rival}"] + [f"{ratio:.2f}" for ratio in times])
    return table(["trace", "MB a second"] + [f"{mib} MiB" for mib in MIB], lines)


def whole(kind):
    """Hibachi's time for the whole trace, reads too, in per cent of Hybrid-LRU's."""
    lines = []
    for trace in DISK_TRACES:
        line = [trace]
        for mib in MIB:
            found = {row["policy"]: busy(row) for row in rows(f"{kind}-{trace}-{mib // 2}")}
            line.append(f"{100 * found['hibachi'] / found['hybrid-lru']:.1f}")
        lines.append(line)
    return table(["trace"] + [f"{mib} MiB" for mib in MIB], lines)


def total(row):
    """Pages written to storage, with those that are still to be written."""
    return written(row) + row["dirty_at_end"]


def seconds(trace):
    """Seconds of a trace in which it makes as many page requests as rsrch_0 (3,044,209 in a week) makes in 30 seconds."""
    stat = json.loads((RESULTS / f"stat-{trace}.json").read_text())
    return 30 * 3_044_209 / WEEK * stat["span_us"] / 1e6 / stat["page_requests"]


def less(trace, mib, baseline):
    """Writes less than LRU's with flushes, per cent, for each size of the NVRAM."""
    base = total(next(row for row in rows(f"{baseline}-{trace}-{mib}") if row["policy"] == "lru-dram"))
    return [percent(base - total(row), base) for row in rows(f"nvram-{trace}-{mib}")]


def nvram(baseline, shares):
    lines = []
    for trace in DISK_TRACES:
        found = [less(trace, mib, baseline) for mib in MIB]
        for at, share in enumerate(("1.56 %", "6.25 %", "25 %", "100 %")):
            if share in shares:
                lines.append([trace, share] + [line[at] for line in found])
    return table(["trace", "NVRAM of DRAM"] + [f"{mib} MiB" for mib in MIB], lines)


def flushes(kind):
    """Thousand pages that LRU with flushes writes, and the share of them that it would not write without."""
    lines = []
    for trace in DISK_TRACES:
        line = [trace]
        for mib in MIB:
            plain, flushed = (total(row) for row in rows(f"{kind}-{trace}-{mib}"))
            line.append(f"{thousands(flushed)} · {percent(flushed - plain, flushed)}")
        lines.append(line)
    return table(["trace"] + [f"{mib} MiB" for mib in MIB], lines)


def slower():
    """004's average latency of read hits with NVRAM 5 and 10 times as slow as DRAM, as multiples of that with NVRAM as fast."""
    lines = []
    for trace in TRACES:
        found = [row for row in rows(f"hybrid-{trace}") if row["policy"] == "hibachi"]
        if not any(row["read_hits"] for row in found):
            continue
        for times in (5, 10):
            line = [trace, f"{times} times"]
            for row in found:
                dram, nvram = (tier["read_hits"] for tier in row["tiers"])
                line.append(f"{(dram + times * nvram) / (dram + nvram):.2f}")
            lines.append(line)
    return table(["trace", "NVRAM slower"] + [f"{mib} MiB" for mib in MIB], lines)


TABLES = {
    "by the trace's times": lambda: io_cache_over("disk"),
    "one at a time": lambda: io_cache_over("alone"),
    "by pages": by_pages,
    "disk 4096p": lambda: disk_io("4096p"),
    "disk 32768p": lambda: disk_io("32768p"),
    "array 64": lambda: array("array"),
    "array 512": lambda: array("array512"),
    "whole 64": lambda: whole("array"),
    "nvram": lambda: nvram("flushed", ("1.56 %", "6.25 %", "25 %", "100 %")),
    "nvram, by requests": lambda: nvram("often", ("1.56 %", "6.25 %", "25 %", "100 %")),
    "flushes": lambda: flushes("flushed"),
    "flushes, by requests": lambda: flushes("often"),
    "slower": slower,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["seconds"]:
        print(f"{seconds(sys.argv[2]):.6f}")
    elif len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "io-cache-hibachi-time.md", TABLES)
