"""Sums over a few rows of a column of requests: what every step does for each that runs.

NumPy spends more on calling these than on the rows, of which there are tens.
"""

from __future__ import annotations

from hwmodel.kernel.jit import kernel
from policies.requests.requests import FloatArray, IntArray

NO_ROW = 1 << 62
"""The least of no rows."""


@kernel
def sum_of(column: IntArray, rows: IntArray) -> int:
    """Of `column`, int64 (n,), at these rows."""
    total = 0
    for row in rows:
        total += column[row]
    return total


@kernel
def least_of(column: IntArray, rows: IntArray) -> int:
    """Of `column`, int64 (n,), at these rows; `NO_ROW` if there is none."""
    least = NO_ROW
    for row in rows:
        least = min(least, column[row])
    return least


@kernel
def count_down(column: IntArray, rows: IntArray, amount: int, among: IntArray) -> int:
    """Takes `amount` from `column`, int64 (n,), at these rows, each once; what is then the least at
    the rows `among`, as `least_of`. Modified in place."""
    for row in rows:
        column[row] -= amount
    least = NO_ROW
    for row in among:
        least = min(least, column[row])
    return least


@kernel
def least_room(held: IntArray, needed: IntArray, rows: IntArray, most: int) -> int:
    """The least of `held` less `needed` at these rows, or `most`; int64 (n,) each."""
    least = most
    for row in rows:
        least = min(least, held[row] - needed[row])
    return least


@kernel
def add_to(column: IntArray, rows: IntArray, amount: int) -> None:
    """Adds `amount` to `column`, int64 (n,), at these rows, each once. Modified in place."""
    for row in rows:
        column[row] += amount


@kernel
def product_of(column: IntArray, weights: FloatArray) -> float:
    """The sum of `column`, int64 (n,), times `weights`, float64 (n,), one after another: BLAS has
    an order of its own on each processor."""
    total = 0.0
    for row in range(len(column)):
        total += column[row] * weights[row]
    return total


@kernel
def total_of(column: FloatArray) -> float:
    """The sum of `column`, float64 (n,), one after another."""
    total = 0.0
    for value in column:
        total += value
    return total
