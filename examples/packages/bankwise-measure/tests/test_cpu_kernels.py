"""Does a kernel touch each word that it counts, and no other?"""

from __future__ import annotations

import numba
import numpy as np
import pytest
from bankwise_measure import cpu_kernels as kernels


@pytest.fixture
def data() -> kernels.Words:
    return np.arange(1024, dtype=np.int64)


def test_a_walk_in_order_reads_each_word_once(data: kernels.Words) -> None:
    assert kernels.read_walk(data, 64, 512, 8, 8, 0, 64) == data[64:576].sum()


def test_a_walk_goes_on_where_it_ended(data: kernels.Words) -> None:
    first = kernels.read_walk(data, 0, 1024, 8, 32, 0, 20)
    rest = kernels.read_walk(data, 0, 1024, 8, 32, 20, 12)
    assert first + rest == data.reshape(32, 32)[:, :8].sum()


def test_strided_walks_read_the_whole_part_before_they_repeat_themselves(
    data: kernels.Words,
) -> None:
    walks = [kernels.read_walk(data, 0, 1024, 8, 32, 32 * i, 32) for i in range(5)]
    assert len(set(walks[:4])) == 4 and sum(walks[:4]) == data.sum()
    assert walks[4] == walks[0]


def test_random_extents_are_those_of_the_generator(data: kernels.Words) -> None:
    state, total = 7, 0
    for _ in range(50):
        state = (state * kernels.MULTIPLIER + kernels.INCREMENT) % 2**64
        at = ((state >> 32) * (1024 // 10) >> 32) * 10
        assert at % 10 == 0 and at + 10 <= 1024
        total += int(data[at : at + 10].sum())
    assert kernels.read_random(data, 10, 50, 7) == total


def test_random_extents_cover_the_buffer() -> None:
    one_hot = np.zeros(64, np.int64)
    for slot in range(8):
        one_hot[:] = 0
        one_hot[slot * 8] = 1
        assert 300 < kernels.read_random(one_hot, 8, 4000, 3) < 700


def test_a_list_is_read_in_its_order_and_round_its_end(data: kernels.Words) -> None:
    starts = np.array([40, 8, 800], np.int64)
    assert kernels.read_listed(data, starts, 4, 2, 2) == data[800:804].sum() + data[40:44].sum()


def test_writes_stay_in_their_part(data: kernels.Words) -> None:
    before = data.copy()
    kernels.write_walk(data, 128, 64, 60, 10)
    changed = np.flatnonzero(data != before)
    assert set(changed) == {188, 189, 190, 191, *range(128, 134)}


def test_a_copy_and_a_sum_write_what_was_read(data: kernels.Words) -> None:
    kernels.copy_walk(data, 0, 256, 128, 0, 128)
    assert (data[256:384] == np.arange(128)).all()
    kernels.add_walk(data, 0, 128, 512, 128, 0, 128)
    assert (data[512:640] == 2 * np.arange(128) + 128).all()
    assert (data[640:] == np.arange(640, 1024)).all()


@pytest.mark.parametrize("lines", [1, 2, 7, 128])
def test_dependent_reads_visit_every_line_before_they_return(
    lines: int, data: kernels.Words
) -> None:
    kernels.write_cycle(data, lines, 8, 5)
    visited = [kernels.follow(data, 0, steps) for steps in range(lines)]
    assert sorted(visited) == [8 * i for i in range(lines)]
    assert kernels.follow(data, 0, lines) == 0


def test_stores_are_asked_to_go_past_the_caches(data: kernels.Words) -> None:
    again = numba.njit(kernels.write_walk.py_func)  # type: ignore[attr-defined]  # not from disk
    again(data, 0, 8, 0, 8)
    assert all("!nontemporal" in text for text in again.inspect_llvm().values())
