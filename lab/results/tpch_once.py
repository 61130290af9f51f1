#!/usr/bin/env python3
"""Cuts a recorded TPC-H trace to the first run of each query: `tpch_once.py TRACE.csv.zst OUT.csv`.

Rows outside of queries are left out. The file of names goes along.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path


def cut(lines, names, seen):
    """The header and the rows of the first run of each query, its boundaries included; `seen` gets their numbers."""
    yield next(lines)
    inside = False
    for line in lines:
        _, op, _, name, _ = line.split(",", 4)
        if op == "B":
            number = re.match(r"q(\d+)#", names[name])[1]
            inside = number not in seen
            seen.append(number)
        if inside:
            yield line
        if op == "N":
            inside = False


def main():
    source, out = map(Path, sys.argv[1:])
    meta = source.with_name(source.name.replace(".csv.zst", ".meta.json"))
    unpacked = subprocess.Popen(["zstd", "-dc", "--long=27", source], stdout=subprocess.PIPE, text=True)
    with out.open("w") as file:
        file.writelines(cut(unpacked.stdout, json.loads(meta.read_text())["objects"], []))
    if unpacked.wait():
        sys.exit(f"{source}: zstd failed")
    shutil.copy(meta, out.with_suffix(".meta.json"))


if __name__ == "__main__":
    main()
