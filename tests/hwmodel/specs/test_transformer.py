"""Do the shapes give the published sizes?"""

from __future__ import annotations

import pytest

from hwmodel.specs.transformer import load_model

QWEN = "deepseek-r1-distill-qwen-7b"


@pytest.mark.parametrize(
    ("name", "parameters", "kv_kib"),
    [(QWEN, 7_615_616_512, 56), ("llama-2-7b", 6_738_415_616, 512)],
)
def test_parameters_and_kv_are_the_published_ones(name: str, parameters: int, kv_kib: int) -> None:
    # parameter counts: safetensors metadata of the two models
    model = load_model(name)
    assert model.parameters == parameters
    assert model.weight_bytes == 2 * parameters
    assert model.kv_token_bytes == kv_kib << 10


def test_a_block_of_16_tokens_is_the_extent_the_design_names() -> None:
    assert 16 * load_model(QWEN).kv_half_bytes == 16 << 10
    assert 16 * load_model(QWEN).kv_head_bytes == 4 << 10
    assert 16 * load_model("llama-2-7b").kv_half_bytes == 128 << 10


def test_flops_are_two_a_matrix_weight() -> None:
    model = load_model("llama-2-7b")
    matrices = model.parameters - model.embedding_parameters - (2 * 32 + 1) * 4096
    assert model.layer_flops + model.head_flops == 2 * matrices


def test_bits_change_bytes() -> None:
    half = load_model(QWEN, ["weights=int8", "kv=int8"])
    assert half.kv_token_bytes == 28 << 10
    assert half.weight_bytes == half.parameters


def test_tied_embeddings_are_stored_once() -> None:
    tied = load_model(QWEN, ["tied_embeddings=true"])
    assert tied.parameters == load_model(QWEN).parameters - tied.embedding_parameters
    assert tied.weight_bytes == tied.step_weight_bytes == 2 * tied.parameters
