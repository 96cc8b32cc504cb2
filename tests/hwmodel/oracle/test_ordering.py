"""Which order of requests to one burst holds, and which does not (rules.md: ordering)."""

from __future__ import annotations

import pytest

from tests.hwmodel.oracle.reference import simulate
from tests.hwmodel.oracle.toy import MASKED, MASKED_APART, partial, read, story, toy, write

NOT_FORWARDED = {"controller__write_forwarding": False}
FILL = [write(4, 1, column) for column in range(7)]
"""Writes that turn the channel to writes, as many as its queue holds beside another."""


def test_a_read_gets_what_a_waiting_write_brings() -> None:
    result = simulate(toy(), [write(0, 1), write(0, 1), read(0, 1)])
    assert result.forwarded == 1


def test_writes_of_a_burst_keep_their_order() -> None:
    result = simulate(toy(**MASKED), [partial(0, 1), write(0, 1)])
    assert story(result) == "0 ACT b0, 5 MWR b0.c0, 7 WR b0.c0"


@pytest.mark.parametrize(
    ("requests", "passes", "passed", "changes"),
    [
        # a write passes an older read of its burst, which waits while writes are served
        ([read(0, 1), write(0, 1), *FILL], "WR b0.c0", "RD b0.c0", {}),
        # a read passes an older masked write, from which it is not answered
        ([partial(0, 1), read(0, 1)], "RD b0.c0", "WR b0.c0", {}),
        # and any older write without forwarding
        ([write(0, 1), read(0, 1)], "RD b0.c0", "WR b0.c0", NOT_FORWARDED),
    ],
)
def test_reads_and_writes_of_a_burst_may_pass_each_other(
    requests: list[tuple[int, int, int]], passes: str, passed: str, changes: dict[str, bool]
) -> None:
    told = story(simulate(toy(**changes), requests))
    assert told.index(passes) < told.index(passed)


def test_a_write_read_first_may_land_after_a_newer_write() -> None:
    """It joins the writes when its read is served, behind one that has arrived since."""
    modify = toy(controller__partial_write="read_modify_write")
    result = simulate(modify, [partial(0, 1), write(0, 1, arrival=1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0, 13 WR b0.c0"
    newer, older = 11 + 5 - 1, 13 + 5 - 0
    assert result.write_latency_ticks == [newer, older]


def test_a_masked_write_in_the_activation_buffer_may_land_after_a_newer_write() -> None:
    after_a_write = {**MASKED_APART, "after": ["WR", "MWR"], "before": ["MWR"], "delay": 40}
    memory = toy(after_a_write, **MASKED, controller__activation_buffer=2)
    told = story(simulate(memory, [write(0, 2), partial(0, 1), write(0, 1)]))
    assert told.index(" WR b0.c0", told.index("PRE b0")) < told.index("MWR b0.c0")
