#!/usr/bin/env python3
"""The tables of functions.md: the functions of this workspace that one request enters, counted by callgrind.

`functions.py PROGRAM` serves a cache over NBD under callgrind and sends it 4-KiB requests for pages that are in memory, once MANY and once
FEW of them. The calls in between are those of MANY - FEW requests. PROGRAM is an unoptimised build with line numbers:

    CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_TARGET_DIR=target/unoptimised cargo build --locked -p entresol

A closure is part of the function in which it stands, and each instance of a generic function is that function. Functions of one line are
listed apart. Callgrind counts no calls of inlined functions: an unoptimised build has none but those that the language demands.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from face_tables import HERE, renew, table
from stalls import FLUSH, READ, WRITE, PAGE, Nbd, entresol, wait_for, without_age

ROOT = HERE.parents[1]
FEW, MANY = 100, 300
PAGES = 16
SCRATCH = pathlib.Path(os.environ.get("FUNCTIONS_SCRATCH", "/tmp")) / "functions"
REQUESTS = {"write": WRITE, "read": READ, "hit": READ}


def profile(program, name, requests):
    """Callgrind's output for so many requests. A hit is a read of a page that is on the device and was read before."""
    kind = REQUESTS[name]
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    cache, disk, door, out = (SCRATCH / name for name in ("cache", "disk", "door", "callgrind.out"))
    with open(disk, "wb") as file:
        file.truncate(64 << 20)
    entresol(program, "format", "--mode", "write-back", "--cache", cache, "--backing", disk, "--size", 32 << 20)
    server = subprocess.Popen(["valgrind", "-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}",
                               str(program), "-q", "serve", "nbd", "--socket", str(door), "--cache", str(cache), "--backing", str(disk),
                               "--policy", "lru", "--restart", "off", *without_age(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(60):
            if door.exists():
                break
            time.sleep(1)
        wait_for(door.exists)
        client = Nbd(door)
        data = bytes(PAGE)
        # All pages are in memory before the requests that count.
        for at in range(PAGES):
            client.ask(WRITE, at * PAGE, PAGE, data)
        if name == "hit":
            client.ask(FLUSH, 0, 0)
            for at in range(PAGES):
                client.ask(READ, at * PAGE, PAGE)
        for number in range(requests):
            at = number % PAGES * PAGE
            client.ask(*((WRITE, at, PAGE, data) if kind == WRITE else (READ, at, PAGE)))
        client.socket.close()
    finally:
        server.terminate()
        server.wait()
    return out.read_text(errors="replace").splitlines()


def plain(name):
    """A function's name without its instance, its closures and its hash."""
    depth, found = 0, []
    for at, sign in enumerate(name):
        if sign == "<" and not (at and name[at - 1] == "-"):
            depth += 1
        elif sign == ">" and not (at and name[at - 1] == "-"):
            depth -= 1
        elif depth == 0:
            found.append(sign)
    name = "".join(found) or name
    name = re.sub(r"::\{\{closure\}\}.*|::\{closure.*|::h[0-9a-f]{16}$|'2$", "", name)
    return name


def calls(lines):
    """Calls of each function of this workspace, by file and name, and the lines of the file that it has."""
    count, lines_of, file, where = collections.Counter(), collections.defaultdict(set), None, None
    callee_file, after_call = None, False
    for line in lines:
        if line.startswith(("fl=", "fi=", "fe=")):
            file = line[3:]
            if line.startswith("fl="):
                own = file
        elif line.startswith("fn="):
            where = (own, line[3:])
        elif line.startswith("cfi=") or line.startswith("cfl="):
            callee_file = line[4:]
        elif line.startswith("cfn="):
            callee = (callee_file or own, line[4:])
        elif line.startswith("calls="):
            count[callee] += int(line[6:].split()[0])
            callee_file, after_call = None, True
        elif line[:1].isdigit():
            if after_call:
                after_call = False
            elif where and file == own:
                lines_of[where].add(int(line.split()[0]))
    return count, lines_of


def is_ours(file):
    return "/crates/" in file and "/.cargo/" not in file and "/rustc/" not in file


def short(file):
    return file.split("/crates/")[1].replace("/src/", "/")


def brief_name(function):
    """A function with its type, if it has one."""
    parts = [part for part in function.split("::") if part]
    return "::".join(parts[-2:] if len(parts) > 1 and parts[-2][0].isupper() else parts[-1:])


def is_of_one_line(lines):
    """True for a body of one line between the head and the end."""
    return bool(lines) and max(lines) - min(lines) <= 2


def measure(program, name):
    few, many = (calls(profile(program, name, requests)) for requests in (FEW, MANY))
    found = collections.defaultdict(lambda: [0, set()])
    for (file, name), number in many[0].items():
        if not is_ours(file):
            continue
        whole = plain(name)
        entry = found[(short(file), whole)]
        if "closure" not in name:
            entry[0] += number - few[0].get((file, name), 0)
        entry[1] |= many[1].get((file, name), set())
    each = {where: (number / (MANY - FEW), lines) for where, (number, lines) in found.items() if number >= (MANY - FEW) / 2}
    return each


def tables(program):
    found = {name: measure(program, name) for name in REQUESTS}
    made = {}
    for name, each in found.items():
        long = sorted((where, calls) for where, (calls, lines) in each.items() if not is_of_one_line(lines))
        brief = sorted(where for where, (_, lines) in each.items() if is_of_one_line(lines))
        by_file = collections.defaultdict(set)
        for (file, function), _ in long:
            by_file[file].add(brief_name(function))
        rows = [[f"`{file}`", ", ".join(f"`{function}`" for function in sorted(functions))] for file, functions in by_file.items()]
        files = len({file for (file, _), _ in long})
        text = table(["file", "functions"], rows)
        crates = collections.Counter(file.split("/")[0] for (file, _), _ in long)
        text += f"\n\n{len(long)} functions in {files} files; besides {len(brief)} of one line. By crate: "
        text += ", ".join(f"{crate} {number}" for crate, number in crates.most_common()) + "."
        looks = sum(calls for (file, function), calls in long if function.endswith("Numbers::locate"))
        text += f" The request's pages are looked up {looks:.0f} times in the index."
        made[name] = text
    renew(HERE / "functions.md", {name: (lambda text=text: text) for name, text in made.items()})
    print("\n\n".join(made.values()))


if __name__ == "__main__":
    os.environ["XDG_RUNTIME_DIR"] = str(SCRATCH)
    tables(sys.argv[1])
