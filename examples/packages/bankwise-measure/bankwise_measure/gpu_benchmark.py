"""The memory of an NVIDIA GPU, measured as that of CPUs is: a worker is a block of threads, and
time is that of the device between two events.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np

from bankwise_measure import gpu_kernels
from bankwise_measure.access_points import LINE, WORD, AccessPoint
from bankwise_measure.cpu_benchmark import NEAR, SEED, listed
from bankwise_measure.gpu_kernels import cuda
from bankwise_measure.machine import Machine
from bankwise_measure.median import median
from bankwise_measure.rounds import Benchmark, Effort, MeasuredLatency, measure_rounds
from hwmodel.description.description import DescriptionError

THREADS = 256
"""Of a block."""
BLOCKS = 8
"""A multiprocessor: as many threads as it can hold."""
LARGEST_BUFFER = 16 << 30
APART = 4
"""Times a window of dependent reads is larger than the one before."""
LISTED = 1 << 22
"""Extents of a list at most, so that neither the L2 nor two blocks at once find one again."""
INSTALL = "pip install './examples/packages/bankwise-measure[cuda]'"
Clock = Callable[[Callable[[], None]], float]


def device_seconds(launch: Callable[[], None]) -> float:
    """Of what is launched, by the device's own clock."""
    begun, ended = cuda.event(), cuda.event()
    begun.record()
    launch()
    ended.record()
    ended.synchronize()
    return float(cuda.event_elapsed_time(begun, ended)) / 1e3


def read_gpu() -> Machine:
    """The first NVIDIA GPU. Raises DescriptionError where numba reaches none."""
    if not cuda.is_available():
        raise DescriptionError(
            f"numba reaches no NVIDIA GPU; where there is one: {INSTALL}", "--gpu"
        )
    return machine_of(cuda.get_current_device(), cuda.current_context().get_memory_info(), _smi())


def machine_of(device: Any, memory: tuple[int, int], clocks: str) -> Machine:
    """A GPU by numba's device, its free and its whole memory in bytes, and what the driver says of
    its clocks."""
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    cores = tuple(range(device.MULTIPROCESSOR_COUNT))
    free, whole = memory
    return Machine(
        name, cores, device.L2_CACHE_SIZE or None, None, False, whole, free,
        unit="multiprocessors", clocks=clocks,
    )  # fmt: skip


def _smi() -> str:
    asked = "--query-gpu=driver_version,clocks.sm,clocks.mem"
    command = ["nvidia-smi", "--id=0", asked, "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    parts = [part.strip() for part in text.strip().split(",")]
    return f"driver {parts[0]}, cores {parts[1]}, memory {parts[2]}" if len(parts) == 3 else ""


class GpuRunner:
    """A worker is a block of threads. A pass goes on where the one before ended."""

    def __init__(self, data: Any, words: int, blocks: int, cache_bytes: int, clock: Clock) -> None:
        self.data, self.words, self.workers = data, words, blocks
        self.cache_bytes, self._clock = cache_bytes, clock
        self._sums = cuda.to_device(np.zeros(blocks * THREADS, np.int64))
        self._listed: dict[AccessPoint, tuple[Any, int]] = {}
        self._done: dict[AccessPoint, int] = {}
        self._passes = 0

    def part(self, point: AccessPoint) -> int:
        """Words of each array of a mix, in whole lines."""
        return self.words // sum(point.mix) * WORD // LINE * LINE // WORD

    def most(self, point: AccessPoint, workers: int) -> int:
        if point.mix == (1, 0) and (point.kind, point.stride) != ("walk", None):
            return 1 << 40
        return max(self.part(point) // (point.size // WORD) // workers, 1)

    def seconds(self, point: AccessPoint, extents: int, workers: int) -> float:
        many = extents * workers
        begin = self._done.get(point, 0)
        self._done[point] = begin + many
        self._passes += 1
        return self._clock(self._launch(point, many, begin, workers))

    def _launch(
        self, point: AccessPoint, many: int, begin: int, workers: int
    ) -> Callable[[], None]:
        data, size, sums = self.data, point.size // WORD, self._sums
        grid, lanes, part = (workers, THREADS), gpu_kernels.lanes_of(size), self.part(point)
        first = begin * size % part
        if point.kind == "random":
            seed = SEED + self._passes * 0x9E3779B1 & gpu_kernels.LOW
            return lambda: gpu_kernels.read_random[grid](data, size, many, seed, lanes, sums)
        if point.kind != "walk":
            starts, length = self._starts(point)
            place = begin % length
            return lambda: gpu_kernels.read_listed[grid](
                data, starts, size, place, many, lanes, sums
            )
        if point.mix == (0, 1):
            return lambda: gpu_kernels.write_walk[grid](data, 0, part, first, many * size)
        if point.mix == (1, 1):
            return lambda: gpu_kernels.copy_walk[grid](data, 0, part, part, first, many * size)
        if point.mix == (2, 1):
            added = (0, part, 2 * part, part, first, many * size)
            return lambda: gpu_kernels.add_walk[grid](data, *added)
        if point.stride is None:
            return lambda: gpu_kernels.read_run[grid](data, first, many * size, sums)
        walked = (size, point.stride // WORD, begin, many, lanes)
        return lambda: gpu_kernels.read_walk[grid](data, *walked, sums)

    def _starts(self, point: AccessPoint) -> tuple[Any, int]:
        if point not in self._listed:
            starts = listed(point, self.words, LISTED)
            self._listed[point] = cuda.to_device(starts), len(starts)
        return self._listed[point]


def gpu_buffer(machine: Machine) -> int:
    """Bytes: half of the free memory, 16 GiB at most, in whole 2 MiB. Raises DescriptionError
    where that is less than `NEAR` times the cache."""
    size = min((machine.available_bytes or 0) // 2, LARGEST_BUFFER) >> 21 << 21
    if size < NEAR * (machine.cache_bytes or 1):
        raise DescriptionError(f"{machine.cpu} has {size / 2**30:.2g} GiB to measure", "--gpu")
    return size


def measure_gpu(
    machine: Machine, asked: Effort, size: int, done: Callable[[str], None],
    clock: Clock = device_seconds, blocks: int | None = None,
) -> Benchmark:  # fmt: skip
    """Measure with a buffer of `size` bytes and `blocks` blocks of threads, or as many as the GPU
    holds; `done` is told of each round."""
    words = size // WORD
    data = cuda.device_array(words, np.int64)
    gpu_kernels.write_walk[(len(machine.cores), THREADS)](data, 0, words, 0, words)
    many = blocks or BLOCKS * len(machine.cores)
    cache = machine.cache_bytes or size // NEAR
    runner = GpuRunner(data, words, many, cache, clock)
    measured = measure_rounds(runner, asked, done)
    latencies = _latencies(data, size, cache, many, asked, clock)
    return Benchmark(machine, many * THREADS, size, None, asked, measured, latencies)


def _latencies(
    data: Any, size: int, cache: int, blocks: int, asked: Effort, clock: Clock
) -> tuple[MeasuredLatency, ...]:
    """Of dependent reads in the first bytes of `data`, which the cycles overwrite."""
    reached = cuda.device_array(1, np.int64)
    steps = max(int(asked.pass_s / 500e-9), 1000)
    found = []
    for bits in cycle_bits(size, cache):
        gpu_kernels.write_cycle[blocks, THREADS](data, bits, LINE // WORD)
        at, values = 0, []
        for _ in range(asked.rounds + 1):
            seconds = clock(lambda: gpu_kernels.follow[(1, 1)](data, at, steps, reached))  # noqa: B023
            values.append(seconds / steps * 1e9)
            at = int(reached.copy_to_host()[0])
        window = LINE << bits
        found.append(MeasuredLatency(window, median(values[1:])))  # the first one warms up
    return tuple(found)


def cycle_bits(size: int, cache: int) -> list[int]:
    """Of the number of lines of each window: powers of two, from `NEAR` times the cache to what the
    buffer holds, each `APART` times the one before."""
    first = min((NEAR * cache // LINE - 1).bit_length(), (size // LINE).bit_length() - 1)
    return list(range(first, (size // LINE).bit_length(), APART.bit_length() - 1))
