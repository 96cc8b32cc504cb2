"""Figures and picture of docs/co-design.md, from studies `co-design` in directories.

    bankwise study co-design [--sampler random] [--set sampler.seed=2] --out DIR   # of each
    python -m tools.co_design DIR...

Each directory's chosen trial over the base on the finale's replications, which no search saw; the
first two are compared with one another as well.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweeps.analyse.statistics import relative_gap
from sweeps.analyse.table import Row
from sweeps.report.drawing import svg
from sweeps.report.study_sections import front_chart
from sweeps.run.provenance import commit
from sweeps.run.reading import RunParts
from sweeps.run.store import RunDirectory
from sweeps.study.trials import Trials, read_trials

FILE = Path(__file__).resolve().parents[1] / "docs/figures/co-design.json"
METRICS = {"tokens/s": "output_tokens_per_s", "DRAM mJ/token": "energy.mj_per_token"}


def over(ours: Row, theirs: Row) -> dict[str, Any]:
    """Ratios of each metric, paired by replication, and the cost."""
    among = list(ours.replications)
    found: dict[str, Any] = {}
    for name, metric in METRICS.items():
        gap = relative_gap(ours.values(metric, among), theirs.values(metric, among))
        found[name] = [round(1 + x, 5) for x in (gap.mean, gap.low, gap.high)]
    return {**found, "cost": ours.mean("cost")}


def main(folders: list[str]) -> None:
    rows: dict[str, Any] = {}
    every: list[Trials] = []
    chosen: list[tuple[str, Row]] = []
    for folder in folders:
        directory = RunDirectory(Path(folder))
        parts = RunParts(directory.config(), list(directory.records()), {}, [])
        trials = read_trials(directory, parts)
        sampler = parts.config["sampler"]
        name = f"{sampler['name']}, seed {sampler['seed']}"
        every.append(trials)
        base = trials.contender("base")
        assert base is not None
        best, *others = trials.contenders
        rows[name] = over(best, base)
        chosen.append((name, best))
        for row in others if len(every) == 1 else ():
            if row is not base:
                rows[row.name] = over(row, base)
    (first, ours), (second, theirs) = chosen[:2]
    versus = {f"{first} over {second}": over(ours, theirs)}
    made = {
        "command": "bankwise study co-design [--sampler random]; python -m"
        " tools.co_design", "commit": commit()["commit"],
        "date": datetime.now(UTC).date().isoformat(),
        "stated": "their finale.jsonl, by replication",
        "values": {"over base": rows, "versus": versus},
    }  # fmt: skip
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    every[0].records = [record for trials in every for record in trials.records]
    FILE.parents[1].joinpath("co-design.svg").write_bytes(svg([front_chart(every[0])]))


if __name__ == "__main__":
    main(sys.argv[1:])
