"""What fleets of 10 to 1,000 cards cost to simulate, one process each: a table of docs/fleet.md.

python -m tools.fleet_cost             # 15 CPU minutes, 2 GiB
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from tools.figures import keep

SIZES = {
    "10": (10, 1, 1000), "100": (100, 1, 1000), "1,000": (1000, 1, 1000),
    "1,000 in 20 cells": (1000, 20, 200),
}  # fmt: skip
"""Cards, cells, and requests a card that count; a tenth more are warm-up."""
PER_S = 6
"""Requests a second and card."""


def sets(cards: int, cells: int, each: int) -> dict[str, str]:
    return {
        "serving.cluster.cards": str(cards), "serving.cluster.fleet.cells": str(cells),
        "load.rate_per_s": str(PER_S * cards), "requests": str(each * cards),
        "warmup_requests": str(each * cards // 10), "replications": "1",
        "serving.cluster.placement": "[least_requests]", "workload_set": "{}", "variants": "{}",
    }  # fmt: skip


def cost(cards: int, cells: int, each: int) -> dict[str, Any]:
    """CPU seconds and peak memory of a process that serves it, its start included."""
    given = [w for k, v in sets(cards, cells, each).items() for w in ("--set", f"{k}={v}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sweeps.cli.main", "run", "fleet", "--jobs", "1"]
        done = subprocess.Popen([*command, "--out", f"{folder}/run", *given],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        _, status, used = os.wait4(done.pid, 0)
        if status:
            raise SystemExit(f"{cards} cards: exit status {status}")
    requests, seconds = each * cards + each * cards // 10, used.ru_utime + used.ru_stime
    return {
        "requests": requests, "CPU s": round(seconds, 1),
        "ms a request": round(seconds / requests * 1e3, 2), "MiB": used.ru_maxrss // 1024,
    }  # fmt: skip


if __name__ == "__main__":
    given = " ".join(f"--set {k}={v}" for k, v in sets(*SIZES["1,000"]).items())
    found = {name: cost(*size) for name, size in SIZES.items()}
    keep("fleet-size", f"python -m tools.fleet_cost: bankwise run fleet {given}", {"size": found},
         note="CPU time of a process on two busy cores")  # fmt: skip
