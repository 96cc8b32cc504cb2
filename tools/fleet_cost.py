"""Figures of docs/fleet.md: what fleets cost to simulate, and the study of the cheapest.

python -m tools.fleet_cost               # 2 CPU minutes, 1.7 GiB
python -m tools.fleet_cost whole         # 12 CPU minutes, 2.1 GiB: a million requests, workers
python -m tools.fleet_cost cheapest DIR  # the study, where DIR lacks it, and what it found
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sweeps.analyse.statistics import interval
from sweeps.run.reading import RunParts
from sweeps.run.store import RunDirectory
from sweeps.study.fleet_size import ATTAINED, CARDS
from sweeps.study.trials import read_trials
from tools.figures import keep

SIZES = {"10": (10, 1), "100": (100, 1), "1,000": (1000, 1)}
"""Cards and cells."""
EACH = 200
"""Requests a card that count, half a minute's; a tenth more are warm-up. A million in all: 1000."""
PER_S = 6
"""Requests a second and card."""
WORKERS = {"one process": ("--jobs", "1"), "two here": ("--jobs", "2"), "Dask, two": ("--cluster",)}
LOST = "serving.faults=[{share: 0.1, at_s: 5, down_s: 15}]"
ON_DASK = """
import sys
import distributed
from sweeps.cli.main import main
with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
    main([*sys.argv[1:], cluster.scheduler_address])
"""


def spent(*words: str) -> tuple[float, int]:
    """CPU seconds of a command with its workers, its start included, and the peak MiB of one."""
    how = ("-c", ON_DASK) if words[-1] == "--cluster" else ("-m", "sweeps.cli.main")
    command = [sys.executable, *how, *words]
    done = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(done.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: exit status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def sets(cards: int, cells: int, each: int = EACH) -> list[str]:
    given = (
        f"serving.cluster.cards={cards}", f"serving.cluster.cells={cells}",
        f"load.rate_per_s={PER_S * cards}", f"requests={each * cards}",
        f"warmup_requests={each * cards // 10}", "replications=1", "workload_set={}",
        "variants={}", "serving.cluster.placement=[least_requests]",
    )  # fmt: skip
    return [word for each_of in given for word in ("--set", each_of)]


def cost(
    cards: int, cells: int, each: int = EACH, how: tuple[str, ...] = ("--jobs", "1"), more: str = ""
) -> dict[str, Any]:
    given, began_s = [*sets(cards, cells, each), *(("--set", more) if more else ())], time.time()
    with tempfile.TemporaryDirectory() as folder:
        seconds, peak = spent("run", "fleet", "--out", f"{folder}/run", *given, *how)
        wall_s = time.time() - began_s
        (row,) = RunDirectory(Path(folder) / "run").records()
    requests, rerouted = each * cards + each * cards // 10, row["metrics"]["node"]["rerouted"]
    return {"requests": requests, "CPU s": round(seconds, 1), "wall s": round(wall_s),
            "ms a request": round(seconds / requests * 1e3, 2), "MiB": peak,
            "rerouted": rerouted}  # fmt: skip


def some(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names or ("requests", "CPU s", "ms a request", "MiB")}


def whole() -> dict[str, Any]:
    """What the sizes leave out: workers, lost cards, cells, and a million requests."""
    workers = {name: some(cost(100, 10, how=how), "CPU s", "wall s")
               for name, how in WORKERS.items()}  # fmt: skip
    lost = some(cost(1000, 20, 60, more=LOST), "rerouted", "requests")
    sizes = {"1,000": some(cost(1000, 1, 1000)), "1,000 in 20 cells": some(cost(1000, 20))}
    return {"size": sizes, "workers": workers, "lost": lost}


def cheapest(folder: Path) -> dict[str, Any]:
    """The finale's fleets, and those of the rivals as they are set, before any search."""
    study = ("study", "cheapest-fleet", "--resume", "--out", str(folder), "--jobs", "1")
    seconds = spent(*study)[0]
    directory = RunDirectory(folder)
    trials = read_trials(directory, RunParts(directory.config(), list(directory.records()), {}, []))
    found: dict[str, Any] = {}
    for row in trials.contenders:
        share = interval(row.values(ATTAINED, list(row.replications))).within(0.0, 1.0)
        found[row.name] = {"cards": row.mean("cards"), "W": row.mean("cost"), "attained": [
            round(value, 4) for value in (share.mean, share.low, share.high)]}  # fmt: skip
    own = {
        each["first"]: {"cards": each["overrides"][CARDS], "W": trials.first(each)}
        for each in trials.records if each["first"]
    }  # fmt: skip
    winner = trials.winner()
    assert winner is not None
    return {"finale": found, "as set": own, "CPU min": round(seconds / 60, 1),
            "winner": {key: str(value) for key, value in winner["overrides"].items()}}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["cheapest"]:
        keep("cheapest-fleet", "bankwise run cheapest-fleet", cheapest(Path(sys.argv[2])))
    elif sys.argv[1:] == ["whole"]:
        words = " ".join(sets(1000, 1, 1000))
        what = f"python -m tools.fleet_cost whole: bankwise run fleet {words}"
        note = "of two busy cores; CPU s with all workers, MiB of the largest process"
        keep("fleet-cost", what, whole(), note=note)
    else:
        what = f"python -m tools.fleet_cost: bankwise run fleet {' '.join(sets(*SIZES['1,000']))}"
        table: dict[str, Any] = {}
        for name, size in SIZES.items():
            table[name] = some(cost(*size))
            keep("fleet-size", what, {"size": table}, note="of a process on two busy cores")
