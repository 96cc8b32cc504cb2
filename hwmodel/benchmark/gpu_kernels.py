"""What the threads of an NVIDIA GPU do with a buffer of 64-bit words (numba's CUDA).

`lanes` threads of a warp share an extent, a word each in turn, so that their reads are one request
of the memory. Each thread writes the sum of what it read, so that no read is left out.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import cuda as _cuda

from hwmodel.benchmark.cpu_kernels import Words

cuda: Any = _cuda
_jit: Any = cuda.jit
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]  # dependent reads
WARP = 32
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Of splitmix64 (Steele et al. 2014), by which an extent needs none before it."""


def lanes_of(words: int) -> int:
    """Threads that share an extent of so many words: a power of two, a warp at most."""
    return min(1 << (words.bit_length() - 1), WARP)


@_jit
def read_walk(
    data: Words, size: int, stride: int, begin: int, count: int, lanes: int, out: Words
) -> None:
    """As on a CPU, over the whole buffer: extents `begin` to `begin + count`."""
    thread = cuda.grid(1)
    lane, groups = thread % lanes, cuda.gridsize(1) // lanes
    per_walk, shifts = len(data) // stride, stride // size
    total = 0
    for extent in range(begin + thread // lanes, begin + count, groups):
        at = extent // per_walk % shifts * size + extent % per_walk * stride
        for k in range(at + lane, at + size, lanes):
            total += data[k]
    out[thread] = total


@_jit
def read_random(data: Words, size: int, count: int, seed: int, lanes: int, out: Words) -> None:
    """`count` extents of `size` words, at random multiples of their size."""
    thread = cuda.grid(1)
    lane, groups = thread % lanes, cuda.gridsize(1) // lanes
    slots, total = np.uint64(len(data) // size), 0
    for extent in range(thread // lanes, count, groups):
        x = np.uint64(seed + extent + 1) * np.uint64(STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
        x = (x ^ (x >> np.uint64(31))) >> np.uint64(32)
        at = np.int64((x * slots) >> np.uint64(32)) * size
        for k in range(at + lane, at + size, lanes):
            total += data[k]
    out[thread] = total


@_jit
def read_listed(
    data: Words, starts: Words, size: int, begin: int, count: int, lanes: int, out: Words
) -> None:
    """`count` extents of `size` words that begin where the list says, round its end."""
    thread = cuda.grid(1)
    lane, groups = thread % lanes, cuda.gridsize(1) // lanes
    total = 0
    for entry in range(begin + thread // lanes, begin + count, groups):
        at = starts[entry % len(starts)]
        for k in range(at + lane, at + size, lanes):
            total += data[k]
    out[thread] = total


@_jit
def write_walk(data: Words, target: int, part: int, begin: int, count: int) -> None:
    """`count` words, at most `part`, of the array at `target`, from its word `begin` on, round its
    end."""
    for i in range(cuda.grid(1), count, cuda.gridsize(1)):
        place = begin + i
        data[target + (place if place < part else place - part)] = i


@_jit
def copy_walk(data: Words, source: int, target: int, part: int, begin: int, count: int) -> None:
    """As `write_walk`, of the words at `source`."""
    for i in range(cuda.grid(1), count, cuda.gridsize(1)):
        place = begin + i
        place = place if place < part else place - part
        data[target + place] = data[source + place]


@_jit
def add_walk(
    data: Words, one: int, other: int, target: int, part: int, begin: int, count: int
) -> None:
    """As `write_walk`, of the sums of the words at `one` and `other`."""
    for i in range(cuda.grid(1), count, cuda.gridsize(1)):
        place = begin + i
        place = place if place < part else place - part
        data[target + place] = data[one + place] + data[other + place]


_device: Any = cuda.jit(device=True)


@_device
def scattered(line: int, bits: int) -> int:
    """A permutation of the numbers below 2**bits, at most 2**31: odd factors and shifts."""
    mask = (1 << bits) - 1
    x = line
    for factor in (0x2C1B3C6D, 0x297A2D39, 0x1B56C4E9):
        x = x * factor & mask
        x ^= x >> (bits + 1) // 2
    return x


@_jit
def write_cycle(data: Words, bits: int, apart: int) -> None:
    """A cycle through 2**bits lines, `apart` words each: a line's first word is where the next one
    begins."""
    lines = 1 << bits
    for i in range(cuda.grid(1), lines, cuda.gridsize(1)):
        data[scattered(i, bits) * apart] = scattered((i + 1) % lines, bits) * apart


@_jit
def follow(data: Words, start: int, steps: int, out: Words) -> None:
    """The word reached from `start` after so many dependent reads, by one thread."""
    at = start
    for _ in range(steps):
        at = data[at]
    out[0] = at
