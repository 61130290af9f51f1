#!/usr/bin/env python3
"""The table of probe-models.md: the experiments of 002 on the models of its drives, from what `make probe-models` writes to target/results.

`probe_models.py` renews the page. Numbers of the paper are those of its text and its table 1.
"""

import json
import sys

from face_tables import HERE, RESULTS, renew, table

NONE = "–"


class Probe:
    """The findings of one probe."""

    def __init__(self, model):
        with open(RESULTS / f"probe-{model}.json", encoding="utf-8") as file:
            experiments = json.load(file)["experiments"]
        self.findings = {experiment["experiment"]: experiment["findings"] for experiment in experiments}
        self.fitted = {found["name"]: found["value"] for findings in self.findings.values() for found in findings["fitted"]}

    def table(self, experiment, title):
        return next(found for found in self.findings[experiment]["tables"] if found["title"] == title)

    def cell(self, experiment, title, row, column):
        found = self.table(experiment, title)
        return next(line for line in found["rows"] if line[0] == row)[found["columns"].index(column)]

    def latency(self, pattern):
        return f"{self.cell('latency', 'Latency of 4-KiB I/Os, one at a time', pattern, 'mean'):.2f}"

    def most_4k(self, pattern):
        return f"{self.fitted[f'{pattern}_read_4k_iops'] * 4096 / 1e9:.2f}"

    def beside(self, pattern, kind):
        """Latency alone and beside random I/Os at 0.6 of the rate that they reach alone, with that rate."""
        rows = [row for row in self.table("pressure", f"4-KiB I/Os beside random {kind}")["rows"] if row[0] == pattern]
        return f"{rows[0][3]:.1f} to {rows[4][3]:.1f} at {rows[4][2]:.0f} MB/s"

    def unaligned(self):
        sizes = dict(self.findings["unaligned"]["curves"][0]["lines"][0]["points"])
        return ", ".join(f"{sizes[kib]:.1f}" for kib in (1, 2, 3, 4))

    def meet(self):
        meet = self.fitted.get("layers_meet_kib")
        return "none" if meet is None else f"{meet:.1f}"

    def tail(self, scenario, column):
        title = "Tails of 4-KiB random reads"
        row = next(line[0] for line in self.table("tail", title)["rows"] if scenario in line[0])
        value = self.cell("tail", title, row, column)
        return value if isinstance(value, str) else f"{value:.1f}"


def experiments():
    drives = Probe("p4800x"), Probe("p3700-2tb")
    number = lambda name, digits=0: lambda probe: f"{probe.fitted[name]:.{digits}f}"
    lines = [
        ("figure 3", "sequential read, us", "10.72", "10", lambda probe: probe.latency("sequential read")),
        ("", "random read, us", "10.72", "100", lambda probe: probe.latency("random read")),
        ("", "sequential write, us", "11.95", "11", lambda probe: probe.latency("sequential write")),
        ("", "random write, us", "11.95", "11", lambda probe: probe.latency("random write")),
        ("figure 4", "depth that saturates sequential reads of 4 KiB", "4", "128", number("sequential_read_4k_saturation_depth")),
        ("", "the same, random reads", "4", "128", number("random_read_4k_saturation_depth")),
        ("", "the most, random reads of 4 KiB, GB/s", "1.2", "1.2", lambda probe: probe.most_4k("random")),
        ("figure 5", "sequential read beside reads, us", "2.2 more at 1500 MB/s", "13.25 times", lambda probe: probe.beside("sequential read", "reads")),
        ("", "sequential write beside reads, us", "2.62 more", "5.78 times", lambda probe: probe.beside("sequential write", "reads")),
        ("", "random write beside reads, us", "2.65 more", "6.19 times", lambda probe: probe.beside("random write", "reads")),
        ("", "sequential read beside writes, us", "8.23 more at 1500 MB/s", "580", lambda probe: probe.beside("sequential read", "writes")),
        ("", "random read beside writes, us", "6.26 more", "971", lambda probe: probe.beside("random read", "writes")),
        ("figure 6", "writes of 1, 2, 3, 4 KiB, us", NONE, "54, 66, 80, –", Probe.unaligned),
        ("", "size beyond which unaligned writes cost no more, KiB", "50", "none", Probe.meet),
        ("figure 7", "bandwidth lost at worst while all is overwritten, %", "0.5", "19", number("overwrite_drop_percent", 1)),
        ("figure 8", "read buffer, MiB", "none", "10", number("read_buffer_mib", 1)),
        ("figures 9, 10", "reads of a page between two refreshes", "30", NONE, number("refresh_reads")),
        ("", "cost of a refresh, us", "20", NONE, number("refresh_us", 1)),
        ("table 1", "random read alone, 99 %, us", "10.6", "141", lambda probe: probe.tail("baseline", "99 %")),
        ("", "the same, 99.9 %", "24.7", "182", lambda probe: probe.tail("baseline", "99.9 %")),
        ("", "beside 800 MB/s of reads, 99 %", "17.5", "212", lambda probe: probe.tail("799.", "99 %")),
        ("", "the same, 99.9 %", "29.6", "343", lambda probe: probe.tail("799.", "99.9 %")),
        ("", "beside overwriting, 99 %", "33.5", "2474", lambda probe: probe.tail("overwriting", "99 %")),
        ("", "20 MB again and again, 99 %", "12.6", "285", lambda probe: probe.tail("20 MiB", "99 %")),
    ]
    head = ["002", "quantity", "paper, NVM", "`p4800x`", "paper, NAND", "`p3700-2tb`"]
    return table(head, [[figure, what, nvm, found(drives[0]), nand, found(drives[1])] for figure, what, nvm, nand, found in lines])


TABLES = {"experiments": experiments}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(TABLES[" ".join(sys.argv[1:])]())
    else:
        renew(HERE / "probe-models.md", TABLES)
