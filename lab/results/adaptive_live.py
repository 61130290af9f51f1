#!/usr/bin/env python3
"""The tuners live, in the engine's buffer over DRAM and emulated NVM: the tables of adaptive-live.md.

`adaptive_live.py` runs what target/results/live lacks, with the program that ENTRESOL names (target/release/entresol), and
renews the page; `adaptive_live.py NAME` prints one table. Time is counted, so that each run gives the same on any machine,
but for `real` and `accuracy`: these want a quiet machine, so their runs are made by `adaptive_live.py real` alone. The
recordings that figures_003.py makes are made if they are not there. Each run with a grid leaves its charts beside its JSON
file. The policies of a grid draw at random only where a probability is neither 0 nor 1, so it is run with one seed.
"""

import json
import statistics
import subprocess
import sys

import figures_003
from face_tables import ENTRESOL, HERE, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "live"

# The program's default first: it is run with the grid.
SEEDS = (42, 1, 2)
TUNERS = ("annealing", "climb", "halving", "shadows")
A = "dram=dram:1.2%,cache=optane-dimm:75.8%,backing=arulraj-ssd"
B = "dram=dram:2%,cache=optane-dimm:20%,backing=arulraj-ssd"
KNOBS = ("dr", "dw", "nr", "nw")
WHICH = "D_r D_w N_r N_w"


class Stream:
    """Traces one after the other, by the names of figures_003 or as a generator's specification, and how they are tuned."""

    def __init__(self, traces, words, grid, tiers=A):
        self.traces, self.words, self.grid, self.tiers = traces, words, grid, tiers


LONG, JOINED = ["--limit", "3M", "--warmup", "10%"], ["--limit", "1500k"]
SHORT = ["--limit", "400k", "--warmup", "10%", "--epoch", "4k"]
ZIPF = ["--warmup", "10%", "--epoch", "2k", "--options", "dr,nr"]
zipf = lambda n, grid: Stream([f"generate:zipf:n={n}:pages=4000:exponent=0.8:seed=7:write=20"], ZIPF, grid, B)

STREAMS = {
    "TPC-C": Stream(["tpcc"], LONG, 3),
    "TPC-H": Stream(["tpch"], [*LONG, "--epoch", "5k"], 2),
    "CH": Stream(["ch"], LONG, 2),
    "Voter": Stream(["voter"], LONG, 2),
    "AuctionMark": Stream(["auctionmark"], LONG, 2),
    "TPC-H, TPC-C, TPC-H": Stream(["tpch", "tpcc", "tpch"], JOINED, 2),
    "TPC-H, TPC-C, CH": Stream(["tpch", "tpcc", "ch"], JOINED, 2),
    "all five in turn": Stream(["tpch", "tpcc", "ch", "voter", "auctionmark"], JOINED, 2),
    "zipf": zipf("600k", 3),
}
# TPC-C with a finer grid of the two that are changed most, and its first requests alone.
CLOSER = {
    "TPC-C, D_w and N_r": Stream(["tpcc"], [*LONG, "--options", "dw,nr"], 6),
    "TPC-C, 400 000": Stream(["tpcc"], SHORT, 2),
}
REAL = {"TPC-C, 400 000": CLOSER["TPC-C, 400 000"], "zipf, 120 000": zipf("120k", 2)}
REAL_CLIENTS, ROUNDS = (1, 4), (1, 2, 3)

COUNTED, SPENT, SIMULATED = ("--live=counted",), ("--live",), ()
TIMES = {COUNTED: "counted", SPENT: "real", SIMULATED: "simulated"}


def place(name, time, clients, seed, grid, more):
    words = [TIMES[time], *name.replace(",", "").split(), clients, seed, grid, *(str(word).strip("-") for word in more)]
    return OUT / f"{'-'.join(map(str, words))}.json"


def tune(name, stream, clients, seed=SEEDS[0], grid=None, time=COUNTED, more=(), about=()):
    """Runs every tuner, and the grid of the stream unless told otherwise; `about` tells runs of the same words apart."""
    grid = stream.grid if grid is None else grid
    path = place(name, time, clients, seed, grid, (*more, *about))
    if not path.exists():
        traces = [trace if ":" in trace else figures_003.trace(trace) for trace in stream.traces]
        part, page = path.with_suffix(".part"), path.with_suffix(".html.part")
        words = ["-q", "tune", *time, *traces, *stream.words, *more, "--clients", clients, "--tiers", stream.tiers]
        words += ["--seed", seed, "--grid", grid, "--tuner", ",".join(TUNERS), "--json", part]
        words += ["--html", page] if grid else []
        subprocess.run([str(word) for word in (ENTRESOL, *words)], check=True, stdout=subprocess.DEVNULL)
        if grid:
            page.rename(path.with_suffix(".html"))
        part.rename(path)
    return json.loads(path.read_text())


def rate(run):
    return run["requests_per_second"]


def over(run, base):
    return 100 * (rate(run) / rate(base) - 1)


def number(value):
    return f"{value:,.0f}".replace(",", " ")


def settings(found, values):
    """All four, those that are not tuned as the eager start has them."""
    tuned = dict(zip((knob["name"] for knob in found["knobs"]), values))
    return " ".join(f"{tuned.get(name, 1):g}" for name in KNOBS)


def tuner(found, name):
    return next(run for run in found["tuners"] if run["tuner"] == name)


def best_fixed(found):
    """Of settings that are as fast the start, which they are where an option makes no difference."""
    start, best = found["start"], found["grid"][0]
    return start if rate(start) == rate(best) else best


def row(name, stream, clients):
    first = tune(name, stream, clients)
    start, best = first["start"], best_fixed(first)
    seeds = [first, *(tune(name, stream, clients, seed, grid=0) for seed in SEEDS[1:])]
    cells = [number(rate(start)), f"{over(best, start):+.1f}", f"{settings(first, best['values'])} of {len(first['grid'])}"]
    for which in TUNERS:
        each = [over(tuner(found, which), best) for found in seeds]
        cells.append(f"{statistics.median(each):+.1f} [{min(each):+.1f}, {max(each):+.1f}]")
    return [name, *cells]


def over_fixed(streams, clients):
    head = ["stream", "start, requests/s", "best fixed over it, %", f"which has {WHICH}"]
    lines = [row(name, stream, clients) for name, stream in streams.items()]
    return table(head + [f"{which} over that, %" for which in TUNERS], lines)


def tpcc():
    found = tune("TPC-C", STREAMS["TPC-C"], 8)
    start, grid = found["start"], found["grid"]
    named = [("start (eager)", start), *((run["tuner"], run) for run in found["tuners"])]
    named += [(f"best fixed of {len(grid)}", best_fixed(found)), ("worst fixed", grid[-1])]
    lines = []
    for name, run in named:
        cells = [settings(found, run["values"]), number(rate(run)), "" if run is start else f"{over(run, start):+.1f}"]
        converged = f"{run['converged_after']} of {len(run['epochs'])}" if run["tuner"] else ""
        lines.append([name, *cells, number(run["last_quarter_per_second"]), converged])
    head = ["", f"{WHICH} at the end", "requests/s", "over the start, %", "last quarter", "converged after, epochs"]
    return table(head, lines)


def live_and_simulated():
    both = [tune("zipf", STREAMS["zipf"], 8, time=time) for time in (COUNTED, SIMULATED)]
    cells = lambda of: [cell for found in both for cell in of(found)]
    figures = lambda run, start: (number(rate(run)), f"{over(run, start):+.1f}")
    lines = [["start (eager)", *cells(lambda found: (number(rate(found["start"])), ""))]]
    for name in TUNERS:
        lines.append([name, *cells(lambda found: figures(tuner(found, name), found["start"]))])
    which = " and ".join(dict.fromkeys(settings(found, best_fixed(found)["values"]) for found in both))
    best = cells(lambda found: figures(best_fixed(found), found["start"]))
    lines.append([f"best fixed of {len(both[0]['grid'])} ({which})", *best])
    head = ["", "live, requests/s", "over the start, %", "simulated, requests/s", "over the start, %"]
    return table(head, lines)


def slower():
    """The start's time a request, live and simulated."""
    lines = []
    for name in ("TPC-C", "zipf"):
        for clients in (8, 1):
            # The simulated zipf is there with a grid, for the other table.
            grid = None if name == "zipf" and clients == 8 else 0
            live = tune(name, STREAMS[name], clients)["start"]
            simulated = tune(name, STREAMS[name], clients, grid=grid, time=SIMULATED)["start"]
            each = [f"{1e6 / rate(run):.2f}" for run in (live, simulated)]
            nvm = live["pages_written_per_million"] / 1e6
            lines.append([name, clients, *each, f"{over(live, simulated):+.1f}", f"{nvm:.2f}"])
    head = ["stream", "requesters", "live, us a request", "simulated", "throughput over that, %"]
    return table(head + ["pages written to NVM a request"], lines)


def settle():
    """What a tuner makes with more or fewer epochs not counted after a change: one is the default."""
    lines = []
    for epochs in (0, 1, 3):
        more = {} if epochs == 1 else {"grid": 0, "more": ("--settle", epochs)}
        found = tune("zipf", STREAMS["zipf"], 8, **more)
        cells = [f"{over(tuner(found, name), found['start']):+.1f}" for name in TUNERS]
        lines.append([f"{epochs} (default)" if epochs == 1 else epochs, *cells])
    return table(["`--settle`", *TUNERS], lines)


# Real time: runs that are not made when the page is renewed.

CASES = [(name, clients) for name in REAL for clients in REAL_CLIENTS]


def run_real():
    for turn in ROUNDS:
        for name, clients in CASES:
            tune(name, REAL[name], clients, time=SPENT, about=("round", turn))


def rounds(name, clients):
    paths = [place(name, SPENT, clients, SEEDS[0], REAL[name].grid, ("round", turn)) for turn in ROUNDS]
    return [json.loads(path.read_text()) for path in paths]


def real():
    """Medians over the rounds of the throughput, and of what it is over the start of the same round."""
    columns = []
    for name, clients in CASES:
        found = rounds(name, clients)

        def of(pick):
            runs = [(pick(each), each["start"]) for each in found]
            return statistics.median(rate(run) for run, _ in runs), statistics.median(over(*pair) for pair in runs)

        fixed = lambda values: lambda each: next(run for run in each["grid"] if run["values"] == values)
        grid = sorted(found[0]["grid"], key=lambda run: of(fixed(run["values"]))[1])
        cell = lambda figures, which="": f"{number(figures[0])} ({figures[1]:+.1f} %){which}"
        starts = [rate(each["start"]) for each in found]
        column = [f"{number(statistics.median(starts))} [{number(min(starts))}, {number(max(starts))}]"]
        column.append(cell(of(fixed(found[0]["start"]["values"]))))
        column += [cell(of(lambda each, which=which: tuner(each, which))) for which in TUNERS]
        for run in (grid[-1], grid[0]):
            column.append(cell(of(fixed(run["values"])), f": {settings(found[0], run['values'])}"))
        columns.append(column)
    names = ["start (eager)", "the same once more, in the grid", *TUNERS, "best fixed", "worst fixed"]
    head = [f"{name}: {clients} requester{'s' * (clients > 1)}" for name, clients in CASES]
    return table(["requests/s", *head], [[name, *cells] for name, *cells in zip(names, *columns)])


def accuracy():
    """How near the emulated devices came to their models in the start of the first round."""
    lines = []
    for name, clients in CASES:
        for line in rounds(name, clients)[0]["emulated"]:
            lines.append([name, clients, line])
    return table(["stream", "requesters", "asked and given"], lines)


TABLES = {
    "eight": lambda: over_fixed(STREAMS, 8),
    "one": lambda: over_fixed(STREAMS, 1),
    "tpcc": tpcc,
    "closer": lambda: over_fixed(CLOSER, 8),
    "zipf": live_and_simulated,
    "settle": settle,
    "simulated": slower,
    "real": real,
    "accuracy": accuracy,
}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    if not figures_003.RECORDED.exists():
        sys.exit(f"the recorded traces are not in {figures_003.RECORDED}: nothing to tune for")
    if len(sys.argv) > 1:
        name = " ".join(sys.argv[1:])
        if name == "real":
            run_real()
        print(TABLES[name]())
    else:
        renew(HERE / "adaptive-live.md", TABLES)
