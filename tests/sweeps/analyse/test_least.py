"""Is a bound kept by a mean that is exactly it, however the mean was summed?"""

from __future__ import annotations

import pytest

from sweeps.analyse.least import Constraint


@pytest.mark.parametrize("way", ["at_most", "at_least"])
def test_a_mean_that_is_the_bound_but_for_rounding_keeps_it(way: str) -> None:
    kept = Constraint.model_validate({"metric": "policy.migration_rate", way: 0.04})
    for value in (0.04, 0.04 + 3.5e-17, 0.04 - 7e-18):
        assert kept.violation(value) == 0.0
    sign = 1 if way == "at_most" else -1
    assert kept.violation(0.04 + sign * 1e-6) > 0 > kept.violation(0.04 - sign * 1e-6)


def test_rounding_is_a_share_of_the_bound() -> None:
    large = Constraint.model_validate({"metric": "kv_gbps", "at_most": 4e9})
    assert large.violation(4e9 * (1 + 1e-15)) == 0.0
    small = Constraint.model_validate({"metric": "kv_gbps", "at_most": 4e-9})
    assert small.violation(4.1e-9) > 0 > small.violation(3.9e-9)


def test_a_bound_is_told_as_it_is_written() -> None:
    for way, said in (("at_most", "kv_gbps <= 0.04"), ("at_least", "kv_gbps >= 0.04")):
        assert Constraint.model_validate({"metric": "kv_gbps", way: 0.04}).name == said
