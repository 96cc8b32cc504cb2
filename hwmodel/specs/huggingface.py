"""A published config.json (Hugging Face transformers) as a model's description.

Each family has a function from the fields of its config.json to keys of a `TransformerSpec`; what
it takes is understood, what `IGNORED` names has no bytes or FLOPs, and the rest is left for the
user to judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, Document
from hwmodel.specs.hybrid_configs import (
    HYBRIDS,
    deepseek_experts,
    latent_attention,
    routed,
    shortest,
)
from hwmodel.specs.transformer import TransformerSpec

_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_LAYER_TYPES = {"sliding_attention": "window", "full_attention": "full"}
_REQUIRED = object()

_REASONS = {
    "stated by model_type": "architectures auto_map model_type",
    "rotary positions have no parameters": "rope_theta rope_scaling rope_parameters rotary_dim "
    "mla_use_nope position_embedding_type "
    "rope_local_base_freq rope_interleave partial_rotary_factor swa_rope_theta "
    "original_max_position_embeddings initial_context_length",
    "elementwise: no matrix": "hidden_act hidden_activation activation_function swiglu_limit "
    "attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar rms_norm_eps "
    "layer_norm_eps attention_multiplier embedding_multiplier logits_scaling residual_multiplier "
    "lm_head_multiplier mlp_multipliers key_multiplier attention_out_multiplier norm_eps "
    "attention_in_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier mlp_hidden_act "
    "mamba_hidden_act layer_norm_epsilon normalization_function",
    "routing is not simulated": "norm_topk_prob scoring_func topk_group n_group topk_method "
    "routed_scaling_factor output_router_logits router_aux_loss_coef seq_aux aux_loss_alpha "
    "router_jitter_noise ep_size moe_renormalize num_expert_group moe_router_activation_func "
    "use_grouped_topk",
    "training only": "attention_dropout dropout layerdrop initializer_range init_std embd_pdrop "
    "resid_pdrop pretraining_tp activation_dropout _remove_final_layer_norm",
    "tokens are not simulated": "bos_token_id eos_token_id pad_token_id prefix unk_token_id "
    "sep_token_id cls_token_id boi_token_index eoi_token_index image_token_index "
    "mm_tokens_per_image",
    "of the software": "use_cache cache_implementation transformers_version _name_or_path "
    "is_decoder attn_implementation _attn_implementation mamba_chunk_size chunk_size "
    "use_mamba_kernels use_mambapy use_associative_scan num_logits_to_keep residual_in_fp32",
    "multi-token prediction is not simulated": "num_nextn_predict_layers mtp_num_hidden_layers "
    "mtp_use_dedicated_embeddings mtp_layers_block_type",
    "images are not simulated": "vision_config",
}
IGNORED = {field: why for why, fields in _REASONS.items() for field in fields.split()}
"""Why a field says nothing about bytes or FLOPs."""
_OTHER_LAYERS = re.compile(
    r"mamba|ssm|rwkv|lru|recurrent|(^|_)conv(_|$)|state_size|linear_|delta|hybrid|layers?_types?"
    r"|block_type|attn_layer|attention_chunk|expert|moe|kv_lora|^sliding_window$"
)
"""Fields that give layers other KV or parameters, where a family does not take them."""


MOST_LAYERS = 10_000
"""More than any model has; lists of them are made."""


class Imported(NamedTuple):
    """A description, and what became of each field of the config.json."""

    description: dict[str, Any]
    spec: TransformerSpec
    model_type: str
    understood: dict[str, str]
    """Field -> key of the description."""
    ignored: dict[str, str]
    """Field -> why."""
    unknown: dict[str, Any]
    """Field -> its value."""


class _Config:
    """The fields of a config.json; those that are taken are noted."""

    def __init__(self, fields: dict[str, Any], file: Path) -> None:
        self.left, self.file = dict(fields), file
        self.understood: dict[str, str] = {}

    def error(self, field: str, message: str) -> DescriptionError:
        """A DescriptionError at a field."""
        return DescriptionError(message, self.file, None, field)

    def take(self, field: str, key: str, default: Any = None) -> Any:
        """The value of a field that becomes `key`."""
        if field in self.left:
            self.understood[field] = key
        return self.left.pop(field, default)

    def number(self, field: str, key: str, default: Any = _REQUIRED) -> Any:
        """A whole number; `default`, if there is one, where it is absent or null."""
        value = self.take(field, key)
        if value is None and default is not _REQUIRED:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(field, f"expected a whole number; got {value!r}")
        return value

    def flag(self, field: str, key: str, default: bool) -> bool:
        """True or false."""
        value = self.take(field, key, default)
        if not isinstance(value, bool):
            raise self.error(field, f"expected true or false; got {value!r}")
        return value

    def only(self, field: str, expected: Any) -> None:
        """Refuse a field that has another value."""
        value = self.take(field, "as it is in every known model", expected)
        if value != expected:
            raise self.error(field, f"only {json.dumps(expected)} is known; got {value!r}")


def _base(
    config: _Config, tied: bool = False, width: str = "intermediate_size", **defaults: int
) -> dict[str, Any]:
    """What most families have under the same names; `defaults` are those of the family."""

    def number(field: str, key: str, default: Any = _REQUIRED) -> Any:
        return config.number(field, key, defaults.get(field, default))

    hidden, heads = number("hidden_size", "hidden"), number("num_attention_heads", "heads")
    if not heads:
        raise config.error("num_attention_heads", "expected at least 1; got 0")
    layers = number("num_hidden_layers", "layers")
    if layers > MOST_LAYERS:
        raise config.error("num_hidden_layers", f"expected at most {MOST_LAYERS:,}; got {layers}")
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": number("num_key_value_heads", "kv_heads", heads),
        "head_dim": number("head_dim", "head_dim", hidden // heads),
        "intermediate": number(width, "intermediate"),
        "vocabulary": number("vocab_size", "vocabulary"),
        "max_position": number("max_position_embeddings", "max_position"),
        "qkv_bias": False,
        "tied_embeddings": config.flag("tie_word_embeddings", "tied_embeddings", tied),
    }


def _biases(config: _Config) -> dict[str, Any]:
    """Biases of all four projections together."""
    bias = config.flag("attention_bias", "qkv_bias, o_bias", False)
    return {"qkv_bias": bias, "o_bias": bias} if bias else {"qkv_bias": False}


def _window(config: _Config, spec: dict[str, Any], pattern: list[str]) -> dict[str, Any]:
    """Windowed layers: by `layer_types` where given, else by the family's pattern."""
    tokens = config.number("sliding_window", "window.tokens", None)
    types = config.take("layer_types", "window.pattern")
    if types is not None:
        odd = set(map(str, types)) - set(_LAYER_TYPES) if isinstance(types, list) else {types}
        if odd or len(types) != spec["layers"]:
            raise config.error(
                "layer_types",
                f"expected {' or '.join(_LAYER_TYPES)} for each layer; got {sorted(map(str, odd))}"
                if odd
                else f"expected {spec['layers']} layers; got {len(types)}",
            )
        pattern = [_LAYER_TYPES[each] for each in types]
    if not tokens or tokens >= spec["max_position"] or "window" not in pattern:
        return spec
    layers = [pattern[layer % len(pattern)] for layer in range(spec["layers"])]
    return {**spec, "window": {"tokens": tokens, "pattern": shortest(layers)}}


def _llama(config: _Config) -> dict[str, Any]:
    bias = config.flag("mlp_bias", "mlp_bias", False)
    return {**_base(config), **_biases(config), **({"mlp_bias": True} if bias else {})}


def _mistral(config: _Config) -> dict[str, Any]:
    return _window(config, _base(config), ["window"])


def _phi3(config: _Config) -> dict[str, Any]:
    return _window(config, _base(config), ["window"])


def _upper_windows(config: _Config, spec: dict[str, Any]) -> dict[str, Any]:
    """Qwen's windows, off in every release, are those of the layers above `max_window_layers`."""
    used = config.flag("use_sliding_window", "window", False)
    full = config.number("max_window_layers", "window.pattern", 0)
    if not used:
        config.take("sliding_window", "nothing: use_sliding_window is false")
        config.take("layer_types", "nothing: use_sliding_window is false")
        return spec
    layers = spec["layers"]
    return _window(config, spec, ["full"] * min(full, layers) + ["window"] * max(layers - full, 0))


def _qwen2(config: _Config) -> dict[str, Any]:
    return _upper_windows(config, _base(config) | {"qkv_bias": True})


def _qwen3(config: _Config) -> dict[str, Any]:
    return _upper_windows(config, {**_base(config), **_biases(config), "qk_norm": True})


def _mixtral(config: _Config) -> dict[str, Any]:
    spec = _base(config)
    experts = {**routed(config, "num_local_experts"), "intermediate": spec["intermediate"]}
    return _window(config, {**spec, "experts": experts}, ["window"])


def _qwen3_moe(config: _Config) -> dict[str, Any]:
    spec = _qwen3(config)
    config.only("decoder_sparse_step", 1)
    config.only("mlp_only_layers", [])
    experts = routed(config, "num_experts")
    experts["intermediate"] = config.number("moe_intermediate_size", "experts.intermediate")
    return {**spec, "experts": experts}


def _deepseek(config: _Config) -> dict[str, Any]:
    config.take("num_key_value_heads", "nothing: all heads share the latent")
    config.take("head_dim", "nothing: stated by latent")
    config.only("attention_bias", False)
    config.only("moe_layer_freq", 1)
    latent = latent_attention(config)
    spec = {**_base(config), **latent}
    return {**spec, "experts": deepseek_experts(config, "n_routed_experts", "n_shared_experts")}


def _deepseek_v3(config: _Config) -> dict[str, Any]:
    spec = _deepseek(config)
    return {**spec, "experts": {**spec["experts"], "router_bias": True}}


def _glm_dsa(config: _Config) -> dict[str, Any]:
    """DeepSeek-V3's, with indexers that choose tokens."""
    for field in ("index_topk", "index_head_dim", "index_n_heads", "index_topk_freq",
                  "index_skip_topk_offset", "indexer_types"):  # fmt: skip
        config.take(field, "serving.attention")
    types = config.take("mlp_layer_types", "experts.first_dense_layers")
    spec = _deepseek_v3(config)
    dense = spec["experts"]["first_dense_layers"]
    if types not in (None, ["dense"] * dense + ["sparse"] * (spec["layers"] - dense)):
        raise config.error("mlp_layer_types", f"expected {dense} times dense, then sparse")
    return spec


def _minimax_m3(config: _Config) -> dict[str, Any]:
    """Text part: indexers choose blocks, from the first layer with experts on."""
    spec = {**_base(config, width="dense_intermediate_size"), "qk_norm": True}
    config.take("sparse_attention_config", "serving.attention")
    config.only("n_shared_experts", 1)
    sparse = config.take("moe_layer_freq", "experts.first_dense_layers", [1] * spec["layers"])
    dense = sparse.count(0) if isinstance(sparse, list) else 0
    if sparse != [0] * dense + [1] * (spec["layers"] - dense):
        raise config.error("moe_layer_freq", "expected 0 for dense layers, then 1 for all others")
    experts = {**routed(config, "num_local_experts"), "first_dense_layers": dense}
    experts["intermediate"] = config.number("intermediate_size", "experts.intermediate")
    experts["shared_intermediate"] = config.number(
        "shared_intermediate_size", "experts.shared_intermediate"
    )
    experts["router_bias"] = config.flag("use_routing_bias", "experts.router_bias", True)
    return {**spec, "experts": experts}


def _gemma2(config: _Config) -> dict[str, Any]:
    spec = {**_base(config, True), **_biases(config), "layer_norms": 4}
    return _window(config, spec, ["window", "full"])


def _gemma3(config: _Config) -> dict[str, Any]:
    """Text part. Defaults: Gemma3TextConfig, on which the smaller releases rely."""
    spec = _base(
        config, True, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        vocab_size=262208, max_position_embeddings=131072,
    )  # fmt: skip
    spec = {**spec, **_biases(config), "layer_norms": 4, "qk_norm": True}
    period = config.number("sliding_window_pattern", "window.pattern", 6)
    return _window(config, spec, ["window"] * max(period - 1, 0) + ["full"])


def _gpt_oss(config: _Config) -> dict[str, Any]:
    spec = {**_base(config), **_biases(config), "mlp_bias": True, "sinks": True}
    config.take("experts_per_token", "experts.per_token")
    experts = {**routed(config, "num_local_experts"), "intermediate": spec["intermediate"]}
    experts["router_bias"] = True
    return _window(config, {**spec, "experts": experts}, ["window", "full"])


def _opt(config: _Config) -> dict[str, Any]:
    hidden = config.left.get("hidden_size")
    config.only("word_embed_proj_dim", hidden)
    config.only("do_layer_norm_before", True)
    config.only("layer_norm_elementwise_affine", True)
    spec = _base(config, True, "ffn_dim")
    bias = config.flag("enable_bias", "qkv_bias, o_bias, mlp_bias", True)
    biases = {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}
    # two rows of padding come before the first position
    positions = spec["max_position"] + 2
    return {**spec, **biases, "gated": False, "norm": "layer", "positions": positions}


def _hybrid(made: Callable[[Any, Any], dict[str, Any]]) -> Callable[[_Config], dict[str, Any]]:
    return lambda config: made(config, _base)


FAMILIES: dict[str, Callable[[_Config], dict[str, Any]]] = {
    "llama": _llama, "mistral": _mistral, "phi3": _phi3, "qwen2": _qwen2, "qwen3": _qwen3,
    "mixtral": _mixtral, "qwen3_moe": _qwen3_moe, "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek_v3, "gemma2": _gemma2, "gemma3": _gemma3, "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss, "opt": _opt, "glm_moe_dsa": _glm_dsa, "minimax_m3_vl": _minimax_m3,
    **{kind: _hybrid(made) for kind, made in HYBRIDS.items()},
}  # fmt: skip
"""By `model_type`."""


def import_config(file: Path, name: str | None = None) -> Imported:
    """The model of a config.json, named `name`, by its `_name_or_path` or by its folder.

    Raises DescriptionError for a file that is no config.json, an architecture that is not known, a
    field with a value that is not, and layers with other KV or parameters than the family's.
    """
    fields = _read(file)
    kind = str(fields.get("model_type"))
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))  # one that is spelt alike is another architecture
        why = f"{kind!r} is not imported; known: {known}"
        raise DescriptionError(why, file, None, "model_type")
    text = fields.pop("text_config", {})
    if not isinstance(text, dict):
        raise DescriptionError("expected an object", file, None, "text_config")
    config = _Config({**fields, **text}, file)
    name = name or Path(str(fields.get("_name_or_path") or "")).name.lower()
    if not (name := name or file.resolve().parent.name.lower()):
        raise DescriptionError("has no _name_or_path; give --name", file)
    found = FAMILIES[kind](config)
    _refuse_other_layers(config, kind)
    found |= _formats(config)
    description = {"kind": "model", "name": name, **found}
    spec = Document(description, str(file)).build(TransformerSpec)
    ignored = {field: IGNORED[field] for field in config.left if field in IGNORED}
    unknown = {field: value for field, value in config.left.items() if field not in IGNORED}
    return Imported(description, spec, kind, config.understood, ignored, unknown)


def _refuse_other_layers(config: _Config, kind: str) -> None:
    """Refuse a hybrid, whatever it is called."""
    for field, value in config.left.items():
        full = field == "layer_types" and isinstance(value, list) and not (
            {str(each) for each in value} - {"full_attention"}
        )  # fmt: skip
        if value and field not in IGNORED and not full and _OTHER_LAYERS.search(field):
            why = f"changes KV or parameters of layers, in a way that no {kind} has; not imported"
            raise config.error(field, why)


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise DescriptionError("not a text file", file) from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise DescriptionError(f"not JSON: {getattr(error, 'msg', error)}", file, line) from None
    if not isinstance(data, dict):
        raise DescriptionError("expected a JSON object", file)
    return data


def _formats(config: _Config) -> dict[str, str]:
    """Formats of weights and KV."""
    old = config.take("torch_dtype", "weights, kv")
    dtype = config.take("dtype", "weights, kv", old) or "bfloat16"
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise config.error("dtype", f"expected one of {', '.join(_DTYPES)}; got {dtype!r}")
    plain = _DTYPES[str(dtype)]
    weights = _quantised(config.left.get("quantization_config"))
    if weights is not None:
        config.take("quantization_config", "weights")
    return {"weights": weights or plain, "kv": plain}


def _quantised(given: Any) -> str | None:
    """The format of a checkpoint's quantization_config; None where it is not known."""
    if not isinstance(given, dict):
        return None
    key = (given.get("quant_method"), given.get("bits"), given.get("group_size"))
    block, symmetric = given.get("weight_block_size"), bool(given.get("sym"))
    known: dict[tuple[Any, ...], str | None] = {
        ("fp8", None, None): "fp8" if block is None else None,
        ("mxfp4", None, None): "mxfp4_experts",
        ("awq", 4, 128): "w4a16",
        ("gptq", 4, 128): "w4a16_symmetric" if symmetric else "w4a16",
    }
    if block == [128, 128]:
        return "fp8_block_128x128"
    return next((weights for each, weights in known.items() if each == key), None)
