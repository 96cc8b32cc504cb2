"""Are bounds the aligned quantiles of the window?"""

from __future__ import annotations

from policies.buckets import Buckets


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
