"""Does the config.json of a hybrid become the model that ships, and is an unknown layer named?

Fields and values are those of published files as far as they bear on shape; their sources are those
of the models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.transformer import load_model
from tests.hwmodel.specs.test_huggingface import BF16, imported, shape

DELTA = {
    "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "tie_word_embeddings": False, **BF16,
}  # fmt: skip
MAMBA = {"mamba_d_conv": 4, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_expand": 2}
FOUR = ["linear_attention"] * 3 + ["full_attention"]
CONVS = "ccfccfccfcfcfcfc"
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3-next-80b-a3b": shape(
        "qwen3_next", 48, 2048, 16, 2, 5120, 151936, 262144, decoder_sparse_step=1,
        full_attention_interval=4, mlp_only_layers=[], num_experts=512, num_experts_per_tok=10,
        moe_intermediate_size=512, shared_expert_intermediate_size=512, use_sliding_window=False,
        rope_scaling=None, **DELTA,
    ),
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe", "vision_config": {"depth": 27}, "dtype": "bfloat16",
        "text_config": shape(
            "qwen3_5_moe_text", 40, 2048, 16, 2, 512, 248320, 262144, layer_types=FOUR * 10,
            attn_output_gate=True, num_experts=256, num_experts_per_tok=8,
            moe_intermediate_size=512, shared_expert_intermediate_size=512,
            mamba_ssm_dtype="float32", **DELTA,
        ),
    },
    "qwen3.5-27b": {
        "model_type": "qwen3_5", "dtype": "bfloat16",
        "text_config": shape(
            "qwen3_5_text", 64, 5120, 24, 4, 17408, 248320, 262144,
            **{**DELTA, "linear_num_value_heads": 48},
        ),
    },
    "kimi-linear-48b-a3b": shape(
        "kimi_linear", 27, 2304, 32, 32, 9216, 163840, 1048576, kv_lora_rank=512, q_lora_rank=None,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, num_experts=256,
        num_experts_per_token=8, num_shared_experts=1, moe_intermediate_size=1024,
        first_k_dense_replace=1, moe_layer_freq=1, mla_use_nope=True, num_expert_group=1,
        moe_router_activation_func="sigmoid", moe_renormalize=True, head_dim=72,
        linear_attn_config={
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
            "short_conv_kernel_size": 4,
        }, **BF16,
    ),
    "granite-4.0-h-small": shape(
        "granitemoehybrid", 40, 4096, 32, 8, 768, 100352, 131072, num_local_experts=72,
        num_experts_per_tok=10, shared_intermediate_size=1536, mamba_n_heads=128, mamba_d_head=64,
        mamba_n_groups=1, mamba_d_state=128, tie_word_embeddings=True,
        layer_types=(["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, **MAMBA, **BF16,
    ),
    "jamba-v0.1": shape(
        "jamba", 32, 4096, 32, 8, 14336, 65536, 262144, attn_layer_offset=4, attn_layer_period=8,
        expert_layer_offset=1, expert_layer_period=2, mamba_d_state=16, mamba_dt_rank=256,
        num_experts=16, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False,
        use_mamba_kernels=False, **MAMBA, **BF16,
    ),
    "falcon-h1-7b": shape(
        "falcon_h1", 44, 3072, 12, 2, 12288, 130048, 262144, head_dim=128, attn_layer_indices=None,
        mamba_d_head=128, mamba_d_ssm=3072, mamba_d_state=256, mamba_n_groups=1, mamba_n_heads=24,
        mamba_rms_norm=False, ssm_multipliers=[1.0] * 5, **MAMBA, **BF16,
    ),
    "lfm2-1.2b": shape(
        "lfm2", 16, 2048, 32, 8, 12288, 65536, 128000, conv_L_cache=3, conv_bias=False,
        block_auto_adjust_ff_dim=True, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
        layer_types=["conv" if kind == "c" else "full_attention" for kind in CONVS],
        tie_word_embeddings=True, **BF16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hybrid_becomes_the_model_that_ships(tmp_path: Path, name: str) -> None:
    found = imported(tmp_path, CONFIGS[name], name)
    known = load_model(name)
    assert found.unknown == {}
    assert (found.spec.parameters, found.spec.kinds) == (known.parameters, known.kinds)
    for own in ("kv_token_bytes", "max_position", "weights", "active_parameters"):
        assert getattr(found.spec, own) == getattr(known, own), own
    assert found.spec.state_bytes() == known.state_bytes()


def test_layers_that_are_one_thing_each(tmp_path: Path) -> None:
    nemotron = shape(
        "nemotron_h", 8, 4096, 32, 8, 21504, 131072, 8192, head_dim=128, mamba_num_heads=128,
        mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4, use_conv_bias=True,
        mlp_hidden_act="relu2", hybrid_override_pattern="M-M-M*-M", **BF16,
    )  # fmt: skip
    spec = imported(tmp_path, nemotron).spec
    assert (spec.kv_layers, spec.state_bytes() > 0) == (1, True)
    kinds = {len(kind.mixers): many for kind, many in spec.kinds.items() if not kind.mixers}
    assert kinds == {0: 3}


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("lfm2-1.2b", "layer_types", ["conv"] * 15 + ["ssd"], "layer_types: layer 15 is 'ssd', wh"),
        ("granite-4.0-h-small", "layer_types", ["mamba"], "expected a layer type for each of 40"),
        ("kimi-linear-48b-a3b", "linear_attn_config", None, "expected full_attn_layers"),
        ("falcon-h1-7b", "mamba_d_shift", 3, "mamba_d_shift: changes KV or parameters of layers"),
        ("jamba-v0.1", "mamba_proj_bias", True, "only false is known"),
    ],
)  # fmt: skip
def test_what_is_not_described_is_named(
    tmp_path: Path, name: str, field: str, value: Any, message: str
) -> None:
    with pytest.raises(DescriptionError, match=message) as error:
        imported(tmp_path, {**CONFIGS[name], field: value})
    assert "\n" not in str(error.value)
