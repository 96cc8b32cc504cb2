"""Is a description that was edited another one, in the same session, for every way to ask?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bankwise
import yaml
from hwmodel.description.description import DescriptionError
from hwmodel.description.library import find
from sweeps.run.provenance import refuse_changes

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
OWN = """\
kind: accelerator
name: own
summary: a card
based_on: base.yaml
memory: lpddr5-6400-x16
channels: 24
capacity: 24GiB
dma: {engines: 32, window: 16KiB}
compute: {fp16: 96TFLOPS, bf16: 96TFLOPS}
"""


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


def test_a_file_that_another_is_based_on_counts_as_well(tmp_path: Path) -> None:
    _, name, old, new = EDITS["device"]
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    text = find("accelerators", name).read_text()
    own.write_text(OWN)
    sweep = {**SWEEP, "base": {**SWEEP["base"], "device": str(own)}}
    base.write_text(text)
    before = simulated(sweep)
    base.write_text(text.replace(old, new))
    assert simulated(sweep) != before


def described(**numbers: int) -> dict[str, Any]:
    """A description as a run records it, whose hash is that of its numbers."""
    return {**numbers, "sha256": str(sorted(numbers.items()))}


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({}, ""),  # of another version, or of another device
        ({"devices": None, "models": {"b": described(x=1, y=2)}}, ""),
        ({"models": {"b": described(x=1, y=3)}}, "b has changed.*: y was 3, is 2$"),
        ({"devices": {"a": described(x=1)}, "models": {"b": described(x=1)}}, "y was None, is 2$"),
        ({"models": {"b": described(x=7, y=8, z=9)}}, r"x was 7, is 1 \(and 2 more\)$"),
        ({"models": {"b": {"x": 1, "y": 2, "sha256": "old"}}}, "sha256 was 'old', is "),
    ],
)
def test_what_means_something_else_now_is_named_with_its_first_change(
    before: dict[str, Any], told: str
) -> None:
    now = {"devices": {"new": described(x=5), "a": described(x=1)},
           "models": {"b": described(x=1, y=2)}}  # fmt: skip
    if not told:
        refuse_changes(before, now, "run.yaml")
        return
    with pytest.raises(DescriptionError, match=told) as refused:
        refuse_changes(before, now, "run.yaml")
    assert str(refused.value).startswith("run.yaml: resolved.models: b has changed since")
