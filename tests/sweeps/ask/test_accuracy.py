"""Are errors by class what they were allowed to be, and are intervals those of the rule?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from hwmodel.specs.device import Device
from policies.memory import measured_steps
from policies.memory.measured import compare, load_measurements
from policies.memory.measured_cells import ComparedCell
from sweeps.ask import accuracy
from sweeps.ask.accuracy import STEP, MeasuredTime, by_label, left_out, most, risen, spreads, steps
from tests.policies.memory.test_kernel_law import load_class
from tools.figures import ROOT, read_results

SIMULATED = {
    "a100-80gb": 0.98, "h100-pcie": 0.98, "dgx-spark-gb10": 0.856, "m2-ultra": 0.89,
    "m1-max": 0.92, "strix-halo": 0.87, "jetson-agx-thor": 0.92,
}  # fmt: skip
"""Shares of the peak that long streams are simulated to reach, so that the gate takes no minutes;
the release run simulates each cell."""
STEPS = [
    "dgx-spark-decode", "dgx-spark-gpt-oss-20b", "gpt-fast-llama-2-70b", "gpt-fast-llama-3.1-70b",
    "gpt-fast-llama-3.1-8b", "gpt-fast-narrow-and-experts", "jetson-agx-thor-decode",
    "llama-2-7b-a100-80gb", "llama-3-70b-decode", "llama-3-8b-decode", "m2-ultra-decode",
    "m2-ultra-gpt-oss-20b", "strix-halo-decode",
]  # fmt: skip
LAST = load(Path(ROOT / "docs/release/last/accuracy.yaml")).data


def share(device: Device, *_: Any) -> float:
    return device.given.efficiency if device.given else SIMULATED[device.name]


def test_no_error_rose_further_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over public steps, beside the last release under the same shares."""
    monkeypatch.setattr(measured_steps, "_weights", share)
    monkeypatch.setattr(measured_steps, "_attention", share)
    found: list[ComparedCell] = []
    for name in STEPS:
        spec = load_measurements(name)
        kept = [cell for cell in spec.cells if cell.decode or cell.prefill]
        found += compare(spec.model_copy(update={"cells": kept}))
    now = by_label(one for one in steps(found) if one.inside is not None)
    assert set(now) == set(LAST["quick"]) and sum(one["cells"] for one in now.values()) > 100
    assert risen(now, LAST["quick"]) == []


def test_the_errors_of_the_release_run_are_below_their_limits_or_say_why() -> None:
    results, now = read_results(), {}
    for label, last in LAST["errors"].items():
        keys = {name: f"accuracy/beside/{name}/{label}/now" for name in last if name != "inside"}
        now[label] = {name: float(results[key]) for name, key in keys.items()}  # type: ignore[arg-type]
    assert {each.partition(":")[0] for each in risen(now, LAST["errors"])} == set(LAST["risen"])


def test_the_interval_of_each_class_is_that_of_the_rule() -> None:
    results = read_results()
    for name in names("kernels"):
        if name == "ideal":
            continue
        law = load_class(name).law
        for end in ("low", "high"):
            shipped = law[f"spread_{end}"]
            value = shipped["value"] if isinstance(shipped, dict) else shipped
            ruled = results[f"accuracy/spread/{name}/{end}"]
            assert abs(value - float(ruled)) < STEP / 2, (name, end)  # type: ignore[arg-type]


def test_a_limit_is_a_point_or_a_tenth() -> None:
    assert (most(0.02), most(0.30)) == pytest.approx((0.03, 0.33))
    last = {"a": {"median": 0.02, "nine in ten": 0.3}}
    assert risen({"a": {"median": 0.0299, "nine in ten": 0.329}}, last) == []
    (told,) = risen({"a": {"median": 0.031, "nine in ten": 0.3}}, last)
    assert told == "a: median 3.1%, at most 3.0%"


def test_a_class_without_times_has_the_interval_of_the_others() -> None:
    """Three classes of a group each; the third has none."""
    groups = {
        "slow": [[math.log(1.5)] * 9], "even": [[0.0, 0.0], [math.log(0.9)]], "unknown": [],
    }  # fmt: skip
    wider, found = spreads(groups)
    assert left_out(groups, wider) >= accuracy.COVERED > left_out(groups, wider - 0.01)
    low, high = found["unknown"]
    assert high >= 1.5 and low <= 0.9
    assert found["slow"] == found["unknown"]


def test_what_is_seen_stands_beside_what_is_not() -> None:
    cells = [
        MeasuredTime("decode", "apple", "m", 1.1, 0.1, True, True),
        MeasuredTime("decode", "apple", "n", 1.2, 0.2, False, False),
    ]
    row = accuracy.seen_and_not(cells)["decode, apple"]
    assert (row["seen: cells"], row["seen: median"]) == (1, 0.1)
    assert (row["unseen: median"], row["unseen: inside"]) == (0.2, 0.0)
