"""Is the price at which cards break even the one at which they serve as much for a dollar?"""

from __future__ import annotations

import pytest

from tools.memory_map import BOTH, HBM, LPDDR, Card, CardCell

CARDS = {HBM: Card(15000.0, 128.0), LPDDR: Card(19000.0, 0.0), BOTH: Card(17000.0, 64.0)}


@pytest.mark.parametrize(("name", "rate"), [(LPDDR, 50.0), (BOTH, 80.0)])
def test_both_serve_as_much_for_a_dollar_there(name: str, rate: float) -> None:
    cell = CardCell({HBM: 100.0, name: rate}, {})
    price = cell.break_even(name, CARDS)
    ours, theirs = (of.rest + of.hbm_gb * price for of in (CARDS[HBM], CARDS[name]))
    assert 100.0 / ours == pytest.approx(rate / theirs)


def test_half_the_hbm_at_less_than_half_the_rate_never_breaks_even() -> None:
    assert CardCell({HBM: 100.0, BOTH: 45.0}, {}).break_even(BOTH, CARDS) == float("inf")
