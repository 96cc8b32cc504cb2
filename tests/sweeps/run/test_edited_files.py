"""Is a description that was edited another one, in the same session, for every way to ask?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bankwise
import yaml
from hwmodel.description.library import find

SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "name": "edited",
    "summary": "one point",
    "axes": {"serving.policy": ["paged"]},
    "compare": "serving.policy",
    "base": {
        "device": "mlu370-x4", "model": "llama-3.2-3b", "workload": "constant",
        "serving": {"memory": {"fidelity": "analytic", "efficiency": 0.8}},
        "arrivals": {"process": "all_at_once"}, "requests": 8, "replications": 1,
    },
}  # fmt: skip
EDITS = {
    "device": ("accelerators", "mlu370-x4", "prefill_efficiency: {value: 0.5",
               "prefill_efficiency: {value: 0.25"),
    "model": ("models", "llama-3.2-3b", "layers: {value: 28", "layers: {value: 14"),
    "workload": ("workloads", "constant", "output_tokens: 128", "output_tokens: 64"),
}  # fmt: skip


def simulated(sweep: dict[str, Any]) -> float:
    return float(bankwise.simulate(sweep)["metrics"]["makespan_s"])


def measured(sweep: dict[str, Any], out: Path) -> tuple[float, dict[str, Any]]:
    """Its makespan, and what its config says that it was of."""
    path = bankwise.run(sweep, out=out, jobs=1).path
    (line,) = (path / "results.jsonl").read_text().splitlines()
    resolved: dict[str, Any] = yaml.safe_load((path / "config.yaml").read_text())["resolved"]
    return json.loads(line)["metrics"]["makespan_s"], resolved


@pytest.mark.parametrize("key", EDITS)
def test_the_second_run_of_a_session_is_of_the_edited_file(key: str, tmp_path: Path) -> None:
    folder, name, old, new = EDITS[key]
    file = tmp_path / "own.yaml"
    text = find(folder, name).read_text()
    assert text.count(old) == 1
    sweep = {**SWEEP, "base": {**SWEEP["base"], key: str(file)}}
    file.write_text(text)
    before, was = measured(sweep, tmp_path / "first")
    assert simulated(sweep) == before
    file.write_text(text.replace(old, new))
    after, now = measured(sweep, tmp_path / "second")
    assert simulated(sweep) == after != before
    assert was != now
