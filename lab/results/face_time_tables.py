#!/usr/bin/env python3
"""Writes the tables of face-lc-with-time.md from target/results, which the commands on the page fill.

`face_time_tables.py` renews the tables whose results are there, `face_time_tables.py NAME` prints one.
"""

import sys

from face_tables import HERE, renew, rows, table

DRIVES = {"850-evo": "850 Evo", "840-pro": "840 Pro", "s3500": "S3500", "p3700": "P3700"}
SIZES = ["4%", "8%", "12%", "16%", "20%", "28%", "36%"]
WRITES = {"face": "FaCE", "face-gsc": "FaCE-GSC", "lc": "LC", "tac": "TAC"}


def rate(row):
    return f"{row['timed']['requests_per_second'] / 1000:.1f}"


def flash(row):
    return row["timed"]["devices"][1]


def share(part):
    return f"{100 * part:.0f}"


def waf(device):
    return f"{device['write_amplification']:.2f} {device['waf_mode']}"


def by_cell(name):
    return {(row["policy"], row["size"].split("+")[1]): row for row in rows(name)}


def grid(prefix, policies, figure):
    """A line for each drive and policy, a column for each size."""
    lines = []
    for drive, name in DRIVES.items():
        found = by_cell(f"{prefix}-{drive}")
        for policy in policies:
            lines.append([name, WRITES[policy]] + [figure(found[policy, size]) for size in SIZES])
    return table(["flash", "policy"] + SIZES, lines)


def lead(prefix):
    """By how much FaCE-GSC is ahead of LC, in per cent."""
    lines = []
    for drive, name in DRIVES.items():
        found = {cell: row["timed"]["requests_per_second"] for cell, row in by_cell(f"{prefix}-{drive}").items()}
        lines.append([name] + [f"{100 * (found['face-gsc', size] / found['lc', size] - 1):+.0f}" for size in SIZES])
    return table(["flash"] + SIZES, lines)


def alone():
    base = rows("time-disks-only")[0]
    lines = [["16 disks", rate(base), "1.0", "-"]]
    for drive, name in DRIVES.items():
        row = rows(f"time-{drive}-only")[0]
        times = row["timed"]["requests_per_second"] / base["timed"]["requests_per_second"]
        lines.append([name, rate(row), f"{times:.1f}", waf(flash(row))])
    return table(["database on", "thousand requests/s", "times the disks'", "WAF"], lines)


def saturation():
    figure = lambda row: f"{share(flash(row)['utilisation'])} · {flash(row)['ios_per_second'] / 1000:.1f}"
    return grid("time", ["face-gsc", "lc"], figure)


def writes():
    lines = []
    found = {row["policy"]: row for row in rows("time-840-pro") if row["size"].endswith("+16%")}
    printed = {"face-gsc": ("20.59", "256.3"), "lc": ("1.36", "4.0")}
    for policy, name in WRITES.items():
        device, (sequential, size) = flash(found[policy]), printed.get(policy, ("-", "-"))
        kb, runs = device["mean_write_bytes"] / 1024, 100 * device["sequential_writes"]
        lines.append([name, f"{kb:.1f}", size, f"{runs:.1f}", sequential])
        lines[-1] += [share(device["utilisation"]), f"{device['ios_per_second']:.0f}"]
    head = ["policy", "kB a write", "001", "sequential, %", "001", "utilisation, %", "I/Os per s"]
    return table(head, lines)


def amplification():
    printed = {("840-pro", "face-gsc"): "1.02", ("840-pro", "lc"): "5.13"}
    printed |= {("s3500", "face-gsc"): "1.08", ("s3500", "lc"): "2.47"}
    lines = []
    for drive in ("840-pro", "s3500"):
        for policy in ("face-gsc", "lc"):
            line = [DRIVES[drive], WRITES[policy], printed[drive, policy]]
            for how in ("curve", "all", "part"):
                row = next(row for row in rows(f"waf-{drive}-{how}") if row["policy"] == policy)
                line.append(waf(flash(row)))
            lines.append(line)
    head = ["flash", "policy", "001", "measured curve", "cleaning, all of the drive", "cleaning, a part of the drive"]
    return table(head, lines)


def disks():
    counts = [1, 2, 4, 8, 16, 32, 64]
    lines = []
    for policy in ("face", "face-gsc", "lc"):
        each = [next(row for row in rows(f"disks-{count}") if row["policy"] == policy) for count in counts]
        lines.append([WRITES[policy]] + [rate(row) for row in each])
        lines.append(["its flash's utilisation, %"] + [share(flash(row)["utilisation"]) for row in each])
    lines.append(["no cache"] + [rate(rows(f"disks-{count}-only")[0]) for count in counts])
    return table(["disks"] + counts, lines)


def through():
    """Write-through: thousand requests a second of FaCE-GSC and LC, and by how much the first is ahead, in per cent."""
    lines = []
    for drive, name in DRIVES.items():
        line = [name]
        for count in (16, 32, 64):
            found = {row["policy"]: row for row in rows(f"through-{count}-{drive}")}
            times = [found[policy]["timed"]["requests_per_second"] for policy in ("face-gsc", "lc")]
            ahead = f"{rate(found['face-gsc'])} · {rate(found['lc'])} · {100 * (times[0] / times[1] - 1):+.0f}"
            line.append(f"{ahead} · {share(flash(found['lc'])['utilisation'])}, {share(found['lc']['timed']['devices'][-1]['utilisation'])}")
        lines.append(line)
    return table(["flash", "16 disks", "32 disks", "64 disks"], lines)


TABLES = {
    "figure 11": through,
    "figure 8": lambda: grid("time", ["face", "face-gsc", "lc", "tac"], rate),
    "figure 8, lead": lambda: lead("time"),
    "32 disks": lambda: grid("time32", ["face", "face-gsc", "lc"], rate),
    "32 disks, lead": lambda: lead("time32"),
    "alone": alone,
    "figure 7": saturation,
    "table 6": writes,
    "table 7": amplification,
    "figure 13": disks,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "face-lc-with-time.md", TABLES)
