"""Does the sentence follow the results, whatever they are?"""

from __future__ import annotations

import pytest

from sweeps.figures import LIMITS, THROUGHPUT
from sweeps.table import Group, Row
from sweeps.verdict import BINDS, judge

NOISE = (0.99, 1.0, 1.01)
BOUND = {"kv_memory": 0.9, "offered_load": 0.1}


def row(
    name: str, rate: float, control: str = "", limits: dict[str, float] = BOUND,
    noise: tuple[float, ...] = NOISE, wobble: float = 0.0,
) -> Row:  # fmt: skip
    """`noise` is common to all rows of a replication; `wobble` is this row's own."""
    own = (1 + wobble, 1 - wobble, 1.0)
    shares = {f"{LIMITS}.{key}": value for key, value in limits.items()}
    replications = {
        i: {THROUGHPUT: rate * shared * mine, **shares}
        for i, (shared, mine) in enumerate(zip(noise, own, strict=False), 1)
    }
    return Row(name, control, replications)


def group(*rows: Row) -> Group:
    return Group("card", list(rows))


def pair(main: float, analytic: float, wobble: float = 0.001) -> Group:
    """odma ahead of paged by `main`, and by `analytic` in the control."""
    return group(
        row("odma", 100 * (1 + main), wobble=wobble),
        row("paged", 100),
        row("odma", 100 * (1 + analytic), "analytic", wobble=wobble),
        row("paged", 100, "analytic"),
    )


def test_a_gap_that_stands_without_dram_is_capacity() -> None:
    verdict = judge(pair(0.30, 0.30))
    assert (verdict.outcome, verdict.best, verdict.rivals[0].cause) == ("won", "odma", "capacity")
    assert verdict.sentence.startswith("card: odma wins with 130.0 output tokens/s: 30.0 % (")
    assert "decided by capacity (with analytic memory the gap is +30.0%)" in verdict.sentence


def test_a_gap_that_only_dram_makes_is_layout() -> None:
    verdict = judge(pair(0.30, 0.0))
    assert verdict.rivals[0].cause == "layout"
    assert "decided by memory layout" in verdict.sentence


def test_a_gap_of_two_parts_is_both() -> None:
    verdict = judge(pair(0.30, 0.15))
    assert verdict.rivals[0].cause == "both"
    assert "by capacity and memory layout both" in verdict.sentence
    assert "layout +15.0 points" in verdict.sentence


def test_layout_may_win_against_capacity_and_the_other_way_round() -> None:
    assert "by memory layout, against capacity" in judge(pair(0.10, -0.10)).sentence
    assert "by capacity, against the memory layout" in judge(pair(0.10, 0.30)).sentence


def test_the_other_one_ahead_turns_the_sentence() -> None:
    verdict = judge(pair(-0.2, -0.2))
    assert verdict.best == "paged"
    assert "25.0 %" in verdict.sentence and "more than odma" in verdict.sentence


def test_an_interval_across_zero_is_undecided() -> None:
    verdict = judge(pair(0.01, 0.01, wobble=0.05))
    assert (verdict.outcome, verdict.best) == ("undecided", "")
    assert "undecided between odma and paged: the difference may be zero" in verdict.sentence
    assert "wins" not in verdict.sentence


def test_one_undecided_pair_still_says_who_is_behind() -> None:
    found = group(
        row("odma", 101, wobble=0.05), row("paged", 100), row("static", 50),
        row("odma", 101, "analytic", wobble=0.05), row("paged", 100, "analytic"),
        row("static", 50, "analytic"),
    )  # fmt: skip
    verdict = judge(found)
    assert verdict.outcome == "undecided"
    assert "more than static, decided by capacity" in verdict.sentence


def test_noise_that_all_share_does_not_hide_a_gap() -> None:
    noise = (0.5, 1.0, 2.0)
    found = group(row("odma", 105, noise=noise), row("paged", 100, noise=noise))
    assert judge(found).outcome == "won"


def test_without_a_control_the_cause_is_not_claimed() -> None:
    verdict = judge(group(row("odma", 130), row("paged", 100)))
    assert verdict.rivals[0].cause == "unknown"
    assert "this run does not say why" in verdict.sentence
    assert "capacity" not in verdict.sentence and "layout" not in verdict.sentence


def test_one_replication_decides_nothing() -> None:
    found = group(row("odma", 200, noise=(1.0,)), row("paged", 100, noise=(1.0,)))
    verdict = judge(found)
    assert verdict.outcome == "undecided"
    assert "one replication gives no interval" in verdict.sentence


def test_replications_that_do_not_pair_decide_nothing() -> None:
    ours, theirs = row("odma", 200), row("paged", 100)
    theirs.replications = {key + 10: value for key, value in theirs.replications.items()}
    assert judge(group(ours, theirs)).outcome == "undecided"


@pytest.mark.parametrize(("share", "outcome"), [(BINDS / 2, "unbound"), (BINDS * 2, "won")])
def test_memory_that_did_not_bind_names_no_winner(share: float, outcome: str) -> None:
    limits = {"kv_memory": share, "sequence_cap": 1 - share}
    verdict = judge(group(row("odma", 130, limits=limits), row("paged", 100, limits=limits)))
    assert verdict.outcome == outcome
    if outcome == "unbound":
        assert "KV memory did not bind" in verdict.sentence
        assert "sequence cap" in verdict.sentence
        assert "wins" not in verdict.sentence


def test_it_is_enough_that_memory_binds_for_one_of_them() -> None:
    free = {"kv_memory": 0.0, "offered_load": 1.0}
    assert judge(group(row("odma", 130, limits=free), row("static", 100))).outcome == "won"


def test_nothing_to_compare() -> None:
    assert judge(group(row("odma", 130))).outcome == "alone"
    assert judge(group()).outcome == "alone"
