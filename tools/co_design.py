"""Figures and picture of docs/co-design.md, from directories of the study `co-design`.

bankwise run co-design [--sampler random] --out DIR   # of each
python -m tools.co_design DIR...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sweeps.analyse.statistics import relative_gap
from sweeps.analyse.table import Row
from sweeps.report.drawing import svg
from sweeps.report.study_sections import front_chart
from sweeps.run.reading import RunParts
from sweeps.run.store import RunDirectory
from sweeps.study.trials import read_trials
from tools.figures import ROOT, keep

METRICS = {"tokens/s": "output_tokens_per_s", "DRAM mJ/token": "energy.mj_per_token"}


def over(ours: Row, base: Row) -> dict[str, Any]:
    """Ratios of each metric, paired by replication, and the cost."""
    gaps = {n: relative_gap(ours.values(m), base.values(m)) for n, m in METRICS.items()}
    found = {n: [round(1 + x, 5) for x in (g.mean, g.low, g.high)] for n, g in gaps.items()}
    return {**found, "cost": ours.mean("cost")}


def main(folders: list[str]) -> None:
    rows: dict[str, Any] = {}
    every = []
    for directory in map(RunDirectory, map(Path, folders)):
        config = directory.config()
        trials = read_trials(directory, RunParts(config, list(directory.records()), {}, []))
        every.append(trials)
        base, (best, *others) = trials.contender("base"), trials.contenders
        assert base is not None
        rows["{name}, seed {seed}".format(**config["sampler"])] = over(best, base)
        rows |= {row.name: over(row, base) for row in others if row is not base}
    keep(
        "co-design", "bankwise run co-design [--sampler random]; python -m tools.co_design",
        {"over base": rows}, note="of their finale.jsonl, by replication",
    )  # fmt: skip
    every[0].records = [record for trials in every for record in trials.records]
    (ROOT / "docs/co-design.svg").write_bytes(svg([front_chart(every[0])]))


if __name__ == "__main__":
    main(sys.argv[1:])
