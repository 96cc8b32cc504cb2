"""What one thread does with a buffer of 64-bit words: reads, writes, copies, dependent reads.

Each kernel holds no lock and returns the sum of what it read, so that no read is left out. Stores
go past the caches where the processor can: a line is not read before it is written, and the bytes
counted are those moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel

MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407
"""Of the linear congruential generator of random extents (Knuth, MMIX), modulo 2^64."""


Words = NDArray[np.int64]
_intrinsic: Any = intrinsic


@_intrinsic
def _store_past_caches(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    """data[index] = value, by a non-temporal store; a hint, where the processor has none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        store = builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        hint = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", hint)

    return types.void(array, types.intp, types.int64), generate


@_intrinsic
def _load(_typing: Any, array: Any, _index: Any) -> Any:
    """data[index] of an index that is not negative: one load that loops over it can widen."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]]))

    return types.int64(array, types.intp), generate


@kernel
def read_walk(
    data: Words, first: int, part: int, size: int, stride: int, begin: int, count: int
) -> int:
    """Sum of `count` extents of `size` words, `stride` apart, of the part of `part` words at
    `first`, from its extent `begin` on. Behind its end the walk begins again, an extent later."""
    total = 0
    per_walk, shifts = part // stride, stride // size
    walk, place = begin // per_walk, begin % per_walk
    while count > 0:
        base = first + walk % shifts * size
        many = min(per_walk - place, count)
        for i in range(place, place + many):
            for k in range(base + i * stride, base + i * stride + size):
                total += _load(data, k)
        count -= many
        place = 0
        walk += 1
    return total


@kernel
def read_random(data: Words, size: int, count: int, seed: int) -> int:
    """Sum of `count` extents of `size` words, at random multiples of their size."""
    slots = np.uint64(len(data) // size)
    state, total = np.uint64(seed), 0
    for _ in range(count):
        state = state * np.uint64(MULTIPLIER) + np.uint64(INCREMENT)
        at = np.int64(((state >> np.uint64(32)) * slots) >> np.uint64(32)) * size
        for k in range(at, at + size):
            total += _load(data, k)
    return total


@kernel
def read_listed(data: Words, starts: Words, size: int, begin: int, count: int) -> int:
    """Sum of `count` extents of `size` words that begin where the list says, from its entry `begin`
    on, round its end."""
    total, place = 0, begin % len(starts)
    for _ in range(count):
        at = starts[place]
        for k in range(at, at + size):
            total += _load(data, k)
        place += 1
        if place == len(starts):
            place = 0
    return total


@kernel
def write_walk(data: Words, first: int, part: int, begin: int, count: int) -> int:
    """Write `count` words of the part at `first`, from its word `begin` on, round its end."""
    place = begin % part
    while count > 0:
        many = min(part - place, count)
        for k in range(first + place, first + place + many):
            _store_past_caches(data, k, many)
        count -= many
        place = 0
    return 0


@kernel
def copy_walk(data: Words, source: int, target: int, part: int, begin: int, count: int) -> int:
    """As `write_walk`, of the words at `source`."""
    place = begin % part
    while count > 0:
        many = min(part - place, count)
        for k in range(place, place + many):
            _store_past_caches(data, target + k, _load(data, source + k))
        count -= many
        place = 0
    return 0


@kernel
def add_walk(
    data: Words, one: int, other: int, target: int, part: int, begin: int, count: int
) -> int:
    """As `write_walk`, of the sums of the words at `one` and `other`."""
    place = begin % part
    while count > 0:
        many = min(part - place, count)
        for k in range(place, place + many):
            _store_past_caches(data, target + k, _load(data, one + k) + _load(data, other + k))
        count -= many
        place = 0
    return 0


@kernel
def write_cycle(data: Words, lines: int, apart: int, seed: int) -> int:
    """Into the first word of each of `lines` lines, `apart` words from one to the next, write the
    index of another's: one random cycle through all of them (Sattolo 1986)."""
    for i in range(lines):
        data[i * apart] = i * apart
    state = np.uint64(seed)
    for i in range(lines - 1, 0, -1):
        state = state * np.uint64(MULTIPLIER) + np.uint64(INCREMENT)
        j = np.int64(((state >> np.uint64(32)) * np.uint64(i)) >> np.uint64(32))
        kept = data[i * apart]
        data[i * apart] = data[j * apart]
        data[j * apart] = kept
    return 0


@kernel
def follow(data: Words, start: int, steps: int) -> int:
    """The word reached from `start` after so many dependent reads."""
    at = start
    for _ in range(steps):
        at = _load(data, at)
    return at
