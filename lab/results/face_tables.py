#!/usr/bin/env python3
"""Writes the tables of face-lc-multi-tier.md, write-buffers-and-stacks.md and io-cache-hibachi.md from target/results.

The pages name the commands that fill target/results. A table stands between `<!-- table: NAME -->` and
`<!-- end -->`; `face_tables.py` renews those whose results are there, `face_tables.py NAME` prints one.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "target" / "results"
SHARED = HERE.parents[2] / "shared" / "data" / "traces"
ENTRESOL = os.environ.get("ENTRESOL", HERE.parents[1] / "target" / "release" / "entresol")
PAGES = ["face-lc-multi-tier.md", "write-buffers-and-stacks.md", "io-cache-hibachi.md"]
TRACES = ["pg-tpcc", "my-tpcc", "filebench", "postmark", "iozone", "tencent", "fio-zipf", "fio-pareto"]


def simulated(path, source, *options):
    """Simulates a trace of ../shared, or a generated one, unless the results are there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        trace = source if source.startswith("generate:") else SHARED / source
        entresol("simulate", trace, *options, "--json", path)
    return json.loads(path.read_text())["results"]


def rows(name):
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def label(row):
    options = row["options"].strip("+")
    return row["policy"] + (f":{options}" if options else "")


def entresol(*words):
    """Runs the program, or for `bench` the laboratory's, without its table on the terminal."""
    program = f"{ENTRESOL}-lab" if words[0] == "bench" else ENTRESOL
    subprocess.run([str(word) for word in (program, "-q", *words)], check=True, stdout=subprocess.DEVNULL)


def made(path, make):
    """A file that is there, or else is made under another name first."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{path.name}")
        make(part)
        part.rename(path)
    return path


def table(head, lines):
    cells = [head, ["---"] + ["---:"] * (len(head) - 1)] + lines
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in cells)


def by_size(results, figure, sizes=None):
    """One line a policy, one column a size."""
    sizes = sizes or list(dict.fromkeys(row["size"] for row in results))
    labels = list(dict.fromkeys(label(row) for row in results))
    found = {(label(row), row["size"]): figure(row) for row in results}
    return table(["policy"] + sizes, [[name] + [found.get((name, size), "") for size in sizes] for name in labels])


def percent(part, whole, digits=1):
    return f"{100 * part / whole:.{digits}f}" if whole else "-"


def thousands(count):
    return f"{count / 1000:.0f}" if count >= 100_000 else f"{count / 1000:.1f}"


def written(row):
    return row["write_backs"] + row["write_bypasses"]


def hits(row):
    return row["read_hits"] + row["write_hits"]


def gauge(row, ending):
    return next(value for name, value in row["gauges"] if name.endswith(ending))


# FaCE, LC and the multi-tier buffer manager.

# Their DRAM is not a plain LRU pool, so "evicted from DRAM" and "found in flash" mean something else.
LAZY = ("preset=b", "preset=c", "preset=d")


def flash_hits(row):
    """Of the pages that DRAM had to look for below, the share that flash had."""
    dram, flash = row["tiers"]
    missed = row["requests"] - dram["read_hits"] - dram["write_hits"]
    return percent(flash["read_hits"] + flash["write_hits"], missed)


def pooled(dram):
    return [row for row in rows(f"face-{dram}") if row["options"] not in LAZY]


def dirty_evictions(dram):
    """D_flash: what an LRU pool alone would have to write to disk."""
    return rows(f"face-pool-{dram}")[0]["layers"][0]["write_backs"]


def write_reduction(dram):
    whole = dirty_evictions(dram)
    return lambda row: percent(whole - written(row), whole)


def pages_in(tier):
    return tier["fetched"] + tier["installed"] + tier["copied_in"] + tier["requeued"]


def flash_traffic():
    lines = []
    for row in rows("face-0.4%"):
        if row["size"] != "0.4%+24%":
            continue
        flash = row["tiers"][1]
        pages, ios = pages_in(flash), flash["write_ios"]
        counts = [row["fetches"], written(row), row["write_back_ios"] + row["write_bypasses"], pages, ios]
        mean = pages / ios if ios else 0
        lines.append([label(row)] + [thousands(n) for n in counts] + [f"{mean:.1f}", f"{4 * mean:.1f}"])
    head = ["policy", "disk reads", "disk writes", "in I/Os", "flash pages written", "in I/Os", "pages a write"]
    return table(head + ["kB a write with 4-kB pages"], lines)


def table_4():
    reduction = write_reduction("0.4%")
    found = {(label(row), row["size"]): reduction(row) for row in rows("face-0.4%")}
    sizes = [f"0.4%+{size}%" for size in (8, 16, 24, 32, 40)]
    names = [("mixed", "face"), ("dirty only", "face:pages=dirty"), ("mixed, GSC", "face-gsc")]
    names.append(("dirty only, GSC", "face-gsc:pages=dirty"))
    lines = [["001, mixed", 51, 61, 66, 71, 75], ["001, dirty only", 53, 62, 67, 71, 74]]
    lines += [[f"here, {what}"] + [found[name, size] for size in sizes] for what, name in names]
    return table(["flash", "4 GB (8 %)", "8 GB (16 %)", "12 GB (24 %)", "16 GB (32 %)", "20 GB (40 %)"], lines)


def table_5():
    paper = {
        108: [8.3, 12.3, 14.7, 18.1, 22.2],
        57: [10.0, 15.5, 23.9, 35.3, 44.9],
        21: [19.2, 29.7, 47.8, 56.9, 58.8],
    }
    lines = []
    for size, printed in paper.items():
        lines.append([f"{size} GB", "001, FaCE-GSC"] + printed)
        for policy in ("face-gsc", "face"):
            shares = [gauge(row, "old_versions") for row in rows(f"old-{size}") if row["policy"] == policy]
            lines.append([f"{size} GB", f"here, {policy}"] + [f"{100 * share:.1f}" for share in shares])
    return table(["database", "", "4 GB", "8 GB", "12 GB", "16 GB", "20 GB"], lines)


def migration(sizes):
    results = rows(f"migration-{sizes.replace('+', '-')}")
    eager = pages_in(results[0]["tiers"][1])
    lines = []
    for row in results:
        dram, nvm = row["tiers"]
        writes = pages_in(nvm)
        options = row["options"].replace("preset=", "").replace("nvm-admission=", "")
        ratio = f"{eager / writes:.1f}" if writes else "-"
        served = [percent(tier["read_hits"] + tier["write_hits"], row["requests"]) for tier in (dram, nvm)]
        counts = [row["fetches"], written(row), nvm["fetched"], nvm["installed"], nvm["copied_in"], writes]
        lines.append([options] + served + [thousands(n) for n in counts] + [ratio, thousands(nvm["copied_out"])])
    head = ["probabilities", "found in DRAM, %", "in NVM, %", "SSD reads", "SSD writes", "NVM writes: from SSD"]
    return table(head + ["by host", "from DRAM", "all", "eager / this", "NVM to DRAM"], lines)


# Host caches over write buffers.


def stacks():
    lines = []
    for trace in TRACES:
        found = {row["size"]: row for row in rows(f"stacks-{trace}")}
        for host in ("1Ki", "4Ki", "16Ki", "64Ki"):
            line = [trace, host]
            for pair in PAIRS:
                upper, lower = pair.split("+")
                row = found[f"{upper}:{host},{lower}:4Ki"]
                line.append(thousands(gauge(row, "flushed_blocks")))
            lines.append(line)
    return table(["trace", "host pages"] + [pair.replace("+", " + ") for pair in PAIRS], lines)


PAIRS = ["h-arc+wrb", "h-arc+lb-clock", "arc+fab", "arc+bplru", "arc+lb-clock"]
PAIRS += ["lru-wsr+fab", "lru-wsr+bplru", "lru-wsr+lb-clock"]


def shares_of_layers():
    """Figure 2.8: pages kept from flash by the host cache and by the buffer."""
    lines = []
    for trace in TRACES:
        for row in rows(f"stacks-{trace}"):
            if row["policy"] not in ("h-arc+wrb", "arc+fab", "lru-wsr+bplru") or ":64Ki," not in row["size"]:
                continue
            host, buffer = row["layers"]
            by_host, by_buffer = row["writes"] - host["write_backs"], host["write_backs"] - buffer["write_backs"]
            share = percent(by_host, by_host + by_buffer)
            lines.append([trace, row["policy"].replace("+", " + "), thousands(row["writes"])])
            lines[-1] += [thousands(n) for n in (by_host, by_buffer, buffer["write_backs"])] + [share]
    head = ["trace", "stack", "pages written", "kept by host", "kept by buffer", "reach flash", "host's share, %"]
    return table(head, lines)


def host_writes(size):
    lines = []
    for trace in TRACES:
        found = {label(row): row for row in rows(f"host-{trace}") if row["size"] == size}
        lines.append([trace] + [thousands(written(found[name])) for name in HOSTS])
        least = written(found["h-arc"])
        share = [percent(least, written(found[name])) for name in ("lru", "cflru", "arc", "lru-wsr")]
        lines[-1] += [" / ".join(share)]
    return table(["trace"] + HOSTS + ["h-arc in % of lru / cflru / arc / lru-wsr"], lines)


HOSTS = ["lru", "cflru", "arc", "lru-wsr", "h-arc", "h-arc:variant=author", "h-arc:variant=literal", "min"]


def host_hits(size):
    lines = []
    for trace in TRACES:
        found = {label(row): row for row in rows(f"host-{trace}") if row["size"] == size}
        lines.append([trace] + [percent(hits(found[name]), found[name]["requests"]) for name in HOSTS])
        split = [found[name] for name in ("arc", "h-arc")]
        share = [[percent(row[kind], row["requests"]) for row in split] for kind in ("read_hits", "write_hits")]
        lines[-1] += [", ".join(" / ".join(pair) for pair in share)]
    return table(["trace"] + HOSTS + ["arc / h-arc: reads, writes"], lines)


def buffers(size):
    lines = []
    for trace in TRACES:
        results = [row for row in rows(f"buffer-{trace}") if row["size"] == size]
        lines.append([trace] + [thousands(gauge(row, "flushed_blocks")) for row in results])
    return table(["trace"] + [label(row).replace("threshold=", "") for row in results], lines)


# Runs, and DRAM beside NVRAM.


def runs(trace):
    def figure(row):
        mean = row["write_backs"] / row["write_back_ios"] if row["write_back_ios"] else 0
        ios, pages = thousands(row["write_back_ios"]), thousands(row["write_backs"])
        return f"{percent(hits(row), row['requests'])} · {pages} · {ios} · {mean:.1f}"

    return by_size(rows(f"runs-{trace}"), figure, ["1024p", "4096p", "16384p", "32768p"])


def thresholds():
    lines = []
    for trace in TRACES[:6]:
        for policy in ("io-cache", "hibachi"):
            line = [trace, policy]
            for row in rows(f"thresholds-{trace}"):
                at_zero = row["policy"] == "longest" and policy == "io-cache"
                if row["size"] == "16384p" and (row["policy"] == policy or at_zero):
                    ios, pages = thousands(row["write_back_ios"]), thousands(row["write_backs"])
                    line.append(f"{percent(hits(row), row['requests'])} · {pages} · {ios}")
            lines.append(line)
    return table(["trace", "policy", "0", "2", "5", "10", "20", "50", "never"], lines)


def hybrid(kind):
    of = {"read": "reads", "write": "writes"}[kind]
    lines = []
    for trace in TRACES[:6]:
        found = {(row["policy"], row["size"]): row for row in rows(f"hybrid-{trace}")}
        for size in ("8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB"):
            trio = [found[policy, size] for policy in ("hybrid-lru", "hybrid-arc", "hibachi")]
            if trio[0][of] == 0:
                continue
            lines.append([trace, size] + [percent(row[f"{kind}_hits"], row[of], 2) for row in trio])
            if kind == "read":
                last = trio[2]["read_hits"]
                lines[-1] += [f"{last / row['read_hits']:.2f}" if row["read_hits"] else "-" for row in trio[:2]]
                lines[-1] += [percent(trio[2]["tiers"][1]["read_hits"], last)]
            else:
                lines[-1] += [f"{thousands(row['write_backs'])} · {thousands(row['write_back_ios'])}" for row in trio]
    head = ["trace", "DRAM + NVRAM", "hybrid-lru", "hybrid-arc", "hibachi"]
    if kind == "read":
        return table(head + ["hibachi / hybrid-lru", "/ hybrid-arc", "of its hits in NVRAM, %"], lines)
    return table(head + ["hybrid-lru: pages · I/Os", "hybrid-arc", "hibachi"], lines)


TABLES = {
    "traffic": flash_traffic,
    "table 4": table_4,
    "table 5": table_5,
    "stacks": stacks,
    "layers": shares_of_layers,
    "thresholds": thresholds,
    "hybrid reads": lambda: hybrid("read"),
    "hybrid writes": lambda: hybrid("write"),
}
for dram in ("0.4%", "2%", "8%"):
    TABLES[f"flash hits {dram}"] = lambda dram=dram: by_size(pooled(dram), flash_hits)
    TABLES[f"write reduction {dram}"] = lambda dram=dram: by_size(pooled(dram), write_reduction(dram))
for sizes in ("0.15%+9.7%", "0.3%+75.8%", "1.2%+75.8%", "4.8%+75.8%"):
    TABLES[f"migration {sizes}"] = lambda sizes=sizes: migration(sizes)
for size in ("1024p", "16384p", "32768p", "65536p", "131072p"):
    TABLES[f"host writes {size}"] = lambda size=size: host_writes(size)
    TABLES[f"host hits {size}"] = lambda size=size: host_hits(size)
for size in ("1024p", "4096p"):
    TABLES[f"buffers {size}"] = lambda size=size: buffers(size)
for trace in TRACES[:6]:
    TABLES[f"runs {trace}"] = lambda trace=trace: runs(trace)


def renew(page, tables=TABLES, kind="table"):
    def replace(match):
        try:
            return f"{match[1]}\n{tables[match[2]]()}\n<!-- end -->"
        except FileNotFoundError as error:
            print(f"{page.name}: '{match[2]}' is left as it is: {error.filename} is absent", file=sys.stderr)
            return match[0]

    text = page.read_text()
    page.write_text(re.sub(rf"(<!-- {kind}: (.*?) -->).*?<!-- end -->", replace, text, flags=re.DOTALL))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        for page in PAGES:
            renew(HERE / page)
