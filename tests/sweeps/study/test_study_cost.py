"""Does a list of devices say what all take, without trying each in full?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.study import study_cost
from sweeps.study.study_cost import StudyCost, devices_cost
from sweeps.study.study_spec import Study
from tests.sweeps.study.studies import tiny


def test_all_devices_cost_what_the_timed_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(study_cost, "_rung_seconds", lambda _: next(seconds))
    study = tiny()

    def misfit() -> Study:
        raise DescriptionError("none fits")

    made = [("a", lambda: study), ("b", lambda: study), ("c", misfit), ("d", lambda: study)]
    found = devices_cost(made, first=StudyCost(64, 2, 50, 2.0))
    assert found.refused == {"c": "none fits"} and found.timed == 3
    assert found.minutes == 2.0 * 3 * 2.0 / 1.0  # of three devices, at their mean over the first


def test_devices_beyond_the_time_are_taken_to_be_like_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study_cost, "_rung_seconds", lambda _: 1.0)
    monkeypatch.setattr(study_cost, "ENOUGH_S", -1.0)
    study = tiny()
    made = [(name, lambda: study) for name in "abc"]
    found = devices_cost(made, first=StudyCost(64, 2, 50, 2.0))
    assert (found.timed, found.minutes) == (1, 6.0)
