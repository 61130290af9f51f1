#!/usr/bin/env python3
"""The tables of tpch-databases.md from what `make bench-tpch` writes to target/bench.

`tpch_tables.py` renews the page; `tpch_tables.py NAME` prints a table.
"""

import json
import sys

from face_tables import HERE, renew, table

BENCH = HERE.parents[1] / "target" / "bench"
NONE = "–"


def runs(name):
    with open(BENCH / f"tpch-mariadb-{name}.json", encoding="utf-8") as file:
        return json.load(file)["runs"]


def title(run):
    return "the P4800X alone" if run["cache"] == "ssd-only" else f"{run['cache']} {run['size'] or ''}".replace("%", " %").strip()


def device_seconds(run):
    return sum(query["device_s"] for query in run["queries"])


def hits(pages):
    return f"{100 * pages['read_hits'] / pages['reads']:.1f} %" if pages and pages["reads"] else NONE


def mib(migrated):
    return NONE if migrated is None else f"{migrated / 2**20:.1f}"


def whole(name):
    def tell():
        all_runs = runs(name)
        none = all_runs[0]
        lines = []
        for run in all_runs:
            device, base = device_seconds(run), device_seconds(none)
            times = [f"{none['seconds'] / run['seconds']:.2f}", f"{device:.1f}", f"{base / device:.2f}"]
            lines.append([title(run), f"{run['seconds']:.1f}", *times, hits(run["pages"]), mib(run["migrated_bytes"])])
        return table("cache, seconds, times as fast, device s, times less, read hits, migrated MiB".split(", "), lines)

    return tell


def by_query(name, of):
    """Device seconds without a cache, and how many times less with each; means over the queries that `of` calls the same."""

    def tell():
        all_runs = runs(name)
        kinds = list(dict.fromkeys(of(query) for query in all_runs[0]["queries"]))
        kinds.sort(key=lambda kind: int(kind.split("_")[0][1:]))
        sums = [{kind: 0.0 for kind in kinds} for _ in all_runs]
        for run, seconds in zip(all_runs, sums):
            for query in run["queries"]:
                seconds[of(query)] += query["device_s"]
        lines = []
        for kind in kinds:
            number = sum(of(query) == kind for query in all_runs[0]["queries"])
            what = kind if number == 1 else f"{kind}, {number} of them"
            lines.append([what, f"{sums[0][kind] / number:.2f}"] + [f"{sums[0][kind] / other[kind]:.2f}" for other in sums[1:]])
        return table(["query", "none, s"] + [title(run) for run in all_runs[1:]], lines)

    return tell


def placement():
    lines = []
    for number in (3, 10, 16):
        for run in runs("placement"):
            queries = [query for query in run["queries"] if query["name"].startswith(f"Q{number}_")]
            each = [", ".join(tell(query) for query in queries) for tell in (
                lambda query: f"{query['device_s']:.2f}",
                lambda query: f"{query['placing_s']:.2f}" if query["placing_s"] > 0.01 else NONE,
                lambda query: hits(query["pages"]),
                lambda query: mib(query["migrated_bytes"]),
            )]
            lines.append([f"Q{number}", title(run)] + each)
    return table(["query, twice", "cache", "device s", "placing, s", "read hits", "migrated MiB"], lines)


TABLES = {
    "mixed": whole("mixed"),
    "mixed queries": by_query("mixed", lambda query: query["name"].split("_")[0]),
    "seven": whole("seven"),
    "seven queries": by_query("seven", lambda query: query["name"]),
    "placement": placement,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "tpch-databases.md", TABLES)
