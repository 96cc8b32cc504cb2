"""Does a published config.json become the model that ships, and is what it leaves open said?

The fields and values are those of the published files as far as they bear on shape.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.huggingface import FAMILIES, Imported, import_config
from hwmodel.specs.hybrid_configs import HYBRIDS
from hwmodel.specs.transformer import load_model


def shape(
    kind: str, layers: int, hidden: int, heads: int, kv: int, width: int, vocabulary: int,
    longest: int, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Fields that most files have."""
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": width,
        "vocab_size": vocabulary, "max_position_embeddings": longest, **more,
    }  # fmt: skip


BF16, FP16 = {"torch_dtype": "bfloat16"}, {"torch_dtype": "float16"}
LATENT = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
ALTERNATE = ["sliding_attention", "full_attention"]
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-2-7b": shape("llama", 32, 4096, 32, 32, 11008, 32000, 4096, **FP16),
    "llama-3.2-3b": shape(
        "llama", 28, 3072, 24, 8, 8192, 128256, 131072,
        head_dim=128, attention_bias=False, mlp_bias=False, tie_word_embeddings=True, **BF16,
    ),
    "qwen2.5-7b": shape(
        "qwen2", 28, 3584, 28, 4, 18944, 152064, 131072,
        use_sliding_window=False, sliding_window=131072, max_window_layers=28, **BF16,
    ),
    "qwen3-8b": shape(
        "qwen3", 36, 4096, 32, 8, 12288, 151936, 40960,
        head_dim=128, attention_bias=False, sliding_window=None, **BF16,
    ),
    "mistral-7b-v0.1": shape(
        "mistral", 32, 4096, 32, 8, 14336, 32000, 32768, sliding_window=4096, **BF16
    ),
    "mixtral-8x7b-v0.1": shape(
        "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768,
        sliding_window=None, num_local_experts=8, num_experts_per_tok=2, **BF16,
    ),
    "qwen3-30b-a3b": shape(
        "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960,
        head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
        decoder_sparse_step=1, mlp_only_layers=[], **BF16,
    ),
    "deepseek-v3": shape(
        "deepseek_v3", 61, 7168, 128, 128, 18432, 129280, 163840, **LATENT, **BF16
    ),
    "glm-5": shape(
        "glm_moe_dsa", 78, 6144, 64, 64, 12288, 154880, 202752,
        **{key: value for key, value in LATENT.items() if key != "quantization_config"}
        | {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256},
        mlp_layer_types=["dense"] * 3 + ["sparse"] * 75, index_topk=2048, index_head_dim=128,
        index_n_heads=32, indexer_types=["full"] * 78, attention_bias=False, head_dim=64, **BF16,
    ),
    "minimax-m3": {
        "model_type": "minimax_m3_vl", "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1280},
        "text_config": shape(
            "minimax_m3_vl_text", 60, 6144, 64, 4, 3072, 200064, 524288,
            head_dim=128, dense_intermediate_size=12288, shared_intermediate_size=3072,
            n_shared_experts=1, num_local_experts=128, num_experts_per_tok=4, rotary_dim=64,
            use_routing_bias=True, moe_layer_freq=[0] * 3 + [1] * 57,
            sparse_attention_config={"sparse_attention_freq": [0] * 3 + [1] * 57},
        ),
    },
    "gemma-3-27b": {
        "model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "intermediate_size": 21504, "sliding_window": 1024, "vocab_size": 262144,
        },
    },
    "gpt-oss-20b": shape(
        "gpt_oss", 24, 2880, 64, 8, 2880, 201088, 131072,
        head_dim=64, attention_bias=True, num_local_experts=32, num_experts_per_tok=4,
        sliding_window=128, layer_types=ALTERNATE * 12,
        quantization_config={"quant_method": "mxfp4"}, **BF16,
    ),
    "opt-6.7b": {
        "model_type": "opt", "num_hidden_layers": 32, "hidden_size": 4096, "ffn_dim": 16384,
        "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048,
        "word_embed_proj_dim": 4096, "do_layer_norm_before": True, **FP16,
    },
    "phi-4": shape("phi3", 40, 5120, 40, 10, 17920, 100352, 16384, sliding_window=None, **BF16),
}  # fmt: skip
"""Of models that ship."""


def imported(folder: Path, fields: Any, name: str | None = "model") -> Imported:
    file = folder / "config.json"
    file.write_text(json.dumps(fields))
    return import_config(file, name)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_becomes_the_model_that_ships(name: str, tmp_path: Path) -> None:
    found, own = imported(tmp_path, CONFIGS[name], name), load_model(name)
    described = {"name", "summary", "sources"}
    assert found.spec.model_dump(exclude=described) == own.model_dump(exclude=described)
    assert found.unknown == {}


def test_other_families_have_their_published_parameters(tmp_path: Path) -> None:
    gemma2 = shape("gemma2", 26, 2304, 8, 4, 9216, 256000, 8192, head_dim=256, sliding_window=4096)
    found = imported(tmp_path, gemma2).spec
    # Gemma-2-2B: keras-hub 02aeee5, keras_hub/src/models/gemma/gemma_presets.py
    assert found.parameters == 2_614_341_888
    assert [found.layer(n).window for n in range(3)] == [4096, None, 4096]
    lite = {
        **shape("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, 163840), **LATENT,
        "q_lora_rank": None, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
        "quantization_config": None,
    }  # fmt: skip
    described = {"name", "summary", "sources"}
    own = load_model("deepseek-v2-lite").model_dump(exclude=described)
    assert imported(tmp_path, lite).spec.model_dump(exclude=described) == own


def test_every_field_is_accounted_for(tmp_path: Path) -> None:
    fields = {
        **CONFIGS["llama-2-7b"], "rope_theta": 10000.0, "hidden_act": "silu", "novelty": 3,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32},
    }  # fmt: skip
    found = imported(tmp_path, fields)
    assert found.understood["num_hidden_layers"] == "layers"
    assert found.ignored["rope_theta"] == "rotary positions have no parameters"
    assert set(found.unknown) == {"novelty", "quantization_config"}
    every = {*found.understood, *found.ignored, *found.unknown}
    assert every == set(fields) - {"tie_word_embeddings"}


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "w4a16"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "w4a16_symmetric"),
        ({"quant_method": "fp8"}, "fp8"),
    ],
)
def test_quantised_checkpoints(given: dict[str, Any], weights: str, tmp_path: Path) -> None:
    found = imported(tmp_path, {**CONFIGS["llama-2-7b"], "quantization_config": given})
    assert (found.spec.weights, found.spec.kv, found.unknown) == (weights, "fp16", {})


def test_a_quantised_checkpoint_of_no_known_kind_is_told(tmp_path: Path) -> None:
    given = {"quant_method": ["awq"], "bits": 4, "group_size": 128}
    found = imported(tmp_path, {**CONFIGS["llama-2-7b"], "quantization_config": given})
    assert set(found.unknown) == {"quantization_config"}


def test_upper_layers_of_qwen_may_have_windows(tmp_path: Path) -> None:
    fields = CONFIGS["qwen2.5-7b"] | {
        "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20,
    }  # fmt: skip
    spec = imported(tmp_path, fields).spec
    assert [spec.layer(n).window for n in range(28)] == [None] * 20 + [4096] * 8


LLAMA = CONFIGS["llama-2-7b"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**CONFIGS["opt-6.7b"], "word_embed_proj_dim": 512}, "word_embed_proj_dim: only 4096 is"),
        ({**CONFIGS["qwen3-30b-a3b"], "decoder_sparse_step": 2}, "decoder_sparse_step: only 1 is"),
        ({**CONFIGS["gpt-oss-20b"], "layer_types": ["linear_attention"]}, "layer_types: expected"),
        ({**CONFIGS["gpt-oss-20b"], "layer_types": ALTERNATE}, "expected 24 layers; got 2"),
        ({**CONFIGS["gpt-oss-20b"], "layer_types": 3}, "layer_types: expected"),
        ({**CONFIGS["glm-5"], "mlp_layer_types": ["sparse"] * 78}, "expected 3 times dense, then"),
        (
            {
                **CONFIGS["minimax-m3"]["text_config"],
                "model_type": "minimax_m3_vl",
                "moe_layer_freq": 1,
            },
            "0 for dense layers, then 1",
        ),
    ],
)
def test_what_is_not_known_is_refused(fields: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=message) as refused:
        imported(tmp_path, fields)
    assert str(refused.value).startswith(str(tmp_path))


def test_are_layers_as_they_are_in_every_llama_no_hybrid(tmp_path: Path) -> None:
    plain = {"layer_types": ["full_attention"] * 32, "sliding_window": None, "num_experts": 0}
    assert imported(tmp_path, {**LLAMA, **plain}).spec == imported(tmp_path, LLAMA).spec


def test_a_name_is_taken_from_the_path_or_the_folder(tmp_path: Path) -> None:
    (tmp_path / "Mine-7B").mkdir()
    assert imported(tmp_path / "Mine-7B", LLAMA, None).spec.name == "mine-7b"
    fields = {**LLAMA, "_name_or_path": "meta-llama/Llama-2-7b-hf"}
    assert imported(tmp_path, fields, None).spec.name == "llama-2-7b-hf"
    (tmp_path / "config.json").write_text("{,}")
    with pytest.raises(DescriptionError, match="not JSON"):
        import_config(tmp_path / "config.json")


def test_every_family_is_tried_here() -> None:
    tried = {fields["model_type"] for fields in CONFIGS.values()}
    assert set(FAMILIES) - set(HYBRIDS) - tried == {"gemma2", "gemma3_text", "deepseek_v2"}
