"""What the threads of an NVIDIA GPU do with a buffer of 64-bit words (numba's CUDA).

`lanes` threads of a warp share an extent, a word each in turn, so that their reads are one request
of the memory. Each thread writes the sum of what it read, so that no read is left out.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import cuda as _cuda

from bankwise_measure.cpu_kernels import Words

cuda: Any = _cuda
_jit: Any = cuda.jit
numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]  # dependent reads
WARP = 32
AT_ONCE = 4
"""Extents, or parts of a long one, that a thread reads at once: one alone waits for the memory."""
LONG = 128
"""Words of an extent that is read in parts."""
LOW = 0xFFFFFFFF


def lanes_of(words: int) -> int:
    """Threads that share an extent of so many words: a power of two, a warp at most."""
    return min(1 << (words.bit_length() - 1), WARP)


_device: Any = cuda.jit(device=True)


@_device
def mixed(x: int) -> int:
    """32 bits of 32 bits: Ellis's lowbias32."""
    x = x & LOW
    x = (x ^ (x >> 16)) * 0x7FEB352D & LOW
    x = (x ^ (x >> 15)) * 0x846CA68B & LOW
    return x ^ (x >> 16)


@_device
def read(data: Words, a: int, b: int, c: int, d: int, lane: int, size: int, lanes: int) -> int:
    """The sum of a thread's words of four extents."""
    total = 0
    for k in range(lane, size, lanes):
        total += data[a + k] + data[b + k] + data[c + k] + data[d + k]
    return total


@_jit
def read_run(data: Words, begin: int, count: int, out: Words) -> None:
    """`count` words one after another, from the word `begin` on, round the end of the buffer."""
    thread, apart, last, end = cuda.grid(1), cuda.gridsize(1), begin + count - 1, len(data)
    total = 0
    for a in range(begin + thread, begin + count, AT_ONCE * apart):
        b, c, d = min(a + apart, last), min(a + 2 * apart, last), min(a + 3 * apart, last)
        a = a if a < end else a - end
        b = b if b < end else b - end
        c = c if c < end else c - end
        d = d if d < end else d - end
        total += data[a] + data[b] + data[c] + data[d]
    out[thread] = total


@_device
def stepped(place: int, end: int) -> int:
    """A place round the end of what has `end` of them: a division would take longer."""
    while place >= end:
        place -= end
    return place


@_jit
def read_walk(
    data: Words, size: int, stride: int, begin: int, count: int, lanes: int, out: Words
) -> None:
    """As on a CPU, over the whole buffer: extents `begin` to `begin + count`."""
    thread = cuda.grid(1)
    lane, groups = thread % lanes, cuda.gridsize(1) // lanes
    per_walk, shifts, total = len(data) // stride, stride // size, 0
    x = begin + thread // lanes
    walk, place, end = x // per_walk % shifts, x % per_walk, begin + count
    while x < end:
        at = walk * size + place * stride
        a = b = c = d = at
        for k in range(AT_ONCE):
            if x < end:
                at = walk * size + place * stride
            if k == 0:
                a = at
            elif k == 1:
                b = at
            elif k == 2:
                c = at
            else:
                d = at
            x, place = x + groups, place + groups
            while place >= per_walk:
                place, walk = place - per_walk, walk + 1 if walk + 1 < shifts else 0
        total += read(data, a, b, c, d, lane, size, lanes)
    out[thread] = total


@_jit
def read_random(data: Words, size: int, count: int, seed: int, lanes: int, out: Words) -> None:
    """`count` extents of `size` words, at random multiples of their size."""
    thread = cuda.grid(1)
    lane, groups, first = thread % lanes, cuda.gridsize(1) // lanes, thread // lanes
    slots, quarter, last, total = len(data) // size, size // AT_ONCE, count - 1, 0
    if size >= LONG:
        for x in range(first, count, groups):
            a = (mixed(seed + x) * slots >> 32) * size
            b, c, d = a + quarter, a + 2 * quarter, a + 3 * quarter
            total += read(data, a, b, c, d, lane, quarter, lanes)
    else:
        for x in range(first, count, AT_ONCE * groups):
            a = (mixed(seed + x) * slots >> 32) * size
            b = (mixed(seed + min(x + groups, last)) * slots >> 32) * size
            c = (mixed(seed + min(x + 2 * groups, last)) * slots >> 32) * size
            d = (mixed(seed + min(x + 3 * groups, last)) * slots >> 32) * size
            total += read(data, a, b, c, d, lane, size, lanes)
    out[thread] = total


@_jit
def read_listed(
    data: Words, starts: Words, size: int, begin: int, count: int, lanes: int, out: Words
) -> None:
    """`count` extents of `size` words that begin where the list says, round its end."""
    thread = cuda.grid(1)
    lane, groups, many = thread % lanes, cuda.gridsize(1) // lanes, len(starts)
    x, quarter, total, end = begin + thread // lanes, size // AT_ONCE, 0, begin + count
    place = x % many
    while x < end:
        a = starts[place]
        x, place = x + groups, stepped(place + groups, many)
        if size >= LONG:
            b, c, d = a + quarter, a + 2 * quarter, a + 3 * quarter
            total += read(data, a, b, c, d, lane, quarter, lanes)
            continue
        b = starts[place] if x < end else a
        x, place = x + groups, stepped(place + groups, many)
        c = starts[place] if x < end else a
        x, place = x + groups, stepped(place + groups, many)
        d = starts[place] if x < end else a
        x, place = x + groups, stepped(place + groups, many)
        total += read(data, a, b, c, d, lane, size, lanes)
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
