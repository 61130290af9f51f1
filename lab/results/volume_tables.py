#!/usr/bin/env python3
"""The tables of volume.md, from what `make bench-volume` writes to target/bench."""

from face_tables import HERE, renew
from layouts_live import live


def of(script):
    return lambda: live(f"volume-{script}", "none", "transactions_per_second", "transactions/s", 1)


if __name__ == "__main__":
    renew(HERE / "volume.md", {script: of(script) for script in ("select", "update")})
