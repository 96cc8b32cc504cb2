"""Are the sweeps of published results without mistakes, and apart from those that ship?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import names, results
from sweeps.cli.catalogue import entries, names_of
from sweeps.plan.sweep import load_sweep, planned_kind
from sweeps.study.study_spec import load_study
from tests.rotation import shared


def test_what_ships_is_about_twenty_questions() -> None:
    assert 15 <= len(names("sweeps")) <= 30
    assert not {file.stem for file in results()} & {*names("sweeps"), *names("studies")}


def test_those_of_the_machinery_are_listed_where_they_are_named() -> None:
    listed = {each["name"] for each in entries("sweeps", [])}
    assert listed == {*names_of("sweeps")} and not listed & {"smoke", "quick"}
    assert [each["name"] for each in entries("sweeps", ["smoke"])] == ["smoke"]


@pytest.mark.parametrize(
    "file",
    shared([each for each in results() if each.stem != "claims"], 4),
    ids=lambda file: file.stem,
)
def test_a_sweep_of_a_result_has_points_and_its_own_name(file: Path) -> None:
    if planned_kind(file) == "study":
        assert load_study(file).spec.name == file.stem
    else:
        sweep = load_sweep(file)
        assert sweep.points and sweep.spec.name == file.stem
