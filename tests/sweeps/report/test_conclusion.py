"""Do the sentences on a whole run follow its results, and say what leaves the answer open?"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from sweeps.analyse.figures import LIMITS
from sweeps.report import phrases
from sweeps.report.presenters import read_table, sentences
from sweeps.run.store import RunDirectory
from tests.sweeps.made import CONFIG, PROVENANCE, made, metrics

Rates = dict[tuple[Any, str], float]


def run_of(path: Path, axis: str, rates: Rates, controls: dict[str, Any] | None = None) -> str:
    """Sentences of a run whose points have these rates by (value of the axis, policy); a control's
    rates are by (value, policy/control)."""
    values = list(dict.fromkeys(value for value, _ in rates))
    config = copy.deepcopy(CONFIG) | {
        "axes": {axis: values, "serving.policy": ["paged", "odma"]},
        "variants": {n: {"set": v, "role": "control"} for n, v in (controls or {}).items()},
    }  # fmt: skip
    run = RunDirectory(path)
    run.create(config, PROVENANCE, {})
    for index, ((value, name), rate) in enumerate(rates.items()):
        policy, _, control = name.partition("/")
        for replication in (1, 2, 3):
            run.append(
                {"point": index, "control": control, "replication": replication,
                 "overrides": {axis: value, "serving.policy": policy}, "rate_per_s": 1.0,
                 "metrics": metrics(rate * (1 + replication / 100))}
            )  # fmt: skip
    run.release()
    return "\n".join(sentences(read_table(RunDirectory(path))))


def test_the_same_winner_everywhere_is_said_once(tmp_path: Path) -> None:
    text = "\n".join(sentences(read_table(RunDirectory(made(tmp_path)))))
    assert "odma serves the most for every device (card, other)." in text


def test_another_winner_on_another_device_is_a_finding(tmp_path: Path) -> None:
    rates = {("a", "paged"): 200.0, ("a", "odma"): 100.0, ("b", "paged"): 50.0, ("b", "odma"): 80.0}
    text = run_of(tmp_path, "device", rates)
    said = "Which policy serves the most depends on the device (a: paged wins; b: odma wins)."
    assert said in text
    # 204 against 81.6
    assert "a with paged serves 204.0 output tokens/s, 2.5 times as many as b with odma." in text


def test_another_winner_at_another_assumed_number_is_undecided(tmp_path: Path) -> None:
    axis = "device_set.dma.descriptor_cost"
    rates = {("0ns", "paged"): 200.0, ("0ns", "odma"): 100.0,
             ("2us", "paged"): 50.0, ("2us", "odma"): 80.0}  # fmt: skip
    text = run_of(tmp_path / "a", axis, rates)
    assert f"undecided: the winner changes with {axis} (0ns: paged wins; 2us: odma wins)." in text
    rates["2us", "paged"] = 90.0
    text = run_of(tmp_path / "b", axis, rates)
    assert f"paged serves the most for every {axis} (0ns, 2us)." in text and "undecided" not in text


def test_another_winner_under_a_control_is_undecided(tmp_path: Path) -> None:
    rates = {("a", "paged"): 200.0, ("a", "odma"): 100.0,
             ("a", "paged/cheap"): 50.0, ("a", "odma/cheap"): 80.0}  # fmt: skip
    changed = {"cheap": {"serving.memory.efficiency": 0.5}}
    text = run_of(tmp_path / "a", "device", rates, changed)
    said = "undecided: the winner changes with serving.memory.efficiency=0.5"
    assert f"a: {said} (without: paged wins; with: odma wins)." in text
    rates["a", "odma/cheap"] = 40.0
    assert said not in run_of(tmp_path / "b", "device", rates, changed)


def test_memory_that_did_not_bind_names_no_winner(tmp_path: Path) -> None:
    free = {LIMITS: {"kv_memory": 0.0, "offered_load": 1.0}, "preemptions": 0}
    text = "\n".join(sentences(read_table(RunDirectory(made(tmp_path, **free)))))
    assert "card: KV memory did not limit odma" in text and "wins" not in text


def test_the_replications_that_would_resolve_a_gap_are_estimated() -> None:
    from tests.sweeps.report.test_verdict import group, judge, row

    near = judge(group(row("odma", 101, wobble=0.01), row("paged", 100)))
    # the half-width of 0.0248 shrinks to 0.00992 with the root of the number
    assert near.needed == pytest.approx(3 * (0.0248 / 0.00992) ** 2, rel=0.05)
    assert "--set replications=20 would, if it holds." in phrases.verdict(near)
    far = judge(group(row("odma", 100.01, wobble=0.05), row("paged", 100)))
    assert far.needed > 200 and "do not resolve the difference, nor would 200." in phrases.verdict(
        far
    )
