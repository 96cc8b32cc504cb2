"""Temperature: refresh and row times above 85 degrees, and mistakes."""

from __future__ import annotations

import pytest

from tests.hwmodel.memories import SHIPPED, spec

HOT = [name for name in SHIPPED if spec(name).hot]
LPDDR5 = "lpddr5-6400-x16"


@pytest.mark.parametrize("name", HOT)
def test_above_85_degrees_refresh_comes_twice_as_often(name: str) -> None:
    cool, edge, hot = (spec(name, temperature=t) for t in (45, 85, 95))
    assert cool.refresh_ticks() == edge.refresh_ticks() == spec(name).refresh_ticks()
    assert hot.refresh_ticks() == cool.refresh_ticks() // 2


def test_row_times_of_lpddr5_grow_by_the_derating_of_the_standard() -> None:
    """18, 18 and 42 ns become 19.875, 19.875 and 43.875; tRC is their sum at 1.25 ns a clock."""
    hot = spec(LPDDR5, temperature=95)
    assert [hot.ticks(name) for name in ("tRCD", "tRP", "tRAS", "tRC")] == [16, 16, 36, 51]
    assert [spec(LPDDR5).ticks(name) for name in ("tRCD", "tRP", "tRAS", "tRC")] == [15, 15, 34, 48]
    assert hot.ticks("RL") == spec(LPDDR5).ticks("RL")


def test_what_is_added_in_ns_to_a_timing_in_clocks_is_rounded_up() -> None:
    assert spec("lpddr4-4266-x16", temperature=95).ticks("tRCD") == 39 + 4  # 1.875 / 0.469
