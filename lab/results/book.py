#!/usr/bin/env python3
"""Checks book.md, the index of the papers' figures and tables, and counts its verdicts.

`book.py` fails if a figure is missing, a link leads nowhere, a command is none, a verdict is no verdict, a number of ours is not on a linked page,
or the counts at the head of the page are not those of its rows; it prints the counts. `book.py --write` writes them into the page.
`book.py run PAGE` runs the commands of a page's `sh` blocks, as `make page-NAME` does.
`book.py make TARGET...` makes targets, notes in target/book.json how long each took, and writes the times into the page when all are made. What was
made at this commit is not made again, so that a run that was stopped goes on where it was.
"""

import collections
import json
import re
import resource
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from face_tables import HERE, renew, table

ROOT = HERE.parents[1]
PAGE = HERE / "book.md"
NOTES = ROOT / "target/book.json"
# A path that no rule builds: the first target has made what is there.
BIN = ROOT / "target/release"
VERDICTS = ["reproduced", "reproduced in direction", "not reproduced", "cannot be had", "not run", "nothing to measure"]
RUN = VERDICTS[:3]
# The papers' figures and tables by chapter, as their lists have them; chapter 0 of a paper without chapters.
PAPERS = {
    "000": {"figure": {2: 17, 3: 8, 4: 6}, "table": {1: 1, 2: 6, 4: 1}},
    "001": {"figure": {0: 14}, "table": {0: 8}},
    "002": {"figure": {0: 16}, "table": {0: 6}},
    "003": {"figure": {0: 12}, "table": {0: 3}},
    "004": {"figure": {1: 1, 2: 12, 3: 6, 4: 10, 5: 8}, "table": {2: 1, 3: 1, 4: 1}},
}
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?!\w)")

Row = collections.namedtuple("Row", "paper name claim ours verdict command")


def rows(text):
    found, paper = [], None
    for line in text.splitlines():
        if heading := re.match(r"## (\d{3}):", line):
            paper = heading[1]
        elif paper and re.match(r"\| (figure|table) \d", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) != 5:
                sys.exit(f"{PAGE.name}: {paper}, {cells[0]}: {len(cells)} cells, 5 expected")
            found.append(Row(paper, *cells))
    return found


def expected():
    for paper, kinds in PAPERS.items():
        for kind, chapters in kinds.items():
            for chapter, count in chapters.items():
                yield from ((paper, f"{kind} {chapter}.{n}" if chapter else f"{kind} {n}") for n in range(1, count + 1))


def anchors(text):
    """Anchors of a page's headings, as a web page of it has them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def targets():
    """All targets of the Makefile, those of static patterns too."""
    known = subprocess.run(["make", "-pRrn", "-f", "Makefile", ".none"], cwd=ROOT, capture_output=True, text=True, check=False)
    return set(re.findall(r"^([\w.-]+):(?!=)", known.stdout, re.MULTILINE))


def blocks(page):
    return re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def holds(text, number):
    return re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", text) is not None


def wrong_links(row, targets_of):
    for target in targets_of:
        name, _, anchor = target.partition("#")
        path = HERE / name if name else PAGE
        if not path.is_file():
            yield f"no page {target}"
        elif anchor and anchor not in anchors(path.read_text()):
            yield f"{name} has no heading {anchor}"
    if row.verdict in RUN and not targets_of:
        yield f"'{row.verdict}' without a page"


def wrong_numbers(row, targets_of):
    """Numbers of ours that stand on none of the linked pages."""
    pages = [HERE / target.partition("#")[0] for target in targets_of if not target.startswith("#")]
    text = " ".join(page.read_text() for page in pages if page.is_file())
    told = re.sub(r"`[^`]*`", "", LINK.sub("", row.ours))
    if pages:
        yield from (f"{number} is on no linked page" for number in NUMBER.findall(told) if not holds(text, number))


def wrong_command(row, known):
    command = row.command.strip("`").split()
    if row.command == "–":
        if row.verdict in RUN:
            yield f"'{row.verdict}' without a command"
    elif command[0] == "make":
        yield from (f"no target {target}" for target in command[1:] if target not in known)
    elif command[0] != "python3" or not (ROOT / command[1]).is_file():
        yield f"no command {row.command}"


def faults(found):
    known = targets()
    names = [(row.paper, row.name) for row in found]
    for paper, name in expected():
        if names.count((paper, name)) != 1:
            yield f"{paper}, {name}: {names.count((paper, name))} rows, 1 expected"
    yield from (f"{paper}, {name}: the paper has none" for paper, name in sorted(set(names) - set(expected())))
    for row in found:
        links = LINK.findall(row.ours)
        wrong = [*wrong_links(row, links), *wrong_numbers(row, links), *wrong_command(row, known)]
        if row.verdict not in VERDICTS:
            wrong.append(f"no verdict '{row.verdict}'")
        yield from (f"{row.paper}, {row.name}: {fault}" for fault in wrong)
    for page in sorted(HERE / f"{target[5:]}.md" for target in known if target.startswith("page-")):
        shell = subprocess.run(["bash", "-n"], input="\n".join(blocks(page)), text=True, capture_output=True, check=False)
        if shell.returncode or not blocks(page):
            yield f"{page.name}: its commands cannot be run: {shell.stderr.strip() or 'it has none'}"


def answer(found):
    """The lines that open the page."""
    count = collections.Counter(row.verdict for row in found)
    kinds = collections.Counter(row.name.split()[0] for row in found)
    ran = sum(count[verdict] for verdict in RUN)
    # Rows of 002 link to the rows of 000 whose drives they share.
    drives = sum("models are fitted" in row.ours or "#000" in row.ours for row in found)
    text = (
        f"Do the figures and tables of the five papers come out here? Of {len(found)} ({kinds['figure']} figures, {kinds['table']} tables) {ran} were run: "
        f"{count['reproduced']} are reproduced, {count['reproduced in direction']} in direction, and {count['not reproduced']} are not reproduced. "
        f"{count['cannot be had']} cannot be had: {drives} measure drives, to which our models are fitted, and {count['cannot be had'] - drives} need traces that "
        f"are not here. {count['not run']} were not run, and {count['nothing to measure']} have nothing to measure."
    )
    return textwrap.fill(text, 158)


def counts(found):
    count = collections.Counter((row.paper, row.verdict) for row in found)
    lines = [[paper] + [count[paper, verdict] for verdict in VERDICTS] for paper in PAPERS]
    lines.append(["all"] + [sum(line[at] for line in lines) for at in range(1, len(VERDICTS) + 1)])
    return table(["paper"] + VERDICTS, lines)


def renewed(text, found):
    """The page with the answer and the counts of its rows."""
    lead = re.compile(r"\A(# [^\n]*\n\n).*?(?=\n\n)", re.DOTALL)
    text = lead.sub(lambda match: match[1] + answer(found), text)
    between = re.compile(r"(<!-- table: counts -->\n).*?(?=<!-- end -->)", re.DOTALL)
    return between.sub(lambda match: f"{match[1]}{counts(found)}\n", text)


def run(page):
    for block in blocks(Path(page)):
        subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=ROOT, check=True)


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def times(made):
    lines = [[f"`make {target}`", f"{took['s'] / 60:.1f}", f"{took['processor_s'] / 60:.1f}"] for target, took in made.items()]
    sums = [f"{sum(took[key] for took in made.values()) / 60:.1f}" for key in ("s", "processor_s")]
    return table(["part", "minutes", "minutes of a processor"], [*lines, ["all", *sums]])


def make(wanted):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    made = notes.setdefault(commit, {})
    for target in wanted:
        if target in made:
            continue
        print(f"make {target}", flush=True)
        begun, used = time.monotonic(), processor_s()
        subprocess.run(["make", f"BIN={BIN}", target], cwd=ROOT, check=True)
        made[target] = {"s": time.monotonic() - begun, "processor_s": processor_s() - used}
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps(notes, indent=1))
    lines = times({target: made[target] for target in wanted})
    renew(PAGE, {"counts": lambda: counts(rows(PAGE.read_text())), "times": lambda: lines})
    print(lines)


def main():
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2])
        return
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2:])
        return
    text = PAGE.read_text()
    found = rows(text)
    if "--write" in sys.argv[1:]:
        text = renewed(text, found)
        PAGE.write_text(text)
    wrong = list(faults(found))
    if text != renewed(text, found):
        wrong.append("the answer or the counts are not those of the rows: book.py --write")
    print(counts(found))
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
