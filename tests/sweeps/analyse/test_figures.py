"""Is a figure written with its scale and digits, and is a limit told by its share?"""

from __future__ import annotations

from sweeps.analyse.figures import (
    FIGURES,
    GROWING,
    LIMITS,
    OVERLOADED,
    Figure,
    limit_shares,
    limit_text,
)


def test_how_is_a_figure_written() -> None:
    ms = Figure("x", "TPOT ms", 1, 1000)
    assert ms.text(0.0123) == "12.3"
    assert ms.text(0.0123, 0.0004) == "12.3 ± 0.4"
    assert ms.text(None) == ms.text(None, 1.0) == "–"
    # from a thousand on without decimals, whichever side of zero
    plain = Figure("x", "x", 2)
    assert [plain.text(each) for each in (999.994, 1000.0, 1000.4, -1000.4, -999.0)] == [
        "999.99", "1,000", "1,000", "-1,000", "-999.00"
    ]  # fmt: skip
    assert plain.text(1234.5, 0.6) == "1,234 ± 1"
    assert plain.range_text(1.0, 2.0) == "1.00–2.00"
    assert plain.range_text(None, 2.0) == plain.range_text(1.0, None) == "–"


def test_which_digits_and_scale_has_each_figure() -> None:
    written = {each.metric: each.text(0.123456) for each in FIGURES}
    assert len(written) == len(FIGURES) == 23
    percent = [name for name, text in written.items() if text == "12.3"]
    assert percent == [
        "slo.attainment", "kv_slots.binding.used", "kv_slots.binding.holes",
        "kv_slots.binding.head_of_line", "cached_share", "utilization",
        "memory.phases.attention.row_hit_rate",
    ]  # fmt: skip
    ms = [name for name, text in written.items() if text == "123.5"]
    assert ms == ["tpot_s.mean", "at_share.tpot_s.mean"]
    assert [name for name, text in written.items() if text == "0"] == ["preemptions", "migrations"]
    assert [name for name, text in written.items() if text == "0.123"] == [
        "goodput_per_s", "at_share.goodput_per_s"
    ]  # fmt: skip
    assert [name for name, text in written.items() if text == "0.1"] == [
        "output_tokens_per_s", "batch", "kv_gbps"
    ]  # fmt: skip
    assert sum(text == "0.12" for text in written.values()) == 7
    assert sum(each.terminal for each in FIGURES) == 12
    assert (OVERLOADED, len(GROWING)) == (0.1, 3)


def test_which_limits_bound_and_for_how_much_of_the_time() -> None:
    metrics = {f"{LIMITS}.kv_memory": 0.25, f"{LIMITS}.sequence_cap": 0.745, "step_s": 3.0}
    metrics |= {f"{LIMITS}.idle": 0.005, f"{LIMITS}.batching": 0.004, f"{LIMITS}.x": None}  # type: ignore[dict-item]
    shares = limit_shares(metrics)
    assert shares == {"kv_memory": 0.25, "sequence_cap": 0.745, "idle": 0.005, "batching": 0.004}
    assert limit_text(shares) == "sequence cap 74%, KV memory 25%, idle 0%"
    assert limit_text(shares, 1) == "sequence cap 74%"
