#!/usr/bin/env python3
"""The table of costs in survives.md: processor time of a request with `--restart on` against `off`, while nothing fails.

`restart_cost.py` runs the rounds, with the program that ENTRESOL (target/release/entresol) names, and renews the page; `restart_cost.py tables`
only renews it. Servers and clients are pinned to one processor. Files lie in RESTART_COST_SCRATCH (/dev/shm, 1 GB); it needs fio and nbdcopy.
"""

import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time

from face_tables import ENTRESOL, HERE, RESULTS, renew, table
from stalls import wait_for

OUT = RESULTS / "restart-cost.json"
PROGRAM = str(ENTRESOL)
SCRATCH = pathlib.Path(os.environ.get("RESTART_COST_SCRATCH", "/dev/shm")) / "restart-cost"
PROCESSOR = os.cpu_count() - 1
ROUNDS = 11
PAGE = 4096
BYTES = 64 << 20
# Requests of a round, and opens.
REQUESTS = 131_072
OPENS = 16_384
KINDS = {
    "mount read": "`mount`, a read that hits",
    "mount write": "`mount`, a write",
    "nbd read": "`serve nbd`, a read that hits",
    "nbd write": "`serve nbd`, a write",
    "plain open": "`mount` without a cache, a file that is passed to the kernel: opened, read and closed",
}


def family(process):
    """A process and all that descend from it."""
    found = [process]
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def used_s(processes):
    """Processor time of processes, by the nanosecond counters of their threads."""
    tasks = [task for process in processes for task in pathlib.Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Server:
    """A mount or an NBD server over a cache that holds all, in a folder of its own."""

    def __init__(self, door, restart):
        self.folder = SCRATCH / f"{door}-{restart}"
        self.at, cache, backing = self.folder / "door", self.folder / "cache", self.folder / "backing"
        self.folder.mkdir(parents=True)
        data = os.urandom(1 << 20) * (BYTES >> 20)
        if door != "nbd":
            backing.mkdir()
            self.at.mkdir()
            (backing / "file").write_bytes(data)
        else:
            backing.write_bytes(data)
        pair = ["--cache", str(cache), "--backing", str(backing)]
        words = {
            "mount": ["mount", str(backing), str(self.at), "--cache", str(cache), "--page-cache", "off"],
            "nbd": ["serve", "nbd", "--socket", str(self.at), *pair],
            "plain": ["mount", str(backing), str(self.at), "--passthrough", "on"],
        }[door]
        if door != "plain":
            subprocess.run([PROGRAM, "-q", "format", "--mode", "write-back", *pair, "--size", str(4 * BYTES)], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen([PROGRAM, "-q", *words, "--restart", restart], stdout=subprocess.PIPE)
        assert self.process.stdout.readline(), "the server has not begun to serve"
        wait_for(lambda: os.path.ismount(self.at) if door != "nbd" else self.at.exists())
        self.family = family(self.process.pid)
        for kind in ("open",) if door == "plain" else ("read", "write", "read"):
            self.request(kind)

    def request(self, kind):
        """Makes the requests of a round, one at a time; microseconds of processor time of one, the client's part among them."""
        client, server, own = resource.getrusage(resource.RUSAGE_CHILDREN), used_s(self.family), time.process_time()
        if kind == "open":
            path = self.at / "file"
            for at in range(OPENS):
                file = os.open(path, os.O_RDONLY)
                os.pread(file, PAGE, at % (BYTES // PAGE) * PAGE)
                os.close(file)
            return 1e6 * (time.process_time() - own + used_s(self.family) - server) / OPENS
        if self.at.is_dir():
            words = ["fio", "--name=r", f"--filename={self.at}/file", f"--rw=rand{kind}", "--bs=4k", f"--size={BYTES}", "--ioengine=psync",
                     "--invalidate=0", "--fallocate=none", "--norandommap", f"--number_ios={REQUESTS}", f"--io_size={REQUESTS * PAGE}", "--thread"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        else:
            uri = f"nbd+unix:///?socket={self.at}"
            ends = [uri, "null:"] if kind == "read" else [str(self.folder / "backing"), uri]
            for _ in range(REQUESTS * PAGE // BYTES):
                subprocess.run(["nbdcopy", "-T", "1", "-C", "1", "-R", "1", f"--request-size={PAGE}", "--no-extents", "-S", "0", *ends], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
        return 1e6 * (own + used_s(self.family) - server) / REQUESTS

    def end(self):
        self.process.terminate()
        assert self.process.wait() == 0


def measure():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    os.sched_setaffinity(0, {PROCESSOR})
    os.environ["XDG_RUNTIME_DIR"] = str(SCRATCH)
    found = {kind: {"off": [], "on": []} for kind in KINDS}
    for door in ("mount", "nbd", "plain"):
        servers = {restart: Server(door, restart) for restart in ("off", "on")}
        for round in range(ROUNDS):
            for kind in (kind.split()[1] for kind in KINDS if kind.startswith(door)):
                order = ["off", "on"]
                random.Random(round).shuffle(order)
                for restart in order:
                    found[f"{door} {kind}"][restart].append(servers[restart].request(kind))
                print(door, kind, *(f"{restart} {found[f'{door} {kind}'][restart][-1]:.2f}" for restart in ("off", "on")), flush=True)
        for server in servers.values():
            server.end()
    shutil.rmtree(SCRATCH)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found) + "\n")


def tables():
    rows = []
    for kind, us in json.loads(OUT.read_text()).items():
        ratios = sorted(on / off for off, on in zip(us["off"], us["on"]))
        # The third and the ninth of eleven bound the median with 93.5 % confidence.
        rows.append([KINDS[kind], *(f"{statistics.median(us[restart]):.2f}" for restart in ("off", "on")),
                     f"{statistics.median(ratios):.3f} ({ratios[2]:.3f} to {ratios[-3]:.3f})"])
    head = ["request", "off, us of processor time", "on, us", "ratio (interval of 93.5 %)"]
    renew(HERE / "survives.md", {"restart cost": lambda: table(head, rows)})


if __name__ == "__main__":
    if sys.argv[1:] != ["tables"]:
        measure()
    tables()
