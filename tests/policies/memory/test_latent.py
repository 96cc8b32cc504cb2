"""Is the latent read once, and are its two forms' FLOPs counted?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.allocators.kv_layout import Units, kv_layout
from policies.engines.scheduled_step import Chunk, Step
from policies.memory import traffic
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.small import LATENT, device

BARE = ["kernels={class: ideal}"]
DENSE = load_model("deepseek-v3").model_copy(
    update={"experts": None, "intermediate": 2048, "layers": 2, "weights": "fp16"}
)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_closed_form_of_a_step_is_that_of_its_streams(name: str) -> None:
    layout = kv_layout(device(4096), LATENT, 1.0, LAYOUTS[name])
    assert layout.token_bytes == LATENT.kv_token_bytes == 2 * 64 * 2
    units = [Units(*(np.array([n]) for n in (64 * i, 33, 64))) for i in range(3)]
    read = written = 0
    for layer in range(2):
        found = traffic.decode(layout, units, np.ones(3, np.int64), layer)
        read += int(found.size[~found.write].sum())
        written += int(found.size[found.write].sum())
    assert (read, written) == (3 * 32 * 256, 3 * 256)
    steps = StepModel(load_device("mlu370-x4", BARE), LATENT)
    seconds = steps.times(decode(3, 96), 1, Efficiency()).attention_s[0]
    assert seconds == pytest.approx((read + written) / steps.bandwidth)


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
