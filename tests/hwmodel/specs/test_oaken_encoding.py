"""Does Oaken's encoding have the bits that the format counts, and the errors of docs/papers.md?

Encoded here as Kim et al. 2025 (arXiv 2503.18599) describe it: thresholds of some vectors by top-k,
three groups by comparison, the shift of outer and middle numbers, a uniform scale for each group.
Left open there, and chosen here: how inner numbers are told (by magnitude), and rounding (to the
nearest). The cache is synthetic: normal numbers, of which a few channels are wider.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from hwmodel.specs.transformer import load_model
from policies.requests.requests import FloatArray

OUTER, INNER = 0.04, 0.06
"""Shares of the numbers: largest, and smallest in magnitude."""


class Thresholds(NamedTuple):
    low: float
    high: float
    """Beyond these on either side: outer."""
    inner: float
    """Below it in magnitude: inner; 0: there is no inner group."""


class Encoded(NamedTuple):
    """A vector: what it is read as, which numbers are in the sparse list, and the bits it takes."""

    read: FloatArray
    outlier: np.ndarray
    bits: int


def cache(vectors: int, width: int, seed: int, wider: float = 10.0) -> FloatArray:
    """float64 (vectors, width); one channel in 64 is so much wider."""
    stream = np.random.default_rng(seed)
    wide = np.where(np.arange(width) % 64 == 7, wider, 1.0)
    return stream.standard_normal((vectors, width)) * wide


def thresholds(profiled: FloatArray, outer: float = OUTER, inner: float = INNER) -> Thresholds:
    """The mean over vectors, float64 (vectors, width), of what top-k says of each."""
    ordered = np.sort(profiled, axis=1)
    most = round(outer / 2 * profiled.shape[1])
    small = np.sort(np.abs(profiled), axis=1)[:, round(inner * profiled.shape[1])]
    return Thresholds(
        float(ordered[:, most].mean()), float(ordered[:, -most - 1].mean()),
        float(small.mean()) if inner else 0.0,
    )  # fmt: skip


def uniform(values: FloatArray, bits: int) -> FloatArray:
    """What they are read as; the step is (max - min) / (2^bits - 1)."""
    if not len(values):
        return values
    low, step = values.min(), (values.max() - values.min()) / (2**bits - 1)
    read: FloatArray = low + np.rint((values - low) / (step or 1.0)) * step
    return read


def encode(vector: FloatArray, limits: Thresholds, outlier_bits: int = 5) -> Encoded:
    """Middle numbers in 4 bits, the others in 5: of outer ones one is their side, from which 4 bits
    count. Outer and middle numbers are moved by their thresholds."""
    outer = (vector < limits.low) | (vector > limits.high)
    inner = np.abs(vector) < limits.inner
    middle, side = ~outer & ~inner, np.sign(vector)
    edge = np.where(vector > 0, limits.high, limits.low)
    read = np.empty_like(vector)
    beyond = uniform(np.abs(vector - edge)[outer], outlier_bits - 1)
    read[outer] = edge[outer] + side[outer] * beyond
    found = uniform((vector - side * limits.inner)[middle], 4)
    # a middle number has no bit for its side: it is that of what the scale reads
    read[middle] = found + np.where(found >= 0, 1.0, -1.0) * limits.inner
    read[inner] = uniform(vector[inner], outlier_bits)
    outlier, groups = outer | inner, 3 if limits.inner else 2
    bits = 4 * len(vector) + 8 * int(outlier.sum()) + groups * 2 * 16  # minimum, maximum of a group
    return Encoded(read, outlier, bits)


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-2-13b", "llama-2-70b"])
def test_takes_the_bits_that_the_format_counts(name: str) -> None:
    model = load_model(name)
    width = model.kv_heads * model.head_dim
    limits = thresholds(cache(100, width, 0))
    encoded = [encode(vector, limits) for vector in cache(200, width, 1)]
    share = float(np.mean([each.outlier.mean() for each in encoded]))
    assert share == pytest.approx(OUTER + INNER, abs=0.01)
    bits = float(np.mean([each.bits for each in encoded])) / width
    assert bits == pytest.approx(4 + 8 * share + 96 / width)
    counted = model.stored_as(None, "oaken").kv_token_bytes * 8 / (2 * width * model.layers)
    assert bits == pytest.approx(counted, abs=0.08)


@pytest.mark.parametrize(("wider", "share"), [(1.0, 0.573), (10.0, 0.149)])
def test_groups_err_by_less_than_one_scale_does(wider: float, share: float) -> None:
    limits = thresholds(cache(100, 1024, 0, wider))
    vectors = cache(50, 1024, 1, wider)
    grouped = np.mean([(encode(each, limits).read - each) ** 2 for each in vectors]) ** 0.5
    alone = np.mean([(uniform(each, 4) - each) ** 2 for each in vectors]) ** 0.5
    assert grouped / alone == pytest.approx(share, abs=0.003)


def rms(vectors: FloatArray, encoded: list[Encoded], within: float = np.inf) -> float:
    """Of the errors of the numbers below `within` in magnitude."""
    error = np.stack([each.read for each in encoded]) - vectors
    return float(np.mean(error[np.abs(vectors) < within] ** 2) ** 0.5)


@pytest.mark.parametrize(
    ("wider", "two_groups", "four_bits"),  # over three groups with outliers of 5 bits
    [(1.0, 0.826, 1.010), (10.0, 1.208, 1.337)],
)
def test_a_group_or_a_bit_less_errs_by_more_where_channels_differ(
    wider: float, two_groups: float, four_bits: float
) -> None:
    """Ten in a hundred are outliers in all three, so that they take as much but for one pair of
    scales. What the inner group alone does is for the numbers nearest to zero."""
    profiled, vectors = cache(100, 1024, 0, wider), cache(50, 1024, 1, wider)
    limits, two = thresholds(profiled), thresholds(profiled, OUTER + INNER, 0.0)
    three = [encode(each, limits) for each in vectors]
    without = [encode(each, two) for each in vectors]
    shorter = [encode(each, limits, 4) for each in vectors]
    own = rms(vectors, three)
    assert rms(vectors, without) / own == pytest.approx(two_groups, abs=0.003)
    assert rms(vectors, shorter) / own == pytest.approx(four_bits, abs=0.003)
    small = rms(vectors, three, limits.inner)
    assert 50 < rms(vectors, without, limits.inner) / small < 60
    assert rms(vectors, shorter, limits.inner) / small == pytest.approx(31 / 15, abs=0.01)
