#!/usr/bin/env python3
"""The tables of tpch-databases.md and ch-databases.md from what `make bench-tpch` and `make bench-ch` write to target/bench.

`tpch_tables.py` renews the pages; `tpch_tables.py NAME` prints a table.
"""

import json
import sys

from face_tables import HERE, renew, table

BENCH = HERE.parents[1] / "target" / "bench"
NONE = "–"
ORDER = ["lru", "tac", "heuristicdb"]


def read(name):
    with open(BENCH / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)["runs"]


def runs(name):
    """The runs of `make bench-tpch-NAME`, the one without a cache first; that of all queries has a file for each cache."""
    each = f"tpch-mariadb-{name}"
    if not (BENCH / each).is_dir():
        return read(each)
    apart = sorted((file.stem for file in (BENCH / each).glob("*@*.json")), key=lambda cache: (ORDER.index(cache.split("@")[0]), cache))
    none, alone = read(f"{each}/none")
    return [none, *(run for cache in apart for run in read(f"{each}/{cache}")), alone]


def title(run):
    return "the fast device alone" if run["cache"] == "ssd-only" else f"{run['cache']} {run.get('size') or ''}".replace("%", " %").strip()


def device_seconds(run):
    return sum(query["device_s"] for query in run["queries"])


def hits(pages):
    return f"{100 * pages['read_hits'] / pages['reads']:.1f} %" if pages and pages["reads"] else NONE


def mib(migrated):
    return NONE if migrated is None else f"{migrated / 2**20:.1f}"


def less(none, seconds):
    """How many times less than without a cache; a query may ask for nothing that the one before has not left in memory."""
    return f"{none / seconds:.2f}" if seconds else NONE


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
            lines.append([what, f"{sums[0][kind] / number:.2f}"] + [less(sums[0][kind], other[kind]) for other in sums[1:]])
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


def both(database):
    """Clients and analysts at the same time."""

    def tell():
        all_runs = read(f"ch-{database}")
        none = all_runs[0]
        lines = []
        for run in all_runs:
            latency, pages = run["transactions"]["New-Order"]["latency_ns"], run["pages"]
            asked = pages and pages["reads"] + pages["writes"]
            lines.append([
                title(run),
                f"{run['new_orders_per_minute']:.0f}",
                f"{run['new_orders_per_minute'] / none['new_orders_per_minute']:.2f}",
                f"{latency['p50'] / 1e6:.0f}, {latency['p99'] / 1e6:.0f}",
                f"{run['queries_per_hour']:.0f}",
                f"{100 * (pages['read_hits'] + pages['write_hits']) / asked:.1f} %" if asked else NONE,
                NONE if run["cache"] == "ssd-only" else f"{100 * run['backing_device']['busy_s'] / run['looked_s']:.0f} %",
                mib(run["cache_device"] and run["cache_device"]["written_bytes"]),
            ])
        head = "cache; new orders/min; against none; p50, p99, ms; queries/h; hits; array busy; written to the cache, MiB"
        return table(head.split("; "), lines)

    return tell


TABLES = {
    "mixed": whole("mixed"),
    "mixed queries": by_query("mixed", lambda query: query["name"].split("_")[0]),
    "seven": whole("seven"),
    "seven queries": by_query("seven", lambda query: query["name"]),
    "all": whole("all"),
    "all queries": by_query("all", lambda query: query["name"]),
    "placement": placement,
    "ch postgresql": both("postgresql"),
    "ch mariadb": both("mariadb"),
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        for page in ("tpch-databases.md", "ch-databases.md"):
            renew(HERE / page, TABLES)
