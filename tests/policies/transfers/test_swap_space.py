"""Does a swap space take all that a request has, and nothing that it no longer needs?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KV_ALIGN_BYTES
from policies.memory.step import StepModel
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult, serve
from tests.policies.serving.features import HYBRID
from tests.policies.small import MODEL, WINDOWS, spec

STATES = MODEL.model_copy(update={**HYBRID, "layers": 4})
ENGINE = {
    "name": "v0", "preemption": "swap", "max_model_len": 1024, "chunked_prefill": True,
    "max_num_batched_tokens": 64, "max_num_seqs": 16,
}  # fmt: skip
POLICY = {"name": "paged", "watermark": 0.0, "block": 16}


def served(
    model: TransformerSpec, slots: int, prompt: int, output: int, link: str, **engine: Any
) -> ServingResult:
    """Two requests that do not fit a card together with all of their tokens."""
    capacity = KV_ALIGN_BYTES + slots * model.kv_token_bytes
    card = load_device("mlu370-x4", [f"capacity={capacity}B", "derate=1", f"host.bandwidth={link}"])
    stream = Requests(np.zeros(2), np.full(2, prompt), np.full(2, output))
    options = spec(engine={**ENGINE, **engine}, policy=POLICY)
    return serve(card, model, options, stream, seed=1)


CASES = pytest.mark.parametrize(
    ("model", "slots", "prompt", "output", "block"),
    [(MODEL, 352, 150, 60, 16), (STATES, 520, 150, 60, 48), (WINDOWS, 256, 40, 300, 16)],
    ids=["plain", "states", "windows"],
)


@CASES
def test_a_step_waits_for_every_byte_and_no_other(
    model: TransformerSpec, slots: int, prompt: int, output: int, block: int
) -> None:
    slow, fast = (
        served(model, slots, prompt, output, link).metrics for link in ("10MB/s", "1GB/s")
    )
    assert slow["finished"] == fast["finished"] == 2
    swapped = slow["swapped_tokens"]
    assert swapped == fast["swapped_tokens"] > 0 and slow["preemptions"] == 1
    moved = (slow["makespan_s"] - fast["makespan_s"]) / (1 / 10e6 - 1 / 1e9)
    whole, tokens = swapped * model.kv_token_bytes, swapped // 2
    if model is STATES:
        whole += 2 * model.state_bytes()
    elif model is WINDOWS:  # four layers of six keep 40 tokens
        whole = 2 * (2 * tokens + 4 * 40) * model.kv_token_bytes // 6
    assert moved == pytest.approx(whole)


def test_work_counts_what_a_request_has() -> None:
    card = load_device("mlu370-x4")
    windows = StepModel(card, WINDOWS, groups=kv_groups(WINDOWS, "blocks")).work
    each = WINDOWS.kv_token_bytes // 6
    assert windows.transferred((150,)) == pytest.approx((2 * 150 + 4 * 40) * each)
    states = StepModel(card, STATES).work
    assert states.transferred((150, 20)) == 170 * STATES.kv_token_bytes + 2 * STATES.state_bytes()
