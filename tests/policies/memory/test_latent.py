"""Is the latent read once, and are its two forms' FLOPs counted?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency

BARE = ["kernels={class: ideal}"]
DENSE = load_model("deepseek-v3").model_copy(
    update={"experts": None, "intermediate": 2048, "layers": 2, "weights": "fp16"}
)


def decode(batch: int, context: int) -> Step:
    return Step(np.arange(batch), context, [], [], 0, "")


def slow(model: TransformerSpec) -> StepModel:
    """Compute alone: 1 TFLOPS for every type, memory without end of bandwidth."""
    return StepModel(load_device("a100-80gb", [*BARE, "compute.fp16=1GFLOPS"]), model)


@pytest.mark.parametrize("form", ["absorbed", "unabsorbed"])
def test_flops_of_both_forms(form: str) -> None:
    latent = DENSE.latent.model_copy(update={"decode": form, "prefill": form})  # type: ignore[union-attr]
    model = DENSE.model_copy(update={"latent": latent})
    steps = slow(model)
    pair = 2 * 128 * ((576 + 512) if form == "absorbed" else (192 + 128))
    again = 0 if form == "absorbed" else 2 * 128 * 256 * 512
    times = steps.times(decode(2, 100), 3, Efficiency())
    # what is made of latents is a product; pairs are attention of `ideal`
    made = 1e9 * load_device("a100-80gb").accelerator.compute.decode_efficiency  # type: ignore[union-attr]
    for nth, context in enumerate((100, 102, 104)):
        seconds = 2 * (context + 2) * pair / 1e9 + 2 * context * again / made
        assert times.attention_s[nth] == pytest.approx(seconds)
    chunks = [Chunk(0, 50, 10, False)]
    found = steps.times(Step(np.zeros(0, np.int64), 0, chunks, [], 0, ""), 1, Efficiency())
    flops = 2 * ((500 + 55) * pair + 50 * again) + 10 * model.layer_flops
    rate = 1e9 * load_device("a100-80gb").accelerator.compute.prefill_efficiency  # type: ignore[union-attr]
    assert found.weights_s + found.prefill_s == pytest.approx(flops / rate)
