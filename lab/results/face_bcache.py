#!/usr/bin/env python3
"""FaCE beside bcache under pgbench, in the peers' kernel whose time is virtual (001, figures 9 and 10): the table of peers.md.

`face_bcache.py` runs what target/results/face-bcache lacks, by lab/benches/peers/run.sh (root; its kernel has to be built), and renews the page. A run takes a few
minutes of one core, whatever else the machine does. ENTRESOL names the program.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from face_tables import HERE, renew, table

ROOT = HERE.parents[1]
OUT = ROOT / "target" / "results" / "face-bcache"
VMW = Path(os.environ.get("VMW", Path.home() / ".cache" / "vmbench"))
# Cache in per cent of a disk of 1 GiB; the database has 583 MiB.
CACHES = [14, 23]
VARIANTS = {"none": "none", "bcache": "bcache-wb", "face-gsc": "ublk"}
READS, WRITES, BUSY_MS = 0, 4, 9  # fields of /sys/block/*/stat


def stats(line):
    """The slow and the fast disk's counts."""
    return [[int(field) for field in disk.split()] for disk in line[1:].split("|")]


def run(variant, percent):
    peer = VARIANTS[variant]
    # A run that fails leaves nothing of an earlier one to be read.
    shutil.rmtree(results_of(peer), ignore_errors=True)
    env = {**os.environ, "SEEDS": "1", "PCT": str(percent), "FORMAT": "--layout log", "VARIANTS": peer}
    words = ["tpcb", "face-gsc" if peer == "ublk" else "peers"]
    subprocess.run([ROOT / "lab/benches/peers/run.sh", *words], check=True, env=env, stdout=subprocess.DEVNULL)
    return found(peer)


def results_of(peer):
    return VMW / "root" / "vmb" / "res-pg" / f"{peer}-1"


def found(peer):
    results = results_of(peer)
    before, after = (stats(line) for line in (results / "dev.txt").read_text().splitlines()[:2])
    said = (results / "meas.txt").read_text()
    counts = [[end - begin for begin, end in zip(*disk)] for disk in zip(before, after)]
    return {
        "transactions": int(re.search(r"actually processed: (\d+)", said)[1]),
        "tps": float(re.search(r"tps = ([\d.]+)", said)[1]),
        "slow": counts[0],
        "fast": counts[1],
    }


def result(variant, percent):
    path = OUT / f"{variant}-{percent}.json"
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run(variant, percent)))
    return json.loads(path.read_text())


def compared():
    lines = []
    none = result("none", CACHES[0])
    needed = none["slow"][READS] / none["transactions"]
    for percent in CACHES:
        bcache = result("bcache", percent)
        for variant in ("bcache", "face-gsc"):
            of = result(variant, percent)
            seconds = of["transactions"] / of["tps"]
            ios = lambda run: run["fast"][READS] + run["fast"][WRITES]
            reads = of["slow"][READS] / of["transactions"]
            lines.append([
                f"{percent} %", variant, f"{of['tps']:.1f}", f"{of['tps'] / none['tps']:.2f}", f"{of['tps'] / bcache['tps']:.2f}",
                f"{reads:.2f}", f"{100 * (1 - reads / needed):.1f} %", f"{ios(of) / seconds:.0f}", f"{ios(of) / ios(bcache):.2f}",
                f"{of['fast'][BUSY_MS] / seconds / 10:.1f} %",
            ])
    return table(["cache, of the disk", "", "tps", "by none", "by bcache", "slow reads per transaction", "saved", "flash I/Os a second", "by bcache",
                  "flash busy"], lines)


TABLES = {"face": compared}


if __name__ == "__main__":
    renew(HERE / "peers.md", TABLES)
    print(compared())
