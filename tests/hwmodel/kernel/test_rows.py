"""Every constraint row of every shipped memory: blocked one tick early, legal on the tick."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hwmodel.oracle.audit import DEPTH, OTHER, Violation, audit, row_rule
from hwmodel.specs.commands import COLUMN_COMMANDS, RANK_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import SHIPPED, command_log, spec
from tests.hwmodel.oracle.reference import Issued


def second_rank(name: str) -> MemorySpec:
    """The memory; with two ranks where rows speak of another rank."""
    memory = spec(name)
    if "other_rank" not in {row.scope for row in memory.constraints}:
        return memory
    fields = [f"{field}:{bits}" for field, bits in memory.resolved_address_map()]
    return spec(name, organisation__ranks=2, address_map=[*fields, "rank:1"])


_SEEN: set[Any] = set()
MEMORIES = {name: second_rank(name) for name in SHIPPED}
ROWS: list[Any] = []
"""Every row of every memory; where several memories have one row, `make test` takes the last."""
for _name, _memory in reversed(MEMORIES.items()):
    for _number, _row in enumerate(_memory.constraints):
        _text = (_row.scope, *_row.after, *_row.before, _row.delay, _row.window)
        _again = _text in _SEEN
        _SEEN.add(_text)
        ROWS.append(pytest.param((_name, _number), marks=pytest.mark.long if _again else ()))
Place = tuple[int, ...]


def sentence(case: tuple[str, int]) -> str:
    name, number = case
    row = MEMORIES[name].constraints[number]
    nth = f"{row.window} x " if row.window else ""
    after, before = "/".join(row.after), "/".join(row.before)
    return f"{name}: {before} waits {row.delay} after {nth}{after} in one {row.scope}"


def places(memory: MemorySpec, command: str) -> list[Place]:
    """Where `command` may be sent: ranks, banks, or the first banks of refresh sets."""
    o = memory.organisation
    if command in RANK_COMMANDS:
        return list(itertools.product(range(o.pseudochannels), range(o.ranks)))
    sizes = (o.pseudochannels, o.ranks, o.stacks, o.bankgroups, o.banks_per_group)
    banks = list(itertools.product(*map(range, sizes)))
    if command != "REFPB":
        return banks
    per_rank = o.stacks * o.bankgroups * o.banks_per_group
    heads = {banks[0] for banks in memory.refresh_sets()}
    return [place for number, place in enumerate(banks) if number % per_rank in heads]


def covered(memory: MemorySpec, command: str, place: Place) -> list[Place]:
    """The banks that a command sent to `place` concerns (a refresh set), or the place itself."""
    if command != "REFPB":
        return [place]
    o = memory.organisation
    number = (place[2] * o.bankgroups + place[3]) * o.banks_per_group + place[4]
    found = next(banks for banks in memory.refresh_sets() if number in banks)
    grid = list(itertools.product(range(o.stacks), range(o.bankgroups), range(o.banks_per_group)))
    return [(*place[:2], *grid[bank]) for bank in found]


def delayed(memory: MemorySpec, scope: str, after: str, a: Place, before: str, b: Place) -> bool:
    """Whether a row of this scope holds between `after` at a and `before` at b."""
    depth = DEPTH[OTHER.get(scope, scope)]
    first = {place[:depth] for place in covered(memory, after, a)}
    second = {place[:depth] for place in covered(memory, before, b)}
    if scope in OTHER:
        return not first & second and {p[:-1] for p in first} == {p[:-1] for p in second}
    return bool(first & second)


def issued(tick: int, command: str, place: Place) -> Issued:
    p, r, s, g, b = (*place, -1, -1, -1)[:5]
    row = 1 if command.startswith("ACT") or command in COLUMN_COMMANDS else -1
    column = 0 if command in COLUMN_COMMANDS else -1
    return Issued(tick, command, p, r, s, g, b, row, column)


def reported(
    memory: MemorySpec, number: int, after: str, a: Place, before: str, b: Place, gap: int
) -> list[Violation]:
    """Violations of row `number` where `before` comes `gap` ticks after the N-th last `after`."""
    first = [issued(10, after, a)] * (memory.constraints[number].window or 1)
    log = command_log([*first, issued(10 + gap, before, b)])
    return [v for v in audit(memory, log, refresh=False) if v.row == number and v.tick == 10 + gap]


def pairs(memory: MemorySpec, number: int) -> list[tuple[str, str]]:
    row = memory.constraints[number]
    after, before = sorted(memory.in_rows(row.after)), sorted(memory.in_rows(row.before))
    return list(itertools.product(after, before))


@pytest.mark.parametrize("case", ROWS, ids=sentence)
def test_row_blocks_one_tick_early_not_on_the_tick_and_nothing_outside(
    case: tuple[str, int],
) -> None:
    memory, number = MEMORIES[case[0]], case[1]
    row = memory.constraints[number]
    delay = memory.ticks(row.delay)
    assert delay > 0
    for after, before in pairs(memory, number):
        a, *_ = places(memory, after)
        tried: list[Place] = []
        outside: list[Place] = []
        for b in places(memory, before):
            (tried if delayed(memory, row.scope, after, a, before, b) else outside).append(b)
        assert tried
        # the same place, the farthest one in the scope, and the other banks of a refresh set
        for b in {tried[0], tried[-1], *set(covered(memory, after, a)) & set(tried)}:
            (early,) = reported(memory, number, after, a, before, b, delay - 1)
            assert early.rule.startswith(row_rule(memory, number))
            assert early.command.startswith(before + " ")
            assert reported(memory, number, after, a, before, b, delay) == []
        for b in {*outside[:1], *outside[-1:]}:  # the nearest and the farthest
            assert reported(memory, number, after, a, before, b, 0) == []


@pytest.mark.parametrize(
    "case",
    [row for row in ROWS if MEMORIES[row.values[0][0]].constraints[row.values[0][1]].window],
    ids=sentence,
)
def test_window_with_one_command_fewer_blocks_nothing(case: tuple[str, int]) -> None:
    memory, number = MEMORIES[case[0]], case[1]
    row = memory.constraints[number]
    assert row.window is not None
    for after, before in pairs(memory, number):
        a = places(memory, after)[0]
        count = row.window - (1 if after == before else 0)
        log = command_log([issued(10, after, a)] * count + [issued(11, before, a)])
        found = audit(memory, log, refresh=False, limit=1000)
        assert [v.row for v in found].count(number) == (0 if after == before else 1)
