"""Fields of a config.json that describe layers with a state: hybrid models of transformers 5.23.

Each function takes the fields and what the family has in common with others (`base`), as in
`hwmodel.specs.huggingface`; a layer that is not known is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Base = Callable[..., dict[str, Any]]
_KINDS = {
    "linear_attention": "state", "mamba": "state", "conv": "state", "full_attention": "full",
    "attention": "full", "hybrid": "both",
}  # fmt: skip
_ALONE = {
    "M": "state_only", "*": "full_only", "-": "mlp", "mamba": "state_only",
    "linear_attention": "state_only", "attention": "full_only", "full_attention": "full_only",
    "mlp": "mlp",
}  # fmt: skip


def shortest(layers: Sequence[str]) -> list[str]:
    """The shortest pattern that repeats to these layers."""
    return next(
        list(layers[:many])
        for many in range(1, len(layers) + 1)
        if all(kind == layers[at % many] for at, kind in enumerate(layers))
    )


def _pattern(
    config: Any, field: str, given: Sequence[str] | None, layers: int,
    known: dict[str, str] = _KINDS,
) -> list[str]:  # fmt: skip
    """The pattern of layers that a field gives, one a layer."""
    if not isinstance(given, list | str) or len(given) != layers:
        raise config.error(field, f"expected a layer type for each of {layers} layers")
    odd = next((at for at, kind in enumerate(given) if kind not in known), None)
    if odd is not None:
        raise config.error(
            field, f"layer {odd} is {given[odd]!r}, which is not described; known: "
            + ", ".join(known),
        )  # fmt: skip
    return shortest([known[kind] for kind in given])


def routed(config: Any, count: str, per_token: str = "num_experts_per_tok") -> dict[str, Any]:
    """How many experts there are, and of a token, by the fields that say so."""
    fields = {"count": count, "per_token": per_token}
    return {key: config.number(field, f"experts.{key}") for key, field in fields.items()}


def deepseek_experts(
    config: Any, count: str, shared: str, per_token: str = "num_experts_per_tok"
) -> dict[str, Any]:
    """Experts beside shared ones as wide as them, behind dense layers."""
    width = config.number("moe_intermediate_size", "experts.intermediate")
    many = config.number(shared, "experts.shared_intermediate", 0)
    found = {**routed(config, count, per_token), "intermediate": width}
    dense = config.number("first_k_dense_replace", "experts.first_dense_layers", 0)
    return {**found, "shared_intermediate": many * width, "first_dense_layers": dense}


def latent_attention(config: Any) -> dict[str, Any]:
    """K and V as one latent a token, of which queries may have their own."""
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    latent = {name: config.number(name, f"latent.{name}") for name in names}
    rank = config.number("q_lora_rank", "latent.q_lora_rank", None)
    kept = latent["kv_lora_rank"] + latent["qk_rope_head_dim"]
    latent = {"q_lora_rank": rank, **latent} if rank else latent
    return {"kv_heads": 1, "head_dim": kept, "latent": latent}


def _every(config: Any, period: int, last: int, layers: int) -> list[str]:
    """Full attention in each `period`th layer, from `last` on."""
    return shortest(["full" if at % period == last else "state" for at in range(layers)])


def _gated_delta(config: Any, spec: dict[str, Any]) -> dict[str, Any]:
    period = config.number("full_attention_interval", "state.pattern", 4)
    types = config.take("layer_types", "state.pattern")
    layers = spec["layers"]
    pattern = (
        _every(config, period, period - 1, layers)
        if types is None
        else _pattern(config, "layer_types", types, layers)
    )
    names = {
        "heads": ("linear_num_value_heads", 32), "head_dim": ("linear_value_head_dim", 128),
        "key_heads": ("linear_num_key_heads", 16), "key_dim": ("linear_key_head_dim", 128),
        "conv": ("linear_conv_kernel_dim", 4),
    }  # fmt: skip
    own = {k: config.number(field, f"state.{k}", by) for k, (field, by) in names.items()}
    form = _format(config, "mamba_ssm_dtype", "fp32")
    config.only("attention_bias", False)
    config.only("attn_output_gate", True)
    config.take("use_sliding_window", "nothing: no layer has a window")
    return {
        **spec, "qk_norm": True, "output_gate": True,
        "state": {"kind": "gated_delta", "pattern": pattern, **own, **form},
    }  # fmt: skip


def _format(config: Any, field: str, default: str) -> dict[str, str]:
    name = config.take(field, "state.format")
    known = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", None: default}
    if name not in known:
        raise config.error(field, f"expected a float type; got {name!r}")
    return {"format": known[name]}


def qwen_dense(config: Any, base: Base) -> dict[str, Any]:
    """Qwen3.5."""
    return _gated_delta(config, base(config, head_dim=256))


def qwen_experts(config: Any, base: Base) -> dict[str, Any]:
    """Qwen3-Next and Qwen3.5 with experts."""
    config.only("decoder_sparse_step", 1)
    config.only("mlp_only_layers", [])
    width = config.number("moe_intermediate_size", "experts.intermediate")
    spec = base(config, head_dim=256, intermediate_size=width)
    found = {**routed(config, "num_experts"), "intermediate": width}
    shared = config.number("shared_expert_intermediate_size", "experts.shared_intermediate")
    found |= {"shared_intermediate": shared, "shared_gate": True}
    return {**_gated_delta(config, spec), "experts": found}


def kimi_linear(config: Any, base: Base) -> dict[str, Any]:
    """KDA and latent attention."""
    config.only("attention_bias", False)
    config.only("moe_layer_freq", 1)
    for field in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        config.take(field, "nothing: stated by latent")
    if "model_max_length" in config.left:
        config.left["max_position_embeddings"] = config.left.pop("model_max_length")
    latent = latent_attention(config)
    spec = base(config, max_position_embeddings=1 << 20) | latent
    own = config.take("linear_attn_config", "state")
    if not isinstance(own, dict) or not isinstance(own.get("full_attn_layers"), list):
        raise config.error("linear_attn_config", "expected full_attn_layers, head_dim, num_heads")
    full = set(own["full_attn_layers"])  # counted from 1
    kinds = ["full" if at + 1 in full else "state" for at in range(spec["layers"])]
    found = deepseek_experts(config, "num_experts", "num_shared_experts", "num_experts_per_token")
    return {
        **spec,
        "state": {
            "kind": "kda", "pattern": shortest(kinds), "heads": own.get("num_heads"),
            "head_dim": own.get("head_dim"), "conv": own.get("short_conv_kernel_size", 4),
        },
        "experts": {**found, "router_bias": True},
    }  # fmt: skip


def _mamba2(config: Any, pattern: list[str], inner: str, names: dict[str, str]) -> dict[str, Any]:
    """`names`: of the fields for heads, head_dim, groups, size and conv; `inner`, of the width that
    the first two make, which may be absent."""
    own = {key: config.number(field, f"state.{key}") for key, field in names.items()}
    config.take(inner, "nothing: heads x head_dim")
    for field, as_known in (("mamba_conv_bias", True), ("mamba_proj_bias", False)):
        config.only(field, as_known)
    return {"kind": "mamba2", "pattern": pattern, **own}


_MAMBA = {
    "heads": "mamba_n_heads", "head_dim": "mamba_d_head", "groups": "mamba_n_groups",
    "size": "mamba_d_state", "conv": "mamba_d_conv",
}  # fmt: skip


def granite(config: Any, base: Base) -> dict[str, Any]:
    """Granite 4.0 H, with experts or without."""
    config.only("attention_bias", False)
    spec = base(config, True)
    pattern = _pattern(
        config, "layer_types", config.take("layer_types", "state.pattern"), spec["layers"]
    )
    state = _mamba2(config, pattern, "mamba_expand", _MAMBA) | {"format": "bf16"}
    count = config.number("num_local_experts", "experts.count", 0)
    active = config.number("num_experts_per_tok", "experts.per_token", 0)
    shared = config.number("shared_intermediate_size", "experts.shared_intermediate", 0)
    if not count:
        return {**spec, "intermediate": shared or spec["intermediate"], "state": state}
    experts = {"count": count, "per_token": active, "intermediate": spec["intermediate"]}
    return {**spec, "state": state, "experts": {**experts, "shared_intermediate": shared}}


def falcon(config: Any, base: Base) -> dict[str, Any]:
    """Attention and Mamba2 side by side in every layer."""
    for field in ("attention_bias", "mlp_bias", "projectors_bias"):
        config.only(field, False)
    config.only("attn_layer_indices", None)
    normed = config.flag("mamba_rms_norm", "state.normed", False)
    config.take("mamba_norm_before_gate", "nothing: order of a norm")
    config.take("mamba_expand", "nothing: mamba_d_ssm")
    state = _mamba2(config, ["both"], "mamba_d_ssm", _MAMBA)
    return {**base(config), "state": {**state, "normed": normed, "format": "bf16"}}


def nemotron(config: Any, base: Base) -> dict[str, Any]:
    """Layers that are a state, attention or an MLP (without experts)."""
    for field in ("attention_bias", "mlp_bias", "use_bias"):
        config.only(field, False)
    config.only("use_conv_bias", True)
    text = config.take("hybrid_override_pattern", "state.pattern")
    types = config.take("layers_block_type", "state.pattern", text)
    field = "hybrid_override_pattern" if text is not None else "layers_block_type"
    count = len(types) if isinstance(types, list | str) else 0
    spec = base(config, num_hidden_layers=count)
    pattern = _pattern(config, field, types, spec["layers"], _ALONE)
    names = {
        "heads": "mamba_num_heads", "head_dim": "mamba_head_dim", "groups": "n_groups",
        "size": "ssm_state_size", "conv": "conv_kernel",
    }  # fmt: skip
    state = _mamba2(config, pattern, "expand", names)
    for unused in (
        "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "num_experts_per_tok",
        "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "moe_latent_size",
    ):  # fmt: skip
        config.take(unused, "nothing: no layer has experts")
    form = _format(config, "mamba_ssm_cache_dtype", "fp32")
    return {**spec, "gated": False, "state": {**state, **form}}


def jamba(config: Any, base: Base) -> dict[str, Any]:
    """Mamba, with attention in some layers and experts in some."""
    config.only("mamba_conv_bias", True)
    config.only("mamba_proj_bias", False)
    config.only("sliding_window", None)
    spec = base(config)
    period = config.number("attn_layer_period", "state.pattern", 8)
    place = config.number("attn_layer_offset", "state.pattern", 4)
    inner = config.number("mamba_expand", "state.heads", 2) * spec["hidden"]
    rank = config.number("mamba_dt_rank", "state.dt_rank", -(-spec["hidden"] // 16))
    experts = {
        "count": config.number("num_experts", "experts.count", 16),
        "per_token": config.number("num_experts_per_tok", "experts.per_token", 2),
        "intermediate": spec["intermediate"],
        "first_dense_layers": config.number("expert_layer_offset", "experts.first_dense_layers", 1),
        "period": config.number("expert_layer_period", "experts.period", 2),
    }
    state = {
        "kind": "mamba", "pattern": _every(config, period, place, spec["layers"]),
        "heads": inner, "head_dim": 1, "dt_rank": rank, "format": "bf16",
        "size": config.number("mamba_d_state", "state.size", 16),
        "conv": config.number("mamba_d_conv", "state.conv", 4),
    }  # fmt: skip
    return {**spec, "state": state} | ({"experts": experts} if experts["count"] > 1 else {})


def lfm2(config: Any, base: Base) -> dict[str, Any]:
    """Short convolutions; the MLP's width as the class adjusts it."""
    config.only("conv_bias", False)
    config.take("conv_dim", "nothing: as wide as the model")
    config.take("full_attn_idxs", "nothing: stated by layer_types")
    spec = base(config, True)
    pattern = _pattern(
        config, "layer_types", config.take("layer_types", "state.pattern"), spec["layers"]
    )
    width = config.number("block_ff_dim", "intermediate", spec["intermediate"])
    if config.flag("block_auto_adjust_ff_dim", "intermediate", True):
        width = int(config.take("block_ffn_dim_multiplier", "intermediate", 1.0) * (2 * width // 3))
        unit = config.number("block_multiple_of", "intermediate", 256)
        width = -(-width // unit) * unit
    taps = config.number("conv_L_cache", "state.conv", 3)
    state = {
        "kind": "short_conv", "pattern": pattern, "heads": spec["hidden"], "head_dim": 1,
        "conv": taps, "format": "bf16",
    }  # fmt: skip
    return {**spec, "intermediate": width, "qk_norm": True, "state": state}


HYBRIDS: dict[str, Callable[[Any, Base], dict[str, Any]]] = {
    "qwen3_next": qwen_experts, "qwen3_5": qwen_dense, "qwen3_5_text": qwen_dense,
    "qwen3_5_moe": qwen_experts, "qwen3_5_moe_text": qwen_experts, "kimi_linear": kimi_linear,
    "granitemoehybrid": granite, "falcon_h1": falcon, "nemotron_h": nemotron, "jamba": jamba,
    "lfm2": lfm2,
}  # fmt: skip
"""By `model_type`."""
