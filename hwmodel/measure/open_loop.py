"""Open-loop simulation of channels: a stream that arrives as fast as the queues take it, or at
given ticks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.kernel.channel import SLICE, runner
from hwmodel.kernel.channel_state import (
    EXACT_LATENCIES,
    NO_LOG,
    OCTAVE_BITS,
    idle_channels,
)
from hwmodel.kernel.host import LOG_KEPT, address_of
from hwmodel.kernel.kernel_names import REACHED, READ
from hwmodel.kernel.power import asleep_ns
from hwmodel.kernel.shapes import lowered
from hwmodel.kernel.sources.traces import TRACE, run_trace
from hwmodel.kernel.timing import named_counts
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.commands import COMMANDS, MASKED_WRITES, POWER_COMMANDS, RANK_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec

Int = NDArray[np.int64]
LogSink = Callable[[int, CommandLog], None]
"""Receives (channel, commands) as the simulation goes on."""
Part = tuple[int, Int, Int, Int]
"""(channel, arrival ticks, burst indices, kinds)."""
LOG_LINES = 1 << 16
_AT_ONCE = np.zeros(1, np.int64)
_NOTHING = np.zeros(0, np.int64)


def command_log(memory: MemorySpec, lines: Int) -> CommandLog:
    """The kernel's log lines (tick, command, flat bank, row, column) with the bank taken apart."""
    o = memory.organisation
    tick, command, flat, row, column = (np.ascontiguousarray(part) for part in lines.T)
    rest, bank = np.divmod(flat, o.banks_per_group)
    rest, group = np.divmod(rest, o.bankgroups)
    rest, stack = np.divmod(rest, o.stack_numbers)
    pseudochannel, rank = np.divmod(rest, o.ranks)
    whole = np.isin(command, [COMMANDS.index(name) for name in RANK_COMMANDS])
    for part in (stack, group, bank):
        part[whole] = -1
    return CommandLog(tick, command, pseudochannel, rank, stack, group, bank, row, column)


def stated(memory: MemorySpec, counts: dict[str, int]) -> dict[str, int]:
    """Of the counts of all commands, those that results state: of every command of the memory, of
    masked writes, RFMs and of power states where there were any."""
    seldom = {*MASKED_WRITES.values(), "RFM", "RFMAB", *POWER_COMMANDS}
    always = set(memory.commands) - seldom
    return {name: n for name, n in counts.items() if n or name in always}


def called(memory: MemorySpec, counts: dict[str, int]) -> dict[str, int]:
    """Counts of commands by what the description calls them."""
    return {memory.command_name(kind): count for kind, count in counts.items()}


def longest_in_bin(number: int) -> int:
    """Longest latency, in ticks, that the kernel counts in a bin of its histogram."""
    if number < EXACT_LATENCIES:
        return number
    octave, place = divmod(number - EXACT_LATENCIES, 1 << OCTAVE_BITS)
    return ((place + 1 + (1 << OCTAVE_BITS)) * (EXACT_LATENCIES >> OCTAVE_BITS) << octave) - 1


@dataclass
class OpenLoop:
    """Channels of one memory that each take their own stream; memory does not grow with it.

    Channels do not feel each other, so that they run in `threads` threads at once, with the same
    results whatever their number; in one where the commands are logged, which keeps their order.
    """

    memory: MemorySpec
    channels: int = 1
    log: LogSink | None = None
    threads: int = 0
    """At most; 0: as many as the machine has cores. Then: how many there are."""
    wall_s: float = 0.0
    """Time of simulation."""
    passed_ticks: int = 0
    """For how long what comes at intervals has come already (`idle_channels`)."""
    owed: ArrayLike | None = None
    """Refreshes that each rank owes then (`idle_channels`)."""
    _constants: NDArray[np.void] = field(init=False)
    _stopped: bool = field(init=False, default=False)
    """Whether the simulation was interrupted."""
    states: NDArray[np.void] = field(init=False)
    """CHANNEL records, shape (channels,)."""

    def __post_init__(self) -> None:
        self._constants = lowered(self.memory)
        self.states = idle_channels(
            self.memory,
            self._constants,
            self.channels,
            passed_ticks=self.passed_ticks,
            owed=self.owed,
        )
        self._lines = NO_LOG if self.log is None else np.empty((LOG_LINES, 5), np.int64)
        most = self.threads or os.cpu_count() or 1
        self.threads = 1 if self.log is not None else min(most, self.channels)
        runner(self._constants.dtype), run_trace()  # compiled here, not by several threads

    def feed(self, channel: int, local: Int, kind: Int, arrival: Int | None = None) -> None:
        """Give a channel its next requests: local byte addresses, READ, WRITE or PARTIAL_WRITE,
        arrival ticks."""
        self._simulate([self._part(channel, local, kind, arrival)])

    def feed_all(self, parts: Iterable[tuple[int, Int, Int, Int | None]]) -> None:
        """Give channels their next requests, (channel, addresses, kinds, arrival ticks) for each of
        some channels, as in `feed`; all run before this returns."""
        self._simulate([self._part(*part) for part in parts])

    def finish(self, channel: int | None = None) -> None:
        """No more requests for a channel, or for any: serve what waits."""
        ending = range(self.channels) if channel is None else [channel]
        self.states["stream_closed"][ending] = 1
        self._simulate([(number, _AT_ONCE, _NOTHING, _NOTHING) for number in ending])

    def _part(self, channel: int, local: Int, kind: Int, arrival: Int | None = None) -> Part:
        burst = np.ascontiguousarray(local // self.memory.organisation.burst_bytes)
        when = _AT_ONCE if arrival is None else np.ascontiguousarray(arrival, np.int64)
        kinds = np.ascontiguousarray(kind, np.int64)
        return channel, when, burst, kinds

    def _simulate(self, parts: list[Part]) -> None:
        begun = time.perf_counter()
        if min(self.threads, len(parts)) < 2:
            for part in parts:
                self._run(*part)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                try:
                    list(pool.map(lambda part: self._run(*part), parts))
                except BaseException:
                    self._stopped = True  # the pool waits for its threads
                    raise
        self.wall_s += time.perf_counter() - begun

    def _run(self, channel: int, arrival: Int, burst: Int, kind: Int) -> None:
        """Back in Python every SLICE ticks, which then sees a signal, and where the log is full."""
        host, state = np.zeros(1, TRACE), self.states[channel : channel + 1]
        arrays = {
            "constants": self._constants, "states": state, "log": self._lines, "burst": burst,
            "kind": kind, "arrival": arrival,
        }  # fmt: skip
        numbers = {
            "channels": 1, "log_rows": self._lines.shape[0], "log_fields": self._lines.shape[1],
            "completion_rows": 1, "completion_ticks": 1, "bursts": len(burst),
            "timed": len(arrival) == len(burst), "advance": runner(self._constants.dtype).address,
        }  # fmt: skip
        for name, value in numbers.items():
            host[name] = value
        for name, array in arrays.items():
            host[name] = address_of(array)
        host["completions"] = address_of(_AT_ONCE)
        why, place = LOG_KEPT, address_of(host)
        while (why == LOG_KEPT or host["outcome"][0] == REACHED) and not self._stopped:
            host["now"] = state["now"]
            why = run_trace().ctypes(place, int(state["now"][0]) + SLICE)
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
    def row_hit_rate(self) -> float:
        """Share of the requests served that found their row open."""
        hits, misses, conflicts = (self.total(name) for name in ("hits", "misses", "conflicts"))
        return hits / (hits + misses + conflicts)

    @property
    def checks(self) -> int:
        """Requests for check bytes of in-line ECC among those taken."""
        return self.total("checks")

    @property
    def requested_bytes(self) -> int:
        """Of the accesses served, whole bursts; without check bytes, and the reads before partial
        writes."""
        accesses = self.total("requests") + self.total("forwarded") - self.checks
        return accesses * self.memory.organisation.burst_bytes

    @property
    def end_tick(self) -> int:
        """Tick at which the last data beat of any channel ends."""
        return int(self.states["end"].max())

    @property
    def commands(self) -> dict[str, int]:
        """Commands issued, as in `stated`, over all channels."""
        return stated(self.memory, named_counts(self.states["commands"].sum(axis=0)))

    @property
    def active_ns(self) -> float:
        """Time up to the end with a bank open, summed over the ranks of every pseudo-channel."""
        since, ticks = self.states["active_since"], self.states["active_ticks"]
        still_open = np.where(since >= 0, self.end_tick - since, 0)
        return self.memory.tick_clock.ns_of_ticks(int((ticks + still_open).sum()))

    @property
    def asleep(self) -> dict[str, float]:
        """Time in power-down and self-refresh, as `hwmodel.kernel.power.asleep_ns` states it."""
        return asleep_ns(self.states, self.memory.tick_clock.ns_of_ticks(1))

    def latency_ns(self, kind: int = READ) -> dict[str, float] | None:
        """Latency of reads, or of writes, from entry into the queue to the end of its data; None
        without any. That of a partial write which is read first begins at the entry of its read.

        Quantiles are exact below EXACT_LATENCIES ticks, and at most 1 / 128 too high above.
        """
        served = int(self.states["latencies"][:, kind].sum())
        if not served:
            return None
        tick_ns = self.memory.tick_clock.ns_of_ticks(1)
        bins = np.cumsum(self.states["latency"][:, kind].sum(axis=0))
        longest = int(self.states["latency_max"][:, kind].max())

        def quantile(share: float) -> float:
            at = int(np.searchsorted(bins, share * served))
            return min(longest_in_bin(at), longest) * tick_ns

        mean = int(self.states["latency_sum"][:, kind].sum()) / served * tick_ns
        return {
            "mean": mean,
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "p99": quantile(0.99),
            "max": longest * tick_ns,
        }
