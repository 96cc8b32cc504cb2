"""The requests of DMA engines in the order, and at the ticks, at which they reach their channels.

The device is simulated as `hwmodel.kernel.memory.simulate_system` does it, with its windows, port
rates and back-pressure. After each round the runs of bursts that engines have put into the inboxes
of channels are read, before the next round can write over them: a round fills an inbox once at
most, and what it adds arrives after all that the rounds before have added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.address import to_channel
from hwmodel.kernel.channel_state import INBOX, RUN_ROW, RUN_TAKEN, RUN_TICK
from hwmodel.kernel.extents import Frames
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, WRITE
from hwmodel.kernel.limits import FOREVER, Int
from hwmodel.kernel.memory import Descriptors, prepare
from hwmodel.specs.device import Device

_AT_ONCE = 1 << 16
"""Requests handed on at once, at least."""


class Issued(NamedTuple):
    """Requests in order of arrival at the channels, ties by engine; int64 (n,). Each lies within
    one interleave block, and is whole bursts but for a PARTIAL_WRITE, which lies within one."""

    tick: Int
    channel: Int
    local: Int
    """Byte address in its channel."""
    size: Int
    """Bytes."""
    kind: Int
    """READ, WRITE or PARTIAL_WRITE."""


class Issuer:
    """Moves one stream after the other; each begins with idle banks when the last data beat of the
    one before has passed, as phases and layers do in `full` and `exhaustive` memory."""

    def __init__(self, device: Device) -> None:
        if device.memory.controller.inline_ecc:
            raise DescriptionError("controller.inline_ecc: expected 0 where requests are exported")
        self.tick = 0
        """When the last stream ended."""
        self._device = device
        self._burst = device.memory.organisation.burst_bytes

    def issue(self, stream: Descriptors, frames: Frames | None = None) -> Iterator[Issued]:
        """The requests of a stream, which is simulated as they are asked for. frames: where an
        allocator maps them itself. Raises ValueError for extents outside the memory."""
        run = prepare(self._device, stream, 0, frames)
        p, states = run.host[0], run.states
        engine = np.repeat(np.arange(len(run.engines)), run.engines["end"] - run.engines["cursor"])
        moved = Descriptors(engine, run.start, run.size, run.write == WRITE)
        partial = _PartialWrites(self._device, moved, self._burst)
        rounds: list[Int] = []
        finished = False
        while not finished:
            seen = states["tail"].copy()
            run.advance(int(p["now"] + p["round"]))
            finished = run.finished
            rounds.append(self._added(states, seen))
            if finished or sum(map(len, rounds)) >= _AT_ONCE:
                tick, channel, first, bursts, kind, engine = np.concatenate(rounds).T
                local, size = first * self._burst, bursts * self._burst
                partial.fill_in(kind, engine, channel, local, size)
                yield Issued(self.tick + tick, channel, local, size, kind)
                rounds = []
        run.advance(FOREVER)  # posted writes may still wait in their queues
        self.tick += int(states["end"].max())

    @staticmethod
    def _added(states: np.ndarray, seen: Int) -> Int:
        """(n, 6) tick, channel, first burst, bursts, kind and engine of what has joined the inboxes
        since their tails were at `seen`."""
        count = states["tail"] - seen
        channel = np.repeat(np.arange(len(count)), count)
        nth = np.arange(len(channel)) - np.repeat(np.cumsum(count) - count, count)
        inbox = states["inbox"][channel, :RUN_TAKEN, (seen[channel] + nth) & (INBOX - 1)]
        order = np.lexsort((inbox[:, RUN_ROW], inbox[:, RUN_TICK]))
        return np.insert(inbox, 1, channel, axis=1)[order]


class _PartialWrites:
    """Where in its burst a partial write lies: at the begin or the end of the extent it is of."""

    def __init__(self, device: Device, d: Descriptors, burst: int) -> None:
        last = d.start + d.size
        head = d.write & (d.start % burst > 0)
        tail = d.write & (last % burst > 0) & ~(head & (d.start // burst == last // burst))
        start = np.concatenate((d.start[head], last[tail] // burst * burst))
        end = np.minimum(start // burst * burst + burst, np.concatenate((last[head], last[tail])))
        channel, local = to_channel(device, start)
        engine = np.concatenate((d.engine[head], d.engine[tail]))
        columns = zip(*(x.tolist() for x in (engine, channel, local, end - start)), strict=True)
        self._burst = burst
        self._found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for by, lane, at, size in sorted(columns):
            self._found.setdefault((by, lane, at // burst), []).append((at, size))

    def fill_in(self, kind: Int, engine: Int, channel: Int, local: Int, size: Int) -> None:
        """Correct `local` and `size`, which are those of whole bursts, in place. An engine that
        writes parts of one burst more than once is taken to do so by address."""
        for i in np.flatnonzero(kind == PARTIAL_WRITE).tolist():
            key = int(engine[i]), int(channel[i]), int(local[i]) // self._burst
            places = self._found[key]
            local[i], size[i] = places[0]
            if len(places) > 1:
                places.pop(0)
