"""Do steps of what ships take the times that they took?

Every accelerator with four models, and every model on one, are held against `steps.json`: the times
of four steps, and a checksum of all that was said of them. A change that is meant to move them
writes the file anew, and says what has moved:

    python -m tests.policies.memory.test_step_records
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.kv_groups import kv_groups
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.checksum import checksum

RECORDS = Path(__file__).with_name("steps.json")
RECORDED: dict[str, str] = json.loads(RECORDS.read_text()) if RECORDS.is_file() else {}
MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b")
"""Shared KV heads; windows and experts; latent attention; layers with a state."""
CARD = "mi300x"
"""On which every model is served."""
STEPS = (
    Step(np.arange(1), 1000, [], [], 0, ""),
    Step(np.arange(64), 64 * 1500, [], [], 0, ""),
    Step(np.arange(0), 0, [Chunk(0, 0, 700, True)], [], 0, ""),
    Step(np.arange(9), 9 * 300, [Chunk(9, 512, 256, False), Chunk(10, 0, 33, True)], [], 0, ""),
)
"""One request, many, a prompt, and parts of prompts beside requests."""
PAIRS = sorted({
    *((device, model) for device in names("accelerators") for model in MODELS),
    *((CARD, model) for model in names("models")),
})  # fmt: skip


def record(device: str, model: str) -> str:
    """ms of each step, and a checksum; or why there are none."""
    try:
        shape = load_model(model)
        steps = StepModel(load_device(device), shape, groups=kv_groups(shape, "full"))
    except DescriptionError as error:
        return error.message
    shares = Efficiency(weights=0.9, attention=0.5, prefill=0.7, migration=0.6)
    found = [steps.times(step, 2, shares) for step in STEPS]
    ms = ", ".join(f"{each.total_s[0] * 1e3:.6g}" for each in found)
    said = [each._asdict() | {"work": each.work.moved} for each in found]
    return f"{ms} ms, {checksum(said)}"


@pytest.mark.parametrize("device", sorted({device for device, _ in PAIRS}))
def test_steps_of_what_ships_take_what_they_took(device: str) -> None:
    for own, model in PAIRS:
        if own == device:
            assert record(device, model) == RECORDED[f"{device}, {model}"], model


def test_nothing_that_is_recorded_is_gone() -> None:
    assert RECORDED.keys() == {", ".join(pair) for pair in PAIRS}


if __name__ == "__main__":
    found = {", ".join(pair): record(*pair) for pair in PAIRS}
    for name, each in found.items():
        if (before := RECORDED.get(name, each)) != each:
            print(f"{name}: {before} -> {each}")
    RECORDS.write_text(json.dumps(found, indent=0) + "\n")
