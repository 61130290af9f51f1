#!/usr/bin/env python3
"""The tables of sampling.md: estimates by `simulate --sample` beside exact simulation.

`sampling_tables.py` makes what target/results/sampling lacks of DRAWS (500 unless given) samples for each trace and
renews the page; `sampling_tables.py large` measures a trace of 10^9 requests. An interrupted run goes on where it
ended. ENTRESOL names another program.
"""

import json
import os
import subprocess
import sys

from face_tables import ENTRESOL, HERE, RESULTS, SHARED, entresol, renew, table

FOUND = RESULTS / "sampling"
POLICIES = ["lru", "s3-fifo"]
SIZES = ["1%", "5%", "10%", "20%"]
STREAMS = {
    "PostgreSQL, TPC-C": "recorded/pg_tpcc_w20_sb32m.csv.zst",
    "TPC-C above PostgreSQL's pool": "recorded/pg_tpcc_w20_prebuf.csv.zst",
    "PostgreSQL, TPC-H": "recorded/pg_tpch_sf1_sb64m.csv.zst",
    "MariaDB, TPC-C": "recorded/my_tpcc_w20_bp64m.csv.zst",
    "MariaDB, TPC-H": "recorded/my_tpch_sf1_bp64m.csv.zst",
    "Filebench, file server": "recorded/filebench_fileserver.csv.zst",
    "OLTP": "public/OLTP.lis.zst",
    "P3": "public/P3.lis.zst",
    "P6": "public/P6.lis.zst",
    "Zipf 0.9, generated": "generate:zipf:n=12M:pages=4M:exponent=0.9:seed=1:ids=hashed:write=20",
    "TPC-C, generated": "generate:tpcc:warehouses=180:n=18M:seed=1",
}
RATES = {"0.01": 1, "0.1": 10}
LARGE = "zipf:n=1000M:pages=16M:exponent=0.9:seed=1:ids=hashed"


def native(name):
    """The trace in the native format, which is mapped and not parsed for each draw."""
    source = STREAMS[name]
    stem = source.split("/")[-1].split(".")[0] if ":" not in source else source.split(":")[1]
    path = FOUND / f"{stem}.etr"
    if not path.exists():
        FOUND.mkdir(parents=True, exist_ok=True)
        if source.startswith("generate:"):
            entresol("trace", "generate", source.removeprefix("generate:"), path)
        else:
            entresol("trace", "convert", SHARED / source, path)
    return path


def simulate(trace, *more):
    """Rows of all policies and sizes, and the trace."""
    out = trace.with_suffix(f".{os.getpid()}.json")
    cells = ["-p", ",".join(POLICIES), "-s", ",".join(SIZES), "-j", "1"]
    entresol("simulate", trace, *cells, *more, "--json", out)
    found = json.loads(out.read_text())
    out.unlink()
    return found


def exact(name):
    path = native(name).with_suffix(".exact.json")
    if not path.exists():
        found = simulate(native(name))
        rows = [[row["policy"], row["size"], 1 - (row["read_hits"] + row["write_hits"]) / row["requests"],
                 (row["write_backs"] + row["write_bypasses"]) / row["requests"]] for row in found["results"]]
        trace = {key: found["trace"][key] for key in ("requests", "footprint_pages")}
        path.write_text(json.dumps({"trace": trace, "rows": rows}))
    found = json.loads(path.read_text())
    return found["trace"], {(policy, size): figures for policy, size, *figures in found["rows"]}


KEPT = ["policy", "size", "miss_ratio", "miss_ratio_error", "miss_ratio_low", "miss_ratio_high", "write_ratio",
        "write_ratio_low", "write_ratio_high", "small"]


def draw(name, rate, draws):
    """Makes the samples that are missing."""
    trace = native(name)
    path = trace.with_suffix(f".{rate}.jsonl")
    done = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as out:
        for seed in range(done + 1, draws + 1):
            rows = simulate(trace, "--sample", rate, "--seed", seed)["results"]
            out.write(json.dumps([[row[key] for key in KEPT] for row in rows]) + "\n")
            out.flush()


def drawn(name, rate):
    """All samples made: rows by policy and size."""
    lines = native(name).with_suffix(f".{rate}.jsonl").read_text().splitlines()
    rows = [[dict(zip(KEPT, row)) for row in json.loads(line)] for line in lines]
    return [{(row["policy"], row["size"]): row for row in sample} for sample in rows]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def thousands(count):
    return f"{count:,}"


def share(part):
    return "-" if part != part else f"{100 * part:.1f}"


def errors(rate):
    """Errors and coverage of all traces at a rate, and all draws together."""
    lines, every, every_small, every_writes, orders = [], [], [], [], []
    for name in STREAMS:
        trace, truth = exact(name)
        samples = drawn(name, rate)
        cells = [(row, truth[key]) for sample in samples for key, row in sample.items()]
        off = lambda pair: abs(pair[0]["miss_ratio"] - pair[1][0])
        covers = lambda pair: pair[0]["miss_ratio_low"] <= pair[1][0] <= pair[0]["miss_ratio_high"]
        writes = lambda pair: pair[0]["write_ratio_low"] <= pair[1][1] <= pair[0]["write_ratio_high"]
        plain = [pair for pair in cells if not pair[0]["small"]]
        written = [pair for pair in plain if pair[1][1] > 0]
        small = [pair for pair in cells if pair[0]["small"]]
        worst = max((mean(abs(sample[key]["miss_ratio"] - truth[key][0]) for sample in samples), key) for key in truth)
        right = []
        for sample in samples:
            for size in SIZES:
                lru, other = [(sample[policy, size], truth[policy, size][0]) for policy in POLICIES]
                if abs(lru[1] - other[1]) > 2 * max(lru[0]["miss_ratio_error"], other[0]["miss_ratio_error"]):
                    right.append((lru[0]["miss_ratio"] < other[0]["miss_ratio"]) == (lru[1] < other[1]))
        lines.append([name, thousands(trace["footprint_pages"]), len(samples), f"{mean(map(off, cells)):.4f}",
                      f"{worst[0]:.4f} ({worst[1][0]}, {worst[1][1]})", share(mean(map(covers, plain))),
                      share(mean(map(covers, small))), share(mean(map(writes, written))), share(mean(right))])
        every += map(covers, plain)
        every_small += map(covers, small)
        every_writes += map(writes, written)
        orders += right
    lines.append(["all", "", "", "", "", share(mean(every)), share(mean(every_small)), share(mean(every_writes)),
                  share(mean(orders))])
    return table(["trace", "pages", "samples", "mean error", "largest mean error of a cell", "covered, %",
                  "covered, marked, %", "covered, writes, %", "order right, %"], lines)


def cells(rate):
    """Mean error and coverage of each cell."""
    lines = []
    for name in STREAMS:
        _, truth = exact(name)
        samples = drawn(name, rate)
        for policy in POLICIES:
            line = []
            for size in SIZES:
                true = truth[policy, size][0]
                rows = [sample[policy, size] for sample in samples]
                off = mean(abs(row["miss_ratio"] - true) for row in rows)
                held = mean(row["miss_ratio_low"] <= true <= row["miss_ratio_high"] for row in rows)
                mark = " small" if sum(row["small"] for row in rows) * 2 > len(rows) else ""
                line.append(f"{true:.3f}: {off:.4f}, {100 * held:.0f}{mark}")
            lines.append([name, policy, *line])
    return table(["trace", "policy", *SIZES], lines)


def measure_large():
    """Estimates from 0.01 of the pages of a trace of 10^9 requests: processor time and memory."""
    FOUND.mkdir(parents=True, exist_ok=True)
    trace = FOUND / "large.etr"
    if not trace.exists():
        entresol("trace", "generate", LARGE, trace)
    cells = ["-p", ",".join(POLICIES), "-s", ",".join(SIZES), "-j", "1", "--sample", "0.01"]
    json_file = FOUND / "large.json"
    command = [ENTRESOL, "--quiet", "simulate", trace, *cells, "--json", json_file]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command}: status {status}")
    measured = {"cpu_seconds": usage.ru_utime + usage.ru_stime, "largest_kib": usage.ru_maxrss}
    (FOUND / "large.measured.json").write_text(json.dumps(measured))


def large():
    measured = json.loads((FOUND / "large.measured.json").read_text())
    found = json.loads((FOUND / "large.json").read_text())
    simulating = sum(row["cpu_seconds"] for row in found["results"])
    line = [thousands(found["trace"]["requests"]), thousands(found["trace"]["footprint_pages"]),
            thousands(found["results"][0]["sampled_requests"]), f"{measured['cpu_seconds']:.0f}", f"{simulating:.0f}",
            f"{measured['largest_kib'] / 1024:.0f}"]
    return table(["requests", "pages", "sampled requests", "processor time, s", "of it simulation", "MiB"], [line])


def answer():
    """The answer of the page."""
    text = []
    for rate in RATES:
        offs, covered = {}, []
        for name in STREAMS:
            trace, truth = exact(name)
            samples = drawn(name, rate)
            rows = [(row, truth[key][0]) for sample in samples for key, row in sample.items()]
            offs[name] = (trace["footprint_pages"], mean(abs(row["miss_ratio"] - true) for row, true in rows))
            plain = [(row["miss_ratio_low"], true, row["miss_ratio_high"]) for row, true in rows if not row["small"]]
            covered.append(mean(low <= true <= high for low, true, high in plain))
        most = lambda least, below: max(off for pages, off in offs.values() if least <= pages < below)
        text.append(f"At R = {rate} the miss ratio is off by at most {most(1e6, 1e12):.4f} (mean of a trace) on footprints of a million pages "
                    f"and by at most {most(5e4, 1e6):.4f} on 57,000 to 774,000.\nIts 95 % interval holds the exact one in "
                    f"{100 * min(covered):.0f} to {100 * max(covered):.0f} % of the samples of a trace, in {share(mean(covered))} % of all.")
    measured = json.loads((FOUND / "large.measured.json").read_text())
    text.append(f"A native trace of 10^9 requests takes {measured['cpu_seconds']:.0f} s of one processor and "
                f"{measured['largest_kib'] / 1024:.0f} MiB for LRU and S3-FIFO at four sizes.")
    return "\n".join([*(line.replace("\n", " ") for line in text)])


TABLES = {
    "answer": answer,
    "errors at 0.01": lambda: errors("0.01"),
    "errors at 0.1": lambda: errors("0.1"),
    "cells at 0.01": lambda: cells("0.01"),
    "cells at 0.1": lambda: cells("0.1"),
    "large": large,
}

if __name__ == "__main__":
    if sys.argv[1:] == ["large"]:
        measure_large()
        sys.exit()
    draws = int(os.environ.get("DRAWS", "500"))
    names = [name for name in STREAMS if len(sys.argv) < 2 or sys.argv[1] in name]
    for name in names:
        exact(name)
    for rate, divisor in RATES.items():
        for name in names:
            draw(name, rate, draws // divisor)
    if len(sys.argv) < 2:
        renew(HERE / "sampling.md", TABLES)
