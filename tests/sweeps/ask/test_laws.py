"""Is a law that is left out as it was before, and are the others what they are?"""

from __future__ import annotations

import pytest

from policies.memory import measured_steps
from sweeps.ask import laws
from sweeps.ask.accuracy import errors
from sweeps.ask.laws import OF_CARDS, SKEW, of_kv, of_steps
from tests.sweeps.ask.test_accuracy import share


@pytest.fixture(autouse=True)
def unsimulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_steps, "_weights", share)
    monkeypatch.setattr(measured_steps, "_attention", share)
    monkeypatch.setattr(laws, "_KEPT", {})
    few = ["m2-ultra-gpt-oss-20b", "dgx-spark-gpt-oss-20b", "strix-halo-decode"]
    monkeypatch.setattr(laws, "names", lambda _: few)


def test_each_law_moves_its_class_and_no_other() -> None:
    every = frozenset({*OF_CARDS, SKEW})
    moved = {}
    for law, label, times in of_steps():
        now, without = errors(times(every)), errors(times(every - {law}))
        assert now["cells"] == without["cells"]
        moved[law, label] = now != without
    assert moved["Metal's experts by rows", "decode, apple"]
    assert moved[SKEW, "decode, nvidia-lpddr"]
    assert {law for law, _ in moved} == every


def test_kv_memory_of_an_h100_needs_both_laws() -> None:
    rows = of_kv()
    for what, row in rows.items():
        if what.startswith("H100"):
            assert abs(row["all"]) < 0.002 < abs(row["sampler alone"]) < abs(row["without"])
    assert rows["RTX 4090, Llama-3.1-8B"]["all"] > 0.08
