"""Memory kept for activations, against what vLLM logged."""

from __future__ import annotations

import pytest

from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.serving.activations import peak_activation_bytes
from policies.serving.building import activation_bytes
from policies.serving.serving_spec import ServingSpec

GIB = 1 << 30
MODEL = load_model("deepseek-r1-distill-qwen-7b")
LLAMA_3_8B = load_model(
    "llama-2-7b",
    ["kv_heads=8", "intermediate=14336", "vocabulary=128256", "max_position=8192"],
)


@pytest.mark.parametrize(
    ("model", "cards", "measured"),
    [
        (MODEL, 1, 1.42),  # vllm-project/vllm issue 13882, 256 sequences assumed
        (LLAMA_3_8B, 1, 1.26),  # pull request 10511
        (LLAMA_3_8B, 2, 1.26),
    ],
)
def test_the_peak_is_what_vllm_logs(model: TransformerSpec, cards: int, measured: float) -> None:
    found = peak_activation_bytes(shard(model, cards), cards, 8192, 256) / GIB
    assert found == pytest.approx(measured, rel=0.05)


def test_a_layer_decides_where_few_sequences_sample() -> None:
    few = peak_activation_bytes(MODEL, 1, 8192, 1)
    assert few == 8192 * (2 * 3584 + 3 * 18944) * 2
    assert few == peak_activation_bytes(MODEL, 1, 8192, 64)
    assert peak_activation_bytes(MODEL, 1, 8, 256) == 8 * MODEL.vocabulary * 40


@pytest.mark.parametrize("engine", ["v1", "v0"])
def test_what_is_given_beats_the_peak(engine: str) -> None:
    spec = {"model": MODEL.name, "engine": {"name": engine}}
    peak = activation_bytes(ServingSpec.model_validate(spec), MODEL)
    assert peak >= 256 * MODEL.vocabulary * 40
    given = ServingSpec.model_validate({**spec, "activation_bytes": "1MiB"})
    assert activation_bytes(given, MODEL) == 1 << 20
