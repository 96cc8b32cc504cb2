"""Do latents, indices and scales take the bytes that vLLM logs, and pages of two sizes the room?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import Document
from hwmodel.specs.device import load_device
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import load_model
from policies.allocators.attention_options import TopK
from policies.allocators.kv_layout import KV_ALIGN_BYTES
from policies.serving.building import kv_region
from policies.serving.serving_spec import ServingSpec, model_of_a_card

V32 = load_model("deepseek-v3")
BLOCK = 64


def test_pages_of_latents_and_of_indices_have_the_sizes_of_vllm() -> None:
    sparse = TopK().sparse(V32, 0)
    assert BLOCK * V32.stored_as(None, "fp8_ds_mla").kv_layer_bytes == 41_984
    assert BLOCK * sparse.index_bytes == 8_448


def test_a_head_in_nvfp4_takes_72_bytes_and_one_with_an_fp32_scale_132() -> None:
    assert number_format("nvfp4_kv").vector_bytes(128) == 72
    assert number_format("fp8_token_head").vector_bytes(128) == 132
    assert number_format("fp8_token_head").effective_bits(8, 128) == 8.25


@pytest.mark.parametrize(("pages", "tokens"), [("padded", 15_872), ("packed", 25_984)])
def test_padded_indices_lose_as_many_tokens_as_logged(pages: str, tokens: int) -> None:
    """vLLM-Ascend: bf16 latents of 1,152 B, bf16 keys of 256 B, blocks of 128 tokens."""
    given = {
        "model": "x", "gpu_memory_utilization": 1.0, "activation_bytes": "0B", "kv": "bf16",
        "attention": {"name": "top_k", "index_bytes": "256B", "index_pages": pages},
        "tensor_parallel": 8,
    }  # fmt: skip
    spec = Document(given, "x").build(ServingSpec)
    part = model_of_a_card(spec, V32)
    base = -(-part.weight_bytes // KV_ALIGN_BYTES) * KV_ALIGN_BYTES
    # room for 124.5 blocks with padded pages
    capacity = base + round(124.5 * 128 * 2 * 1152 * part.layers)
    slots = kv_region(load_device("h200", [f"capacity={capacity}B"]), part, spec).slots
    assert slots // 128 * 128 == tokens
