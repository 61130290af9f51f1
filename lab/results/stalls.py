#!/usr/bin/env python3
"""The table of stalls.md: how long a hit waits while a long operation is under way, before and after.

`stalls.py` runs the rounds that target/results/stalls lacks, with the programs that BEFORE and ENTRESOL (target/release/entresol) name, and
renews the page; `stalls.py tables` only renews it. A round goes once through all operations with both programs. Files lie in STALLS_SCRATCH
(/dev/shm, 8 GB).
"""

import json
import mmap
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

from face_tables import ENTRESOL, HERE, RESULTS, renew, table

OUT = RESULTS / "stalls"
PROGRAMS = {"before": os.environ.get("BEFORE"), "after": ENTRESOL}
SCRATCH = pathlib.Path(os.environ.get("STALLS_SCRATCH", "/dev/shm")) / "stalls"
ROUNDS = 5
GIB = 1 << 30
PAGE = 4096
# Bytes that are cached when an operation begins; every second MiB of them is dirty.
HELD = 2 * GIB
READ, WRITE, FLUSH, TRIM = 0, 1, 3, 4
OPERATIONS = {
    "idle": "nothing",
    "trim": "an NBD TRIM of 3 GiB",
    "unlink": "the removal of a file of 2 GiB through FUSE",
    "policy": "`set policy=arc`",
    "mode": "`set mode=write-through`: a drain",
    "flush": "an NBD FLUSH",
}


class Nbd:
    """A connection of its own to a server, one request at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        assert self.take(16) == b"NBDMAGICIHAVEOPT"
        self.take(2)
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        self.take(10)

    def take(self, length):
        found = bytearray()
        while len(found) < length:
            some = self.socket.recv(length - len(found))
            assert some, "the server has hung up"
            found += some
        return bytes(found)

    def ask(self, kind, offset=0, length=0, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 1, offset, length) + data)
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        assert magic == 0x67446698 and error == 0, f"request {kind} at {offset}: error {error}"
        return self.take(length) if kind == READ else b""


class Reader(threading.Thread):
    """Reads one page that is cached again and again; the longest time that took."""

    def __init__(self, read):
        super().__init__()
        self.read, self.longest, self.reads, self.done = read, 0.0, 0, False

    def run(self):
        while not self.done:
            began = time.perf_counter()
            self.read()
            self.longest = max(self.longest, time.perf_counter() - began)
            self.reads += 1


def while_reading(read, act):
    reader = Reader(read)
    reader.start()
    time.sleep(0.2)
    reader.longest, began = 0.0, time.perf_counter()
    act()
    took = time.perf_counter() - began
    reader.done = True
    reader.join()
    return {"took_s": took, "longest_s": reader.longest, "reads": reader.reads}


def entresol(program, *words):
    subprocess.run([str(program), *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def without_age(program):
    """The bound on the age of dirty pages is off, where the program has one: its write-back is no operation of the table."""
    helps = subprocess.run([str(program), "serve", "nbd", "--help"], capture_output=True, text=True, check=True).stdout
    return ["--dirty-age", "none"] if "--dirty-age" in helps else []


def wait_for(path):
    for _ in range(1000):
        if path():
            return
        time.sleep(0.01)
    raise SystemExit("the server has not begun to serve")


def over_nbd(program, operation):
    cache, disk, door = SCRATCH / "cache", SCRATCH / "disk", SCRATCH / "door"
    with open(disk, "wb") as file:
        file.truncate(4 * GIB)
    pair = ["--cache", cache, "--backing", disk]
    entresol(program, "format", "--mode", "write-back", *pair, "--size", 3 * GIB)
    server = subprocess.Popen([str(program), "-q", "serve", "nbd", "--socket", door, *map(str, pair), "--policy", "lru", *without_age(program)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(door.exists)
        acting, reading = Nbd(door), Nbd(door)
        mib = bytes(1 << 20)
        for at in range(0, HELD, 1 << 20):
            acting.ask(*((WRITE, at, 1 << 20, mib) if at >> 20 & 1 else (READ, at, 1 << 20)))
        acting.ask(FLUSH)
        beyond = 3 * GIB + GIB // 2
        reading.ask(WRITE, beyond, PAGE, bytes(PAGE))
        acting.ask(FLUSH)
        acts = {
            "idle": lambda: time.sleep(1),
            "trim": lambda: acting.ask(TRIM, 0, 3 * GIB),
            "policy": lambda: entresol(program, "set", "--cache", cache, "policy=arc"),
            "mode": lambda: entresol(program, "set", "--cache", cache, "mode=write-through"),
            "flush": lambda: acting.ask(FLUSH),
        }
        if operation == "flush":
            for at in range(0, HELD, 2 << 20):
                acting.ask(WRITE, at, 1 << 20, mib)
        return while_reading(lambda: reading.ask(READ, beyond, PAGE), acts[operation])
    finally:
        server.terminate()
        server.wait()


def over_fuse(program):
    cache, below, at = SCRATCH / "cache", SCRATCH / "below", SCRATCH / "mount"
    below.mkdir()
    at.mkdir()
    pair = ["--cache", cache, "--backing", below]
    entresol(program, "format", "--mode", "write-back", *pair, "--size", 3 * GIB)
    server = subprocess.Popen([str(program), "-q", "mount", str(below), str(at), "--cache", str(cache), "--policy", "lru", *without_age(program)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.path.ismount(at))
        mib = bytes(1 << 20)
        with open(at / "removed", "wb", buffering=0) as file:
            for _ in range(0, HELD, 1 << 20):
                file.write(mib)
            os.fsync(file.fileno())
        (at / "read").write_bytes(mib)
        reading = os.open(at / "read", os.O_RDONLY | os.O_DIRECT)
        page = mmap.mmap(-1, PAGE)
        found = while_reading(lambda: os.preadv(reading, [page], 0), lambda: (at / "removed").unlink())
        os.close(reading)
        return found
    finally:
        server.terminate()
        server.wait()


def path(operation, which, round):
    return OUT / f"{operation}.{which}.{round}.json"


def measure():
    OUT.mkdir(parents=True, exist_ok=True)
    for round in range(1, ROUNDS + 1):
        for operation in OPERATIONS:
            for which, program in PROGRAMS.items():
                done = path(operation, which, round)
                if done.exists():
                    continue
                shutil.rmtree(SCRATCH, ignore_errors=True)
                SCRATCH.mkdir(parents=True)
                os.environ["XDG_RUNTIME_DIR"] = str(SCRATCH)
                found = over_fuse(program) if operation == "unlink" else over_nbd(program, operation)
                done.write_text(json.dumps(found) + "\n")
                print(done.name, found, flush=True)
    shutil.rmtree(SCRATCH, ignore_errors=True)


def span(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def tables():
    rows = []
    for operation, words in OPERATIONS.items():
        found = {which: [json.loads(path(operation, which, round).read_text()) for round in range(1, ROUNDS + 1)] for which in PROGRAMS}
        longest = [span([1000 * one["longest_s"] for one in found[which]]) for which in PROGRAMS]
        took = [span([one["took_s"] for one in found[which]], 2) for which in PROGRAMS]
        rows.append([words, *longest, *took])
    head = ["while", "longest hit before, ms", "after, ms", "it takes before, s", "after, s"]
    renew(HERE / "stalls.md", {"stalls": lambda: table(head, rows)})


if __name__ == "__main__":
    if sys.argv[1:] != ["tables"]:
        measure()
    tables()
