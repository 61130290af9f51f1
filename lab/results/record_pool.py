#!/usr/bin/env python3
"""Records what PostgreSQL's own buffer pool is asked, hits included, while a command runs servers of its own.

`record_pool.py OUT.etr entresol -q bench ch --db postgresql --policy none --record BELOW.etr ...` runs the command with
probes on the server's program, and writes the trace; OUT.pool.json says how much of it there is. It needs root, tracefs,
`readelf`, the postgres of Debian, which is built with --enable-dtrace, and 0.2 GB in RECORD_SCRATCH (/dev/shm) for a million
references. ENTRESOL is the program that converts (target/release/entresol).

How it is done:
- The server's static probe buffer__read__done gives the page of every reference, and whether it was a hit (G), a miss (M)
  or an extension of the file (X). The number that ReadBufferExtended returns is the buffer the page lies in.
- MarkBufferDirty (D) and MarkBufferDirtyHint (H) are given a buffer that their process has pinned, so it holds the page
  that the last reference to that buffer, by whichever process, was to.
- The rows are those of the recorded traces before the pool (crates/trace/src/formats/recorded.rs): conversion makes the
  last reference of the process to a page that is marked an update, and an extension a write of a whole page.
- The trace is of the time in which `bench` counts: it asks pg_stat_database when that begins and when it ends, and
  pg_stat_get_db_blocks_fetched is called. Conversion counts marks of pages whose reference lies before the beginning.
- The server's sessions add to pg_stat_database when pgstat_report_stat returns 0. What they had added at those two looks
  is counted from the same events (told_asked, told_read), to be compared with what the server answered.
- Events of other programs are not heard: the command and what it starts are followed from its own process on. Lost events
  are an error, and the probes go whatever happens.
"""

import heapq
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
ROOT = Path(__file__).resolve().parents[2]
ENTRESOL = os.environ.get("ENTRESOL", ROOT / "target" / "release" / "entresol")
SCRATCH = os.environ.get("RECORD_SCRATCH", "/dev/shm")
# The kernel keeps so much for each processor; it is emptied twenty times a second.
KERNEL_KIB = 96 << 10
FORKS = ("", "_fsm", "_vm", "_init")
GLOBAL_SPACE = 1664
PAGE_BYTES = 8192
# How the static probe names a register, and how the kernel does.
REGISTERS = {f"{size}{name}": name for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp") for size in "re"}
REGISTERS |= {"al": "ax", "bl": "bx", "cl": "cx", "dl": "dx", "sil": "si", "dil": "di"}
REGISTERS |= {f"r{n}{size}": f"r{n}" for n in range(8, 16) for size in ("", "d", "w", "b")}


def argument(text):
    """An argument of a static probe as the kernel writes it: `-4@-136(%rbp)` is `-136(%bp):s32`."""
    found = re.fullmatch(r"(-?)(\d+)@(?:\$(-?\d+)|%(\w+)|(-?\d*)\(%(\w+)\))", text)
    if not found:
        raise SystemExit(f"the static probe has an argument that is not understood: {text}")
    sign, size, constant, register, offset, base = found.groups()
    kind = f":{'s' if sign else 'u'}{int(size) * 8}"
    if constant is not None:
        return f"\\{constant}{kind}"
    if register is not None:
        return f"%{REGISTERS[register]}{kind}"
    return f"{int(offset or 0):+d}(%{REGISTERS[base]}){kind}"


def static_probes(notes, name):
    """Places, semaphores and arguments of one static probe, from what `readelf -n` says."""
    pattern = rf"Name: {name}\n\s+Location: (\S+), Base: \S+, Semaphore: (\S+)\n\s+Arguments: (.*)"
    found = re.findall(pattern, notes)
    return [(place, semaphore, [argument(a) for a in words.split()]) for place, semaphore, words in found]


def exported(symbols, name):
    found = re.search(rf"^\s*\d+: ([0-9a-f]+)\s.*\b{name}(@|$)", symbols, re.MULTILINE)
    if not found:
        raise SystemExit(f"postgres does not export {name}")
    return f"0x{found[1]}"


def probes(program, group):
    """What is written to uprobe_events, and the kind of event that each name is."""
    readelf = lambda *words: subprocess.run(["readelf", *words, program], capture_output=True, text=True, check=True).stdout
    notes, symbols = readelf("-nW"), readelf("--dyn-syms", "-W")
    lines, kinds = [], {}

    def add(kind, how, place, *fields):
        name = f"{kind}{len(kinds)}"
        kinds[name] = kind
        lines.append(" ".join([f"{how}:{group}/{name}", f"{program}:{place}", *fields]))

    reads = static_probes(notes, "buffer__read__done")
    if not reads:
        raise SystemExit(f"{program} has no static probes: it was not built with --enable-dtrace")
    for place, semaphore, words in reads:
        names = ("fork", "block", "space", "db", "rel", "backend", "extend", "found")
        add("read", "p", f"{place}({semaphore})", *(f"{name}={word}" for name, word in zip(names, words, strict=True)))
    for name in ("ReadBufferExtended", "ReadBufferWithoutRelcache"):
        add("buffer", "r", exported(symbols, name), "number=$retval:s32")
    add("told", "r", exported(symbols, "pgstat_report_stat"), "left=$retval:s64")
    add("dirty", "p", exported(symbols, "MarkBufferDirty"), "number=%di:s32")
    add("hint", "p", exported(symbols, "MarkBufferDirtyHint"), "number=%di:s32")
    add("server", "p", exported(symbols, "PostmasterMain"))
    add("look", "p", exported(symbols, "pg_stat_get_db_blocks_fetched"))
    return lines, kinds


def layout(text):
    """The number of a kind of event, and how to unpack its process and its own fields, from its `format` file."""
    number = int(re.search(r"^ID: (\d+)", text, re.MULTILINE)[1])
    fields = re.findall(r"field:(.*?)\s*(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);\s*signed:(\d)", text)
    codes, at = "<", 0
    for declared, name, offset, size, signed in sorted(fields, key=lambda field: int(field[2])):
        wanted = name == "common_pid" or not (name.startswith("common_") or name.startswith("__probe"))
        if wanted:
            code = {1: "b", 2: "h", 4: "i", 8: "q"}[int(size)]
            codes += f"{int(offset) - at}x{code if signed == '1' else code.upper()}"
            at = int(offset) + int(size)
    return number, struct.Struct(codes)


def events(pages, layouts):
    """Time, kind and fields of the events in pages of one processor's buffer (kernel: include/linux/ring_buffer.h)."""
    header, word = struct.Struct("<QQ"), struct.Struct("<I")
    two, kind_of = struct.Struct("<II"), struct.Struct("<H")
    for page in pages:
        now, commit = header.unpack_from(page)
        if commit >> 30 & 3:
            raise SystemExit("the kernel lost events: nothing is written")
        at, end = 16, 16 + (commit & 0xFFFFF)
        while at < end:
            (first,) = word.unpack_from(page, at)
            size, delta = first & 31, first >> 5
            if size <= 28:
                now += delta
                if size:
                    data, at = at + 4, at + 4 + 4 * size
                else:
                    data, at = at + 8, at + 4 + (word.unpack_from(page, at + 4)[0] + 3 & ~3)
                known = layouts.get(kind_of.unpack_from(page, data)[0])
                if known:
                    yield now, known[0], known[1].unpack_from(page, data)
                continue
            _, more = two.unpack_from(page, at)
            if size == 29:
                if delta == 0:
                    break
                at += 4 + more
            elif size == 30:
                now, at = now + (more << 27) + delta, at + 8
            else:
                # Absolute, in 59 bits; the upper ones are those of the page.
                now, at = (now >> 59 << 59) + (more << 27) + delta, at + 8


def pages_of(path):
    with open(path, "rb", buffering=1 << 20) as file:
        while page := file.read(4096):
            yield page


def relation(space, db, rel, fork):
    """The file, as it is called below the data directory: all lie in one of the two spaces that there are at first."""
    return f"global/{rel}{FORKS[fork]}" if space == GLOBAL_SPACE else f"base/{db}/{rel}{FORKS[fork]}"


class Tally:
    """Turns events into rows, of the last server that was started and between the two looks."""

    def __init__(self, out):
        self.out, self.objects, self.processes = out, {}, {}
        self.anew()

    def anew(self):
        self.out.seek(0)
        self.out.truncate()
        self.out.write("op,p,obj,block\n")
        self.looks, self.clock, self.rows = {}, -1, dict.fromkeys("GMXDH", 0)
        self.latest, self.holds, self.pending = {}, {}, {}
        self.unknown, self.told = 0, [0, 0]

    def row(self, op, pid, page):
        if len(self.looks) == 1:
            process = self.processes.setdefault(pid, len(self.processes))
            self.rows[op] += 1
            self.out.write(f"{op},{process},{page[0]},{page[1]}\n")

    def read(self, ns, pid, fork, block, space, db, rel, backend, extend, found):
        if backend != -1:
            return  # A temporary table of its own session, which is not in the pool.
        op = "X" if extend else "G" if found else "M"
        page = (self.objects.setdefault(relation(space, db, rel, fork), len(self.objects)), block)
        if len(self.looks) == 1 and ns // 1_000_000 > self.clock:
            self.clock = ns // 1_000_000
            self.out.write(f"T,0,0,{self.clock - self.began // 1_000_000}\n")
        self.row(op, pid, page)
        self.latest[pid] = page
        count = self.pending.setdefault(pid, [0, 0])
        count[0] += 1
        count[1] += op != "G"

    def buffer(self, _, pid, number):
        if number > 0 and pid in self.latest:
            self.holds[number] = self.latest[pid]

    def mark(self, op, pid, number):
        if number <= 0:
            return
        page = self.holds.get(number)
        if page is None:
            self.unknown += len(self.looks) == 1
        else:
            self.row(op, pid, page)

    def dirty(self, _, pid, number):
        self.mark("D", pid, number)

    def hint(self, _, pid, number):
        self.mark("H", pid, number)

    def reported(self, _, pid, left):
        if left == 0:
            for at, count in enumerate(self.pending.pop(pid, (0, 0))):
                self.told[at] += count

    def look(self, ns, pid):
        """A session of its own for each look, that asks for both counts of each database one after the other."""
        if not self.looks:
            self.began = ns
        self.looks.setdefault(pid, []).append((ns, *self.told))

    def take(self, streams):
        doing = {"read": self.read, "buffer": self.buffer, "dirty": self.dirty, "hint": self.hint}
        doing |= {"told": self.reported, "look": self.look, "server": lambda *_: self.anew()}
        for ns, kind, values in heapq.merge(*streams, key=lambda event: event[0]):
            doing[kind](ns, *values)

    def summary(self):
        if len(self.looks) != 2:
            times = len(self.looks)
            raise SystemExit(f"the last server was asked for its counts {times} times, not twice: --record, and one run")
        first, last = self.looks.values()
        of = {"references": sum(self.rows[op] for op in "GMX"), **self.rows, "marks_of_unknown_pages": self.unknown}
        # The second question is for what was read: its calls are the second half.
        read = lambda calls: calls[len(calls) // 2][2]
        of |= {"told_asked": last[0][1] - first[0][1], "told_read": read(last) - read(first)}
        return of | {"seconds": (last[0][0] - first[0][0]) / 1e9, "processes": len(self.processes)}


def tried():
    """What is read here, on examples: a wrong layout would give numbers, and nobody would see it."""
    assert argument("-4@-136(%rbp)") == "-136(%bp):s32" and argument("1@%al") == "%ax:u8"
    assert argument("4@(%r12)") == "+0(%r12):u32" and argument("1@$0") == "\\0:u8" and argument("4@%r15d") == "%r15:u32"
    common = "field:unsigned short common_type;offset:0;size:2;signed:0;field:int common_pid;offset:4;size:4;signed:1;"
    own = "field:unsigned long __probe_ip;offset:8;size:8;signed:0;field:s32 number;offset:16;size:4;signed:1;"
    number, fields = layout(f"ID: 7\n{common}{own}")
    event = struct.pack("<HHiQi", 7, 0, 11, 0, -3)
    # An event of 5 words 2 ns later; a long time and the same; something void; one that tells its length in a word.
    small = lambda delta: struct.pack("<I", 5 | delta << 5) + event
    long_time, void = struct.pack("<II", 30 | 1 << 5, 1), struct.pack("<II", 29 | 1 << 5, 4)
    body = small(2) + long_time + small(4) + void + struct.pack("<II", 6 << 5, 24) + event
    page = (struct.pack("<QQ", 1000, len(body)) + body).ljust(4096, b"\0")
    got = list(events([page], {7: ("dirty", fields)}))
    later = 1002 + (1 << 27) + 1 + 4
    assert got == [(1002, "dirty", (11, -3)), (later, "dirty", (11, -3)), (later + 6, "dirty", (11, -3))], got
    assert number == 7
    # Between the looks buffer 4 has a page of one process, then of another; a mark finds either.
    one, other = (1, 0, 7, 1663, 5, 100, -1, 0, 1), (2, 1, 8, 1663, 5, 100, -1, 0, 0)
    stream = [("dirty", (1, 4)), ("look", (9,)), ("read", one), ("buffer", (1, 4)), ("dirty", (1, 4)), ("read", other)]
    stream += [("buffer", (2, 4)), ("hint", (2, 4)), ("hint", (2, -1)), ("look", (10,)), ("dirty", (2, 4))]
    tally = Tally(io.StringIO())
    tally.take([[(ns, *event) for ns, event in enumerate(stream)]])
    assert tally.out.getvalue() == "op,p,obj,block\nT,0,0,0\nG,0,0,7\nD,0,0,7\nM,1,1,8\nH,1,1,8\n", tally.out.getvalue()
    assert list(tally.objects) == ["base/5/100", "base/5/100_fsm"] and tally.summary()["references"] == 2


def server_program():
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not programs:
        raise SystemExit("there is no /usr/lib/postgresql/*/bin/postgres")
    return programs[-1]


class Listening:
    """Probes that are on, and a buffer of the kernel of our own."""

    def __init__(self, program):
        if os.geteuid() != 0:
            raise SystemExit("only root may set probes")
        if not (TRACING / "uprobe_events").exists():
            # A bare system has it and does not mount it by itself.
            subprocess.run(["mount", "-t", "tracefs", "nodev", TRACING])
        if not (TRACING / "uprobe_events").exists():
            raise SystemExit(f"{TRACING} has no uprobe_events: tracefs is not mounted, or the kernel has no uprobes")
        self.group = f"entresol_{os.getpid()}"
        self.instance = TRACING / "instances" / self.group
        self.program, self.kinds = program, {}

    def __enter__(self):
        try:
            lines, self.kinds = probes(self.program, self.group)
            for line in lines:
                self.say(TRACING / "uprobe_events", line, os.O_APPEND)
            self.instance.mkdir()
            self.say(self.instance / "trace_clock", "mono")
            self.say(self.instance / "buffer_size_kb", KERNEL_KIB)
            self.say(self.instance / "options" / "event-fork", 1)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.instance.exists():
            self.say(self.instance / "events" / "enable", 0)
            self.instance.rmdir()
        there = (TRACING / "uprobe_events").read_text()
        for name in re.findall(rf":({self.group}/\w+) ", there):
            self.say(TRACING / "uprobe_events", f"-:{name}", os.O_APPEND)

    def say(self, path, text, flag=0):
        fd = os.open(path, os.O_WRONLY | flag)
        try:
            os.write(fd, f"{text}\n".encode())
        except OSError as error:
            raise SystemExit(f"{path} does not take '{text}': {error}") from None
        finally:
            os.close(fd)

    def layouts(self):
        read = lambda name: layout((self.instance / "events" / self.group / name / "format").read_text())
        return {number: (kind, fields) for name, kind in self.kinds.items() for number, fields in [read(name)]}

    def run(self, command, scratch):
        """Runs the command; the kernel's buffers are in files, one for each processor, when it is over."""
        follow = lambda: (self.instance / "set_event_pid").write_text(str(os.getpid()))
        sources = sorted((self.instance / "per_cpu").glob("cpu*/trace_pipe_raw"))
        files = [scratch / source.parent.name for source in sources]
        fds = [os.open(source, os.O_RDONLY | os.O_NONBLOCK) for source in sources]
        outs = [open(file, "wb", buffering=1 << 20) for file in files]
        # Before anything is on: with no process named, all would be heard.
        self.say(self.instance / "set_event_pid", os.getpid())
        self.say(self.instance / "events" / self.group / "enable", 1)
        child = subprocess.Popen([str(word) for word in command], preexec_fn=follow, stdout=subprocess.DEVNULL)
        try:
            while child.poll() is None:
                if not drained(fds, outs):
                    time.sleep(0.05)
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                child.wait()
            self.say(self.instance / "events" / self.group / "enable", 0)
            while drained(fds, outs):
                pass
            for fd, out in zip(fds, outs):
                os.close(fd)
                out.close()
        if child.returncode:
            raise SystemExit(f"{command[0]} failed ({child.returncode})")
        self.none_lost()
        return files

    def none_lost(self):
        for stats in (self.instance / "per_cpu").glob("cpu*/stats"):
            for what, count in re.findall(r"(overrun|dropped events): (\d+)", stats.read_text()):
                if int(count):
                    raise SystemExit(f"the kernel lost {count} events of {stats.parent.name} ({what}): nothing is written")


def drained(fds, outs):
    """Copies what is there; false when that is nothing."""
    some = False
    for fd, out in zip(fds, outs):
        for _ in range(4096):
            try:
                page = os.read(fd, 4096)
            except BlockingIOError:
                break
            if not page:
                break
            out.write(page)
            some = True
    return some


def record(out, command):
    """Runs the command, writes the trace and OUT.pool.json, and returns what that says."""
    tried()
    # The probes and the load then go as they do after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    out, listening = Path(out), Listening(server_program())
    scratch = Path(tempfile.mkdtemp(prefix="entresol-record-", dir=SCRATCH))
    try:
        with listening:
            layouts = listening.layouts()
            files = listening.run(command, scratch)
        with open(scratch / "trace.csv", "w", buffering=1 << 20) as rows:
            tally = Tally(rows)
            tally.take([events(pages_of(file), layouts) for file in files])
        summary = tally.summary()
        names = {str(number): name for name, number in tally.objects.items()}
        (scratch / "trace.meta.json").write_text(json.dumps({"page_size": PAGE_BYTES, "objects": names}))
        part = out.with_suffix(".part")
        convert = [ENTRESOL, "-q", "trace", "convert", scratch / "trace.csv", part]
        subprocess.run([str(word) for word in convert], check=True, stdout=subprocess.DEVNULL)
        out.with_suffix(".pool.json").write_text(json.dumps(summary, indent=1) + "\n")
        part.rename(out)
        return summary
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(json.dumps(record(sys.argv[1], sys.argv[2:]), indent=1))
