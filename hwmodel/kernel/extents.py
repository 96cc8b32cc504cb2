"""What the DMA engines issue: extents in order, what each waits for, and frames of allocators."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import simulation

Int = NDArray[np.int64]
MAPPED = 1 << 60
"""Virtual addresses of allocators begin here, away from all others."""


class EngineStream(NamedTuple):
    """What each engine moves, those of an engine in its order, int64 (n,)."""

    engine: Int
    start: Int
    size: Int
    write: Int
    wait: Int
    """Before the first request of an extent."""


class Frames(NamedTuple):
    """Frames that an allocator maps: physical ones, of `size` bytes each from `base` on, and the
    virtual frame that each holds, int64 (n,)."""

    base: int
    size: int
    virtual: Int

    def addresses(self, address: Int) -> Int:
        """Virtual addresses of physical ones, from `MAPPED` on; those outside stay."""
        at, within = np.divmod(address - self.base, self.size)
        held = (at >= 0) & (at < len(self.virtual))
        inside = MAPPED + self.virtual[np.where(held, at, 0)] * self.size + within
        return np.where(held, inside, address)


def cut(stream: EngineStream, step: int, origin: int = 0) -> EngineStream:
    """Extents cut at every `step` bytes from `origin` on; only the first piece of one waits."""
    begin, end = stream.start - origin, stream.start - origin + stream.size
    many = (end - 1) // step - begin // step + 1
    index = np.repeat(np.arange(len(many)), many)
    nth = np.arange(len(index)) - (np.cumsum(many) - many)[index]
    low = np.maximum(begin[index], (begin[index] // step + nth) * step)
    high = np.minimum(end[index], ((begin[index] // step) + nth + 1) * step)
    wait = np.where(nth == 0, stream.wait[index], 0)
    return EngineStream(stream.engine[index], low + origin, high - low, stream.write[index], wait)


def descriptor_starts(engine_ends: Int, start: Int, size: Int, write: Int, limit: int) -> Int:
    """1 where a two-dimensional descriptor begins, 0 where an extent belongs to the one before.

    engine_ends: (E,) where each engine's extents end; limit: bytes of a descriptor at most.
    """
    first = np.ones(len(start), np.int64)
    _clear_joined(first, engine_ends, start, size, write, limit)
    return first


@simulation
def _clear_joined(
    first: Int, engine_ends: Int, start: Int, size: Int, write: Int, limit: int
) -> None:
    """Put 0 into `first` where an extent belongs to the one before."""
    begin = 0
    for engine in range(engine_ends.shape[0]):
        end = engine_ends[engine]
        run = moved = 0  # extents and bytes of the descriptor so far
        for i in range(begin, end):
            alike = i > begin and size[i] == size[i - 1] and write[i] == write[i - 1]
            fits = moved + size[i] <= limit
            step = start[i] - start[i - 1] if alike else 0
            joins = alike and fits and run >= 2 and step == start[i - 1] - start[i - 2]
            if alike and fits and run == 1 and i + 1 < end:
                after = size[i + 1] == size[i] and write[i + 1] == write[i]
                joins = after and start[i + 1] - start[i] == step and moved + 2 * size[i] <= limit
            if joins:
                first[i] = 0
                run += 1
                moved += size[i]
            else:
                run, moved = 1, size[i]
        begin = end


def as_mapped(stream: EngineStream, frames: Frames, limit: int) -> EngineStream:
    """Extents cut at an allocator's frames; a descriptor holds those that follow each other at
    virtual addresses, and up to `limit` bytes of a two-dimensional one."""
    stream = cut(stream, frames.size, frames.base)
    place, many = frames.addresses(stream.start), len(stream.start)
    alike = (np.diff(stream.engine) == 0) & (np.diff(stream.write) == 0)
    follows = alike & (place[1:] == (place + stream.size)[:-1]) & (place[1:] >= MAPPED)
    begins = np.flatnonzero(np.concatenate(([True], ~follows & (stream.wait[1:] > 0)))[:many])
    wait = np.zeros(many, np.int64)
    wait[begins] = 1
    if limit:
        size = np.add.reduceat(stream.size, begins)
        ends = np.cumsum(np.bincount(stream.engine[begins]))
        wait[begins] = descriptor_starts(ends, place[begins], size, stream.write[begins], limit)
    return stream._replace(wait=wait)


def gather_costs(elements: int, element_cost: int, list_cost: int, stream: EngineStream) -> Int:
    """What each extent waits for where descriptors are lists of up to `elements` addresses, those
    whose `wait` is 1 in `stream`; int64 (n,). A list is of one engine and one direction."""
    element = np.flatnonzero(stream.wait)
    kind = 2 * stream.engine[element] + stream.write[element]
    count = np.arange(len(element))
    begins = np.maximum.accumulate(np.where(np.diff(kind, prepend=-1) != 0, count, 0))
    cost = np.zeros(len(stream.wait), np.int64)
    cost[element] = element_cost + list_cost * ((count - begins) % elements == 0)
    return cost
