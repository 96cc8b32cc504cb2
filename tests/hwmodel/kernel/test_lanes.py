"""Minima over banks in vector lanes are those of a loop; what a memory's rows say of its DQ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.kernel.channel_state import idle_channels
from hwmodel.kernel.jit import simulation
from hwmodel.kernel.lanes import (
    FAR,
    PADDING,
    first_ready,
    least,
    packed_age,
    postpone,
    postpone_four,
    postpone_half,
)
from hwmodel.kernel.limits import NEVER
from hwmodel.kernel.timing import lower
from hwmodel.specs.device import load_device

BANKS = 128 + PADDING
TWO_RANKS = [
    "organisation.ranks=2",
    "address_map=[column:6, bankgroup:2, bank:2, rank:1, row]",
    "bank_hash=[]",
]


@simulation
def _first(ready: Any, age: Any, start: int, mask: int, at: int, found: Any) -> None:
    found[0], found[1], found[2] = first_ready(ready, age, start, mask, at)
    found[3] = least(age, start, mask)


@simulation
def _change(values: Any, start: int, mask: int, at: int) -> None:
    postpone(values, start, mask, at)


@simulation
def _change_some(values: Any, delays: Any, start: int, at: int) -> None:
    postpone_four(values, start, at)
    postpone_half(values, delays, at)


def test_four_banks_and_half_of_the_commands_are_changed() -> None:
    values = np.arange(BANKS)
    _change_some(values, np.full(BANKS, 2), 20, 22)
    assert values[20:25].tolist() == [22, 22, 22, 23, 24]
    assert values[:10].tolist() == [24] * 8 + [8, 9]


@pytest.mark.parametrize("banks", [1, 4, 16, 32, 64])
def test_first_ready_is_the_earliest_and_then_the_oldest(banks: int) -> None:
    chance = np.random.default_rng(banks)
    for case in range(200):
        start = int(chance.choice([0, banks]))
        spread = int(chance.choice([3, 100, 3 * FAR]))
        ready = chance.integers(1000, 1000 + spread, BANKS)
        ready[chance.random(BANKS) < 0.2] = NEVER
        age = np.zeros(BANKS, np.int64)
        seq = chance.permutation(banks) + 10**9 * (case % 3)
        for bank in range(banks):
            age[start + bank] = int(seq[bank]) * 64 + bank
        inside = np.flatnonzero(chance.random(banks) < 0.5)
        if len(inside) == 0:
            inside = np.array([banks - 1])
        mask = sum(1 << int(bank) for bank in inside)
        mask -= 1 << 64 if mask >> 63 else 0
        at = int(chance.integers(900, 1000 + spread))
        expected = min(
            (max(int(ready[start + b]), at), int(seq[b]), start + int(b)) for b in inside
        )
        found = np.zeros(4, np.int64)
        _first(ready, age, start, mask, at, found)
        assert (found[0], found[1]) == (expected[0], expected[2])
        assert found[2] == age[expected[2]]
        assert found[3] == age[start + inside].min()


def test_banks_of_a_mask_alone_are_changed() -> None:
    values = np.arange(BANKS)
    _change(values, 64, -(1 << 62), 130)
    assert np.flatnonzero(values != np.arange(BANKS)).tolist() == [126, 127]
    _change(values, 64, 1 << 33, 5)  # it is later already
    assert values[97] == 97
    assert packed_age.py_func(3, 5) == 3 * 64 + 5


@pytest.mark.parametrize(
    ("name", "settings", "collide"),
    [
        ("hbm3-6.4", [], 0),  # rows of a stack and of other stacks leave no room
        ("lpddr5-6400-x16", TWO_RANKS, 0),
        ("lpddr5-6400-x16-bl32", [], 1),
        ("lpddr5-6400-x16", ["timing.tCCD_S=1nCK"], 1),
    ],
)
def test_dq_is_watched_where_rows_leave_room_for_a_collision(
    name: str, settings: list[str], collide: int
) -> None:
    assert lower(load_device(name, settings).memory)[0]["check_dq"] == collide


def test_vectors_of_a_record_begin_a_cache_line() -> None:
    states = idle_channels(load_device("hbm3-6.4").memory, lower(load_device("hbm3-6.4").memory), 3)
    for state in (states[1], states[2]):
        for name in ("ready", "floor", "first_age", "hit_age", "active_age"):
            assert state[name].ctypes.data % 64 == 0
