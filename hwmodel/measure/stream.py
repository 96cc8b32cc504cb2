"""Address streams with a known shape: extents cut into bursts, reads and writes mixed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.memory_spec import MemorySpec

Int = NDArray[np.int64]
TILE = 4096
"""Bytes of a sequential stream of a channel that are read or written together."""
ENGINE_TILE = 16 << 10
"""Bytes of a sequential stream that one DMA engine takes at once, as it takes weights
(assumed)."""
_BLOCK = 4


def kinds(rng: np.random.Generator, count: int, read_share: float) -> NDArray[np.bool_]:
    """Which of `count` accesses write, shape (count,): in random order, but the same number in
    every four of them. Raises ValueError where `read_share` is not in quarters."""
    writes = round((1 - read_share) * _BLOCK)
    if not 0 <= writes <= _BLOCK or abs(writes - (1 - read_share) * _BLOCK) > 1e-9:
        raise ValueError(f"a read share comes in quarters; got {read_share}")
    block = np.arange(_BLOCK) < writes
    blocks = np.tile(block, (-(-count // _BLOCK), 1))
    return rng.permuted(blocks, axis=1).ravel()[:count]


def random_starts(rng: np.random.Generator, count: int, slot: int, capacity: int) -> Int:
    """Start addresses, shape (count,), of slots of `slot` bytes anywhere in `capacity` bytes."""
    return rng.integers(0, capacity // slot, count, dtype=np.int64) * slot


def slot_bytes(extent: int, align: int) -> int:
    """Bytes from an extent to the next where each begins at a multiple of `align` bytes."""
    return -(-extent // align) * align


def sequential_starts(rng: np.random.Generator, count: int, capacity: int, tile: int = TILE) -> Int:
    """Start addresses, shape (count,), of consecutive tiles from a random one on, round the
    end."""
    tiles = capacity // tile
    return (rng.integers(0, tiles) + np.arange(count, dtype=np.int64)) % tiles * tile


def bursts(start: Int, extent: int, burst: int) -> Int:
    """Addresses of the bursts of extents, one extent after another, shape (n extent / burst,)."""
    return (start[:, None] + np.arange(0, extent, burst, dtype=np.int64)).ravel()


def local_address(memory: MemorySpec, place: dict[str, Int]) -> Int:
    """Local addresses of places given by field, each shape (n,); without bank hashes."""
    unit = memory.organisation.burst_bytes
    taken = dict.fromkeys(place, 0)
    address = np.zeros_like(place["row"])
    for name, bits, values in memory.address_sizes():
        address += ((place[name] >> taken[name]) & ((1 << bits) - 1)) * unit
        taken[name] += bits
        unit *= values
    return address
