"""Is the KV of an attention kernel read at the rate of its layout?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.yaml_reader import loads
from hwmodel.specs.device import load_device
from policies.memory import attention_read
from policies.memory.attention_read import AttentionRead, attention_rate
from policies.memory.measured import MeasurementSpec
from policies.memory.measured_cells import ComparedCell, Quantity

SMALL = AttentionRead(sequences=8, tokens=2048, since=1024, kv_heads=2, head_dim=64, block=16)
TEXT = """kind: measurement
name: mine
summary: mine
sources: {here: a test}
device: mlu370-x4
tolerances: {some: {within: 10%, reason: any}}
cells:
  - {what: one, attention: {sequences: 8, tokens: 64, since: 32, kv_heads: 2, block: 16},
     source: here, confidence: A, prediction: 200GB/s, interval: [150GB/s, 250GB/s]}
"""


def test_a_share_is_of_the_rates_of_two_blocks_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    device, asked = load_device("mlu370-x4"), set()
    rates = [attention_rate(device, SMALL.model_copy(update={"block": n})) for n in (16, 0)]
    assert 0 < rates[0] < rates[1] < device.peak_gbps
    share = attention_rate(device, SMALL.model_copy(update={"against": 0}))
    assert share == pytest.approx(rates[0] / rates[1])

    def noted(_: Any, half_bytes: int, block: int, *read: Any) -> float:
        asked.add((half_bytes, *read))
        return {16: 0.25, 0: 0.5}[block]

    monkeypatch.setattr(attention_read, "read_share", noted)
    assert attention_rate(device, SMALL.model_copy(update={"against": 0})) == 0.5
    assert attention_rate(device, SMALL) == 0.25 * device.peak_gbps
    assert asked == {(2 * 2 * 64, 8, 2048, (15e3, 45e3))}


def test_a_prediction_waits_and_is_judged_by_its_interval() -> None:
    cell = loads(TEXT, "mine.yaml").build(MeasurementSpec).cells[0]
    assert ComparedCell(cell, 100.0, 50.0).verdict == "open"
    assert cell.stated == Quantity(200, "GB/s")
    for measured, verdict in ((160.0, "within"), (149.0, "refuted"), (251.0, "refuted")):
        known = cell.model_copy(update={"measured": Quantity(measured, "GB/s")})
        assert ComparedCell(known, 1.0, 50.0).verdict == verdict
