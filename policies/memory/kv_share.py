"""Which share of a memory's rate decode attention reaches, where it is given by size of what is
read of a layer: between two points a straight line over the logarithm of the size, outside them the
nearer. Compiled, so that the general way and the core of plain runs have the same to the last bit.
"""

from __future__ import annotations

import math

from hwmodel.kernel.jit import called, simulation
from policies.requests.requests import FloatArray


@called
def share_of(moved_bytes: float, layers: float, sizes: FloatArray, shares: FloatArray) -> float:
    """Of so many bytes of all layers together. sizes: float64 (n,), logarithms of bytes, rising;
    shares: float64 (n,)."""
    size, last = math.log(max(moved_bytes, 1.0) / layers), len(sizes) - 1
    if size <= sizes[0]:
        return shares[0]
    if size >= sizes[last]:
        return shares[last]
    at = 0
    while sizes[at + 1] <= size:
        at += 1
    slope = (shares[at + 1] - shares[at]) / (sizes[at + 1] - sizes[at])
    return slope * (size - sizes[at]) + shares[at]


@simulation
def fill_shares(
    moved_bytes: FloatArray, layers: float, sizes: FloatArray, shares: FloatArray, out: FloatArray
) -> None:
    """`out`, modified in place: the share of each of `moved_bytes`, float64 (n,) both."""
    for nth in range(len(moved_bytes)):
        out[nth] = share_of(moved_bytes[nth], layers, sizes, shares)
