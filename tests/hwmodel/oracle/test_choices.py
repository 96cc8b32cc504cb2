"""The oracle where the controller has a choice: queues, forwarding, partial writes, pages, refresh.

Ticks are worked out by hand from rules.md and the toy memory's timings.
"""

from __future__ import annotations

from tests.hwmodel.memories import spec
from tests.hwmodel.oracle.reference import decode, simulate
from tests.hwmodel.oracle.toy import (
    MASKED,
    MASKED_APART,
    figures,
    partial,
    read,
    story,
    toy,
    write,
)


def test_a_read_is_answered_from_a_waiting_write() -> None:
    requests = [write(0, 1), read(0, 1)]
    result = simulate(toy(), requests)
    assert story(result) == "0 ACT b0, 5 WR b0.c0"
    assert result.forwarded == 1 and result.read_latency_ticks == []
    without = simulate(toy(controller__write_forwarding=False), requests)
    assert story(without) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0"
    assert without.forwarded == 0


def test_a_write_of_part_of_a_burst_answers_no_read() -> None:
    result = simulate(toy(), [partial(0, 1), read(0, 1)])
    assert result.forwarded == 0 and story(result) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0"


def test_a_read_that_is_forwarded_needs_no_room() -> None:
    memory = toy(controller__read_queue=1)
    result = simulate(memory, [write(0, 1), read(1, 1), read(0, 1), read(2, 1)])
    assert result.forwarded == 1
    assert story(result).startswith("0 ACT b1, 5 RD b1.c0, 6 ACT b2, 11 RD b2.c0")


def test_a_partial_write_is_read_modified_and_written() -> None:
    memory = toy(controller__partial_write="read_modify_write")
    result = simulate(memory, [partial(0, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0"
    assert result.rmw_reads == 1 and result.read_latency_ticks == []
    assert figures(result) == (1, 1, 0)
    masked = simulate(toy(), [partial(0, 1)])
    assert story(masked) == "0 ACT b0, 5 WR b0.c0" and masked.rmw_reads == 0


def test_the_read_of_a_partial_write_leaves_its_row_open() -> None:
    memory = toy(controller__partial_write="read_modify_write", controller__page_policy="closed")
    assert story(simulate(memory, [partial(0, 1)])) == "0 ACT b0, 5 RD b0.c0, 11 WRA b0.c0"


def test_a_partial_write_holds_its_place_among_the_writes() -> None:
    memory = toy(controller__partial_write="read_modify_write", controller__write_queue=1)
    result = simulate(memory, [partial(0, 1), write(1, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0, 12 ACT b1, 17 WR b1.c0"


def test_masked_writes_keep_their_own_distance_in_a_bank() -> None:
    requests = [partial(0, 1), partial(0, 1, 1), partial(1, 1), write(0, 1, 2)]
    # 9 from one masked write of b0 to the next; b1's goes between, a whole write needs only tCCD
    assert story(simulate(toy(MASKED_APART, **MASKED), requests)) == (
        "0 ACT b0, 2 ACT b1, 5 MWR b0.c0, 7 MWR b1.c0, 14 MWR b0.c1, 16 WR b0.c2"
    )
    assert story(simulate(toy(), requests)) == (
        "0 ACT b0, 2 ACT b1, 5 WR b0.c0, 7 WR b0.c1, 9 WR b1.c0, 11 WR b0.c2"
    )
    whole_first = [write(0, 1), partial(0, 1, 1)]
    assert story(simulate(toy(MASKED_APART, **MASKED), whole_first)).endswith("7 MWR b0.c1")


def test_rows_of_writes_hold_for_masked_writes() -> None:
    masked = simulate(toy(**MASKED), [partial(0, 1), write(0, 2), read(1, 1, 0, 6)])
    whole = simulate(toy(), [write(0, 1), write(0, 2), read(1, 1, 0, 6)])
    # WL + nBL + tWR = 9 to PRE, WL + nBL + tWTR = 8 to RD
    assert story(masked) == (
        "0 ACT b0, 5 MWR b0.c0, 6 ACT b1, 13 RD b1.c0, 14 PRE b0, 18 ACT b0, 23 WR b0.c0"
    )
    assert story(whole) == story(masked).replace("MWR", "WR")
    closed = toy(**MASKED, controller__page_policy="closed")
    assert story(simulate(closed, [partial(0, 1)])) == "0 ACT b0, 5 MWRA b0.c0"
    modify = toy(**MASKED, controller__partial_write="read_modify_write")
    assert story(simulate(modify, [partial(0, 1)])) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0"


def test_a_full_queue_of_a_bank_holds_back_requests_for_others() -> None:
    requests = [read(0, 1), read(0, 2), read(1, 1)]
    memory = toy(controller__queue_scope="bank", controller__read_queue=1)
    assert story(simulate(memory, requests)) == (
        "0 ACT b0, 5 RD b0.c0, 6 ACT b1, 9 PRE b0, 11 RD b1.c0, 13 ACT b0, 18 RD b0.c0"
    )
    assert story(simulate(toy(), requests)).startswith("0 ACT b0, 2 ACT b1, 5 RD b0.c0")


def test_the_fullest_queue_of_a_bank_turns_to_writes() -> None:
    # 0.5 x 2 = 1: two writes of one bank turn, one of each of two banks does not
    memory = toy(
        controller__queue_scope="bank", controller__write_queue=2,
        controller__write_drain_high=0.5, controller__write_drain_low=0.5,
    )  # fmt: skip
    two = [write(0, 1, 0), write(0, 1, 1), read(1, 1)]
    each = [write(0, 1, 0), write(2, 1, 0), read(1, 1)]
    assert story(simulate(memory, two)).startswith("0 ACT b0")
    assert story(simulate(memory, each)).startswith("0 ACT b1")


def test_reads_and_writes_in_one_queue_take_no_turns() -> None:
    requests = [read(0, 1), write(1, 1)]
    shared = toy(controller__queues="shared")
    assert story(simulate(shared, requests)) == "0 ACT b0, 2 ACT b1, 5 RD b0.c0, 11 WR b1.c0"
    assert story(simulate(toy(), requests)) == "0 ACT b0, 5 RD b0.c0, 6 ACT b1, 11 WR b1.c0"


def test_an_unwanted_row_is_closed_when_its_time_is_over() -> None:
    memory = toy(controller__page_policy="timeout", controller__page_timeout="20ns")
    requests = [read(0, 1), read(0, 1, 1, 24), read(0, 2, 0, 60)]
    result = simulate(memory, requests)
    assert story(result) == ("0 ACT b0, 5 RD b0.c0, 24 RD b0.c1, 44 PRE b0, 60 ACT b0, 65 RD b0.c0")
    assert figures(result) == (1, 2, 0)  # the precharge was for nobody


def test_a_wanted_row_stays_open_however_long_its_request_waits() -> None:
    memory = toy(controller__page_policy="timeout", controller__page_timeout="3ns")
    # a write for the row waits while reads of another bank go on
    reads = [read(2, 1, c % 8, 4 * c) for c in range(6)]
    result = simulate(memory, [read(0, 1), write(0, 1, 1), *reads])
    assert "PRE b0" not in story(result).split("WR b0.c1")[0]


def test_a_timeout_that_was_too_short_doubles() -> None:
    memory = toy(controller__page_policy="adaptive", controller__page_timeout="16ns")
    result = simulate(memory, [read(0, 1), read(0, 1, 1, 40), read(0, 1, 2, 80)])
    assert story(result) == (
        "0 ACT b0, 5 RD b0.c0, 21 PRE b0, 40 ACT b0, 45 RD b0.c1, 77 PRE b0, 81 ACT b0, 86 RD b0.c2"
    )


def test_a_timeout_that_was_too_long_halves() -> None:
    memory = toy(controller__page_policy="adaptive", controller__page_timeout="16ns")
    result = simulate(memory, [read(0, 1), read(0, 2), read(1, 1, 0, 60)])
    assert story(result).startswith(
        "0 ACT b0, 5 RD b0.c0, 9 PRE b0, 13 ACT b0, 18 RD b0.c0, 26 PRE b0"
    )


def test_a_postponed_refresh_waits_until_it_is_urgent() -> None:
    memory = toy(controller__refresh="all_bank", controller__refresh_postpone=2)
    # due at 50, urgent 2 x 50 - 66 = 34 later, as closing may take 66: the last read came at 83
    assert memory.postpone_margin_ticks() == 66
    busy = [read(0, 1, c % 8) for c in range(60)]
    assert ", 83 RD b0.c7, 86 PREA, 90 REFAB, 110 ACT b0, " in story(simulate(memory, busy))
    at_once = toy(controller__refresh="all_bank")
    assert ", 49 RD b0.c6, 52 PREA, 56 REFAB, " in story(simulate(at_once, busy))


def test_a_refresh_that_could_wait_goes_when_its_rank_is_idle() -> None:
    memory = toy(controller__refresh="all_bank", controller__refresh_postpone=8)
    result = simulate(memory, [read(0, 1), read(0, 1, 1, 200)])
    assert story(result) == (
        "0 ACT b0, 5 RD b0.c0, 50 PREA, 54 REFAB, 100 REFAB, 150 REFAB, 200 ACT b0, 205 RD b0.c1"
    )


def test_idle_sets_are_refreshed_first_and_each_once_a_round() -> None:
    memory = toy(controller__refresh="per_bank", controller__refresh_order="idle_first")
    requests = [*(read(0, 1, c) for c in range(8)), read(7, 1, 0, 45)]
    told = story(simulate(memory, requests)).split(", ")
    assert [line for line in told if "RD" not in line][:6] == [
        "0 ACT b0", "12 REFPB b1", "25 PRE b0", "29 REFPB b0", "37 REFPB b2", "45 ACT b7",
    ]  # fmt: skip


def test_derating_shortens_the_interval() -> None:
    memory = toy(controller__refresh="all_bank", refresh__derating=0.8)
    assert story(simulate(memory, [read(0, 1, 0, 45)])) == ("40 REFAB, 60 ACT b0, 65 RD b0.c0")


def test_a_read_is_answered_from_a_write_in_the_activation_buffer() -> None:
    result = simulate(toy(controller__activation_buffer=4), [write(0, 1), read(0, 1, 0, 2)])
    assert story(result) == "0 ACT b0, 5 WR b0.c0" and result.forwarded == 1


def test_a_partial_write_keeps_its_place_in_a_queue_of_both_kinds() -> None:
    memory = toy(
        controller__queues="shared",
        controller__read_queue=1,
        controller__partial_write="read_modify_write",
    )
    result = simulate(memory, [partial(0, 1), read(1, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 11 WR b0.c0, 12 ACT b1, 19 RD b1.c0"


def test_a_timeout_grows_to_sixteen_times_the_first() -> None:
    memory = toy(controller__page_policy="adaptive", controller__page_timeout="1ns")
    result = simulate(memory, [read(0, 1, 0, 50 * i) for i in range(7)])
    # 1, 2, 4 (tRAS is longer), 8, 16, 16 after RD, which comes 5 after ACT
    closed = [c.tick for c in result.commands if c.command == "PRE"]
    opened = [c.tick for c in result.commands if c.command == "ACT"]
    assert [b - a for a, b in zip(opened, closed, strict=False)] == [9, 9, 9, 13, 21, 21]


def test_the_set_of_an_urgent_refresh_stays_settled() -> None:
    memory = toy(controller__refresh="per_bank", controller__refresh_order="idle_first")
    # at 12 nothing waits for b1 and b5; what comes for b1 at 13 does not save it
    others = [read(bank, 1, 0, 11) for bank in (0, 2, 3)]
    late = [read(1, 1, column, 13) for column in (1, 2)]
    told = story(simulate(memory, [read(1, 1, 0, 2), *others, *late]))
    assert told.startswith(
        "2 ACT b1, 7 RD b1.c0, 11 ACT b0, 12 PRE b1, 13 ACT b2, 15 ACT b3, 16 REFPB b1, 17 RD b0.c0"
    )


def test_a_second_urgent_refresh_holds_back_activations() -> None:
    memory = toy(controller__refresh="per_bank", timing__tRAS="30nCK")
    # the first refresh, due at 12, waits until b0 may be closed; the second is due at 25
    before = story(simulate(memory, [read(0, 1, 0, 10), read(7, 1, 0, 24)]))
    assert before.startswith("10 ACT b0, 24 ACT b7, 29 RD b7.c0, 40 PRE b0, 44 REFPB b0")
    after = story(simulate(memory, [read(0, 1, 0, 10), read(7, 1, 0, 26)]))
    assert after.startswith("10 ACT b0, 40 PRE b0, 44 REFPB b0, 45 REFPB b1, 46 REFPB b2")


def test_nothing_queued_goes_while_a_buffered_request_keeps_a_refresh_waiting() -> None:
    memory = toy(
        controller__refresh="per_bank", controller__activation_buffer=4, timing__tRCD="30nCK"
    )
    # the first refresh is due at 12, and waits for the buffered read of b0
    after = story(simulate(memory, [read(0, 1, 0, 8), read(7, 1, 0, 12)]))
    assert after.startswith("8 ACT b0, 38 RD b0.c0, 41 PRE b0, 45 REFPB b0")


def test_a_place_is_taken_again_in_the_tick_that_freed_it_or_one_later() -> None:
    requests = [read(0, 1), read(0, 1, 1)]
    for when, second in (("same_tick", 7 + 8 - 5), ("next_tick", 7 + 8 - 6)):
        memory = toy(controller__read_queue=1, controller__queue_reuse=when)
        assert simulate(memory, requests).read_latency_ticks == [5 + 8, second]


def test_a_write_that_is_read_first_waits_from_the_entry_of_its_read() -> None:
    memory = toy(controller__partial_write="read_modify_write")
    # 0 ACT, 5 RD, 11 WR: its data end at 11 + 3 + 2
    assert simulate(memory, [partial(0, 1)]).write_latency_ticks == [16]
    assert simulate(toy(), [write(0, 1)]).write_latency_ticks == [5 + 3 + 2]


def test_both_pseudochannels_may_share_their_queues_and_mode() -> None:
    """Two places: of three reads the third, in the other pseudo-channel, waits for one of them; and
    writes of both count together against the watermark."""

    def at(pseudochannel: int, row: int) -> int:
        places = (address for address in range(0, 1 << 28, 32))
        wanted = (pseudochannel, 0, 0, 0, 0)
        return next(a for a in places if decode(joint, a) == (wanted, row, 0))

    common = {"controller__refresh": "none", "controller__row_hit_limit": 0}
    joint, apart = (
        spec("hbm2-2.0", controller__queue_scope=scope, controller__read_queue=2, **common)
        for scope in ("both_pseudochannels", "channel")
    )
    reads = [(0, at(0, 0), 0), (0, at(0, 1), 0), (0, at(1, 0), 0)]
    first = {
        memory.controller.queue_scope: next(
            c.tick for c in simulate(memory, reads).commands if c.pseudochannel == 1
        )
        for memory in (joint, apart)
    }
    served = next(c.tick for c in simulate(joint, reads).commands if c.command == "RD")
    assert first["both_pseudochannels"] >= served > first["channel"]

    writes = [(0, at(0, 0), 1), (0, at(1, 0), 1), (0, at(0, 1), 0), (0, at(1, 1), 0)]
    half = {"controller__write_queue": 2, "controller__write_drain_high": 0.5}
    for scope, kind in (("both_pseudochannels", "WR"), ("channel", "RD")):
        memory = spec("hbm2-2.0", controller__queue_scope=scope, **half, **common)
        columns = [c for c in simulate(memory, writes).commands if c.column >= 0]
        assert columns[0].command == kind
