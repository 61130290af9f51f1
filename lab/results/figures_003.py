#!/usr/bin/env python3
"""Figures 4 to 12 of 003 on recorded and generated traces, and the tables of multi-tier-003.md.

`figures_003.py` records and simulates what target/results/003 lacks, with the program that ENTRESOL names
(target/release/entresol, and entresol-lab beside it), and renews the page; `figures_003.py NAME` prints one table. Delete target/results/003 to
measure anew. Half an hour of one processor, and before that a quarter of one of both for recordings of CH (three), Voter and
AuctionMark, which need root (record_pool.py) and FIGURES_SCRATCH (/dev/shm, 4 GB). What a table says of the paper is what its text says; its figures
are not to be had.
"""

import json
import os
import subprocess
import sys

from face_tables import ENTRESOL, HERE, renew, table
from record_pool import record

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "003"
RECORDED = ROOT.parent / "shared" / "data" / "traces" / "recorded"
SCRATCH = os.environ.get("FIGURES_SCRATCH", "/dev/shm")

# The file, what the paper's trace of that name touches in GB (table 2), and what our page calls it.
TRACES = {
    "tpcc": ("pg_tpcc_w20_prebuf.csv.zst", 1320, "TPC-C"),
    "flat": (None, 1320, "generated"),
    "ch": (None, 1130, "CH"),
    "tpch": ("pg_tpch_sf0.1_prebuf.csv.zst", 1130, "TPC-H"),
    "voter": (None, 1050, "Voter"),
    "auctionmark": (None, 815, "AuctionMark"),
}
# CH twice, for one recording leaves open how much another would differ; and what a small pool does to such a stream.
CH_TWICE = {"ch-again": (None, 1130, "CH again, another seed"), "ch-below": (None, 1130, "CH, below 64 pages")}
ABOUT = TRACES | CH_TWICE
# 003, figure 3a: a quarter of the blocks of the paper's TPC-C gets 87 % of the references.
FLAT = "hotcold:pages=150k:hot=25:to=87:n=2M:write=25:update=100:ids=scattered"
# What the pool lacks comes by a fast device, so that few wait for it.
SERVED = ["--db", "postgresql", "--clients", 6, "--warmup", "5s", "--policy", "none", "--backing-profile", "p4800x"]
CH = ["ch", "--warehouses", 3, "--analysts", 1, *SERVED]
# With 32 pages the server's sessions, which hold some each, run out of them ("no unpinned buffers available").
POOL_PAGES = 64
ASKED, BELOW = ["--memory", "128MiB", "--duration", "60s"], ["--memory", f"{POOL_PAGES * 8}KiB", "--duration", "150s"]
CH_RUNS = {"ch": [*CH, *ASKED, "--seed", 42], "ch-again": [*CH, *ASKED, "--seed", 43], "ch-below": [*CH, *BELOW, "--seed", 42]}
LOADS = ROOT / "benches" / "loads"
# The weights of lab/benches/loads/README.md.
AUCTIONS = {"get_item": 25, "get_user_info": 15, "new_bid": 20, "new_comment": 5, "new_comment_response": 5, "new_feedback": 5}
AUCTIONS |= {"new_item": 10, "new_purchase": 5, "update_item": 10, "close_auctions": 1}


def own(load, scripts):
    """A load of lab/benches/loads."""
    script = ",".join(f"{LOADS / load / name}.sql@{weight}" for name, weight in scripts.items())
    words = ["pgbench", "--init", LOADS / load / "init.sql", "--script", script, "--check", LOADS / load / "check.sql"]
    return [*words, *SERVED, *ASKED, "--seed", 42]


RUNS = CH_RUNS | {"voter": own("voter", {"vote": 1}), "auctionmark": own("auctionmark", AUCTIONS)}

DRAM_NS = 160  # section 6.4: 2x to 8x of it are 320 to 1280 ns
LINE_BYTES = 64
TIMES = (2, 4, 8)


def by_lines(lines):
    """One requester who waits for evictions; a page is copied so many cache lines at a time, each at the latency."""
    rate = lambda ns: LINE_BYTES * lines / ns
    return {"rate": {times: rate(DRAM_NS * times) for times in (1, *TIMES)}, "words": ["--background", "1"], "clients": 1}


# The house's: eight requesters, evictions behind their backs, pages at the bandwidths of table 1.
BUS = {"rate": {1: 60.0, 2: 10.0, 4: 10.0, 8: 10.0}, "words": [], "clients": 8}
SETTINGS = {
    "bus": BUS,
    "touch": BUS | {"words": ["--touch", "256"]},
    "lines": by_lines(2),
    "lines1": by_lines(1),
    "lines4": by_lines(4),
    "alone": BUS | {"words": ["--background", "1"], "clients": 1},
    "crowd": by_lines(2) | {"words": [], "clients": 8},
}
NAMES = {"bus": "bus", "lines": "lines"}

EAGER = "multi-tier:preset=eager"
D = ("1", "0.1", "0.01", "0.001", "0")
N = ("1", "0.5", "0.1", "0.01", "0")
over_d = lambda p: EAGER if p == "1" else f"{EAGER}:dr={p}:dw={p}"
over_n = lambda p: EAGER if p == "1" else f"{EAGER}:nr={p}:nw={p}"
PRESETS = {name: f"multi-tier:preset={name}" for name in "abcd"}


def entresol(*words):
    program = f"{ENTRESOL}-lab" if words[0] == "bench" else ENTRESOL
    subprocess.run([str(word) for word in (program, "-q", *words)], check=True, stdout=subprocess.DEVNULL)


def command(name, below):
    """The load of a recording; what passes the pool goes to a file."""
    return ["bench", *RUNS[name], "--scratch", SCRATCH, "--record", below, "--json", OUT / f"{name}.run.json"]


def trace(name):
    """A trace in our own format, which is read fastest."""
    path = OUT / f"{name}.etr"
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        file, part = ABOUT[name][0], path.with_suffix(".part")
        if name == "ch-below":
            entresol(*command(name, part))
        elif name in RUNS:
            # The server is asked for its counts where it is recorded below, too.
            record(path, [f"{ENTRESOL}-lab", "-q", *command(name, part)])
            return path
        elif file is None:
            entresol("trace", "generate", "--page-size", 8192, FLAT, part)
        else:
            entresol("trace", "convert", RECORDED / file, part)
        part.rename(path)
    return path


def device(times, setting):
    """DRAM (1), or NVM with a multiple of its latency, as a profile."""
    ns, rate = DRAM_NS * times, SETTINGS[setting]["rate"][times]
    lines = [
        f'name = "003-{"dram" if times == 1 else f"nvm-{times}x"}"',
        'about = "Memory of 003, section 6.4"',
        'source = "003, section 6.4: the latency; figures_003.py: the bandwidth"',
        "[device]",
        'kind = "nvm-dimm"',
        f"dram_read_ns = {DRAM_NS}\ndram_write_ns = {DRAM_NS}",
        f"read_factor = {times}.0\nsequential_read_factor = {times}.0\nwrite_factor = {times}.0",
        f"granule_bytes = {LINE_BYTES}",
        f"read_gb_per_s = {rate}\nwrite_gb_per_s = {rate}",
        "free_writers = 16\nwriter_slowdown = 0.0\nframe_bytes = 8192",
        f"endurance_writes = {1e16 if times == 1 else 1e10}  # table 1",
    ]
    path = OUT / f"{setting}-{times}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def share(name, gb):
    """A size of the paper as a share of the footprint."""
    return f"{100 * gb / ABOUT[name][1]:.4g}%"


def simulate(key, name, setting, tiers, policies):
    path = OUT / f"{key}.json"
    if not path.exists():
        how, part = SETTINGS[setting], path.with_suffix(".part")
        part.unlink(missing_ok=True)
        words = ["simulate", trace(name), "--clients", how["clients"], "--warmup", 0.5, *how["words"]]
        entresol(*words, "-p", ",".join(policies), "--tiers", f"{tiers},backing=arulraj-ssd", "--json", part)
        part.rename(path)
    return json.loads(path.read_text())["results"]


def equal_cost(name, setting):
    """Figure 4: 128 GB of DRAM, then 1 TB of NVM at each latency, either over the SSD."""
    tiers = [(1, 128), *((times, 1000) for times in TIMES)]
    cell = lambda times, gb: f"cache={device(times, setting)}:{share(name, gb)}"
    return [simulate(f"4-{name}-{setting}-{times}", name, setting, cell(times, gb), ["lru"])[0] for times, gb in tiers]


def three_tiers(name, setting, times, policies, key, dram=16, nvm=1000):
    """Rows by policy."""
    tiers = f"dram={device(1, setting)}:{share(name, dram)},cache={device(times, setting)}:{share(name, nvm)}"
    rows = simulate(f"{key}-{name}-{setting}-{times}-{dram}", name, setting, tiers, policies)
    return dict(zip(policies, rows))


def policies_of(name, setting, times):
    """Figures 5, 6, 7, 11 and 12: 16 GB of DRAM and 1 TB of NVM."""
    policies = list(dict.fromkeys([*map(over_d, D), *map(over_n, N), *PRESETS.values()]))
    return three_tiers(name, setting, times, policies, "5")


def rate(row):
    return row["timed"]["requests_per_second"]


def nvm(row):
    return row["timed"]["devices"][1]


def percent(row, base):
    return f"{100 * (rate(row) / rate(base) - 1):+.0f} %"


def label(name, setting):
    return [ABOUT[name][2], NAMES[setting]]


BOTH = [(name, setting) for name in TRACES for setting in NAMES]


def figure_4():
    lines = []
    for name, setting in BOTH:
        dram, *each = equal_cost(name, setting)
        below = lambda row: sum(row["timed"]["devices"][-1][what] for what in ("reads", "writes"))
        fewer = f"{below(dram) / below(each[0]):.1f}" if below(each[0]) else "none left"
        lines.append(label(name, setting) + [f"{rate(row) / rate(dram):.2f}" for row in each] + [fewer])
    printed = {"TPC-C": ("4.3", "2.1", "1", "19"), "Voter": ("10.5", "", "2.8", "")}
    printed |= {"AuctionMark": ("2.2", "", "0.56", ""), "CH-benCHmark": ("5.9", "", "1.7", "")}
    lines += [[f"003, {name}", ""] + list(cells) for name, cells in printed.items()]
    return table(["trace", "reading", "2x", "4x", "8x", "SSD I/Os less"], lines)


def sweep(points, policy, printed):
    lines = []
    for name, setting in BOTH:
        for times in (2, 8):
            rows = policies_of(name, setting, times)
            cells = [percent(rows[policy(p)], rows[EAGER]) for p in points[1:]]
            lines.append(label(name, setting) + [f"{times}x", f"{rate(rows[EAGER]):.0f}"] + cells)
    return table(["trace", "reading", "NVM", "eager, requests/s"] + list(points[1:]), lines + printed)


def figure_5():
    of = lambda name, times, cells: [f"003, {name}", "", times, ""] + [cells.get(p, "") for p in D[1:]]
    printed = [of("TPC-C", "2x", {"0.01": "+79 %"}), of("TPC-C", "8x", {"0.01": "+33 %"})]
    printed += [of("AuctionMark", "2x", {"0.1": "-38 %", "0.001": "-24 %"}), of("Voter", "2x", {"0.01": "about +100 %"})]
    printed += [of("CH-benCHmark", "2x", {"0.01": "+85 %"})]
    return sweep(D, over_d, printed)


def figure_6():
    of = lambda name, times, cell: [f"003, {name}", "", times, "", "", cell, "", ""]
    return sweep(N, over_n, [of("TPC-C", "2x", "-68 %"), of("TPC-C", "8x", "-43 %"), of("Voter", "2x", "-91 %")])


def figure_7():
    lines = []
    for name in TRACES:
        rows = policies_of(name, "bus", 2)
        writes = {p: nvm(rows[over_n(p)])["writes"] for p in N}
        fewer = lambda p: f"{writes['1'] / writes[p]:.1f}" if writes[p] else "none"
        lines.append([TRACES[name][2], writes["1"]] + [fewer(p) for p in N[1:]])
    lines += [["003, TPC-C", "", "", "5.5", "", ""], ["003, Voter", "", "", "8.5", "", ""]]
    return table(["trace", "eager, pages"] + list(N[1:]), lines)


def figure_8():
    lines = []
    for name, setting in BOTH:
        for dram in (4, 64):
            for times in TIMES:
                rows = three_tiers(name, setting, times, list(map(over_d, D)), "8", dram)
                cells = [percent(rows[over_d(p)], rows[EAGER]) for p in D[1:]]
                lines.append(label(name, setting) + [f"{dram} GB", f"{times}x"] + cells)
    lines += [["003, TPC-C", "", "4 GB", "2x", "", "+94 %", "", ""], ["003, TPC-C", "", "64 GB", "2x", "", "+38 %", "", ""]]
    lines += [["003, TPC-C", "", "64 GB", "8x", "", "0 %", "", ""]]
    return table(["trace", "reading", "DRAM", "NVM"] + list(D[1:]), lines)


def tuned(name, setting):
    path = OUT / f"9-{name}-{setting}.json"
    if not path.exists():
        how = SETTINGS[setting]
        tiers = f"dram={device(1, setting)}:{share(name, 16)},cache={device(2, setting)}:{share(name, 1000)}"
        words = ["tune", trace(name), "--clients", how["clients"], *how["words"], "--warmup", "10%", "--grid", 0]
        words += ["--tuner", "annealing,climb,halving,annealing-paper", "--tiers", f"{tiers},backing=arulraj-ssd"]
        part = path.with_suffix(".part")
        entresol(*words, "--json", part)
        part.rename(path)
    return json.loads(path.read_text())


def figure_9():
    lines = []
    for name, setting in BOTH:
        found = tuned(name, setting)
        start = found["start"]
        for run in found["tuners"]:
            over = lambda key: f"{100 * (run[key] / start[key] - 1):+.1f} %"
            held = " ".join(f"{value:g}" for value in run["values"])
            figures = [over("requests_per_second"), over("last_quarter_per_second")]
            converged = f"{run['converged_after']} of {len(run['epochs'])}"
            lines.append(label(name, setting) + [run["tuner"]] + figures + [held, converged])
    lines += [["003, TPC-C", "", "annealing", "", "+79 %", "", ""], ["003, Voter", "", "annealing", "", "+92 %", "", ""]]
    return table(["trace", "reading", "tuner", "whole run", "last quarter", "D_r D_w N_r N_w", "settled after"], lines)


def catalogue(times, setting):
    """Section 6.7: capacities from its text, prices of table 1."""
    item = lambda name, tier, profile, sizes, price, writes: (
        f'[[item]]\nname = "{name}"\ntier = "{tier}"\nprofile = "{profile}"\ncapacities_gb = {sizes}\n'
        f"dollars_per_gb = {price}\nendurance_writes = {writes}\n"
    )
    path = OUT / f"catalogue-{setting}-{times}.toml"
    path.write_text(
        'date = "2019"\nsource = "003, table 1 and section 6.7"\n'
        + item("DRAM", "dram", device(1, setting), [4, 8, 16, 64, 128], 10.0, "1e16")
        + item("NVM", "nvm", device(times, setting), [128, 512, 1024, 2048], 1.0, "1e10")
        + item("SSD", "ssd", "arulraj-ssd", [4096], 0.2, "1e5")
    )
    return path


def advised(name, setting, times):
    path = OUT / f"10-{name}-{setting}-{times}.json"
    if not path.exists():
        words = ["advise", "hierarchy", trace(name), "--catalogue", catalogue(times, setting), "--every"]
        words += ["--footprint", f"{TRACES[name][1]}GB", "--budget", 5000, "--objective", "per-dollar"]
        part = path.with_suffix(".part")
        entresol(*words, "--clients", SETTINGS[setting]["clients"], "--json", part)
        part.rename(path)
    return json.loads(path.read_text())


def figure_10():
    lines = []
    for name, setting in BOTH:
        for times in (2, 8):
            if times == 8 and setting == "bus":
                # By bandwidth alone it is the same as 2x: figure 4.
                continue
            lines.append(label(name, setting) + [f"{times}x"] + recommended(advised(name, setting, times)))
    paper = [("TPC-C", "2x", "16 GB DRAM + 1 TB NVM"), ("TPC-C", "8x", "16 GB DRAM + 512 GB NVM")]
    paper += [("Voter", "2x", "4 GB DRAM + 128 GB NVM"), ("AuctionMark", "2x", "8 GB DRAM")]
    paper += [("CH-benCHmark", "2x", "4 GB DRAM + 1 TB NVM")]
    lines += [[f"003, {name}", "", times, what] + [""] * 4 for name, times, what in paper]
    head = ["trace", "reading", "NVM", "most requests/s per dollar", "requests/s per dollar"]
    return table(head + ["best without NVM", "best without DRAM", "of 16 GB + 1 TB"], lines)


def recommended(advice):
    """The best hierarchy, and what the best of each kind reach of its performance per price."""
    ran = [(tried, tried["fate"]["simulated"]) for tried in advice["candidates"] if "simulated" in tried["fate"]]
    kinds = lambda candidate: {part["name"]: part["gb"] for part in candidate["parts"]}
    score = lambda pair: pair[1]["per_dollar"]
    best = max(ran, key=score)
    of = lambda fits: [score(pair) / score(best) for pair in ran if fits(kinds(pair[0]))]
    best_of = lambda fits: f"{max(of(fits)):.2f}" if of(fits) else "-"
    *above, below = [f"{part['gb']:g} GB {part['name']}" for part in best[0]["parts"]]
    whole = " over ".join(filter(None, [" + ".join(above), below]))
    named = lambda found: found.get("DRAM") == 16 and found.get("NVM") == 1024
    cells = [best_of(lambda found: "NVM" not in found), best_of(lambda found: "DRAM" not in found), best_of(named)]
    return [whole, f"{score(best):.0f}"] + cells


def figure_11():
    lines = []
    for name, setting in BOTH:
        for times in TIMES:
            rows = policies_of(name, setting, times)
            base = rows[PRESETS["a"]]
            cells = [f"{rate(rows[PRESETS[p]]) / rate(base):.2f}" for p in "bcd"]
            lines.append(label(name, setting) + [f"{times}x", f"{rate(base):.0f}"] + cells)
    lines += [["003, TPC-C", "", "2x", "", "3.5", "2.2", "1.6"], ["003, Voter", "", "2x", "", "6.6", "", ""]]
    return table(["trace", "reading", "NVM", "A, requests/s", "B / A", "C / A", "D / A"], lines)


def figure_12():
    lines = []
    for name, setting in BOTH:
        rows = policies_of(name, setting, 2)
        writes = {p: nvm(rows[PRESETS[p]])["writes"] for p in "abcd"}
        ratio = lambda a, b: f"{writes[a] / writes[b]:.2f}" if writes[b] else "-"
        # Its wear spread evenly, a tier of one size lasts the longer the less is written to it a second. The tier is scaled
        # down and the virtual machine never idles, so only ratios of lifetimes mean something.
        pace = {p: writes[p] / rows[PRESETS[p]]["timed"]["elapsed_seconds"] for p in "abcd"}
        life = [f"{pace['b'] / pace[p]:.2f}" if pace[p] else "-" for p in "acd"]
        lines.append(label(name, setting) + [ratio("b", "a"), ratio("b", "c"), ratio("b", "d")] + life)
    lines += [["003, TPC-C", "", "2", "1.4", "2.1", "", "", ""]]
    head = ["trace", "reading", "writes of B / A", "B / C", "B / D", "life of A / B", "C / B", "D / B"]
    return table(head, lines)


def assumptions():
    """What D = 0.01 gains and where figure 4 breaks even, one assumption after the other."""
    about = {
        "bus": "8 requesters, evictions behind, pages by bandwidth",
        "touch": "the same, 256 B of a page are touched in place",
        "alone": "1 requester, evictions awaited, pages by bandwidth",
        "crowd": "8 requesters, evictions behind, pages 2 lines at a time",
        "lines1": "1 requester, evictions awaited, 1 line at a time",
        "lines": "the same, 2 lines at a time",
        "lines4": "the same, 4 lines at a time",
    }
    lines = []
    for name in TRACES:
        if name == "tpch":
            # It writes nothing.
            continue
        lines += [[ABOUT[name][2], what] + in_short(name, setting) for setting, what in about.items()]
    lines.append(["003, TPC-C", "", "+79 %", "-68 %", "+33 %", "-43 %", "4.3 2.1 1"])
    lines.append(["003, CH-benCHmark", "", "+85 %", "", "", "", "5.9 - 1.7"])
    return table(["trace", "assumption", "D 2x", "N 2x", "D 8x", "N 8x", "figure 4"], lines)


def in_short(name, setting):
    """What D = 0.01 and N = 0.1 change over the eager policy at 2x and 8x, and figure 4."""
    cells = []
    for times in (2, 8):
        rows = three_tiers(name, setting, times, [EAGER, over_d("0.01"), over_n("0.1")], "a")
        cells += [percent(rows[policy], rows[EAGER]) for policy in (over_d("0.01"), over_n("0.1"))]
    dram, *each = equal_cost(name, setting)
    return cells + [" ".join(f"{rate(row) / rate(dram):.2f}" for row in each)]


def below():
    """What one recording leaves open, and what a small pool takes from such a stream and from the figures."""
    lines = []
    for name in CH_RUNS:
        of = measured(name)
        writes = f"{100 * of['writes']['page_requests'] / of['page_requests']:.1f}"
        lines += [label(name, setting) + [of["page_requests"], writes] + in_short(name, setting) for setting in NAMES]
    return table(["trace", "reading", "requests", "writes, %", "D 2x", "N 2x", "D 8x", "N 8x", "figure 4"], lines)


def hits():
    """Where the eager policy finds its pages, and what it moves: why the two traces differ."""
    lines = []
    for name in TRACES:
        row = policies_of(name, "bus", 2)[EAGER]
        tiers, requests = row["tiers"], row["requests"]
        found = [100 * (tier["read_hits"] + tier["write_hits"]) / requests for tier in tiers]
        copies = 100 * (nvm(row)["reads"]) / requests
        lines.append([TRACES[name][2], requests] + [f"{value:.1f}" for value in (*found, 100 - sum(found), copies)])
    head = ["trace", "requests counted", "found in DRAM, %", "in NVM, %", "below, %", "pages read of NVM for 100 requests"]
    return table(head, lines)


def measured(name):
    """What `trace stat` says of a trace."""
    path = OUT / f"stat-{name}.json"
    if not path.exists():
        part = path.with_suffix(".part")
        entresol("trace", "stat", trace(name), "--json", part)
        part.rename(path)
    return json.loads(path.read_text())


def streams():
    """How large and how skewed each trace is, and what a pool as small as the one of `ch-below` would have of it."""
    lines = []
    for name in TRACES:
        of = measured(name)
        skew = {point["percent"]: point["share"] for point in of["spread"]["all"]["skew"]}
        pool = max((p for p in of["lru_curve"] if p["capacity_pages"] <= POOL_PAGES), key=lambda p: p["capacity_pages"])
        writes = of["writes"]["page_requests"] / of["page_requests"]
        shares = [writes, skew[1], skew[25], skew[50], 1 - pool["miss_ratio"]]
        size = f"{of['unique_bytes'] / 2**20:.0f}"
        lines.append([TRACES[name][2], of["page_requests"], of["unique_pages"], size] + [f"{100 * s:.1f}" for s in shares])
    # Section 6.3: what the coldest blocks get, from the other end.
    lines += [["003, TPC-C"] + [""] * 5 + ["87", "", ""], ["003, CH-benCHmark"] + [""] * 5 + ["57", "91", ""]]
    head = ["trace", "requests", "pages", "MiB", "writes, %", "to the hottest 1 %, %", "25 %", "50 %"]
    return table(head + [f"{POOL_PAGES} pages under LRU have, %"], lines)


def recording():
    """What went on while CH was recorded, and whether all of it was: by the server's own counts between the same moments."""
    lines = []
    for name in RUNS:
        trace(name)
        run = json.loads((OUT / f"{name}.run.json").read_text())["runs"][0]
        heard = {} if name == "ch-below" else json.loads((OUT / f"{name}.pool.json").read_text())
        if run["faults"]:
            raise SystemExit(f"{name}: {run['faults']}")
        cells = [ABOUT[name][2]]
        if name in CH_RUNS:
            answered = [query["number"] for query in run["queries"] if query["counted"]]
            kinds = f"{len(answered)} of {len(set(answered))} kinds"
            cells += [f"{run['new_orders_per_minute']:.0f} new orders", kinds]
        else:
            cells += [f"{60 * run['transactions_per_second']:.0f} transactions", ""]
        cells += [heard.get(key, "") for key in ("references", "M", "X", "D", "H")]
        asked, read = run["pool"]["asked"], run["pool"]["read"]
        cells += [asked, heard.get("told_asked", ""), read, heard.get("told_read", "")]
        lines.append(cells + [f"{100 * (1 - read / asked):.1f}"])
    head = ["trace", "in a minute", "queries answered", "references", "misses", "extensions", "marked", "for hints"]
    return table(head + ["asked, by the server", "as heard", "read, by the server", "as heard", "it had, %"], lines)


TABLES = {f"figure {n}": globals()[f"figure_{n}"] for n in range(4, 13)} | {"assumptions": assumptions, "hits": hits}
TABLES |= {"streams": streams, "recording": recording, "below": below}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    if not RECORDED.exists():
        sys.exit(f"the recorded traces are not in {RECORDED}: nothing to simulate")
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "multi-tier-003.md", TABLES)
