"""Memory kept for activations, against what vLLM logged."""

from __future__ import annotations

import pytest

from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.vllm_version import VERSIONS
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


def small(hidden: int, intermediate: int, vocabulary: int) -> TransformerSpec:
    """What decides of a model that does not ship."""
    own = f"hidden={hidden} intermediate={intermediate} vocabulary={vocabulary}".split()
    return load_model("llama-2-7b", own)


@pytest.mark.parametrize(
    ("model", "cards", "measured"),
    [
        (load_model("llama-3.1-8b"), 1, 1.89),  # set HIDDEN, with Gemma 2
        (load_model("llama-3.1-8b"), 2, 1.89),
        (load_model("qwen2.5-7b"), 1, 2.21),
        (load_model("qwen3-8b"), 1, 2.21),
        (small(3584, 14336, 256_000), 1, 3.62),  # Gemma 2 9B
        (small(4608, 36864, 256_000), 1, 3.66),  # Gemma 2 27B
        (small(3072, 24576, 256_000), 1, 3.63),  # Gemma 7B
        (small(2560, 10240, 51_200), 1, 0.79),  # phi-2
    ],
)
def test_the_peak_is_what_vllm_019_logs(
    model: TransformerSpec, cards: int, measured: float
) -> None:
    """llm-d-planner 151baf3, accuracy_report.md: an H100, 1,024 sequences, 8,192 tokens."""
    part = shard(model, cards)
    found = peak_activation_bytes(
        part, cards, 8192, 1024, sampler_bytes=VERSIONS["0.19"].sampler_bytes
    )
    assert found / GIB == pytest.approx(measured, rel=0.02)


def test_the_sampler_of_older_versions_keeps_more() -> None:
    model = small(5120, 17408, 151_936)  # Qwen3-14B in 0.15 and 0.16
    found = peak_activation_bytes(
        model, 1, 8192, 1024, sampler_bytes=VERSIONS["0.11"].sampler_bytes
    )
    assert found / GIB == pytest.approx(5.64, rel=0.02)


@pytest.mark.parametrize(("cards", "measured"), [(1, 0.25), (2, 2.07)])
def test_what_is_outside_pytorch(cards: int, measured: float) -> None:
    engine = EngineV1Spec(like="0.19")
    assert engine.non_torch_bytes(cards) / GIB == pytest.approx(measured, rel=0.02)
    assert EngineV1Spec().non_torch_bytes(cards) == 0


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
