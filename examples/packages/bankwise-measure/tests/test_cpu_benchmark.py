"""Does each pattern count the bytes that it moves, over parts that do not overlap?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bankwise_measure.access_points import LINE, WORD, AccessPoint, access_points, told
from bankwise_measure.cpu_benchmark import (
    FAR,
    Patterns,
    buffer_size,
    measure_cpu,
    memory,
    thread_count,
)
from bankwise_measure.machine import Machine, read_machine
from bankwise_measure.rounds import Effort, effort

from hwmodel.description.description import DescriptionError

MACHINE = Machine("A CPU", (0, 1, 2), 1 << 20, None, False, 1 << 34, 1 << 33)


def test_bytes_are_those_of_extents_read_and_written() -> None:
    assert AccessPoint("random", 80).moved(10) == 800
    assert AccessPoint("walk", 64, 4096).moved(10) == 640  # what a stride leaves out is not moved
    assert AccessPoint("walk", 4096, mix=(2, 1)).moved(2) == 3 * 8192
    assert AccessPoint("list", 256).moved(4) == 1024  # nor is the list


def test_patterns_are_whole_words_and_each_has_a_name_of_its_own() -> None:
    points = access_points()
    assert all(point.size % WORD == 0 and (point.stride or WORD) % WORD == 0 for point in points)
    assert len({point.name for point in points}) == len(points)
    assert set(access_points(quick=True)) < set(points)


def test_sizes_are_told_in_the_largest_unit_that_is_short() -> None:
    assert [told(size) for size in (80, 1088, 1536, 4096, 3 << 20)] == [
        "80 B", "1088 B", "1.5 KiB", "4 KiB", "3 MiB"
    ]  # fmt: skip


@pytest.mark.parametrize("arrays", [1, 2, 3])
def test_parts_of_threads_are_lines_of_their_own(arrays: int) -> None:
    patterns = Patterns(np.zeros(100_003, np.int64), 7, 1 << 12)
    end = 0
    for thread in range(7):
        first, part = patterns.part(thread, arrays)
        assert first >= end and first * WORD % LINE == 0 and part * WORD % LINE == 0
        end = first + arrays * part
    assert end <= 100_003
    assert end > 0.98 * 100_003


def test_blocks_and_runs_read_the_same_extents_in_another_order() -> None:
    patterns = Patterns(np.zeros(1 << 17, np.int64), 2, 1 << 20)
    blocks = patterns.starts(AccessPoint("blocks", 4096))
    run = patterns.starts(AccessPoint("run", 4096))
    assert sorted(blocks) == sorted(run) and list(blocks) != list(run)
    assert (blocks[1::2] - blocks[::2] == 1 << 16).all()  # V, half the buffer behind its K
    assert (np.diff(run[::2]) == 4096 // WORD).all()
    assert len(set(run)) == 256


def test_a_pass_goes_on_where_the_one_before_ended() -> None:
    data = np.arange(1 << 12, dtype=np.int64)
    patterns, point = Patterns(data, 1, 1 << 10), AccessPoint("walk", 64)
    sums = [patterns.works(point, 16, 1)[0]() for _ in range(2)]
    assert sums == [data[:128].sum(), data[128:256].sum()]


def test_the_buffer_is_far_beyond_the_cache_and_within_free_memory() -> None:
    assert buffer_size(MACHINE) == FAR << 20
    assert buffer_size(replace(MACHINE, available_bytes=32 << 20)) == 8 << 20
    with pytest.raises(DescriptionError, match=r"last-level cache of 1024 MiB needs 16\.0 GiB"):
        buffer_size(replace(MACHINE, cache_bytes=1 << 30))


def test_a_thread_has_a_core() -> None:
    assert thread_count(MACHINE, None) == 3
    for asked in (0, 4):
        with pytest.raises(DescriptionError, match=f"expected 1 to 3, a core each; got {asked}"):
            thread_count(MACHINE, asked)


def test_a_measurement_has_a_value_a_round_of_each_pattern() -> None:
    here = replace(read_machine(), cache_bytes=64 << 10)
    asked = Effort(effort(quick=True).points, 3, 1e-4)
    heard: list[str] = []
    found = measure_cpu(here, len(here.cores[:2]), asked, 4 << 20, heard.append)
    assert [each.point for each in found.measured] == list(asked.points)
    assert all(len(each.each) == 3 and min(each.each) > 0 for each in found.measured)
    assert [each.window for each in found.latencies] == [256 << 10, 4 << 20]
    assert found.latencies[0].ns.value > 0.1
    assert heard[-1] == "round 3 of 3"


def test_what_is_mapped_is_zero_and_of_the_size_asked() -> None:
    words = memory(2 << 20)
    assert words.nbytes == 2 << 20 and not words.any()
