"""Is the share of a memory's rate by size what NumPy interpolates?"""

from __future__ import annotations

import numpy as np
import pytest

from policies.memory.kv_share import fill_shares

SIZES = np.log([4096.0, 65536.0, 1e6, 3e7])
SHARES = np.array([0.2, 0.5, 0.45, 0.9])


def _shares(moved: np.ndarray, layers: float = 28.0) -> np.ndarray:
    out = np.empty(len(moved))
    fill_shares(moved, layers, SIZES, SHARES, out)
    return out


def test_is_it_a_straight_line_between_points() -> None:
    moved = np.exp(np.random.default_rng(3).uniform(0, 25, 10_000)).round()
    expected = np.interp(np.log(np.maximum(moved, 1) / 28), SIZES, SHARES)
    np.testing.assert_allclose(_shares(moved), expected, rtol=1e-15)


def test_is_it_the_nearer_outside_of_them_and_at_them() -> None:
    moved = 28 * np.array([0.0, 1.0, 4096.0, 65536.0, 1e6, 3e7, 1e12])
    assert _shares(moved) == pytest.approx([0.2, 0.2, 0.2, 0.5, 0.45, 0.9, 0.9])


def test_is_one_point_the_share_everywhere() -> None:
    out = np.empty(2)
    fill_shares(np.array([1.0, 1e9]), 1.0, SIZES[:1], SHARES[:1], out)
    assert out.tolist() == [0.2, 0.2]
