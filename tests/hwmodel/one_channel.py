"""One channel alone on a stream of requests: what the oracle is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.measure.open_loop import Int, OpenLoop
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.memory_spec import MemorySpec


@dataclass(frozen=True)
class ChannelResult:
    """What one channel did with a stream."""

    commands: CommandLog
    end_tick: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    forwarded: int
    """Reads answered from a waiting write."""
    rmw_reads: int
    """Reads made for partial writes."""
    latency_ticks: tuple[int, int]
    """Sum over reads, and over writes, from entry to the end of data."""
    asleep_ticks: list[list[int]]
    """Of each rank: in power-down with rows closed, open; in self-refresh so."""


def simulate_channel(
    memory: MemorySpec,
    arrival_tick: Int,
    address: Int,
    kind: Int | NDArray[np.bool_],
    *,
    channel: int = 0,
    channels: int = 1,
    log: bool = True,
    passed: int = 0,
    owed: Sequence[int] | None = None,
) -> ChannelResult:
    """Simulate channel `channel` of `channels` alone on (arrival tick, local address, kind), each
    (n,); a kind is READ, WRITE or PARTIAL_WRITE, or whether the request is a write."""
    parts: list[CommandLog] = []
    sink = (lambda _, part: parts.append(part)) if log else None
    run = OpenLoop(memory, channels, sink, passed_ticks=passed, owed=owed)
    run.feed(channel, np.asarray(address, np.int64), kind.astype(np.int64), arrival_tick)
    run.finish(channel)
    whole = [np.concatenate(columns) for columns in zip(*parts, strict=True)] or [
        np.zeros(0, np.int64)
    ] * 9
    return ChannelResult(
        CommandLog(*whole),
        run.end_tick,
        run.total("hits"),
        run.total("misses"),
        run.total("conflicts"),
        run.total("forwarded"),
        run.total("rmw_reads"),
        tuple(run.states["latency_sum"].sum(axis=0).tolist()),
        run.states["asleep"][channel].tolist(),
    )
