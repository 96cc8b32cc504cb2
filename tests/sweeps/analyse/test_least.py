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
