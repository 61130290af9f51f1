#!/usr/bin/env python3
"""The tables of scans.md, from what `make bench-scans` writes to target/bench, with bridges and without."""

import statistics

from face_tables import HERE, renew, table
from layouts_live import interval, late
from tpcc_tables import hit_ratio, read


def scans(name):
    def tell():
        rounds = {}
        for run in read(name):
            rounds.setdefault(run["cache"], []).append(run)
        rate = "transactions_per_second"
        lines = []
        for cache, its in rounds.items():
            middle = sorted(its, key=lambda run: run[rate])[len(its) // 2]
            below, scanned = middle["backing_device"], middle[rate] * middle["looked_s"]
            lines.append([
                cache,
                f"{60 * statistics.median(run[rate] for run in its):.1f}",
                interval([mine[rate] / other[rate] for mine, other in zip(its, rounds["none"])]),
                hit_ratio(middle) if middle["cache_device"] else "–",
                f"{below['reads'] / scanned:.0f}",
                f"{below['read_bytes'] / below['reads'] / 1024:.0f}",
                f"{max(map(late, its)):.1f} %",
            ])
        head = ["cache", "scans/min (median)", "against none", "hit ratio", "reads below a scan", "mean KiB", "late at most"]
        return table(head, lines)

    return tell


if __name__ == "__main__":
    renew(HERE / "scans.md", {"with": scans("scans"), "without": scans("scans-without")})
