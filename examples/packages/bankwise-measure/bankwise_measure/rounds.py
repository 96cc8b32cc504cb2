"""Rounds of passes over all patterns, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bankwise_measure.access_points import AccessPoint, access_points
from bankwise_measure.machine import Machine
from bankwise_measure.median import Median, median

WARM_BYTES = 4 << 20
"""A worker moves in the pass that warms up and sets how long the others are."""
GAIN = 1.25
"""Bandwidth of all workers over that of half of them, above which the workers, not the memory,
are what binds (assumed; a memory at its limit gives 1)."""


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    points: tuple[AccessPoint, ...]
    rounds: int
    pass_s: float
    """Of one pass, about."""


def effort(quick: bool = False) -> Effort:
    """All patterns, or about half of them with fewer and shorter passes."""
    return Effort(tuple(access_points(quick)), 6 if quick else 15, 0.01 if quick else 0.02)


@dataclass(frozen=True)
class Measured:
    """GB/s of a pattern: bytes of its extents over the time from the first thread's start to the
    last one's end."""

    point: AccessPoint
    gbps: Median
    half: Median | None
    """With half the threads; None where there is one."""
    each: tuple[float, ...]
    """A value a round."""

    @property
    def requester_bound(self) -> bool:
        """Whether the threads bind rather than the memory: it is not known of one thread."""
        return self.half is None or self.gbps.value > GAIN * self.half.value


@dataclass(frozen=True)
class MeasuredLatency:
    """ns of a dependent read of one thread, of a line anywhere in `window` bytes."""

    window: int
    ns: Median


@dataclass(frozen=True)
class Benchmark:
    """All that was measured, and how."""

    machine: Machine
    threads: int
    buffer_bytes: int
    huge_share: float | None
    """Of the buffer behind huge pages; None where the machine does not tell."""
    effort: Effort
    measured: tuple[Measured, ...]
    latencies: tuple[MeasuredLatency, ...]

    @property
    def how(self) -> str:
        """Threads and buffer in words."""
        huge = "" if self.huge_share is None else f", {self.huge_share:.0%} of it in huge pages"
        return f"{self.threads:,} threads, a buffer of {self.buffer_bytes / 2**20:,.0f} MiB{huge}"

    def of(self, kind: str, size: int) -> Measured | None:
        """The plain reads of a kind and size."""
        plain = (each for each in self.measured if each.point.mix == (1, 0))
        return next((m for m in plain if (m.point.kind, m.point.size) == (kind, size)), None)

    @property
    def in_order(self) -> Measured:
        return self.measured[0]


class Runner(Protocol):
    """Workers, threads of a CPU or blocks of a GPU's threads, and a pass of theirs."""

    workers: int

    def seconds(self, point: AccessPoint, extents: int, workers: int) -> float:
        """A pass in which each of the first `workers` moves so many extents."""
        ...

    def most(self, point: AccessPoint, workers: int) -> int:
        """Extents of a worker that a pass may have."""
        ...


def measure_rounds(
    runner: Runner, asked: Effort, done: Callable[[str], None]
) -> tuple[Measured, ...]:
    """Every pattern in every round, with all workers, and with half of them in every other
    round; `done` is told of each."""
    workers = runner.workers
    counts: dict[int, dict[AccessPoint, int]] = {
        threads: {} for threads in {workers, max(workers // 2, 1)}
    }
    values: dict[tuple[AccessPoint, int], list[float]] = {}

    def gbps(point: AccessPoint, extents: int, threads: int) -> float:
        seconds = runner.seconds(point, extents, threads)
        return point.moved(extents * threads) / seconds / 1e9

    for threads, count in counts.items():
        for point in asked.points:
            first = min(max(WARM_BYTES // point.moved(1), 1), runner.most(point, threads))
            gbps(point, max(first // 64, 1), threads)  # compiles, and maps what a list needs
            rate = max(gbps(point, first, threads) for _ in range(2)) * 1e9 / threads
            wanted = max(round(rate * asked.pass_s / point.moved(1)), 1)
            count[point] = min(wanted, runner.most(point, threads))
    done("warmed up")
    for i in range(asked.rounds):
        for threads, count in counts.items():
            if threads == workers or i % 2 == 0:
                for point in asked.points:
                    found = gbps(point, count[point], threads)
                    values.setdefault((point, threads), []).append(found)
        done(f"round {i + 1} of {asked.rounds}")
    return tuple(_measured(point, values, workers) for point in asked.points)


def _measured(
    point: AccessPoint, values: dict[tuple[AccessPoint, int], list[float]], threads: int
) -> Measured:
    each = values[point, threads]
    half = None if threads == 1 else median(values[point, threads // 2])
    return Measured(point, median(each), half, tuple(each))
