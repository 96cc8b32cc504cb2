"""Do what-ifs become points of the sweep, and are planted effects found, ranked and told?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import read_report
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import PROVENANCE, metrics

QUIET = Progress(terminal=False)

CONFIG: dict[str, Any] = {
    "kind": "sweep", "name": "made", "summary": "made by hand", "compare": "serving.policy",
    "base": {"device": "card", "replications": 3, "warmup_requests": 20},
    "axes": {"serving.policy": ["paged", "odma"]},
    "rule": "effects",
    "variants": {
        **{name: {"set": {path: 1}, "role": "change"}
           for name, path in zip(("small", "large", "turning", "idle"), "abcd", strict=True)},
        "all": {"parts": ["small", "large"], "role": "change"},
    },
}  # fmt: skip
FACTORS = {
    "as described": (1.0, 1.0),
    "small": (1.2, 1.2),
    "large": (0.5, 0.5),
    "turning": (0.8, 1.2),
    "idle": (1.0, 1.0),
    "all": (0.72, 0.55),
}
"""Change -> what it makes of the rates of paged and odma, 110 and 100."""


def planted(
    path: Path, config: dict[str, Any] = CONFIG,
    more: Callable[[str, str], dict[str, Any]] = lambda change, policy: {},
) -> Path:  # fmt: skip
    """A run whose effects are FACTORS, alike in all replications but for `idle`."""
    run = RunDirectory(path)
    hardware = {name: {"card": {"peak_gbps": 307.2, "capacity_bytes": 24 << 30}}
                for name in FACTORS}  # fmt: skip
    hardware["large"] = {"card": {"peak_gbps": 1228.8, "capacity_bytes": 12 << 30}}
    run.create(config, {**PROVENANCE, "hardware": hardware}, {})
    for index, (change, factors) in enumerate(FACTORS.items()):
        for policy, rate, factor in zip(("paged", "odma"), (110.0, 100.0), factors, strict=True):
            for replication in (1, 2, 3):
                noise = 1 + (replication - 2) / 50 if change == "idle" else 1.0
                run.append({
                    "point": 2 * index + (policy == "odma"), "control": "",
                    "overrides": {"change": change, "serving.policy": policy},
                    "replication": replication, "rate_per_s": 1.0, "seed": [1, replication],
                    "metrics": metrics(rate * factor * (1 + replication / 100) * noise)
                    | more(change, policy),
                })  # fmt: skip
    run.release()
    return path


def test_conditions_move_the_ranking_and_no_rate(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["variants"]["turning"]["role"] = "condition"
    report = read_report(planted(tmp_path / "run", config))
    (found,) = report.findings.own
    assert found.changes[-1] == "turning" and "turning" not in found.rates[0].effects
    assert found.answers[0].levels["turning"].sign == -1 and report.table.total == 36


def test_a_half_written_run_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    run = planted(tmp_path / "run")
    lines = (run / "results.jsonl").read_text().splitlines(keepends=True)
    (run / "results.jsonl").write_text("".join(lines[:8]))  # the base, and `small` of paged
    (run / "provenance.json").unlink()
    report = read_report(run)
    (found,) = report.findings.own
    assert [list(rate.effects) for rate in found.rates] == [["small"], []]
    assert report.grids[1].rows[1][:3] == ["small", "–", "–"]
    assert "unfinished: 8 of 36 results" in report.table.state
    (run / "results.jsonl").write_text("".join(lines[6:]))  # no base: no effects
    assert read_report(run).findings.own == []


@pytest.mark.long
def test_a_change_that_no_policy_can_serve_is_told_and_the_others_run(
    tmp_path: Path,
) -> None:
    sweep = load_sweep(
        "smoke",
        ["rule=effects", "variants.tiny={set: {device_set.capacity: 1GiB}, role: change}"],
    )
    done = run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert {each.overrides["change"] for each in done.misfits.points} == {"tiny"} and done.records
