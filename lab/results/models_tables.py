#!/usr/bin/env python3
"""Fills the tables of models/*.md: of each device model the origin of its numbers, the fit, and the checks.

`make models` prepares target/results/models/tests.txt, which the tests of entresol-device print, and runs this script. The script runs
`entresol` on the models. `models_tables.py` renews all pages, `models_tables.py PAGE NAME` prints one table. Numbers of others stand here
with their sources; a table whose input is absent is left as it is.
"""

import functools
import json
import math
import re
import subprocess
import sys

from face_tables import ENTRESOL, HERE, RESULTS, SHARED, renew

PAGES = HERE / "models"
PROFILES = HERE.parents[1] / "crates" / "device" / "profiles"
WORK = RESULTS / "models"
DISKSIM = SHARED.parent / "oracles" / "devices" / "hdd_cheetah15k5"
GIB = 1 << 30
KINDS = {
    "dram": ["dram"],
    "nvm-dimm": ["optane-dimm", "pcm", "rram"],
    "nvm-block": ["p4800x"],
    "nand": ["840-pro", "850-evo", "s3500", "p3700", "p3700-2tb"],
    "disk": ["cheetah-15k5", "face-disk"],
    "raid": ["face-raid0x16", "face-raid0x8", "face-raid0x4", "face-raid0x2", "sas-raid5x6"],
    "link": ["infiniband-qdr"],
    "shared-fs": ["panasas-pfs", "gp3-3000", "gp3-16000", "io2"],
    "fixed": [f"arulraj-{name}" for name in ("dram", "pcm", "rram", "ssd", "hdd")]
    + [f"yang-{name}" for name in ("dram", "nvm", "nvm-block", "nand", "hdd")],
}


def table(head, lines, words=1):
    """A table whose first columns hold words and whose others hold numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in [head, rule, *lines])


# Origins.


def parameters(name):
    """The numbers of a profile: (key, value, origin), the origin being the comment beside a line, or that above the lines."""
    found, above, section, depth = [], "", "", 0
    beside_nothing = False
    for line in (PROFILES / f"{name}.toml").read_text().splitlines():
        code, _, comment = line.partition("#")
        code, comment = code.strip(), comment.strip()
        if depth:
            depth += code.count("[") - code.count("]")
        elif code.startswith("[") and "=" not in code:
            section, above = code.strip("[]").removeprefix("device").lstrip("."), comment
        elif "=" in code:
            key, value = (part.strip() for part in code.split("=", 1))
            depth = value.count("[") - value.count("]")
            if key not in ("name", "about", "source", "kind"):
                if re.match("(assumed, )?as the line above|the same", comment):
                    comment = found[-1][2]
                elif comment:
                    above = ""
                origin = comment or above or "nothing stands beside it"
                found.append((f"{section}.{key}" if section else key, "a table" if depth else value, origin))
        elif comment:
            above = f"{above} {comment}" if beside_nothing else comment
        beside_nothing = not code and bool(comment)
    return found


ASSUMED = (
    r"assumed|a choice|usual|no source|no figure|not in the table|gives none|the table gives no|knows (no|one)|fitted to no number|"
    r"data sheets of MLC|never|one arm|quota in the middle|the least that|nothing stands"
)


def sort_of(key, origin):
    """One of: fitted, assumed, source."""
    if origin.startswith("as the p3700") and "fitted" not in origin:
        return next(sort_of(key, other) for known, _, other in parameters("p3700") if known == key)
    if re.search(r"\bfitted\b|1\.158", origin) and "fitted to no number" not in origin:
        return "fitted"
    return "assumed" if re.search(ASSUMED, origin) else "source"


def origins(name):
    groups = {}
    for key, value, origin in parameters(name):
        groups.setdefault((sort_of(key, origin), origin), []).append(f"`{key}` {value}")
    order = sorted(groups.items(), key=lambda group: ["source", "fitted", "assumed"].index(group[0][0]))
    lines = [[sort, "; ".join(keys), origin.replace("|", "/")] for (sort, origin), keys in order]
    return table(["", f"`{name}`", "origin"], lines, 3)


def figures(kind, name, *blocks):
    """The rows of a profile in tables of a page: (quantity, error in per cent)."""
    text, found = (PAGES / f"{kind}.md").read_text(), []
    for block in blocks:
        filled = re.search(rf"<!-- table: {block} -->(.*?)<!-- end -->", text, re.DOTALL)
        for row in filled[1].splitlines() if filled else []:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            if cells[0] == f"`{name}`" and cells[-1].endswith(" %") and not re.search(r"\((given|fitted)\)", cells[1]):
                found.append((cells[1], float(cells[-1].rstrip(" %"))))
    return found


def summary():
    """Of each profile the errors of its fit and of its checks, as its page has them."""
    lines = []
    for kind, names in KINDS.items():
        for name in names:
            fit, checks = figures(kind, name, "fit"), figures(kind, name, "checks", "amplification")
            worst = max(checks, key=lambda check: abs(check[1]), default=None)
            largest = max((abs(error) for _, error in fit), default=None)
            lines.append([
                f"[{kind}]({kind}.md)", f"`{name}`",
                f"{len(fit)}: {largest:.1f} %" if fit else "–",
                len(checks) or "none",
                sum(abs(error) <= 10 for _, error in checks) if checks else "–",
                f"{worst[1]:+.1f} %, {worst[0]}" if worst else "no data",
            ])
    return table(["kind", "profile", "fitted figures: farthest off", "checks", "within 10 %", "worst"], lines, 2)


def counts():
    """How many numbers of each profile come from a source, a fit, an assumption."""
    lines = []
    for kind, names in KINDS.items():
        for name in names:
            sorts = [sort_of(key, origin) for key, _, origin in parameters(name)]
            lines.append([f"[{kind}]({kind}.md)", f"`{name}`"] + [sorts.count(sort) for sort in ("source", "fitted", "assumed")])
    return table(["kind", "profile", "from a source", "fitted", "assumed"], lines, 2)


# What the tests print.


@functools.cache
def tests():
    """Of each test the figures that it prints: (what, model, expected)."""
    found, name = {}, None
    for line in (WORK / "tests.txt").read_text().splitlines():
        if start := re.match(r"test (?:.*::)?(\w+) \.\.\. ?(.*)", line):
            name, line = start[1], start[2]
        if figure := re.match(r"(.+): ([\d.]+),? (?:expected|target) ([\d.]+)|(drop) ([\d.]+) points, expected ([\d.]+)", line):
            figure = [part for part in figure.groups() if part is not None]
            found.setdefault(name, []).append((figure[0], float(figure[1]), float(figure[2])))
        elif figure := re.match(r"quantile-RMS ([\d.]+) ms", line):
            found.setdefault(name, []).append(("quantile-RMS, ms", float(figure[1]), None))
    return found


def tested(test, starts=""):
    if test not in tests():
        raise FileNotFoundError(2, "the test was skipped", test)
    return [figure for figure in tests()[test] if figure[0].startswith(starts)]


def percent(model, published):
    return f"{100 * (model / published - 1):+.1f} %"


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def compared(lines, first="profile"):
    """Lines of (profile, quantity, source, published, model)."""
    cells = [[f"`{name}`", what, source, number(told), number(model), percent(model, told)] for name, what, source, told, model in lines]
    return table([first, "quantity", "source", "there", "model", "error"], cells, 3)


# What the program finds.


def variant(name, new, **changes):
    """A profile with other values, as a file; gives its path."""
    text = (PROFILES / f"{name}.toml").read_text()
    for key, value in changes.items():
        text, times = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        if times != 1:
            sys.exit(f"{name}: {times} lines of {key}")
    return written(new, text)


def written(new, text):
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / f"{new}.toml"
    path.write_text(text)
    return str(path)


def run(*arguments):
    return subprocess.run([ENTRESOL, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


class Probe:
    def __init__(self, document):
        self.findings = {one["experiment"]: one["findings"] for one in document["experiments"]}
        self.fitted = {found["name"]: found["value"] for findings in self.findings.values() for found in findings["fitted"]}

    def rows(self, title):
        return next(found["rows"] for findings in self.findings.values() for found in findings["tables"] if found["title"] == title)

    def rate(self, pattern, kib, depth):
        """MB/s of I/Os of a size at a queue depth."""
        row = next(row for row in self.rows(f"Bandwidth of {pattern}s") if row[0] == kib)
        return row[1 + [1, 2, 4, 8, 16, 32, 64, 128, 256].index(depth)]

    def latency(self, pattern, column=1):
        return next(row for row in self.rows("Latency of 4-KiB I/Os, one at a time") if row[0] == pattern)[column]


@functools.cache
def probe(model, experiments="latency,sweep", size=None, seed=42):
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / "probe.json"
    sized = ["--size", size] if size else []
    run("-q", "probe", "--model", model, "-e", experiments, *sized, "--seed", seed, "--json", path)
    return Probe(json.loads(path.read_text()))


@functools.cache
def simulated(trace, tiers, *options):
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / "simulated.json"
    run("-q", "simulate", trace, "--tiers", tiers, *options, "--json", path)
    return {row["policy"]: row["timed"] for row in json.loads(path.read_text())["results"]}


def uniform(model, pages, requests, writes, clients, *options):
    """A device under uniform requests of one page, with no cache to speak of above it."""
    trace = f"generate:uniform:n={requests}:pages={pages}:write={writes}:seed=1"
    return simulated(trace, f"cache=dram:16p,backing={model}", "--clients", clients, *options)["lru"]


def emulated(model, depths, *options):
    """I/Os a second of the model by depth."""
    out = run("-q", "emulate", "--model", model, "--dir", "/dev/shm", "--depth", ",".join(map(str, depths)), *options)
    return {int(row[0]): float(row[1]) for row in re.findall(r"^ +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ ", out, re.MULTILINE)}


def oracle(folder, *files):
    rows = [json.loads(line) for file in files for line in (folder / file).read_text().splitlines()]
    return {row["name"]: row for row in rows}


# dram, nvm-dimm, fixed: tables of others.

FAST = "FAST 2020"


def dram_fit():
    found = probe("dram")
    lines = [
        ("dram", "random load, ns", f"{FAST}, figure 2", 101, 1e3 * found.fitted["read_fixed_us"]),
        ("dram", "sequential load, ns", f"{FAST}, figure 2", 81, 1e3 * (found.latency("sequential read") - 4.096 / 60)),
        ("dram", "store, ns", f"{FAST}, figure 2", 86, 1e3 * found.fitted["write_fixed_us"]),
        ("dram", "bandwidth, GB/s", "003, table 1", 60, found.fitted["read_gb_per_s"]),
    ]
    return compared(lines)


def dram_checks():
    found = probe("dram").fitted
    read, write = 1e3 * found["read_fixed_us"], 1e3 * found["write_fixed_us"]
    lines = [
        ("dram", "load, ns", "003, table 1", 50, read),
        ("dram", "store, ns", "003, table 1", 50, write),
        ("dram", "load, ns: 20 to 60, the middle", "000, table 1.1", 40, read),
        ("dram", "store, ns: 20 to 50, the middle", "000, table 1.1", 35, write),
        ("dram", "load, ns: assumed there", "004, section 4.5", 50, read),
    ]
    return compared(lines)


def dimm_fit():
    found, pcm, rram = probe("optane-dimm"), probe("pcm").fitted, probe("rram").fitted
    lines = [
        ("optane-dimm", "random load, ns", f"{FAST}, figure 2", 305, 1e3 * found.fitted["read_fixed_us"]),
        ("optane-dimm", "sequential load, ns", f"{FAST}, figure 2", 169, 1e3 * (found.latency("sequential read") - 4.096 / 6.5)),
        ("optane-dimm", "store, ns", f"{FAST}, figure 2", 90, 1e3 * found.fitted["write_fixed_us"]),
        ("optane-dimm", "reads, GB/s", f"{FAST}, figure 4", 6.5, found.fitted["read_gb_per_s"]),
        ("optane-dimm", "writes, GB/s", f"{FAST}, figure 4", 2.2, found.fitted["write_gb_per_s"]),
        ("pcm", "load, ns", "003, table 1", 50, 1e3 * pcm["read_fixed_us"]),
        ("pcm", "store, ns", "003, table 1", 200, 1e3 * pcm["write_fixed_us"]),
        ("rram", "load, ns", "003, table 1", 100, 1e3 * rram["read_fixed_us"]),
        ("rram", "store, ns", "003, table 1", 100, 1e3 * rram["write_fixed_us"]),
    ]
    return compared(lines)


def dimm_checks():
    found, pcm, rram = probe("optane-dimm").fitted, probe("pcm").fitted, probe("rram").fitted
    announced, same = "Intel, announcement of December 2018", "Izraelevitz et al. 2019 (the same group)"
    lines = [
        ("optane-dimm", "idle load, ns", announced, 350, 1e3 * found["read_fixed_us"]),
        ("optane-dimm", "reads, GB/s: a sixth of six modules", same, 39.4 / 6, found["read_gb_per_s"]),
        ("optane-dimm", "writes, GB/s: a sixth of six modules", same, 13.9 / 6, found["write_gb_per_s"]),
        ("optane-dimm", "load, ns: NVM, 100 to 300, the middle", "000, table 1.1", 200, 1e3 * found["read_fixed_us"]),
        ("pcm", "load, ns: 5 times DRAM's 50 at least", "004, section 5.2", 250, 1e3 * pcm["read_fixed_us"]),
        ("pcm", "load, ns: NVM, the middle", "000, table 1.1", 200, 1e3 * pcm["read_fixed_us"]),
        ("pcm", "store, ns: NVM", "000, table 1.1", 100, 1e3 * pcm["write_fixed_us"]),
        ("rram", "load, ns: NVM, the middle", "000, table 1.1", 200, 1e3 * rram["read_fixed_us"]),
    ]
    return compared(lines)


def writers():
    """Random 4-KiB stores to the Optane module by how many are under way."""
    found = probe("optane-dimm")
    depths = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    head = ["4-KiB stores under way"] + [str(depth) for depth in depths]
    return table(head, [["GB/s"] + [f"{found.rate('random write', 4, depth) / 1e3:.2f}" for depth in depths]])


# Drives that 001, 002 or a disk's owner measured, and profiles of tables beside them.


def fixed_checks():
    def latency(name, side):
        return probe(name).fitted[f"random_{side}_us"]

    def most(name, side):
        return probe(name).fitted[f"random_{side}_4k_iops"]

    nand, optane, trace = "P3700: 002, section 4.1", "P4800X: 002, section 4.1", "Cheetah 15K.5: its trace"
    lines = [
        ("arulraj-ssd", "4-KiB read, us", nand, 100, latency("arulraj-ssd", "read")),
        ("arulraj-ssd", "4-KiB write, us", nand, 11, latency("arulraj-ssd", "write")),
        ("arulraj-ssd", "random reads a second", "840 Pro: 001, table 1", 65_803, most("arulraj-ssd", "read")),
        ("arulraj-ssd", "random writes a second", "840 Pro: 001, table 1", 13_979, most("arulraj-ssd", "write")),
        ("arulraj-hdd", "random I/O, ms", trace, 6.121, latency("arulraj-hdd", "read") / 1e3),
        ("arulraj-hdd", "random reads a second, 64 at a time", "Cheetah 15K.6: 001, table 1", 409, most("arulraj-hdd", "read")),
        ("arulraj-hdd", "sequential reads of 128 KiB, MB/s", "its own table", 100, probe("arulraj-hdd").rate("sequential read", 128, 4)),
        ("arulraj-hdd", "sequential reads of 128 KiB, MB/s", "Cheetah 15K.6: 001, table 1", 156, probe("arulraj-hdd").rate("sequential read", 128, 4)),
        ("yang-nvm-block", "4-KiB read, us", optane, 10.72, latency("yang-nvm-block", "read")),
        ("yang-nvm-block", "4-KiB write, us", optane, 11.95, latency("yang-nvm-block", "write")),
        ("yang-nvm-block", "random reads a second", "P4800X: Intel", 550_000, most("yang-nvm-block", "read")),
        ("yang-nand", "4-KiB read, us", nand, 100, latency("yang-nand", "read")),
        ("yang-nand", "4-KiB write, us", nand, 11, latency("yang-nand", "write")),
        ("yang-nand", "random reads a second", "840 Pro: 001, table 1", 65_803, most("yang-nand", "read")),
        ("yang-hdd", "random I/O, ms", trace, 6.121, latency("yang-hdd", "read") / 1e3),
        ("arulraj-dram", "load, ns", f"DDR4: {FAST}, figure 2", 101, 1e3 * probe("arulraj-dram").fitted["read_fixed_us"]),
        ("yang-dram", "load, ns", f"DDR4: {FAST}, figure 2", 101, 1e3 * latency("yang-dram", "read")),
        ("yang-nvm", "load, ns", f"Optane module: {FAST}, figure 2", 305, 1e3 * latency("yang-nvm", "read")),
        ("yang-nvm", "store, ns", f"Optane module: {FAST}, figure 2", 90, 1e3 * latency("yang-nvm", "write")),
    ]
    return compared(lines)


def fixed_fit():
    told = {
        "arulraj-dram": (0.05, 0.05, 60), "arulraj-pcm": (0.05, 0.2, 10), "arulraj-rram": (0.1, 0.1, 10),
        "arulraj-ssd": (25, 300, 1), "arulraj-hdd": (10_000, 10_000, 0.1),
        "yang-dram": (0.04, 0.035, None), "yang-nvm": (0.2, 0.1, None), "yang-nvm-block": (10, 10, None),
        "yang-nand": (20, 100, None), "yang-hdd": (20_000, 20_000, None),
    }
    lines = []
    for name, (read, write, rate) in told.items():
        fitted = probe(name).fitted
        found = [fitted.get(f"{side}_fixed_us", fitted[f"random_{side}_us"]) for side in ("read", "write")]
        found.append(fitted.get("read_gb_per_s") if rate else None)
        cells = ["–" if value is None else f"{number(value)} / {number(model)}" for value, model in zip((read, write, rate), found)]
        lines.append([f"`{name}`", *cells])
    return table(["profile", "read, us: table / model", "write, us", "GB/s"], lines)


# nvm-block.


def tails(test, shares, first):
    """Percentiles by scenario: model, and its error."""
    lines = {}
    for what, model, told in tested(test):
        scenario = what.rsplit(",", 1)[0].removeprefix("beside ")
        lines.setdefault(scenario, []).append(f"{number(model)} ({percent(model, told)})")
    return table([first] + shares, [[scenario, *cells] for scenario, cells in lines.items()])


def optane_fit():
    lines = []
    for what, model, told in tested("latency_at_depth_1_is_the_same_for_any_pattern"):
        lines.append(("p4800x", f"{'random' if 'true' in what else 'sequential'} {what.split(',')[0].lower()}, us", "002, section 4.1", told / 1e3, model / 1e3))
    lines += [("p4800x", f"{what}, MB/s", "002, section 4.2", told, model) for what, model, told in tested("a_thread_of_the_host_caps_4_kib")]
    lines += [("p4800x", what, "002, section 4.6, figure 10", told, model) for what, model, told in tested("the_refresh_is_found_from_the_latencies_of_one_page")]
    lines += [("p4800x", f"overwriting, {what}, MB/s", "002, section 4.5", told, model) for what, model, told in tested("overwriting_is_as_steady_as_it_was_at_first")]
    return compared(lines)


def optane_checks():
    one = probe("p4800x")
    four = variant("p4800x", "p4800x-4-threads", threads=4)
    reads, writes = (uniform(four, 262_144, 300_000, share, 16) for share in (0, 100))
    wide = uniform(four, 8192, 60_000, 0, 16, "--page-size", 65_536), uniform(four, 8192, 60_000, 100, 16, "--page-size", 65_536)
    review, maker, paper = "AnandTech 2017, P4800X 375 GB", "Intel, P4800X", "002, section 4.3, figure 5"
    of = reads["latencies"][0]
    lines = []
    pressed = probe("p4800x", "pressure").rows("4-KiB I/Os beside random reads")
    for pattern, told in (("sequential read", 2.2), ("random read", 2.39), ("sequential write", 2.62), ("random write", 2.65)):
        rows = [row for row in pressed if row[0] == pattern]
        lines.append(("p4800x", f"{pattern} beside {rows[4][2]:,.0f} MB/s of 4-KiB reads at even intervals, us more", paper, told, rows[4][3] - rows[0][3]))
    lines += [
        ("p4800x", "random read, mean, us", review, 8.9, one.latency("random read")),
        ("p4800x", "random read, 99 %, us", review, 10, one.latency("random read", 3)),
        ("p4800x", "random reads a second, 16 at a time", review, 584_800, reads["requests_per_second"]),
        ("p4800x", "mean of reads, 16 at a time, us", review, 25.5, of["mean_us"]),
        ("p4800x", "99 % of reads, 16 at a time, us", review, 41, of["p99_us"]),
        ("p4800x", "random reads a second, 16 at a time", maker, 550_000, reads["requests_per_second"]),
        ("p4800x", "random writes a second, 16 at a time", maker, 500_000, writes["requests_per_second"]),
        ("p4800x", "reads of 64 KiB, MB/s", maker, 2400, wide[0]["requests_per_second"] * 65_536 / 1e6),
        ("p4800x", "writes of 64 KiB, MB/s", maker, 2000, wide[1]["requests_per_second"] * 65_536 / 1e6),
    ]
    return compared(lines)


def optane_beside():
    lines = []
    for what, model, told in tested("background_adds_little_and_writes_add_more_than_reads"):
        kind, order, beside = re.match(r"(\w+), random (\w+), under (\w+)", what).groups()
        pattern = f"{'random' if order == 'true' else 'sequential'} {kind.lower()}"
        lines.append(("p4800x", f"{pattern} beside 1,500 MB/s of {beside.lower()}s, us more", "002, section 4.3, figure 5", told / 1e3, model / 1e3))
    return compared(lines)


SHARES = ["50 %", "99 %", "99.5 %", "99.9 %", "99.95 %", "99.99 %"]


def optane_tails():
    return tails("the_tail_is_that_of_the_table", SHARES, "random reads, us")


# nand.

FACE = {"the_840_pro_is_that_of_face": "840-pro", "the_850_evo_is_that_of_face": "850-evo", "the_s3500_is_that_of_face": "s3500", "the_p3700_is_that_of_face": "p3700"}


def nand_fit():
    lines = []
    for test, name in FACE.items():
        lines += [(name, what.split(") ")[1], "001, table 1", told, model) for what, model, told in tested(test)]
    for what, model, told in tested("amplification_by_curve_is_the_measured_one"):
        if "WAF" in what:
            lines.append((what.split()[0], f"{' '.join(what.split()[1:])}, `curve`", "001, table 2", told, model))
    lines += [("p3700-2tb", what, "002, section 4.1", told, model) for what, model, told in tested("one_request_at_a_time_and_more")]
    lines += [("p3700-2tb", f"write of {what}", "002, figure 6", told, model) for what, model, told in tested("unaligned_writes_are_a_saw_tooth")]
    for what, model, told in tested("overwriting_a_full_drive_is_a_saw_tooth"):
        lines.append(("p3700-2tb", f"overwriting a full drive: {'drop, points' if what == 'drop' else what}", "002, section 4.5", told, model))
    return compared(lines + beside(held=False))


def beside(held):
    """002's figure 5 on its flash drive: the rows that took no part in the fit, or those that did."""
    found = tested("background_spoils_read_ahead_and_buffer")
    return [("p3700-2tb", what, "002, section 4.3, figure 5", told, model) for what, model, told in found if what.startswith("sequential read") == held]


def nand_tails():
    parts = [tails(test, SHARES, "random reads, us") for test in ("tails_of_reads_beside_reads", "tails_of_reads_beside_overwrites", "tails_of_reads_that_disturb")]
    return "\n".join([parts[0]] + [part.split("\n", 2)[2] for part in parts[1:]])


def waf(model, page_bytes, size_gib=2):
    """Write amplification of uniform writes to a used drive that they fill."""
    pages = int(size_gib * GIB) // page_bytes
    timed = uniform(model, pages, max(4 * pages, 60_000), 100, 32, "--page-size", page_bytes, "--waf", "mech")
    return timed["devices"][1]["write_amplification"], timed["devices"][1]["ios_per_second"]


def nand_amplification():
    """Write amplification by the drive's own cleaning, fitted with 4 KiB, at both sizes and with the room that the drive has."""
    lines = []
    for name, small, large, room in (("840-pro", 5.15, 1.03, 256 * 1.073741824 / 256.060514304), ("s3500", 3.04, 1.08, 526 / 480.103981056)):
        lines.append((name, "WAF, 4 KiB (fitted)", "001, table 2", small, waf(name, 4096)[0]))
        lines.append((name, "WAF, 256 KiB", "001, table 2", large, waf(name, 262_144)[0]))
        fitted = float(next(value for key, value, _ in parameters(name) if key == "over_provisioning"))
        lines.append((name, "flash over capacity", "001, table 2: all flash", room, fitted))
        true = variant(name, f"{name}-room", over_provisioning=f"{room:.4f}")
        lines.append((name, f"WAF, 4 KiB, with {room:.3f} times its capacity", "001, table 2", small, waf(true, 4096)[0]))
    return compared(lines)


def nand_large():
    """Write amplification of writes of 256 KiB by how many of them a block holds."""
    lines = [[what, number(model)] for what, model, _ in tested("large_writes_cost_nothing_only_where_they_fill_blocks")]
    return table(["writes", "write amplification"], lines)


def kept(name, mib):
    """Over-provisioning of a drive made smaller: that of its profile to the nearest block of a die, without the two that stay free. Blocks are
    halved, to four programs at least, until it is within a tenth (`NandParameters::scaled_to`)."""
    values = {key: value for key, value, _ in parameters(name)}
    dies = int(values["channels"]) * int(values["chips_per_channel"]) * int(values["dies_per_chip"])
    program = int(values["planes_per_die"]) * int(values["page_bytes"].replace("_", "")) // 4096
    units, wanted, block = mib * 256 / dies, float(values["over_provisioning"]), int(values["units_per_block"])

    def left():
        return max(int(units * wanted / block + 0.5), math.ceil(units / block)) * block / units

    while abs(left() - wanted) > 0.1 * (wanted - 1) and block // 2 >= 4 * program:
        block //= 2
    return left()


def nand_sizes():
    """The same drive made smaller, under the load to which it is fitted."""
    told = {"840-pro": 13_979, "850-evo": 6094, "s3500": 21_572, "p3700": 86_949}
    lines = []
    for mib in (64, 96, 112, 128, 160, 192, 256, 512, 1024, 2048, 4096):
        cells = [str(mib)]
        for name, rate in told.items():
            amplification, ios = waf(name, 4096, mib / 1024)
            cells.append(f"{kept(name, mib):.3f} · {amplification:.2f} · {percent(ios, rate)}")
        lines.append(cells)
    fitted = [f"{next(value for key, value, _ in parameters(name) if key == 'over_provisioning')}" for name in told]
    return table(["MiB"] + [f"`{name}`, {value}" for name, value in zip(told, fitted)], lines)


def nand_cache():
    """LC and FaCE-GSC on a recorded TPC-C: the WAF of 001's table 7 beside the drive's own cleaning, by the size of the drive."""
    trace = SHARED / "recorded" / "pg_tpcc_w20_sb32m.csv.zst"
    if not trace.exists():
        raise FileNotFoundError(2, "no trace", str(trace))
    lines = []
    for size in ("", "/128MiB", "/512MiB", "/2GiB", "/8GiB"):
        cells = [size.strip("/") or "the cache's own, 46 MiB"]
        for name in ("840-pro", "s3500"):
            tiers = f"dram=dram:1%,cache={name}:10%{size},backing=face-raid0x16"
            found = simulated(trace, tiers, "--limit", "600k", "-p", "lc,face-gsc", "--waf", "mech", "--clients", 16)
            cells += [f"{found[policy]['devices'][1]['write_amplification']:.2f}" for policy in ("lc", "face-gsc")]
        lines.append(cells)
    lines.append(["001, table 7: 10 GB of the drive", "5.13", "1.02", "2.47", "1.08"])
    return table(["drive", "`840-pro`: LC", "FaCE-GSC", "`s3500`: LC", "FaCE-GSC"], lines)


def nand_checks():
    review, maker = "AnandTech 2017, P3700 800 GB", "Intel, P3700, at most"
    one, many = (uniform("p3700", 524_288, 100_000, 0, clients) for clients in (1, 16))
    big = probe("p3700-2tb", size="2GiB")
    wide = probe(variant("p3700-2tb", "p3700-2tb-fast-host", busy_ns=0), size="2GiB")
    worn = probe(variant("p3700-2tb", "p3700-2tb-used", endurance_cycles="10_000\nprecondition_overwrites = 3.0", busy_ns=0), "steady", size="2GiB")
    evo = probe("850-evo", size="2GiB")
    lines = beside(held=True)
    lines += [
        ("p3700", "random read, mean, us", review, 77.9, one["latencies"][0]["mean_us"]),
        ("p3700", "random read, 99 %, us", review, 96, one["latencies"][0]["p99_us"]),
        ("p3700", "random reads a second, 16 at a time", review, 167_200, many["requests_per_second"]),
        ("p3700", "mean of reads, 16 at a time, us", review, 93.9, many["latencies"][0]["mean_us"]),
        ("p3700", "99 % of reads, 16 at a time, us", review, 163, many["latencies"][0]["p99_us"]),
        ("p3700-2tb", "random read, mean, us", review, 77.9, big.latency("random read")),
        ("p3700-2tb", "random reads a second, 16 at a time", review, 167_200, big.rate("random read", 4, 16) * 1e6 / 4096),
        ("p3700-2tb", "random reads a second, 256 at a time", maker, 460_000, wide.rate("random read", 4, 256) * 1e6 / 4096),
        ("p3700-2tb", "random writes a second, used drive", maker, 175_000, worn.fitted["steady_write_iops"]),
        ("p3700-2tb", "sequential reads, MB/s", maker, 2800, wide.rate("sequential read", 128, 128)),
        ("p3700-2tb", "sequential writes, MB/s", maker, 2000, wide.rate("sequential write", 128, 128)),
        ("p3700", "sequential read, us", "002, section 4.1, P3700 2 TB", 10, probe("p3700", size="2GiB").latency("sequential read")),
        ("p3700", "random write, us", "002, section 4.1, P3700 2 TB", 11, probe("p3700", size="2GiB").latency("random write")),
        ("850-evo", "random reads a second, one at a time", "Samsung, at most", 10_000, 1e6 / evo.latency("random read")),
        ("850-evo", "random writes a second, one at a time", "Samsung, at most", 40_000, 1e6 / evo.latency("random write")),
        ("850-evo", "random reads a second, 32 at a time", "Samsung, at most", 97_000, evo.rate("random read", 4, 32) * 1e6 / 4096),
    ]
    return compared(lines)


def nand_mechanism():
    """The mechanism with numbers that are no drive's: another simulator, and a closed form."""
    lines = []
    for what, model, told in tested("random_reads_queue_as_in_mqsim"):
        lines.append(("4 channels of 2 chips", f"random reads, {what}", "MQSim", told, model))
    for test, source in (("fifo_amplification_is_the_closed_form", "closed form"), ("greedy_amplification_is_that_of_the_mean_field", "mean field")):
        lines += [("cleaning alone", f"WAF, {what}", source, told, model) for what, model, told in tested(test)]
    return compared(lines, "model").replace("`", "")


# disk and raid.


def disk_fit():
    lines = [("cheetah-15k5", "mean of 10,000 I/Os, ms", "the drive's trace", told, model) for what, model, told in tested("h1_replay_of_the_measured_trace", "mean of the replay")]
    lines += [("face-disk", what.removeprefix("face-disk, ").replace("Read", "reads").replace("Write", "writes"), "001, table 1", told, model) for what, model, told in tested("h4_the_disk_of_face") if "GB" not in what]
    return compared(lines)


def disk_checks():
    spread = tested("h1_replay_of_the_measured_trace", "quantile-RMS")[0][1]
    real, simulator = [], []
    for row in (DISKSIM / "random_measured_vs_disksim.csv").read_text().splitlines()[1:]:
        fields = row.split(",")
        real.append(float(fields[5]))
        simulator.append(float(fields[6]))
    rms = (sum((a - b) ** 2 for a, b in zip(sorted(real), sorted(simulator))) / len(real)) ** 0.5 / 1e3
    cheetah, face = disk_edges("cheetah-15k5"), disk_edges("face-disk")
    lines = [("cheetah-15k5", "quantile-RMS of 10,000 I/Os, ms: DiskSim's own", "the drive's trace", rms, spread)]
    for test in ("h2_random_reads_under_fcfs_do_not_gain_from_depth", "h2_random_reads_under_sptf", "h3_sequential"):
        lines += [("cheetah-15k5", what, "DiskSim 4.0", told, model) for what, model, told in tested(test)]
    maker = "Seagate, manual of the 15K.6"
    lines += [
        ("face-disk", "outer edge, MB/s", maker, 171, face[0]),
        ("face-disk", "inner edge, MB/s", maker, 112, face[1]),
        ("cheetah-15k5", "random reads, 64 at a time", "001, table 1: the 15K.6", 409, rates("cheetah-15k5", "random read")),
        ("cheetah-15k5", "random writes, 64 at a time", "001, table 1: the 15K.6", 343, rates("cheetah-15k5", "random write")),
        ("cheetah-15k5", "sequential reads, MB/s", "001, table 1: the 15K.6", 156, cheetah[0]),
    ]
    return compared(lines)


def rates(name, pattern, depth=64, seeds=range(1, 11)):
    """4-KiB I/Os a second at a depth, the mean of ten probes."""
    found = [probe(name, "sweep", seed=seed).rate(pattern, 4, depth) * 1e6 / 4096 for seed in seeds]
    return sum(found) / len(found)


def disk_edges(name):
    found = probe(name, "disk").fitted
    return found["outer_mb_s"], found["inner_mb_s"]


def raid_fit():
    lines = [("face-raid0x16", what.removeprefix("face-raid0x16, ").replace("Read", "reads").replace("Write", "writes"), "001, table 1", told, model) for what, model, told in tested("h5_the_raid_0_of_face")]
    return compared(lines)


def raid_checks():
    lines = []
    for what, model, told in tested("h6_raid_5_of_six"):
        what = what.removeprefix("RAID-5 of six, ")
        lines.append(("sas-raid5x6", what if "overheads" in what else what.replace(", ms", ", DiskSim's overheads, ms"), "DiskSim 4.0", told, model))
    text = (PROFILES / "face-raid0x16.toml").read_text()
    free = written("face-raid0x16-free", text.split("\n# Sixteen such disks")[0] + "\n")
    found = emulated(free, [1024], "--count", 40_000)[1024]
    lines.append(("face-raid0x16", "without its controller: random reads, 1,024 at a time", "001, table 1", 5166, found))
    told = oracle(DISKSIM, "disksim_raid_runs.jsonl")["raid5x6_rr4k_qd6"]
    member = variant("cheetah-15k5", "cheetah-disksim", read_overhead_ms=0.0, write_overhead_ms=0.23, after_write_ms=0.0)
    array = variant("sas-raid5x6", "sas-raid5x6-disksim", member=f'"{member}"')
    for model, which in ((array, "DiskSim's overheads"), ("sas-raid5x6", "the real drive's")):
        lines.append(("sas-raid5x6", f"4-KiB reads a second, 6 at a time, {which}", "DiskSim 4.0", told["iops"], emulated(model, [6], "--count", 4000)[6]))
    return compared(lines)


# link and shared-fs.


def link_checks():
    found = probe("infiniband-qdr").fitted
    return compared([
        ("infiniband-qdr", "a write to a peer node, measured, GB/s (given)", "004, section 5.1", 1.83, found["write_gb_per_s"]),
        ("infiniband-qdr", "what the link can do, GB/s", "004, section 5.4.2", 3.0, found["read_gb_per_s"]),
    ])


def shared_fit():
    lines = [("panasas-pfs", what.removeprefix("panasas-pfs, "), "004, sections 5.1 and 5.4.2", told, model) for what, model, told in tested("a_stream_to_the_file_system_of_004_is_as_fast_as_measured")]
    for what, model, told in tested("a_busy_volume_has_its_quotas_and_no_more"):
        lines.append((what.split(",")[0], what.split(", ", 1)[1], "AWS", told, model))
    return compared(lines)


def shared_checks():
    streams = dict((what, model) for what, model, _ in tested("a_stream_to_the_file_system_of_004_is_as_fast_as_measured"))
    model = streams["panasas-pfs, MB/s of 46 streams"] / 1e3
    lines = []
    for load in ("medium", "heavy"):
        out = run("burst", "simulate", "--workload", load, "--fit", "--figures")
        needed = float(re.search(r"PFS ([\d.]+) GB/s", out)[1])
        lines.append(("panasas-pfs", f"what 46 nodes get together, {load} load, GB/s", "004, figure 5.7 (LDBB's two times)", needed, model))
    return compared(lines)


def shared_probe():
    """What the probe's sweep makes of models whose streams share a rate."""
    lines = []
    for name, limit in (("panasas-pfs", 30_000), ("gp3-3000", 131.072), ("gp3-16000", 1048.576), ("io2", 4000)):
        found = probe(name)
        cells = [number(found.rate("sequential read", 256, depth)) for depth in (1, 16, 64, 256)]
        lines.append([f"`{name}`", number(limit), *cells, f"{found.rate('sequential read', 256, 256) / limit:.1f}"])
    return table(["256-KiB reads, MB/s", "limit of the model", "1 at a time", "16", "64", "256", "256: times the limit"], lines)


def tables(kind):
    found = {f"origins {name}": functools.partial(origins, name) for name in KINDS.get(kind, [])}
    return found | {
        "README": {"counts": counts, "summary": summary},
        "dram": {"fit": dram_fit, "checks": dram_checks},
        "nvm-dimm": {"fit": dimm_fit, "checks": dimm_checks, "writers": writers},
        "nvm-block": {"fit": optane_fit, "checks": optane_checks, "beside": optane_beside, "tails": optane_tails},
        "nand": {"fit": nand_fit, "tails": nand_tails, "checks": nand_checks, "amplification": nand_amplification, "large": nand_large, "sizes": nand_sizes, "cache": nand_cache, "mechanism": nand_mechanism},
        "disk": {"fit": disk_fit, "checks": disk_checks},
        "raid": {"fit": raid_fit, "checks": raid_checks},
        "link": {"checks": link_checks},
        "shared-fs": {"fit": shared_fit, "checks": shared_checks, "probe": shared_probe},
        "fixed": {"fit": fixed_fit, "checks": fixed_checks},
    }[kind]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(tables(sys.argv[1])[" ".join(sys.argv[2:])]())
    else:
        for kind in [*KINDS, "README"]:
            renew(PAGES / f"{kind}.md", tables(kind))
