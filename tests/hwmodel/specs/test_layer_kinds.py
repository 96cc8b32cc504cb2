"""Do layers of every kind give the published parameters, KV and FLOPs?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.transformer import load_model, shard

PUBLISHED = {
    # keras-hub's presets (Gemma 3: keras_hub/src/models/gemma3/gemma3_presets.py), safetensors
    # totals and GGUF headers; DeepSeek-V3's report; V2-Lite: foldl/chatllm.cpp docs/tool_calling.md
    "llama-2-7b": 6_738_415_616, "llama-2-13b": 13_015_864_320, "llama-2-70b": 68_976_648_192,
    "llama-3.2-3b": 3_212_749_824, "llama-3.1-8b": 8_030_261_248,
    "llama-3.3-70b": 70_553_706_496, "qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352, "qwen2.5-72b": 72_706_203_648, "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624, "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b-v0.1": 46_702_792_704, "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672, "gemma-3-12b": 11_765_788_416,
    "gemma-3-27b": 27_009_002_240, "deepseek-v3": 671_000_000_000,
    "deepseek-v2-lite": 15_706_484_224, "phi-4": 14_659_507_200,
    "yi-34b": 34_388_917_248, "deepseek-r1-distill-qwen-7b": 7_615_616_512,
    # the counts of their shapes; only the billions of their names are published
    "opt-6.7b": 6_658_473_984, "opt-13b": 12_853_473_280, "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504, "opt-175b": 174_604_468_224,
}  # fmt: skip
KIB = {
    "llama-2-7b": 512, "llama-2-13b": 800, "llama-2-70b": 320, "llama-3.2-3b": 112,
    "llama-3.1-8b": 128, "llama-3.3-70b": 320, "qwen2.5-7b": 56, "qwen2.5-14b": 192,
    "qwen2.5-32b": 256, "qwen2.5-72b": 320, "qwen3-8b": 144, "qwen3-30b-a3b": 96,
    "mistral-7b-v0.1": 128, "mixtral-8x7b-v0.1": 128, "gpt-oss-20b": 48, "gpt-oss-120b": 72,
    "gemma-3-12b": 384, "gemma-3-27b": 496, "deepseek-v3": 68.625,
    "deepseek-v2-lite": 30.375, "phi-4": 200, "yi-34b": 240,
    "deepseek-r1-distill-qwen-7b": 56, "opt-6.7b": 512, "opt-13b": 800,
    "opt-30b": 1344, "opt-66b": 2304, "opt-175b": 4608,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_kv_are_the_published_ones(name: str) -> None:
    model = load_model(name)
    within = 1e-4 if name == "deepseek-v3" else 0  # published in billions
    assert model.parameters == pytest.approx(PUBLISHED[name], rel=within, abs=0)
    assert model.kv_token_bytes == KIB[name] * 1024


def test_models_have_the_names_of_their_files() -> None:
    assert [load_model(name).name for name in names("models")] == names("models")


@pytest.mark.parametrize(
    ("name", "billions", "embedding"),
    [
        # model cards; DeepSeek's agrees with layers and head
        ("mixtral-8x7b-v0.1", 12.9, True), ("qwen3-30b-a3b", 3.3, True),
        ("gpt-oss-20b", 3.61, False), ("gpt-oss-120b", 5.13, False), ("deepseek-v3", 36.7, False),
        ("glm-5", 40.0, False),
    ],
)  # fmt: skip
def test_active_parameters_are_the_published_ones(
    name: str, billions: float, embedding: bool
) -> None:
    model = load_model(name)
    active = model.active_parameters - (0 if embedding else model.embedding_parameters)
    assert active / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "billions", "index"), [("glm-5", 744, 78), ("minimax-m3", 428, 57)]
)
def test_published_parameters_hold_indexers_as_well(name: str, billions: int, index: int) -> None:
    """Queries, a key and weights of heads, 128 wide: less than 0.2 % of all, and left out; of
    MiniMax-M3 also what sees images."""
    model = load_model(name)
    latent, heads = (model.latent.q_lora_rank, 32) if model.latent else (model.hidden, 4)
    beside = index * (latent * heads * 128 + model.hidden * (128 + heads))
    assert beside < 0.002 * model.parameters
    assert (model.parameters + beside) / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_sizes_of_published_checkpoints(name: str, gib: float) -> None:
    assert load_model(name).weight_bytes / 2**30 == pytest.approx(gib, abs=0.05)


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("mistral-7b-v0.1", 0, 32, 4096), ("gpt-oss-20b", 12, 12, 128),
        ("gemma-3-27b", 10, 52, 1024), ("llama-2-7b", 32, 0, 0),
    ],
)  # fmt: skip
def test_a_window_holds_the_last_tokens(name: str, full: int, windowed: int, window: int) -> None:
    model = load_model(name)
    for context in (100, 100_000):
        layers = full * context + windowed * min(context, window)
        assert model.kv_held_bytes(context) == layers * model.kv_layer_bytes


def test_cards_that_do_not_divide_experts_are_refused() -> None:
    with pytest.raises(DescriptionError, match="4 KV heads, 768 MLP columns"):
        shard(load_model("qwen3-30b-a3b", ["heads=40", "kv_heads=4"]), 5)
