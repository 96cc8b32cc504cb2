"""Do the findings on a whole run follow its results, and is it known what leaves them open?"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from sweeps.analyse.conclusion import Conclusion
from sweeps.analyse.facts import Dependence, Turned
from sweeps.analyse.figures import LIMITS
from sweeps.report.contents import read_report
from sweeps.run.findings import Findings
from sweeps.run.store import RunDirectory
from tests.sweeps.made import CONFIG, PROVENANCE, made, metrics

Rates = dict[tuple[Any, str], float]
Found = Findings[Conclusion]


def run_of(path: Path, axis: str, rates: Rates, controls: dict[str, Any] | None = None) -> Found:
    """A run whose points have these rates by (value of the axis, policy); a control's rates are by
    (value, policy/control)."""
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
    return read_report(path).findings


def along(found: Found, axis: str) -> Dependence:
    return next(each for each in found.own.dependences if each.axis == axis)


def changed(found: Found) -> list[Turned]:
    return found.own.turned


def test_another_winner_on_another_device_is_a_finding(tmp_path: Path) -> None:
    rates = {("a", "paged"): 200.0, ("a", "odma"): 100.0, ("b", "paged"): 50.0, ("b", "odma"): 80.0}
    found = along(run_of(tmp_path / "two", "device", rates), "device")
    assert found.winners == ["paged", "odma"] and found.is_question
    one = {each: rate for each, rate in rates.items() if each[0] == "a"}
    assert not run_of(tmp_path / "one", "device", one).own.dependences


def test_another_winner_at_another_assumed_number_is_no_question(tmp_path: Path) -> None:
    axis = "device_set.dma.descriptor_cost"
    rates = {("0ns", "paged"): 200.0, ("0ns", "odma"): 100.0,
             ("2us", "paged"): 50.0, ("2us", "odma"): 80.0}  # fmt: skip
    found = along(run_of(tmp_path / "a", axis, rates), axis)
    assert found.winners == ["paged", "odma"] and not found.is_question
    rates["2us", "paged"] = 90.0
    assert along(run_of(tmp_path / "b", axis, rates), axis).winners == ["paged"]


def test_another_winner_under_a_control_is_known(tmp_path: Path) -> None:
    rates = {("a", "paged"): 200.0, ("a", "odma"): 100.0,
             ("a", "paged/cheap"): 50.0, ("a", "odma/cheap"): 80.0}  # fmt: skip
    rates |= {("a", "paged/analytic"): 50.0, ("a", "odma/analytic"): 80.0}  # without banks: a part
    settings = {"analytic": {}, "cheap": {"serving.memory.efficiency": 0.5}}
    (found,) = changed(run_of(tmp_path / "a", "device", rates, settings))
    assert (found.title, found.assumption) == ("a", "serving.memory.efficiency=0.5")
    assert [each.best for each in found.outcomes.values()] == ["paged", "odma"]
    rates["a", "odma/cheap"] = 40.0
    assert not changed(run_of(tmp_path / "b", "device", rates, settings))


def test_memory_that_did_not_bind_is_a_condition_of_the_winner(tmp_path: Path) -> None:
    free = {LIMITS: {"kv_memory": 0.0, "offered_load": 1.0}, "preemptions": 0}
    found = along(read_report(made(tmp_path, **free)).findings, "device")
    assert found.winners == ["odma"] and not any(v.bound for _, v in found.outcomes)
