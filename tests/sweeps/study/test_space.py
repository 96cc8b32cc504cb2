"""Does every draw of a space make a valid experiment, and can every one be drawn?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.allocators.odma_options import OdmaOptions
from sweeps.study.space import (
    LEAST,
    MOST,
    MOST_BUCKETS,
    Outside,
    ParameterSpec,
    Space,
    breaks_of,
    levels_of,
)
from sweeps.study.study_spec import load_study
from tests.sweeps.made import RESULTS

BREAKS = st.lists(st.floats(LEAST, MOST), min_size=1, max_size=MOST_BUCKETS)


def space(**parameters: dict[str, object]) -> Space:
    return Space({k.replace("__", "."): ParameterSpec(**v) for k, v in parameters.items()})


@given(BREAKS)
def test_levels_increase_strictly_whatever_is_drawn(breaks: list[float]) -> None:
    levels = levels_of(breaks)
    assert all(a < b for a, b in pairwise([0.0, *levels, 1.0]))
    OdmaOptions(buckets=len(levels), levels=levels)


@given(st.lists(st.floats(LEAST, MOST), min_size=1, max_size=8))
def test_levels_have_the_breaks_that_they_are_made_of(breaks: list[float]) -> None:
    assert breaks_of(levels_of(breaks)) == pytest.approx(breaks, rel=1e-4)


def test_levels_that_no_breaks_make_have_the_nearest() -> None:
    assert levels_of(breaks_of([0.25, 0.5, 1.0])) == pytest.approx([0.25, 0.5, 1.0], abs=LEAST)


def test_uniform_breaks_are_sorted_uniform_numbers() -> None:
    """The i-th of B sorted uniform numbers has the mean i / (B + 1)."""
    rng = np.random.default_rng(1)
    drawn = np.array([levels_of(rng.uniform(LEAST, MOST, 4)) for _ in range(20_000)])
    assert drawn.mean(axis=0) == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.005)
    # variance of the i-th: i (B + 1 - i) / ((B + 1)^2 (B + 2))
    assert drawn.var(axis=0) == pytest.approx([4 / 150, 6 / 150, 6 / 150, 4 / 150], abs=0.002)


def test_the_dimension_is_fixed_whatever_the_number_of_buckets() -> None:
    found = space(p__levels={"quantiles": [2, 3]})
    names = ["p.levels.count", "p.levels.0", "p.levels.1", "p.levels.2"]
    assert list(found.distributions()) == names
    params = dict(zip(names, [2, 0.25, 0.25, 0.9], strict=True))
    # above: 0.25 ** (1 / 2), then that times 0.25
    assert found.overrides(params) == {"p.buckets": 2, "p.levels": [0.5, 0.875]}


def test_a_balance_sets_levels_and_a_choice_has_a_meaning_with_another() -> None:
    found = space(
        p__levels={"quantiles": [2, 3], "balance": ["slots"]},
        p__space={"choice": ["slabs", "arena"]},
        p__borrow={"choice": [1, 2], "when": {"p.space": "slabs"}},
    )
    drawn = {"p.levels.count": 2, "p.levels.0": 0.25, "p.levels.1": 0.25, "p.levels.2": 0.9}
    arena = {**drawn, "p.levels.by": "slots", "p.space": "arena", "p.borrow": 2}
    assert found.overrides(arena) == {
        "p.buckets": 2, "p.levels": [], "p.balance": "slots", "p.space": "arena", "p.borrow": None,
    }  # fmt: skip
    slabs = {**drawn, "p.levels.by": "levels", "p.space": "slabs", "p.borrow": 2}
    assert found.overrides(slabs) == {
        "p.buckets": 2, "p.levels": [0.5, 0.875], "p.space": "slabs", "p.borrow": 2,
    }  # fmt: skip
    assert ("p.space", {"p.space": "arena", "p.borrow": None}) in list(found.corners())


def test_where_it_has_no_meaning_a_choice_is_what_it_is_otherwise() -> None:
    found = space(
        p__space={"choice": ["slabs", "arena"]},
        p__join={"choice": ["copied", "none"], "when": {"p.space": "arena"}, "otherwise": "none"},
    )
    drawn = [found.overrides({"p.space": s, "p.join": j}) for s, j in
             (("slabs", "copied"), ("arena", "copied"), ("arena", "none"))]  # fmt: skip
    assert [each["p.join"] for each in drawn] == ["none", "copied", "none"]
    assert all(found.overrides(found.params(each.get, [])) == each for each in drawn)


def test_params_are_the_inverse_of_overrides() -> None:
    found = space(
        p__levels={"quantiles": [2, 3], "balance": ["slots"]},
        p__gamma={"range": [0.0, 1.0]},
        p__window={"range": [4, 64], "log": True, "unit": "KiB"},
        p__space={"choice": ["slabs", "arena"]},
        p__borrow={"choice": [1, 2], "when": {"p.space": "slabs"}},
    )
    for point in (
        {"p.buckets": 2, "p.levels": [0.5, 0.875], "p.gamma": 0.5, "p.window": "8KiB",
         "p.space": "slabs", "p.borrow": 2},
        {"p.buckets": 3, "p.levels": [], "p.balance": "slots", "p.gamma": 0.0, "p.window": "64KiB",
         "p.space": "arena", "p.borrow": None},
    ):  # fmt: skip
        params = found.params(point.get, [0.2, 0.4, 1.0])
        assert list(params) == list(found.distributions())
        for name, distribution in found.distributions().items():
            assert distribution._contains(distribution.to_internal_repr(params[name]))
        assert found.overrides(params) == point
    for wrong in ({"p.gamma": 2.0}, {"p.window": "8MiB"}, {"p.space": "partitioned"}):
        with pytest.raises(Outside):
            found.params({**point, **wrong}.get, [0.5, 1.0])


def test_ranges_and_choices() -> None:
    found = space(
        gamma={"range": [0.0, 1.0]},
        window={"range": [8, 64], "log": True, "unit": "KiB"},
        queue={"range": [8, 64], "step": 8},
        policy={"choice": ["paged", {"name": "odma"}]},
    )
    d = found.distributions()
    assert d["gamma"] == optuna.distributions.FloatDistribution(0.0, 1.0)
    assert d["window"] == optuna.distributions.IntDistribution(8, 64, log=True)
    assert d["queue"] == optuna.distributions.IntDistribution(8, 64, step=8)
    assert d["policy"] == optuna.distributions.CategoricalDistribution(["paged", "{name: odma}"])
    params = {"gamma": 0.5, "window": 16, "queue": 24, "policy": "{name: odma}"}
    assert found.overrides(params) == {
        "gamma": 0.5, "window": "16KiB", "queue": 24, "policy": {"name": "odma"},
    }  # fmt: skip
    assert len(list(found.corners())) == 8


def test_the_kv_study_searches_what_decides_how_paged_kv_is_read() -> None:
    study = load_study(RESULTS / "kv-mlu370-x4.yaml")
    names = {path.rpartition(".")[2] for path in study.spec.space}
    assert names == {"block", "kv_layout", "window", "read_queue"}
    assert study.spec.memory == "sampled" and study.spec.trials <= 100
    assert [each.name for each in study.first] == ["base"], "the default is a point of the space"
    assert study.base == study.experiment(study.space.overrides(study.first[0].params))


def test_a_number_beside_a_range_is_drawn_by_itself() -> None:
    space = Space({"a.b": ParameterSpec(range=[0.05, 0.6], also=[0.0])})
    assert [*space.distributions()] == ["a.b.by", "a.b"]
    assert space.overrides({"a.b.by": 0.0, "a.b": 0.3}) == {"a.b": 0.0}
    assert space.overrides({"a.b.by": "range", "a.b": 0.3}) == {"a.b": 0.3}
    for value in (0.0, 0.3):
        assert space.overrides(space.params(lambda _, value=value: value, [])) == {"a.b": value}
    assert [each["a.b"] for _, each in space.corners()] == [0.05, 0.6, 0.0]
