"""Are bounds the aligned quantiles of the window?"""

from __future__ import annotations

import math

from policies.allocators.buckets import Buckets


def test_bounds_part_the_range_evenly_at_first() -> None:
    assert Buckets(4, 1000, align=64).bounds == (256, 512, 768, 1024)


def test_bounds_are_aligned_quantiles_after_a_refresh() -> None:
    buckets = Buckets(4, 1000, window=8, refresh=8, align=10)
    for length in (3, 11, 19, 27, 42, 55, 61, 99):
        assert buckets.bounds == (250, 500, 750, 1000)
        buckets.observe(length)
    # a quarter of eight lengths is at most 11, half at most 27, three quarters at most 55, all at
    # most 99
    assert buckets.bounds == (20, 30, 60, 100)
    assert buckets.refreshes == 1


def test_the_window_slides() -> None:
    buckets = Buckets(2, 1000, window=4, refresh=2, align=1)
    for length in (10, 10, 10, 10, 200, 300):
        buckets.observe(length)
    assert buckets.bounds == (10, 300)  # of 10, 10, 200, 300
    for length in (400, 500):
        buckets.observe(length)
    assert buckets.bounds == (300, 500)  # of 200, 300, 400, 500


def test_the_smallest_covering_bucket_is_found() -> None:
    buckets = Buckets(4, 400, align=100)
    assert [buckets.find(n) for n in (1, 100, 100.5, 399, 400, 401)] == [0, 0, 1, 3, 3, 4]


def test_levels_choose_the_quantiles() -> None:
    buckets = Buckets(2, 1000, window=10, refresh=10, align=1, levels=[0.5, 0.9])
    for length in range(10, 110, 10):
        buckets.observe(length)
    assert buckets.bounds == (50, 90)
    assert buckets.find(91) == 2  # longer than nine in ten: no bucket


def test_the_first_bounds_can_be_given() -> None:
    assert Buckets(3, 1000, align=64, first=[100, 300, 2000]).bounds == (128, 320, 1024)


def test_frozen_bounds_stand() -> None:
    never = Buckets(2, 100, window=4, refresh=0, align=1)
    once = Buckets(2, 100, window=4, refresh=2, align=1, most=1)
    for length in (10, 20, 70, 80):
        never.observe(length)
        once.observe(length)
    assert (never.bounds, never.refreshes) == ((50, 100), 0)
    assert (once.bounds, once.refreshes) == ((10, 20), 1)


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
