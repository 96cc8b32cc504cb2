"""The oracle on small scenes with ticks worked out by hand; the auditor over generated ones."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from hwmodel.oracle.audit import audit
from tests.hwmodel.memories import Case, cases, command_log, spec
from tests.hwmodel.oracle.reference import decode, simulate
from tests.hwmodel.oracle.toy import SYNC, TWO_STEP, figures, read, story, toy, write
from tests.rotation import LONG


def test_a_lone_read_takes_activation_latency_and_burst() -> None:
    result = simulate(toy(), [read(3, 1, 2)])
    assert story(result) == "0 ACT b3, 5 RD b3.c2"
    assert result.end_tick == 5 + 6 + 2
    assert result.read_latency_ticks == [13]
    assert figures(result) == (0, 1, 0)


def test_a_lone_write_ends_with_its_data() -> None:
    result = simulate(toy(), [write(0, 1)])
    assert story(result) == "0 ACT b0, 5 WR b0.c0"
    assert result.end_tick == 5 + 3 + 2
    assert result.read_latency_ticks == []


def test_latency_runs_from_entry_into_the_queue() -> None:
    memory = toy(controller__read_queue=1)
    result = simulate(memory, [read(0, 1, 0, 7), read(0, 1, 1, 7)])
    assert story(result) == "7 ACT b0, 12 RD b0.c0, 14 RD b0.c1"
    assert result.read_latency_ticks == [
        20 - 7,
        22 - 12,
    ]  # the second enters when the first is served


def test_a_row_hit_follows_at_the_burst_gap() -> None:
    result = simulate(toy(), [read(0, 1, 0), read(0, 1, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 7 RD b0.c1"
    assert figures(result) == (1, 1, 0)


def test_a_conflict_waits_for_tras_trp_and_trcd() -> None:
    result = simulate(toy(), [read(0, 1), read(0, 2)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 9 PRE b0, 13 ACT b0, 18 RD b0.c0"
    assert figures(result) == (0, 1, 1)


def test_the_fifth_activation_waits_for_the_window() -> None:
    result = simulate(toy(), [read(bank, 1) for bank in range(5)])
    assert story(result) == (
        "0 ACT b0, 2 ACT b1, 4 ACT b2, 5 RD b0.c0, 6 ACT b3, 7 RD b1.c0, 9 RD b2.c0, 11 RD b3.c0, "
        "12 ACT b4, 17 RD b4.c0"
    )


def test_a_column_command_goes_before_an_activation_of_the_same_tick() -> None:
    result = simulate(toy(), [read(0, 1), read(1, 1, 0, 5)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 6 ACT b1, 11 RD b1.c0"


def test_a_read_after_a_write_waits_for_the_turnaround() -> None:
    result = simulate(toy(), [write(0, 1), read(0, 1, 1, 6)])
    assert story(result) == "0 ACT b0, 5 WR b0.c0, 13 RD b0.c1"


def test_writes_wait_for_reads_until_the_high_watermark() -> None:
    requests = [read(0, 1, 0), write(0, 1, 1), write(0, 1, 2), read(0, 1, 3)]
    memory = toy(
        controller__write_queue=4, controller__write_drain_high=0.5, controller__write_drain_low=0.3
    )
    # two writes are not more than 0.5 x 4: both reads first, then no read waits
    result = simulate(memory, requests)
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 7 RD b0.c3, 13 WR b0.c1, 15 WR b0.c2"


def test_a_drain_stops_below_the_low_watermark() -> None:
    requests = [read(0, 1, 0), *(write(0, 1, c) for c in (1, 2, 3)), read(0, 1, 4)]
    memory = toy(
        controller__write_queue=4, controller__write_drain_high=0.5, controller__write_drain_low=0.3
    )
    # three writes start the drain; at one (below 1.2) reads go on; then the last write
    result = simulate(memory, requests)
    assert story(result) == (
        "0 ACT b0, 5 WR b0.c1, 7 WR b0.c2, 15 RD b0.c0, 17 RD b0.c4, 23 WR b0.c3"
    )


def test_a_full_queue_holds_back_everything_behind_its_head() -> None:
    memory = toy(controller__write_queue=1, controller__write_drain_high=1.0)
    # the second write cannot enter, so the read behind it does not either, until tick 5
    result = simulate(memory, [write(0, 1, 0), write(0, 1, 1), read(0, 1, 2)])
    assert story(result) == "0 ACT b0, 5 WR b0.c0, 7 WR b0.c1, 15 RD b0.c2"
    assert result.read_latency_ticks == [15 + 6 + 2 - 5]


def test_frfcfs_serves_a_younger_hit_first_and_fcfs_does_not() -> None:
    requests = [read(0, 1, 0), read(0, 2, 0), read(0, 1, 1)]
    assert story(simulate(toy(), requests)) == (
        "0 ACT b0, 5 RD b0.c0, 7 RD b0.c1, 10 PRE b0, 14 ACT b0, 19 RD b0.c0"
    )
    result = simulate(toy(controller__scheduler="fcfs"), requests)
    assert story(result) == (
        "0 ACT b0, 5 RD b0.c0, 9 PRE b0, 13 ACT b0, 18 RD b0.c0, 22 PRE b0, 26 ACT b0, 31 RD b0.c1"
    )
    assert figures(result) == (0, 1, 2)


def test_fcfs_does_not_prepare_the_next_request() -> None:
    result = simulate(toy(controller__scheduler="fcfs"), [read(0, 1), read(1, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 6 ACT b1, 11 RD b1.c0"


def test_oldest_ready_lets_a_precharge_wait_for_older_hits_only() -> None:
    requests = [read(0, 1, 0), read(0, 2, 0), read(0, 1, 1, 9)]
    assert story(simulate(toy(), [*requests[:2], read(0, 1, 1, 8)])).startswith(
        "0 ACT b0, 5 RD b0.c0, 8 RD b0.c1, 11 PRE b0"
    )
    assert story(simulate(toy(), requests)).startswith(
        "0 ACT b0, 5 RD b0.c0, 9 RD b0.c1, 12 PRE b0"
    )
    memory = toy(controller__scheduler="frfcfs_oldest_ready")
    assert story(simulate(memory, requests)) == (
        "0 ACT b0, 5 RD b0.c0, 9 PRE b0, 13 ACT b0, 18 RD b0.c0, 22 PRE b0, 26 ACT b0, 31 RD b0.c1"
    )


def test_oldest_ready_orders_row_and_column_commands_by_age() -> None:
    memory = toy(controller__scheduler="frfcfs_oldest_ready")
    # at tick 7 both are legal: the activation is for the older request
    requests = [read(0, 1, 0), read(1, 1, 0, 7), read(0, 1, 1, 7)]
    assert story(simulate(memory, requests)) == (
        "0 ACT b0, 5 RD b0.c0, 7 ACT b1, 8 RD b0.c1, 12 RD b1.c0"
    )
    assert story(simulate(toy(), requests)).startswith("0 ACT b0, 5 RD b0.c0, 7 RD b0.c1, 8 ACT b1")


def test_a_streak_of_hits_ends_at_its_limit() -> None:
    memory = toy(controller__row_hit_limit=2)
    requests = [read(0, 1, 0), read(0, 2, 0), read(0, 1, 1), read(0, 1, 2)]
    assert story(simulate(memory, requests)) == (
        "0 ACT b0, 5 RD b0.c0, 7 RD b0.c1, 10 PRE b0, 14 ACT b0, 19 RD b0.c0, "
        "23 PRE b0, 27 ACT b0, 32 RD b0.c2"
    )
    # no one else waits: the limit does not matter
    assert story(simulate(memory, [read(0, 1, c) for c in range(4)])).endswith("11 RD b0.c3")


def test_a_closed_page_precharges_with_the_last_burst_for_its_row() -> None:
    memory = toy(controller__page_policy="closed")
    result = simulate(memory, [read(0, 1, 0), read(0, 1, 1), read(0, 2, 0)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 7 RDA b0.c1, 14 ACT b0, 19 RDA b0.c0"
    assert figures(result) == (1, 2, 0)


def test_a_closed_page_stays_open_for_a_write_that_waits() -> None:
    memory = toy(controller__page_policy="closed")
    result = simulate(memory, [read(0, 1, 0), write(0, 1, 1)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 11 WRA b0.c1"


def test_an_owed_refresh_closes_the_rank_and_refreshes() -> None:
    memory = toy(controller__refresh="all_bank")
    result = simulate(memory, [read(0, 1), read(0, 1, 1, 60)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 50 PREA, 54 REFAB, 74 ACT b0, 79 RD b0.c1"
    assert figures(result) == (0, 2, 0)  # no precharge was for the request


def test_an_owed_refresh_of_a_closed_rank_needs_no_precharge() -> None:
    memory = toy(controller__refresh="all_bank")
    result = simulate(memory, [read(0, 1, 0, 120)])
    assert story(result) == "50 REFAB, 100 REFAB, 120 ACT b0, 125 RD b0.c0"


def test_a_staggered_channel_refreshes_later() -> None:
    memory = toy(controller__refresh="all_bank", controller__refresh_phase="staggered")
    requests = [read(0, 1, 0, 120)]
    assert story(simulate(memory, requests, channel=1, channels=3)).startswith(
        "66 REFAB, 116 REFAB"
    )
    assert story(simulate(memory, requests, channel=0, channels=3)).startswith(
        "50 REFAB, 100 REFAB"
    )


def test_sets_are_refreshed_in_turn_while_other_banks_serve() -> None:
    memory = toy(controller__refresh="per_bank")
    # due at 12, 25, 37, 50 (floor of k x 50 / 4); the second set holds banks 1 and 5
    result = simulate(memory, [read(5, 1), read(2, 1, 0, 20), read(5, 1, 1, 24), read(5, 1, 2, 26)])
    assert story(result) == (
        "0 ACT b5, 5 RD b5.c0, 12 REFPB b0, 20 ACT b2, 24 RD b5.c1, 26 RD b2.c0, 27 PRE b5, "
        "31 REFPB b1, 37 PRE b2, 41 REFPB b2, 50 REFPB b3, 51 ACT b5, 56 RD b5.c2"
    )


def test_staggered_sets_share_the_interval_among_sets_and_channels() -> None:
    memory = toy(controller__refresh="per_bank", controller__refresh_phase="staggered")
    # floor(1 x 50 / (2 x 4)) = 6 later
    result = simulate(memory, [read(7, 1, 0, 32)], channel=1, channels=2)
    assert story(result).startswith("18 REFPB b0, 31 REFPB b1, 32 ACT b7")


def test_cas_starts_the_data_clock_again_after_idle() -> None:
    memory = toy(**SYNC)
    assert story(simulate(memory, [read(0, 1), read(0, 1, 1, 15), read(0, 1, 2, 26)])) == (
        "0 ACT b0, 4 CAS, 5 RD b0.c0, 15 RD b0.c1, 26 CAS, 27 RD b0.c2"
    )
    always = toy(**{**SYNC, "sync": {**SYNC["sync"], "always_on": True}})
    assert story(simulate(always, [read(0, 1)])) == "0 ACT b0, 5 RD b0.c0"


def test_the_second_step_follows_at_once_when_eager_and_yields_when_lazy() -> None:
    requests = [*(read(0, 1, c) for c in range(4)), read(1, 1, 0, 6)]
    beginning = "0 ACT1 b0, 1 ACT2 b0, 5 RD b0.c0, 6 ACT1 b1, "
    assert story(simulate(toy(**TWO_STEP), requests)) == (
        beginning + "7 ACT2 b1, 8 RD b0.c1, 10 RD b0.c2, 12 RD b0.c3, 14 RD b1.c0"
    )
    lazy = toy(**TWO_STEP | {"activate__second": "lazy"})
    assert story(simulate(lazy, requests)) == (
        beginning + "7 RD b0.c1, 8 ACT2 b1, 9 RD b0.c2, 11 RD b0.c3, 13 RD b1.c0"
    )


def test_a_lazy_second_step_comes_at_its_deadline() -> None:
    # a burst of one clock every clock: the hits of tick 9 and after keep the bus until the deadline
    lazy = toy(
        **TWO_STEP
        | {
            "activate__second": "lazy",
            "activate__max_gap": 3,
            "timing__tCCD": "1nCK",
            "timing__nBL": "1nCK",
        }
    )
    requests = [read(0, 1, 0), read(0, 1, 1), read(0, 1, 2), read(1, 1, 0, 8)]
    requests += [read(0, 1, c, 9) for c in range(3, 8)]
    assert story(simulate(lazy, requests)) == (
        "0 ACT1 b0, 1 ACT2 b0, 5 RD b0.c0, 6 RD b0.c1, 7 RD b0.c2, 8 ACT1 b1, "
        "9 RD b0.c3, 10 RD b0.c4, 11 ACT2 b1, 12 RD b0.c5, 13 RD b1.c0, 14 RD b0.c6, 15 RD b0.c7"
    )


def test_counting_from_the_second_step_delays_the_row() -> None:
    memory = toy(**TWO_STEP | {"activate__reference": "ACT2"})
    assert story(simulate(memory, [read(0, 1)])) == "0 ACT1 b0, 1 ACT2 b0, 6 RD b0.c0"


def test_a_full_activation_buffer_allows_no_activation() -> None:
    requests = [read(0, 1), read(1, 1)]
    assert story(simulate(toy(), requests)).startswith("0 ACT b0, 2 ACT b1")
    result = simulate(toy(controller__activation_buffer=1), requests)
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 6 ACT b1, 11 RD b1.c0"


def test_a_buffered_request_goes_before_older_hits() -> None:
    requests = [read(0, 1, 0), read(0, 1, 1), read(1, 1, 0, 0), read(0, 1, 2), read(0, 1, 3)]
    # b1 is ready at 7, as the hit c1 of an older request is
    assert "5 RD b0.c0, 7 RD b0.c1" in story(simulate(toy(), requests))
    buffered = story(simulate(toy(controller__activation_buffer=4), requests))
    assert "5 RD b0.c0, 7 RD b1.c0, 9 RD b0.c1" in buffered


def test_a_bank_with_a_buffered_request_takes_no_precharge() -> None:
    memory = toy(
        controller__activation_buffer=4,
        controller__write_queue=4,
        controller__write_drain_high=0.0,
        controller__write_drain_low=0.0,
        timing__tRCD="30nCK",
    )
    # the write turns the mode at 10 and wants another row; the buffered read holds the bank
    result = simulate(memory, [read(0, 1), write(0, 2, 0, 10)])
    assert story(result) == "0 ACT b0, 30 RD b0.c0, 33 PRE b0, 37 ACT b0, 67 WR b0.c0"


def test_refresh_waits_for_a_buffered_request() -> None:
    memory = toy(controller__activation_buffer=4, controller__refresh="all_bank")
    result = simulate(memory, [read(0, 1, 0, 48), read(0, 1, 1, 49)])
    assert story(result) == ("48 ACT b0, 53 RD b0.c0, 57 PREA, 61 REFAB, 81 ACT b0, 86 RD b0.c1")


def test_a_burst_with_a_hole_lets_another_fill_it() -> None:
    memory = toy(data__read={"latency": "RL", "segments": [[0, 2], [4, 6]]})
    result = simulate(memory, [read(0, 1, c) for c in range(4)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 7 RD b0.c1, 13 RD b0.c2, 15 RD b0.c3"
    assert result.end_tick == 15 + 6 + 6


def test_a_long_command_holds_its_bus() -> None:
    memory = toy(commands__ACT={"bus": "command", "slots": 3})
    result = simulate(memory, [read(0, 1), read(1, 1)])
    assert story(result) == "0 ACT b0, 3 ACT b1, 6 RD b0.c0, 8 RD b1.c0"


def test_two_buses_issue_at_the_same_tick() -> None:
    memory = toy(
        buses={"command": {"scope": "channel"}, "column": {"scope": "channel"}},
        commands__RD={"bus": "column"},
    )
    result = simulate(memory, [read(0, 1), read(1, 1, 0, 5)])
    assert story(result) == "0 ACT b0, 5 RD b0.c0, 5 ACT b1, 10 RD b1.c0"


def test_half_clocks_are_ticks() -> None:
    memory = toy(clock={"tCK": "1ns", "beats_per_ck": 4, "ticks_per_ck": 2}, timing__tRCD="4.5nCK")
    result = simulate(memory, [read(0, 1)])
    assert story(result) == "0 ACT b0, 9 RD b0.c0"
    assert result.end_tick == 9 + 12 + 4


def test_pseudochannels_serve_side_by_side() -> None:
    memory = toy(
        organisation__pseudochannels=2,
        address_map=["column", "pseudochannel", "bank", "bankgroup", "row"],
    )
    result = simulate(memory, [(0, 0, False), (0, 128, False)])
    assert [(c.tick, c.command, c.pseudochannel) for c in result.commands] == [
        (0, "ACT", 0), (1, "ACT", 1), (5, "RD", 0), (6, "RD", 1),
    ]  # fmt: skip


def test_addresses_are_decoded_from_the_least_bit_and_hashed_with_the_row() -> None:
    memory = toy(bank_hash=[{"field": "bankgroup", "row_bit": 1}, {"field": "bank", "row_bit": 0}])
    address = ((0b0101 << 6 | 0b11 << 4 | 0b1 << 3 | 0b110) << 4) + 9
    # bankgroup 3 ^ (5 >> 1) = 1, bank 1 ^ 5 & 1 = 0; nine bytes into the burst are dropped
    assert decode(memory, address) == ((0, 0, 0, 1, 0), 5, 6)


def test_lpddr5_reads_after_activation_cas_and_latency() -> None:
    memory = spec("lpddr5-6400-x16")
    result = simulate(memory, [(0, 0, False)])
    assert story(result).split(", ") == ["0 ACT1 b0", "1 ACT2 b0", "15 CAS", "16 RD b0.c0"]
    assert result.end_tick == 16 + 17 + 2


@settings(
    max_examples=150 if LONG else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(case=cases())
def test_auditor_finds_nothing_in_the_oracle_on_generated_memories(case: Case) -> None:
    result = simulate(case.memory, case.requests, channel=case.channel, channels=case.channels)
    log = command_log(result.commands)
    assert audit(case.memory, log, end_tick=result.end_tick) == []
    served = result.row_hits + result.row_misses + result.row_conflicts
    assert served == len(case.requests) - result.forwarded + result.rmw_reads
    reads = sum(kind == 0 for _, _, kind in case.requests)
    assert len(result.read_latency_ticks) == reads - result.forwarded
