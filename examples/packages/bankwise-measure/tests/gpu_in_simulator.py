"""Run with NUMBA_ENABLE_CUDASIM=1: what the GPU's kernels read and write, in numba's simulator."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from bankwise_measure import gpu_benchmark, gpu_kernels, rounds
from bankwise_measure.access_points import AccessPoint
from bankwise_measure.gpu_kernels import cuda
from bankwise_measure.machine import Machine
from bankwise_measure.rounds import Effort

GRID = (2, 8)
DATA = np.arange(512, dtype=np.int64)


def total(launch: Callable[..., None], *arguments: object) -> int:
    """The sum over threads of what they read."""
    sums = cuda.to_device(np.zeros(GRID[0] * GRID[1], np.int64))
    launch(cuda.to_device(DATA), *arguments, sums)
    return int(sums.copy_to_host().sum())


def mixed(x: int) -> int:
    """Ellis's lowbias32."""
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def reads() -> None:
    walk, listed = gpu_kernels.read_walk[GRID], gpu_kernels.read_listed[GRID]
    assert [gpu_kernels.lanes_of(words) for words in (4, 10, 32, 512)] == [4, 8, 32, 32]
    assert total(walk, 8, 8, 0, 64, 4) == DATA.sum()
    parts = [total(walk, 8, 32, begin, 16, 8) for begin in range(0, 64, 16)]
    assert len(set(parts)) == 4 and sum(parts) == DATA.sum()
    expected = 0
    for extent in range(40):
        at = (mixed(7 + extent) * (512 // 10) >> 32) * 10
        expected += int(DATA[at : at + 10].sum())
    assert total(gpu_kernels.read_random[GRID], 10, 40, 7, 8) == expected
    expected = sum(
        int(DATA[at : at + 128].sum()) for at in (mixed(7 + x) * 4 >> 32 << 7 for x in range(5))
    )
    assert total(gpu_kernels.read_random[GRID], 128, 5, 7, 8) == expected
    run = gpu_kernels.read_run[GRID]
    assert total(run, 480, 64) == DATA[480:].sum() + DATA[:32].sum()
    assert total(run, 0, 512) == DATA.sum()
    starts = np.array([0, 384, 128], np.int64)
    found = total(listed, cuda.to_device(starts), 128, 1, 3, 8)
    assert found == DATA.sum() - DATA[256:384].sum()
    starts = np.array([40, 8, 400], np.int64)
    found = total(listed, cuda.to_device(starts), 4, 2, 16, 4)
    each = [int(DATA[at : at + 4].sum()) for at in (40, 8, 400)]
    assert found == 5 * sum(each) + each[2]


def writes() -> None:
    data = cuda.to_device(DATA)
    gpu_kernels.write_walk[GRID](data, 128, 64, 60, 10)
    assert set(np.flatnonzero(data.copy_to_host() != DATA)) == {*range(188, 192), *range(128, 134)}
    data = cuda.to_device(DATA)
    gpu_kernels.copy_walk[GRID](data, 0, 256, 64, 10, 64)
    gpu_kernels.add_walk[GRID](data, 0, 64, 384, 64, 10, 64)
    written = data.copy_to_host()
    assert (written[256:320] == DATA[:64]).all()
    assert (written[384:448] == DATA[:64] + DATA[64:128]).all()
    assert (written[448:] == DATA[448:]).all() and (written[:256] == DATA[:256]).all()


def cycles() -> None:
    for bits in (4, 7):
        data = cuda.to_device(np.full(4 << bits, -1, np.int64))
        gpu_kernels.write_cycle[GRID](data, bits, 4)
        following, at, seen = data.copy_to_host(), 0, set()
        while at not in seen:
            seen.add(at)
            at = int(following[at])
        assert at == 0 and seen == set(range(0, 4 << bits, 4))
    assert gpu_benchmark.cycle_bits(16 << 30, 50 << 20) == [22, 24, 26, 28]


def whole() -> None:
    """All kinds of passes, in blocks as large as an extent needs, timed by the host."""
    rounds.WARM_BYTES, gpu_benchmark.THREADS = 64, 16
    points = (
        AccessPoint("walk", 64), AccessPoint("walk", 64, mix=(2, 1)), AccessPoint("random", 80),
        AccessPoint("blocks", 128),
    )  # fmt: skip

    def clock(launch: Callable[[], None]) -> float:
        begun = time.perf_counter()
        launch()
        return time.perf_counter() - begun

    machine = Machine("simulated", (0,), 256, None, False, 1 << 20, 1 << 20, unit="multiprocessors")
    asked = Effort(points, 1, 1e-6)
    found = gpu_benchmark.measure_gpu(machine, asked, 1 << 14, lambda _: None, clock, blocks=2)
    assert [each.point for each in found.measured] == list(points)
    assert all(each.gbps.value > 0 and each.half is not None for each in found.measured)
    assert [each.window for each in found.latencies] == [1 << 10, 1 << 12, 1 << 14]
    runner = gpu_benchmark.GpuRunner(None, 1 << 11, 2, 256, clock)
    assert runner.most(points[1], 2) * 2 * 8 <= runner.part(points[1])


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # the simulator's integers of 64 bits wrap
    reads()
    writes()
    cycles()
    whole()
