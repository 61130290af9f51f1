"""Runs libCacheSim for the benchmark: commands come on standard input, one a line, each with its answer on a line.

    CLASS SIZE HASHPOWER  ->  MISSES CPU_SECONDS     (HASHPOWER 0: the package's own default)

Requests are read and processed by the package's C code (`c_process_trace`), so that no Python runs between two of them.
The time is that of the process: the cache is built, the file is opened, mapped and read, as a one-off user has it.
The arguments are the trace, in oracleGeneral format, and its number of requests.
"""

import importlib.metadata
import sys
import time

import libcachesim


def run(trace, requests, name, size, hashpower):
    options = {"hashpower": hashpower} if hashpower else {}
    started = time.process_time()
    reader = libcachesim.TraceReader(trace, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = getattr(libcachesim, name)(cache_size=size, **options)
    miss_ratio, _ = cache.process_trace(reader)
    seconds = time.process_time() - started
    return round(miss_ratio * requests), seconds


def main():
    trace, requests = sys.argv[1], int(sys.argv[2])
    print(importlib.metadata.version("libcachesim"), flush=True)
    for line in sys.stdin:
        name, size, hashpower = line.split()
        misses, seconds = run(trace, requests, name, int(size), int(hashpower))
        print(misses, f"{seconds:.6f}", flush=True)


main()
