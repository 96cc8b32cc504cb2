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
    "llama-2-7b", ["kv_heads=8", "intermediate=14336", "vocabulary=128256", "max_position=8192"]
)


def small(hidden: int, intermediate: int, vocabulary: int) -> TransformerSpec:
    """What decides of a model that does not ship."""
    own = f"hidden={hidden} intermediate={intermediate} vocabulary={vocabulary}".split()
    return load_model("llama-2-7b", own)


@pytest.mark.parametrize(
    ("model", "cards", "sequences", "version", "measured"),
    [
        (MODEL, 1, 256, None, 1.42),  # vllm-project/vllm issue 13882, 256 sequences assumed
        (LLAMA_3_8B, 1, 256, None, 1.26),  # pull request 10511
        (LLAMA_3_8B, 2, 256, None, 1.26),
        # llm-d-planner 151baf3, accuracy_report.md: an H100, 1,024 sequences, 8,192 tokens
        (load_model("llama-3.1-8b"), 1, 1024, "0.19", 1.89),  # set HIDDEN, with Gemma 2
        (load_model("llama-3.1-8b"), 2, 1024, "0.19", 1.89),
        (load_model("qwen2.5-7b"), 1, 1024, "0.19", 2.21),
        (load_model("qwen3-8b"), 1, 1024, "0.19", 2.21),
        (small(3584, 14336, 256_000), 1, 1024, "0.19", 3.62),  # Gemma 2 9B
        (small(4608, 36864, 256_000), 1, 1024, "0.19", 3.66),  # Gemma 2 27B
        (small(3072, 24576, 256_000), 1, 1024, "0.19", 3.63),  # Gemma 7B
        (small(2560, 10240, 51_200), 1, 1024, "0.19", 0.79),  # phi-2
        (small(5120, 17408, 151_936), 1, 1024, "0.11", 5.64),  # Qwen3-14B in 0.15 and 0.16
    ],
)
def test_the_peak_is_what_vllm_logs(
    model: TransformerSpec, cards: int, sequences: int, version: str | None, measured: float
) -> None:
    more = {} if version is None else {"sampler_bytes": VERSIONS[version].sampler_bytes}
    found = peak_activation_bytes(shard(model, cards), cards, 8192, sequences, **more) / GIB
    assert found == pytest.approx(measured, rel=0.05 if version is None else 0.02)


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
