"""Does a shipped sweep expand into the points it describes, and its config into the same?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.description.yaml_writer import to_yaml
from sweeps.plan.crossing_sweep import CrossingSpec
from sweeps.plan.sweep import load_sweep
from tests.rotation import shared


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", names("sweeps"))
def test_every_shipped_sweep_lays_out_its_points(name: str) -> None:
    sweep = load_sweep(name)
    roles = Counter(variant.role for variant in sweep.spec.variants.values())
    count = (1 + roles["control"]) * (1 + roles["change"] + roles["condition"])
    parameters = sweep.spec.crossing if isinstance(sweep.spec, CrossingSpec) else {}
    alone = 0  # values of one competitor
    for parameter in parameters.values():
        ends = len(parameter.variants) or 2  # what follows hangs on the results
        count += ends * (parameter.of is None)
        alone += ends * (parameter.of is not None and not parameter.against)
    groups = 1
    for axis, values in sweep.spec.axes.items():
        count *= len(values)
        groups *= 1 if axis == sweep.spec.compare else len(values)
    count += groups * (alone + roles["reference"] + roles["objection"])  # ties hang on the results
    count *= roles["case"] or 1
    assert [point.index for point in sweep.points] == list(range(count))


@pytest.mark.parametrize("name", shared(names("sweeps"), every=4))
def test_the_config_lays_out_the_same_points(name: str, tmp_path: Path) -> None:
    sweep = load_sweep(name)
    again = load_sweep(written(tmp_path, to_yaml(sweep.config)))
    assert [p.experiment for p in again.points] == [p.experiment for p in sweep.points]
    assert again.config == sweep.config
