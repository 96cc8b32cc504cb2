"""Are bounds the aligned quantiles of the window?"""

from __future__ import annotations

import math

from policies.allocators.buckets import Buckets


def test_bounds_are_aligned_quantiles_after_a_refresh() -> None:
    buckets = Buckets(4, 1000, window=8, refresh=8, align=10)
    for length in (3, 11, 19, 27, 42, 55, 61, 99):
        assert buckets.bounds == (250, 500, 750, 1000)
        buckets.observe(length)
    # a quarter of eight lengths is at most 11, half at most 27, three quarters at most 55, all at
    # most 99
    assert buckets.bounds == (20, 30, 60, 100)
    assert buckets.refreshes == 1


def test_a_refresh_is_in_force_when_its_delay_is_over() -> None:
    buckets = Buckets(2, 100, window=4, refresh=2, align=1, delay_s=5.0)
    assert not buckets.observe(10)
    assert not buckets.observe(20)
    assert buckets.due_s == math.inf  # the step that it ended in has an end, not yet known
    assert not buckets.clock(1.0)
    assert buckets.due_s == 6.0
    buckets.observe(70)
    buckets.observe(80)  # the next one is set off before the first is in force
    assert not buckets.clock(4.0)
    assert (buckets.bounds, buckets.due_s) == ((50, 100), 6.0)
    assert buckets.clock(6.0)
    assert (buckets.bounds, buckets.due_s) == ((10, 20), 9.0)
    assert buckets.clock(100.0)
    assert (buckets.bounds, buckets.due_s, buckets.refreshes) == ((20, 80), math.inf, 2)
