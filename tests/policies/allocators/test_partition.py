"""Are the bounds that reserve least for known lengths really the least?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.buckets import Buckets
from policies.allocators.partition import best_partition

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def brute_force(lengths: list[int], buckets: int, align: int) -> float:
    """The least share unused over every set of bounds, one request after another."""
    multiples = sorted({-(-length // align) * align for length in lengths})
    least = float("inf")
    for count in range(1, buckets + 1):
        for chosen in itertools.combinations(multiples, min(count, len(multiples))):
            if chosen[-1] < max(lengths):
                continue
            reserved = [min(b for b in chosen if b >= length) * length for length in lengths]
            least = min(least, 1 - sum(x * x for x in lengths) / sum(reserved))
    return least


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.sampled_from([1, 2, 8]))
def test_it_is_the_least_of_all_sets_of_bounds(
    lengths: list[int], buckets: int, align: int
) -> None:
    found = best_partition(np.array(lengths), buckets, align)
    assert found.unused == pytest.approx(brute_force(lengths, buckets, align), abs=1e-12)
    assert len(found.bounds) <= buckets and found.bounds[-1] >= max(lengths)
    assert all(bound % align == 0 for bound in found.bounds)


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(1, 4))
def test_its_levels_make_odmas_buckets_have_its_bounds(lengths: list[int], buckets: int) -> None:
    found = best_partition(np.array(lengths), buckets, 4)
    odma = Buckets(len(found.levels), 60, len(lengths), len(lengths), 4, levels=found.levels)
    for length in lengths:
        odma.observe(length)
    assert odma.bounds == found.bounds
    exact = Buckets(buckets, 60, align=4, balance="least_unused")
    exact.begin(np.array(lengths))
    assert len(exact.bounds) == buckets  # the last again, where fewer are needed
    assert tuple(dict.fromkeys(exact.bounds)) == found.bounds
