"""Does `orca` reserve what the PagedAttention paper says its three variants do?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KV_ALIGN_BYTES, KvLayout
from policies.allocators.orca import OrcaAllocator, OrcaOptions
from policies.predictors.predictor import Prediction
from policies.requests.requests import FloatArray, IntArray, Requests
from policies.serving.serving import serve
from tests.policies import small

LAYOUT = KvLayout(base=0, slots=15_680, layers=2, kv_heads=2, head_bytes=16)
"""As many slots as 12 GiB hold of OPT-13B (Kwon et al., table 1: 15.7 K)."""
LIMITS = Limits(max_tokens=1024, max_model_len=2048)

REPORTED = {"max": (0.204, 7.00), "pow2": (0.268, 9.81), "oracle": (0.382, 13.62)}
"""Kwon et al. 2023, figures 2 and 13a: share of the KV memory that holds tokens, and requests in
the batch (OPT-13B, ShareGPT, 2 requests/s)."""


def orca(variant: str) -> OrcaAllocator:
    return OrcaAllocator(LAYOUT, 100, LIMITS, OrcaOptions.model_validate({"variant": variant}))


@pytest.mark.parametrize(
    ("variant", "slots"),
    [
        ("max", 2048),
        ("pow2", 256),  # 100 + 32, the paper's example, and then the buddy system's rounding
        ("oracle", 128),  # 100 + 25
    ],
)
def test_reserves_what_the_paper_says(variant: str, slots: int) -> None:
    allocator = orca(variant)
    demand = Demand(100, 0, Prediction(1.0), output=25)
    assert allocator.reserve(0, demand, 100)
    assert allocator.reserved[0] == slots
    needed = allocator.needs(np.array([100]), np.array([25]))
    assert needed.tolist() == [slots]


def test_never_reserves_beyond_the_longest_sequence() -> None:
    assert orca("pow2").size(0, Demand(1500, 0, Prediction(1.0), output=513)) == 2048


def with_means(prompt: float, output: float, count: int) -> Requests:
    """Lognormal lengths of these means after the cut; the spread is assumed.

    20 requests/s: memory shall be the limit, as it was at 2 requests/s on the paper's slower
    system.
    """
    rng = np.random.default_rng(0)
    lengths = [_scaled(rng, prompt, 1.2, 1024, count), _scaled(rng, output, 0.9, 1023, count)]
    return Requests(np.cumsum(rng.exponential(0.05, count)), *lengths)


def _scaled(rng: Any, mean: float, sigma: float, longest: int, count: int) -> IntArray:
    shape: FloatArray = rng.lognormal(0, sigma, count)
    scale = mean
    for _ in range(50):
        scale *= mean / np.clip(shape * scale, 4, longest).mean()
    return np.clip(shape * scale, 4, longest).astype(np.int64)


OPT_13B = TransformerSpec(
    kind="model", name="opt-13b", layers=40, hidden=5120, heads=40, kv_heads=40, head_dim=128,
    intermediate=13653, vocabulary=50272, max_position=2048, qkv_bias=False, tied_embeddings=True,
)  # fmt: skip
"""As many weights as OPT-13B: three matrices of 13,653 in the MLP for its two of 20,480."""


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    stream = with_means(161.31, 337.99, 700)
    base = -(-OPT_13B.weight_bytes // KV_ALIGN_BYTES) * KV_ALIGN_BYTES
    capacity = base + LAYOUT.slots * OPT_13B.kv_token_bytes
    device = load_device("a100-80gb", [f"capacity={capacity}B"])
    policies = {
        **{name: {"name": "orca", "variant": name} for name in REPORTED},
        "paged": {"name": "paged"},
    }
    return {
        name: serve(
            device, OPT_13B, small.spec(policy=policy), stream, seed=1, warmup_requests=70
        ).metrics
        for name, policy in policies.items()
    }


@pytest.mark.parametrize("variant", REPORTED)
def test_a_fifth_to_two_fifths_of_the_memory_holds_tokens(
    measured: dict[str, dict[str, Any]], variant: str
) -> None:
    """The spread of the lengths is not the paper's, but its means are: within 4 points, and within
    a tenth of the batch."""
    share, batch = REPORTED[variant]
    assert measured[variant]["kv_stored_share"] == pytest.approx(share, abs=0.04)
    assert measured[variant]["batch"] == pytest.approx(batch, rel=0.1)
    assert measured[variant]["limit_share"]["kv_memory"] > 0.9


def test_under_paging_nearly_all_of_it_does(measured: dict[str, dict[str, Any]]) -> None:
    """96.3 % in the paper. What is missing here: blocks that wait until the whole prompt of the
    next request fits, and a tenth of the time at the end, when nobody waits any more."""
    assert measured["paged"]["kv_stored_share"] > 0.9
    assert measured["paged"]["utilization"] > 0.96
    assert measured["paged"]["batch"] > 2 * measured["oracle"]["batch"]
