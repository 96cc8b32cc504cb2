"""The memory of this machine's CPUs, measured: threads on cores of their own, each on its part of a
buffer that it touched first; all patterns in turn, round after round, so that drift meets all.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bankwise_measure import cpu_kernels as kernels
from bankwise_measure.access_points import LINE, WORD, AccessPoint
from bankwise_measure.cpu_kernels import Words
from bankwise_measure.machine import Machine
from bankwise_measure.median import median
from bankwise_measure.rounds import Benchmark, Effort, MeasuredLatency, measure_rounds
from hwmodel.description.description import DescriptionError

SEED = 20261123
FAR = 16
"""Buffer over last-level cache: a random read finds a sixteenth there at most."""
NEAR = 4
"""Less than this many times the cache would measure the cache."""
UNKNOWN_CACHE = 64 << 20
"""Where the machine does not tell."""
LARGEST_CYCLE = 1 << 30
"""Bytes of the largest window of dependent reads: its cycle is written at random."""
Work = Callable[[], object]


def buffer_size(machine: Machine) -> int:
    """Bytes: `FAR` times the last-level cache, in whole 2 MiB. Raises
    DescriptionError where a quarter of the free memory is less than `NEAR` times that cache."""
    cache = machine.cache_bytes or UNKNOWN_CACHE
    free = machine.available_bytes
    size = FAR * cache if free is None else min(FAR * cache, free // 4)
    if size < NEAR * cache:
        raise DescriptionError(
            f"a buffer far beyond the last-level cache of {cache / 2**20:g} MiB needs"
            f" {4 * NEAR * cache / 2**30:.1f} GiB of free memory; {size * 4 / 2**30:.1f} are free"
        )
    return max(size >> 21, 1) << 21


def thread_count(machine: Machine, asked: int | None) -> int:
    """One a core where none is asked for. Raises DescriptionError."""
    cores = len(machine.cores)
    if asked is not None and not 1 <= asked <= cores:
        raise DescriptionError(f"expected 1 to {cores}, a core each; got {asked}", "--threads")
    return asked or cores


def memory(size: int) -> Words:
    """`size` bytes of untouched words, in huge pages where Linux gives them. Raises
    DescriptionError."""
    try:
        mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise DescriptionError(f"no {size / 2**30:.1f} GiB of memory: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.int64)


class Threads:
    """Runs a piece of work on each core at once."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = cores
        self._pool = ThreadPoolExecutor(len(cores))

    def seconds(self, works: Sequence[Work]) -> float:
        """From the first one's start to the last one's end; one a core, from the first core on."""
        gate = threading.Barrier(len(works))
        times = self._pool.map(
            lambda i: self._timed(gate, self.cores[i], works[i]), range(len(works))
        )
        begun, ended = zip(*times, strict=True)
        return (max(ended) - min(begun)) / 1e9

    @staticmethod
    def _timed(gate: threading.Barrier, core: int, work: Work) -> tuple[int, int]:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})  # of this thread alone
        gate.wait()
        begun = time.perf_counter_ns()
        work()
        return begun, time.perf_counter_ns()

    def close(self) -> None:
        self._pool.shutdown()


def listed(point: AccessPoint, words: int, most: int) -> Words:
    """First words of the extents of a list, at most so many, in a buffer of `words`."""
    rng = np.random.Generator(np.random.PCG64([SEED, point.size]))
    size = point.size // WORD
    slots = words // size
    many = min(slots, most)
    if point.kind == "list":
        return np.asarray(rng.integers(0, slots, many) * size, np.int64)
    half = slots // 2  # K in the lower half of the buffer, V in the upper one
    place = np.arange(half) if point.kind == "run" else rng.permutation(half)
    place = place[: max(many // 2, 1)] * size
    return np.stack([place, place + half * size], axis=1).ravel().astype(np.int64)


class Patterns:
    """The work of threads on the words of one buffer, by pattern. A pass goes on where the one
    before ended, so that no cache holds what it reads."""

    def __init__(self, data: Words, threads: int, cache_bytes: int) -> None:
        self.data, self.threads, self.cache_bytes = data, threads, cache_bytes
        self._listed: dict[tuple[str, int], Words] = {}
        self._passes = 0
        self._done: dict[tuple[AccessPoint, int], int] = {}

    def part(self, thread: int, arrays: int = 1) -> tuple[int, int]:
        """First word of a thread's part, and words of each of its arrays, in whole lines."""
        words = len(self.data) // self.threads
        first = -(-thread * words * WORD // LINE) * LINE // WORD
        return first, (words - LINE // WORD) // arrays * WORD // LINE * LINE // WORD

    def starts(self, point: AccessPoint) -> Words:
        """See `listed`."""
        key = (point.kind, point.size)
        if key not in self._listed:
            many = max(8 * self.cache_bytes // point.size, 1024)  # leaves the caches far behind
            self._listed[key] = listed(point, len(self.data), many)
        return self._listed[key]

    def works(self, point: AccessPoint, extents: int, threads: int) -> list[Work]:
        """A pass of so many extents in each of the first `threads` threads."""
        self._passes += 1
        made = []
        for thread in range(threads):
            begin = self._done.get((point, thread), 0)
            self._done[point, thread] = begin + extents
            made.append(self._work(point, thread, begin, extents))
        return made

    def _work(self, point: AccessPoint, thread: int, begin: int, extents: int) -> Work:
        data, size = self.data, point.size // WORD
        first, part = self.part(thread, sum(point.mix))
        second = first + part
        if point.kind == "random":
            seed = SEED + 1_000_003 * self._passes + thread
            return lambda: kernels.read_random(data, size, extents, seed)
        if point.kind != "walk":
            starts = self.starts(point)
            begin += thread * len(starts) // self.threads
            return lambda: kernels.read_listed(data, starts, size, begin, extents)
        if point.mix == (0, 1):
            return lambda: kernels.write_walk(data, first, part, begin * size, extents * size)
        if point.mix == (1, 1):
            copied = (first, second, part, begin * size, extents * size)
            return lambda: kernels.copy_walk(data, *copied)
        if point.mix == (2, 1):
            added = (first, second, second + part, part, begin * size, extents * size)
            return lambda: kernels.add_walk(data, *added)
        stride = (point.stride or point.size) // WORD
        return lambda: kernels.read_walk(data, first, part, size, stride, begin, extents)


class CpuRunner:
    """A worker is a thread; a pass may be of any length."""

    def __init__(self, pool: Threads, patterns: Patterns) -> None:
        self._pool, self._patterns = pool, patterns
        self.workers = patterns.threads

    def seconds(self, point: AccessPoint, extents: int, workers: int) -> float:
        return self._pool.seconds(self._patterns.works(point, extents, workers))

    def most(self, point: AccessPoint, workers: int) -> int:
        return 1 << 40


def measure_cpu(
    machine: Machine, threads: int, asked: Effort, size: int, done: Callable[[str], None] = print
) -> Benchmark:
    """Measure with a buffer of `size` bytes; `done` is told of each round. Raises DescriptionError
    where there is no memory for it."""
    data = memory(size)
    patterns = Patterns(data, threads, machine.cache_bytes or UNKNOWN_CACHE)
    pool = Threads(machine.cores[:threads])
    try:
        pool.seconds([_touch(data, *patterns.part(thread)) for thread in range(threads)])
        huge = _huge_share(size)
        measured = measure_rounds(CpuRunner(pool, patterns), asked, done)
        latencies = _latencies(pool, data, asked, patterns.cache_bytes)
    finally:
        pool.close()
    return Benchmark(machine, threads, size, huge, asked, measured, latencies)


def _touch(data: Words, first: int, part: int) -> Work:
    return lambda: kernels.write_walk(data, first, part, 0, part)


def _latencies(
    pool: Threads, data: Words, asked: Effort, cache_bytes: int
) -> tuple[MeasuredLatency, ...]:
    """One thread follows a random cycle through a window far beyond the cache, and through the
    buffer."""
    largest = min(data.nbytes, LARGEST_CYCLE)
    found = []
    for window in sorted({min(NEAR * cache_bytes, largest), largest}):
        kernels.write_cycle(data, window // LINE, LINE // WORD, SEED)
        steps, place, values = max(int(asked.pass_s / 100e-9), 1000), 0, []
        for i in range(asked.rounds + 1):
            reached: list[int] = []

            def work(start: int = place, into: list[int] = reached, many: int = steps) -> None:
                into.append(kernels.follow(data, start, many))

            seconds = pool.seconds([work])
            place = reached[0]
            if i:  # the first one warms up
                values.append(seconds / steps * 1e9)
        found.append(MeasuredLatency(window, median(values)))
    return tuple(found)


def _huge_share(size: int) -> float | None:
    """Of the buffer: what of this process is behind anonymous huge pages."""
    try:
        with open("/proc/self/smaps_rollup", encoding="utf-8") as file:
            rows = dict(line.split(":", 1) for line in file if line.count(":") == 1)
        return min(int(rows["AnonHugePages"].split()[0]) * 1024 / size, 1.0)
    except (OSError, KeyError, ValueError):
        return None
