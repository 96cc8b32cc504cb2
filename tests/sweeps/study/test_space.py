"""Does every draw of a space make a valid experiment, and can every one be drawn?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
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


def test_uniform_breaks_are_sorted_uniform_numbers() -> None:
    """The i-th of B sorted uniform numbers has the mean i / (B + 1)."""
    rng = np.random.default_rng(1)
    drawn = np.array([levels_of(rng.uniform(LEAST, MOST, 4)) for _ in range(20_000)])
    assert drawn.mean(axis=0) == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.005)
    # variance of the i-th: i (B + 1 - i) / ((B + 1)^2 (B + 2))
    assert drawn.var(axis=0) == pytest.approx([4 / 150, 6 / 150, 6 / 150, 4 / 150], abs=0.002)


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
