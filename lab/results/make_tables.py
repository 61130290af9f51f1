#!/usr/bin/env python3
"""Fills in the tables of the pages named in PAGES from what `entresol` wrote into target/results.

    python3 lab/results/make_tables.py [DIRECTORY]

A table stands between `<!-- table: KIND ARGUMENT ... -->` and `<!-- end -->`; KIND is one of the functions below. What
is between the two is replaced. A page of which a file is missing is left as it is.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PAGES = ["recorded-tpcc.md", "recorded-tpch-heuristicdb.md", "tpch-once.md", "trace-statistics.md"]
RECORDED = HERE.resolve().parents[2] / "shared" / "data" / "traces" / "recorded"
RESULTS = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "../../target/results")


def load(name):
    """The traces of a results file: [(name, {(policy with options, size): row})]."""
    file = json.loads((RESULTS / f"{name}.json").read_text())
    traces = []
    for one in file.get("traces", [file]):
        rows = {}
        for row in one["results"]:
            policy = row["policy"] + (":" + row["options"] if row["options"] else "")
            rows[policy, row["size"]] = row
        traces.append((short(one["trace"]["name"]), rows, one["trace"]))
    return traces


def short(name):
    return re.sub(r"\.(csv|lis|trace)(\.(zst|gz))?$", "", name)


def hits(row):
    return (row["read_hits"] + row["write_hits"]) / row["requests"]


def written(row):
    return row["write_backs"] + row["write_bypasses"]


def migrated(row):
    return sum(tier["fetched"] for tier in row["tiers"]) + row["write_backs"]


def sizes(rows):
    return list(dict.fromkeys(size for _, size in rows))


def policies(rows):
    return list(dict.fromkeys(policy for policy, _ in rows))


def markdown(head, body):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(line) + " |" for line in body])


def ranking(name):
    """All policies of a one-trace file, the best mean hit ratio first: hit ratio and pages written below per request."""
    ((_, rows, _),) = load(name)
    all_sizes = sizes(rows)
    order = sorted(policies(rows), key=lambda policy: -sum(hits(rows[policy, size]) for size in all_sizes))
    body = [
        [policy]
        + [f"{hits(rows[policy, size]):.2%}" for size in all_sizes]
        + [f"{written(rows[policy, size]) / rows[policy, size]['requests']:.2%}" for size in all_sizes]
        for policy in order
    ]
    return markdown(["policy"] + [f"hits {s}" for s in all_sizes] + [f"written {s}" for s in all_sizes], body)


def difference(name, policy, baseline):
    """Hit ratio of a policy minus that of a baseline, in points, per trace and size."""
    traces = load(name)
    body = []
    for trace, rows, about in traces:
        cells = [f"{100 * (hits(rows[policy, s]) - hits(rows[baseline, s])):+.1f}" for s in sizes(rows)]
        body.append([trace, f"{about['footprint_pages']:,}"] + [f"**{c}**" if abs(float(c)) >= 1 else c for c in cells])
    return markdown(["trace", "footprint, pages"] + sizes(traces[0][1]), body)


def write_ratio(name, policy, *baselines):
    """Pages a baseline wrote below over those the policy did, for traces with 500 writes or more."""
    body = []
    for trace, rows, _ in load(name):
        if next(iter(rows.values()))["writes"] < 500:
            continue
        for baseline in baselines:
            pairs = [(written(rows[baseline, s]), written(rows[policy, s])) for s in sizes(rows)]
            body.append([f"{trace}, {baseline}"] + [f"{a / b:.2f}" if b else ("1.00" if not a else "none") for a, b in pairs])
    return markdown(["trace, baseline"] + sizes(load(name)[0][1]), body)


def summary(name, policy, *baselines):
    """Over all traces and sizes: in how many cells a policy is ahead, level (within half a point) or behind."""
    body = []
    for baseline in baselines:
        cells = [
            (100 * (hits(rows[policy, s]) - hits(rows[baseline, s])), trace, s)
            for trace, rows, _ in load(name)
            for s in sizes(rows)
        ]
        ahead = sum(value > 0.5 for value, _, _ in cells)
        behind = sum(value < -0.5 for value, _, _ in cells)
        best, worst = max(cells), min(cells)
        body.append(
            [baseline, str(ahead), str(len(cells) - ahead - behind), str(behind)]
            + [f"{sum(value for value, _, _ in cells) / len(cells):+.2f}"]
            + [f"{value:+.1f} ({trace} {size})" for value, trace, size in (best, worst)]
        )
    return markdown(["baseline", "ahead", "level", "behind", "mean, points", "best", "worst"], body)


def tolerance(name, policy, reference):
    """An option swept: hit ratio and pages written, as differences from one value of it."""
    body = []
    for trace, rows, _ in load(name):
        for size in sizes(rows):
            base = rows[f"{policy}:{reference}", size]
            for label, value in (
                ("hit ratio, points", lambda row: f"{100 * (hits(row) - hits(base)):+.2f}"),
                ("pages written", lambda row: f"{100 * (written(row) / written(base) - 1):+.1f}%"),
            ):
                body.append([f"{trace} {size}: {label}"] + [value(rows[p, size]) for p in policies(rows)])
    head = [p.split("=")[-1] for p in policies(load(name)[0][1])]
    return markdown(["trace, size"] + head, body)


def series(name, trace, size, lines, *names):
    """Weights of ExpCache and hit ratio of each interval."""
    rows = next(rows for other, rows, _ in load(name) if other == trace)
    steps = rows["expcache", size]["series"]
    stride = max(1, -(-len(steps) // int(lines)))
    body = []
    for at in range(stride - 1, len(steps), stride):
        gauges = dict(steps[at]["gauges"])
        cells = [f"{steps[at]['at']:,}", f"{gauges['w_lru']:.4f}", f"{gauges['|W|']:,.0f}"]
        for policy in names:
            part = rows[policy, size]["series"][at - stride + 1 : at + 1]
            cells.append(f"{sum(step['hits'] for step in part) / sum(step['requests'] for step in part):.1%}")
        body.append(cells)
    return markdown(["requests", "w_LRU", "pages in W", *names], body)


def reduction(name, *names):
    """Pages written below, those dirty at the end included, relative to LRU's; and the hit ratio less LRU's."""
    ((_, rows, _),) = load(name)
    total = lambda policy, size: written(rows[policy, size]) + rows[policy, size]["dirty_at_end"]
    body = [
        [policy]
        + [f"{100 * (total(policy, size) / total('lru', size) - 1):+.1f}%" for size in sizes(rows)]
        + [f"{100 * (hits(rows[policy, size]) - hits(rows['lru', size])):+.1f}" for size in sizes(rows)]
        for policy in names
    ]
    return markdown(["policy"] + [f"writes {s}" for s in sizes(rows)] + [f"hits {s}" for s in sizes(rows)], body)


def plain(name, *names):
    """Hit ratio and pages written below per request of all traces of a file."""
    body = []
    for trace, rows, _ in load(name):
        for policy in names or policies(rows):
            cells = [rows[policy, size] for size in sizes(rows)]
            body.append(
                [f"{trace}: {policy}"]
                + [f"{hits(row):.2%}" for row in cells]
                + [f"{written(row) / row['requests']:.2%}" for row in cells]
            )
    all_sizes = sizes(load(name)[0][1])
    return markdown(["trace: policy"] + [f"hits {s}" for s in all_sizes] + [f"written {s}" for s in all_sizes], body)


def migration(name, trace, *names):
    """Hit ratio and migration size in GiB, and that as a multiple of HeuristicDB's where it is in the file."""
    rows, about = next((rows, about) for other, rows, about in load(name) if other == trace)
    gib = about["page_bytes"] / 2**30
    body = []
    for policy in names or policies(rows):
        moved = [migrated(rows[policy, size]) for size in sizes(rows)]
        base = [migrated(rows["heuristicdb", size]) if ("heuristicdb", size) in rows else 0 for size in sizes(rows)]
        body.append(
            [policy]
            + [f"{hits(rows[policy, size]):.2%}" for size in sizes(rows)]
            + [f"{a * gib:.1f}" + (f" ({a / b:.1f}x)" if b else "") for a, b in zip(moved, base)]
        )
    return markdown(["policy"] + [f"hits {s}" for s in sizes(rows)] + [f"GiB {s}" for s in sizes(rows)], body)


def parts(name, kind, size, least, *names):
    """Hit ratio per query or per object with at least so many requests."""
    ((_, rows, _),) = load(name)
    body = []
    for number, part in enumerate(rows[names[0], size][kind]):
        if part["requests"] < int(least):
            continue
        cells = [rows[policy, size][kind][number] for policy in names]
        ratios = [(c["read_hits"] + c["write_hits"]) / c["requests"] for c in cells]
        body.append([part["name"].split(":")[0], f"{part['requests']:,}"] + [f"{ratio:.1%}" for ratio in ratios])
    return markdown([kind[:-1] if kind == "objects" else "query", "requests", *names], body)


def statuses(name, trace, size, stride):
    """HeuristicDB's gauges over time."""
    rows = next(rows for other, rows, _ in load(name) if other == trace)
    steps = rows["heuristicdb", size]["series"]
    gauges = ["sequential_objects", "random_objects", "repeated_objects", "hot_objects", "coldest", "query_hits"]
    body = []
    for at in range(int(stride) - 1, len(steps), int(stride)):
        values = dict(steps[at]["gauges"])
        ratio = steps[at]["hits"] / steps[at]["requests"]
        body.append([f"{steps[at]['at']:,}", f"{ratio:.1%}"] + [f"{values[g]:,.0f}" for g in gauges])
    return markdown(["requests", "hit ratio"] + [g.replace("_", " ") for g in gauges], body)


def stat(name):
    return json.loads((RESULTS / f"stat_{name}.json").read_text())


def overview(*names):
    """Requests, footprint, shares and skew of traces."""
    head = ["", *names]
    all_stats = [stat(name) for name in names]
    skews = [{point["percent"]: point["share"] for point in s["spread"]["all"]["skew"]} for s in all_stats]
    body = [
        ["page requests"] + [f"{s['page_requests']:,}" for s in all_stats],
        ["reads per write"] + [f"{s['read_write_ratio']:.3g}" if s["read_write_ratio"] else "no writes" for s in all_stats],
        ["page size, KiB"] + [f"{s['page_bytes'] / 1024:g}" for s in all_stats],
        ["footprint, pages"] + [f"{s['unique_pages']:,}" for s in all_stats],
        ["footprint, MiB"] + [f"{s['unique_bytes'] / 2**20:,.0f}" for s in all_stats],
        ["repeat access rate"] + [f"{s['repeat_access_rate']:.2f}" for s in all_stats],
        ["sequential share of reads"] + [f"{s['reads']['sequential_share']:.1%}" for s in all_stats],
        ["sequential share of writes"] + [f"{s['writes']['sequential_share']:.1%}" for s in all_stats],
    ]
    body += [[f"hottest {p:g} % of pages get"] + [f"{skew[p]:.1%}" for skew in skews] for p in (1, 5, 10, 20, 50)]
    return markdown(head, body)


def skew_003(*names):
    """003, figure 3: what the hottest and the coldest pages get."""
    body = []
    for name in names:
        share = {point["percent"]: point["share"] for point in stat(name)["spread"]["all"]["skew"]}
        body.append([name] + [f"{share[p]:.1%}" for p in (0.01, 1, 5, 25)] + [f"{1 - share[p]:.2%}" for p in (25, 50, 75)])
    head = ["trace", "hottest 0.01 %", "1 %", "5 %", "25 %", "coldest 75 %", "50 %", "25 %"]
    return markdown(head, body)


def frequency(*names):
    """004, figure 4.3: shares of the pages that are read, or written, at least so often, and of the accesses to these; and what the hottest get."""
    body = []
    for name in names:
        for kind in ("all", "reads", "writes"):
            spread = stat(name)["spread"].get(kind)
            if not spread or not spread["frequency"]:
                continue
            often = {point["at_least"]: point for point in spread["frequency"]}
            skew = {point["percent"]: point["share"] for point in spread["skew"]}
            cells = [name, kind, f"{often[1]['pages']:,}", f"{often[1]['accesses'] / often[1]['pages']:.1f}"]
            cells += [f"{skew[p]:.1%}" for p in (1, 5, 20)]
            for least in (2, 8, 32):
                point = often.get(least)
                cells.append(f"{point['pages_share']:.1%}: {point['accesses_share']:.1%}" if point else "none")
            body.append(cells)
    head = ["trace", "accesses", "pages", "per page", "hottest 1 % of pages get", "5 %", "20 %"]
    return markdown(head + ["pages accessed twice or more: accesses", "8 times", "32 times"], body)


def tables(*names):
    """000, table 2.3: sizes of the tables of TPC-H, and those of a recorded server, 60 times as large."""
    printed = {"supplier": "121 MB", "region": "96 KB", "partsupp": "9.1 GB", "part": "2.1 GB", "orders": "14 GB"}
    printed |= {"nation": "112 KB", "lineitem": "62 GB", "customer": "1.8 GB"}
    units = {"KB": 2**10, "MB": 2**20, "GB": 2**30}
    whole = 89.1 * 2**30
    (name,) = names
    unpacked = subprocess.run(["zstd", "-dc", RECORDED / f"{name}.pages.csv.zst"], capture_output=True, check=True, text=True)
    pages = collections.Counter(line.split(",")[0] for line in unpacked.stdout.splitlines()[1:])
    page_bytes = json.loads((RECORDED / f"{name}.meta.json").read_text())["page_size"]
    body = []
    for at, size in printed.items():
        number, unit = size.split()
        paper, ours = float(number) * units[unit], pages[at] * page_bytes
        scaled = ours if at in ("region", "nation") else 60 * ours
        body.append([at, size, f"{paper / whole:.2%}", f"{pages[at]:,}", f"{ours / sum(pages.values()) / page_bytes:.2%}"])
        body[-1] += [f"{scaled / units[unit]:.1f} {unit}", f"{scaled / paper:.2f}"]
    ours = sum(pages.values()) * page_bytes
    body.append(["all", "89.1 GB", "100 %", f"{sum(pages.values()):,}", "100 %", f"{60 * ours / 2**30:.1f} GB", f"{60 * ours / whole:.2f}"])
    return markdown(["table", "000", "share", "pages here", "share", "at scale factor 60", "of 000's"], body)


def leads(files, sizes_of, *names):
    """Points by which HeuristicDB's hits are ahead of others', and their migration as a multiple of its."""
    body = []
    for trace, rows, _ in (one for name in files.split("+") for one in load(name)):
        for policy in names:
            cells = [(rows["heuristicdb", size], rows[policy, size]) for size in sizes_of.split(",")]
            body.append([trace, policy] + [f"{100 * (hits(a) - hits(b)):+.1f}" for a, b in cells])
            body[-1] += [f"{migrated(b) / migrated(a):.1f}" for a, b in cells]
    head = ["trace", "policy"] + [f"ahead of it at {size}" for size in sizes_of.split(",")]
    return markdown(head + [f"migrates at {size}" for size in sizes_of.split(",")], body)


def distances(*names):
    """004, figure 4.2: quartiles of the four temporal distances, as upper bounds of their power-of-two bucket."""
    body = []
    for name in names:
        measured = stat(name)
        for kind in ("read_after_read", "write_after_write", "read_after_write", "write_after_read"):
            histogram = measured["distances"][kind]
            cells = [name, kind.replace("_", " "), f"{histogram['count']:,}"]
            for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
                below = 0
                for bucket in histogram["buckets"]:
                    below += bucket["count"]
                    if below >= quantile * histogram["count"] and histogram["count"]:
                        cells.append(f"{bucket['to'] + 1:,}")
                        break
                else:
                    cells.append("none")
            body.append(cells)
    return markdown(["trace", "pair", "pairs", "10 %", "25 %", "50 %", "75 %", "90 %"], body)


def queries(name):
    """000, tables 2.4 and 2.5: access pattern, repeat access rate and class of each query."""
    body = []
    for query in stat(name)["queries"]:
        requests = query["page_requests"]
        share = lambda side: query[side]["sequential"] / requests if requests else 0
        random_writes = query["writes"]["page_requests"] / requests - share("writes")
        body.append(
            [query["label"].split(":")[0], f"{requests:,}", f"{share('reads'):.1%}", f"{query['random_read_share']:.1%}"]
            + [f"{share('writes'):.1%}", f"{random_writes:.1%}", f"{query['repeat_access_rate']:.2f}", query["class"]]
        )
    head = ["query", "requests", "seq read", "rand read", "seq write", "rand write", "repeat access rate", "class"]
    return markdown(head, body)


def query_objects(name, label, least):
    """000, table 2.6: the objects of one query."""
    query = next(q for q in stat(name)["queries"] if q["label"].startswith(label + ":"))
    body = [
        [part["name"], f"{part['reads']['sequential_share']:.1%}", f"{1 - part['reads']['sequential_share']:.1%}"]
        + [f"{part['accessed_bytes'] / 2**20:,.0f}", f"{part['repeat_access_rate']:.2f}"]
        for part in query["objects"]
        if part["page_requests"] >= int(least) and part["reads"]["page_requests"]
    ]
    return markdown([f"objects of {label}", "sequential", "random", "read, MiB", "repeat access rate"], body)


def objects(name, least):
    """Objects with at least so many requests."""
    body = [
        [part["name"], f"{part['reads']['page_requests']:,}", f"{part['writes']['page_requests']:,}"]
        + [f"{part['unique_pages']:,}", f"{part['repeat_access_rate']:.1f}"]
        + [f"{part[side]['sequential_share']:.1%}" for side in ("reads", "writes")]
        for part in sorted(stat(name)["objects"], key=lambda part: -part["page_requests"])
        if part["page_requests"] >= int(least)
    ]
    return markdown(["object", "reads", "writes", "pages", "repeat access rate", "seq reads", "seq writes"], body)


KINDS = [ranking, difference, write_ratio, summary, tolerance, series, reduction, plain, migration, parts, statuses]
KINDS += [overview, skew_003, frequency, distances, queries, query_objects, objects, tables, leads]
KINDS = {kind.__name__: kind for kind in KINDS}


def fill(match):
    kind, *arguments = match.group(1).split()
    return f"<!-- table: {match.group(1)} -->\n\n{KINDS[kind](*arguments)}\n\n<!-- end -->"


def main():
    for page in (HERE / name for name in PAGES):
        text = page.read_text()
        try:
            filled = re.sub(r"<!-- table: (.*?) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
        except FileNotFoundError as error:
            print(f"{page.name}: left as it is, {error.filename} is missing", file=sys.stderr)
            continue
        page.write_text(filled)


if __name__ == "__main__":
    main()
