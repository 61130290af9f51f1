"""What a recorded stream of references to a database's buffer pool would be below a pool of so many pages: the reads of pages
that an LRU pool lacks, and a write of each page that leaves it dirty. PostgreSQL's own replacement is a clock, which is near
LRU; it writes dirty pages ahead as well, which this does not.
"""

import subprocess
from collections import OrderedDict

PAGE_BYTES = 8192


def rows(source):
    """Kind of reference, object and block: shared/data/traces/recorded/README.md has the letters."""
    with subprocess.Popen(["zstd", "-dc", "--long=27", source], stdout=subprocess.PIPE, text=True) as reader:
        next(reader.stdout)
        for line in reader.stdout:
            op, _, number, block = line.split(",")
            if op in "GMXDH":
                yield op, int(number), int(block)


def filtered(source, pool_pages, out):
    """Writes the stream below the pool as a trace in the house's CSV; objects lie one behind the other."""
    ends = {}
    for _, number, block in rows(source):
        ends[number] = max(ends.get(number, 0), block + 1)
    starts, end = {}, 0
    for number, blocks in ends.items():
        starts[number], end = end, end + blocks
    pool = OrderedDict()  # page to whether it is dirty, the one used longest ago first
    with open(out, "w") as file:
        file.write("time,op,offset,size\n")
        ask = lambda op, page: file.write(f"0,{op},{page * PAGE_BYTES},{PAGE_BYTES}\n")
        for op, number, block in rows(source):
            page = starts[number] + block
            if page in pool:
                pool[page] |= op in "DHX"
                if op in "GMX":
                    pool.move_to_end(page)
            elif op in "GMX":
                if len(pool) == pool_pages:
                    victim, dirty = pool.popitem(last=False)
                    if dirty:
                        ask("W", victim)
                # A page by which a table grows is not read.
                if op != "X":
                    ask("R", page)
                pool[page] = op == "X"
            else:
                # Marked after it had left: it was pinned, and would have stayed.
                ask("W", page)
