"""Open-loop simulation of channels: a stream that arrives as fast as the queues take it, or at
given ticks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hwmodel.audit import CommandLog
from hwmodel.channel import feed
from hwmodel.channel_state import LATENCY_BINS, idle_channels
from hwmodel.commands import COMMANDS, RANK_COMMANDS
from hwmodel.kernel_names import LOG_FULL
from hwmodel.memory_spec import MemorySpec
from hwmodel.timing import lower

Int = NDArray[np.int64]
LogSink = Callable[[int, CommandLog], None]
"""Receives (channel, commands) as the simulation goes on."""
LOG_LINES = 1 << 16
_AT_ONCE = np.zeros(1, np.int64)
_NO_LOG = np.zeros((0, 5), np.int64)
_NOTHING = np.zeros(0, np.int64)


def command_log(memory: MemorySpec, lines: Int) -> CommandLog:
    """The kernel's log lines (tick, command, flat bank, row, column) with the bank taken apart."""
    o = memory.organisation
    tick, command, flat, row, column = (np.ascontiguousarray(part) for part in lines.T)
    rest, bank = np.divmod(flat, o.banks_per_group)
    rest, group = np.divmod(rest, o.bankgroups)
    rest, stack = np.divmod(rest, o.stacks)
    pseudochannel, rank = np.divmod(rest, o.ranks)
    whole = np.isin(command, [COMMANDS.index(name) for name in RANK_COMMANDS])
    for part in (stack, group, bank):
        part[whole] = -1
    return CommandLog(tick, command, pseudochannel, rank, stack, group, bank, row, column)


@dataclass
class OpenLoop:
    """Channels of one memory that each take their own stream; memory does not grow with it."""

    memory: MemorySpec
    channels: int = 1
    log: LogSink | None = None
    wall_s: float = 0.0
    """Time inside the kernel."""
    _constants: NDArray[np.void] = field(init=False)
    states: NDArray[np.void] = field(init=False)
    """CHANNEL records, shape (channels,)."""

    def __post_init__(self) -> None:
        self._constants = lower(self.memory)
        self.states = idle_channels(self.memory, self._constants, self.channels)
        self._lines = _NO_LOG if self.log is None else np.empty((LOG_LINES, 5), np.int64)
        warm = idle_channels(self.memory, self._constants, 1)
        warm["stream_closed"] = 1
        feed(self._constants, warm, 0, _AT_ONCE, _NOTHING, _NOTHING, 0, _NO_LOG)  # compile

    def feed(self, channel: int, local: Int, write: Int, arrival: Int | None = None) -> None:
        """Give a channel its next requests: local byte addresses, 1 where a write, arrival
        ticks."""
        burst = np.ascontiguousarray(local // self.memory.organisation.burst_bytes)
        when = _AT_ONCE if arrival is None else np.ascontiguousarray(arrival, np.int64)
        if arrival is not None and len(burst) == 0:
            return
        self._run(channel, when, burst, np.ascontiguousarray(write, np.int64))

    def finish(self) -> None:
        """No more requests: serve what waits."""
        self.states["stream_closed"] = 1
        for channel in range(self.channels):
            self._run(channel, _AT_ONCE, _NOTHING, _NOTHING)
            if self.log is not None:
                self._flush(channel)

    def _run(self, channel: int, arrival: Int, burst: Int, write: Int) -> None:
        start = 0
        while True:
            begun = time.perf_counter()
            outcome, start = feed(
                self._constants, self.states, channel, arrival, burst, write, start, self._lines
            )
            self.wall_s += time.perf_counter() - begun
            if outcome != LOG_FULL:
                if self.log is not None:
                    self._flush(channel)
                return
            self._flush(channel)

    def _flush(self, channel: int) -> None:
        count = int(self.states[channel]["logged"])
        self.states["logged"][channel] = 0
        if count and self.log is not None:
            self.log(channel, command_log(self.memory, self._lines[:count].copy()))

    def total(self, name: str) -> int:
        """Sum of a scalar of the state over the channels."""
        return int(self.states[name].sum())

    @property
    def end_tick(self) -> int:
        """Tick at which the last data beat of any channel ends."""
        return int(self.states["end"].max())

    @property
    def commands(self) -> dict[str, int]:
        """Commands issued, by name, over all channels."""
        counts = self.states["commands"].sum(axis=0).tolist()
        return {
            name: n
            for name, n in zip(COMMANDS, counts, strict=True)
            if name in self.memory.commands
        }

    def latency_ns(self) -> dict[str, float] | None:
        """Read latency from entry into the queue to the end of its data; None without reads."""
        reads = self.total("reads")
        if not reads:
            return None
        tick_ns = self.memory.tick_clock.ns_of_ticks(1)
        bins = np.cumsum(self.states["latency"].sum(axis=0))
        longest = int(self.states["latency_max"].max())

        def quantile(share: float) -> float:
            at = int(np.searchsorted(bins, share * reads))
            return (at if at < LATENCY_BINS - 1 else longest) * tick_ns

        mean = self.total("latency_sum") / reads * tick_ns
        return {
            "mean": mean, "p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99),
            "max": longest * tick_ns,
        }  # fmt: skip


@dataclass(frozen=True)
class ChannelResult:
    """What one channel did with a stream."""

    commands: CommandLog
    end_tick: int
    row_hits: int
    row_misses: int
    row_conflicts: int


def simulate_channel(
    memory: MemorySpec,
    arrival_tick: Int,
    address: Int,
    write: NDArray[np.bool_],
    *,
    channel: int = 0,
    channels: int = 1,
    log: bool = True,
) -> ChannelResult:
    """Simulate channel `channel` of `channels` alone on (arrival tick, local address, write),
    each (n,)."""
    parts: list[CommandLog] = []
    run = OpenLoop(memory, channels, (lambda _, part: parts.append(part)) if log else None)
    run.feed(channel, np.asarray(address, np.int64), write.astype(np.int64), arrival_tick)
    run.states["stream_closed"] = 1
    run._run(channel, _AT_ONCE, _NOTHING, _NOTHING)
    whole = [np.concatenate(columns) for columns in zip(*parts, strict=True)] or [_NOTHING] * 9
    return ChannelResult(
        CommandLog(*whole),
        run.end_tick,
        run.total("hits"),
        run.total("misses"),
        run.total("conflicts"),
    )
