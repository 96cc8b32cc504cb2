"""Is what nobody has measured predicted once, and then judged?"""

from __future__ import annotations

from hwmodel.description.library import find
from hwmodel.description.yaml_reader import loads
from policies.memory.measured import MeasurementSpec, compare
from tools.register import predicted

TEXT = """kind: measurement
name: mine
summary: mine
sources: {here: a test}
device: rtx-4090
model: llama-3.1-8b
tolerances: {}
cells:
  - {what: "a step", decode: {batch: 1, context: 1024}, source: here, confidence: C}
  - {what: "said before", decode: {batch: 1, context: 1024}, source: here, confidence: C,
     prediction: 9ms, interval: [8ms, 12ms]}
"""


def test_a_step_is_predicted_with_the_interval_of_its_class() -> None:
    written = predicted(TEXT, "mine.yaml")
    assert written.endswith("prediction: 9ms, interval: [8ms, 12ms]}\n")
    assert predicted(written, "mine.yaml") == written
    items = compare(loads(written, "mine.yaml").build(MeasurementSpec))
    first = items[0].cell
    assert [item.verdict for item in items] == ["open", "open"]
    assert first.prediction is not None and first.interval is not None
    assert abs(first.prediction.value / items[0].model - 1) < 1e-3
    low, high = (each.value / first.prediction.value for each in first.interval)
    assert (round(low, 2), round(high, 2)) == (0.85, 1.3)


def test_what_is_measured_later_is_judged() -> None:
    text = find("measurements", "register-2026-11").read_text()
    assert text.count("prediction: ") == text.count("  - {what: ") == 36
    judged = "measured: 12.1ms, prediction: 9ms"
    written = predicted(TEXT, "mine.yaml").replace("prediction: 9ms", judged)
    spec = loads(written, "mine.yaml").build(MeasurementSpec)
    assert [item.verdict for item in compare(spec)] == ["open", "refuted"]
