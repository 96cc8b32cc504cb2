"""What models are: a line for each; and what an import made of a config.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hwmodel.description.library import names
from hwmodel.specs.huggingface import Imported
from hwmodel.specs.transformer import TransformerSpec, load_model
from sweeps.sections.section import Grid, Say, Section

_OWN = ("name", "summary", "layers", "hidden", "heads", "kv_heads", "head_dim")
FORMATS = ("bf16", "fp8", "w4a16")
"""Formats whose bytes are listed beside the model's own."""


def facts(models: list[str], overrides: list[str]) -> list[dict[str, Any]]:
    """One dict a model; all shipped ones where none are named. Raises DescriptionError."""
    return [_facts(load_model(name, overrides)) for name in models or names("models")]


def _facts(model: TransformerSpec) -> dict[str, Any]:
    experts, longest = model.experts, model.max_position
    kinds = [(kind.window, many) for kind, many in model.kinds.items()]
    return {
        **{key: getattr(model, key) for key in _OWN},
        "latent": None if model.latent is None else model.latent.model_dump(),
        "window_tokens": None if model.window is None else model.window.tokens,
        "window_layers": sum(many for window, many in kinds if window is not None),
        "experts": None if experts is None else experts.model_dump(),
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "weights": model.weights,
        "weight_bytes": {
            name: model.stored_as(name, None).weight_bytes
            for name in dict.fromkeys((model.weights, *FORMATS))
        },
        "kv": model.kv,
        "kv_bytes_a_token": model.kv_token_bytes,
        "longest_context": longest,
        "kv_bytes_a_token_at_longest": model.kv_held_bytes(longest) / longest,
        "kv_bytes_at_longest": model.kv_held_bytes(longest),
        "flops_a_token": model.layer_flops + model.head_flops,
        "attention_flops_a_context_token": {
            phase: model.attending(phase)._asdict() for phase in ("decode", "prefill")
        },
    }


def sheet(records: list[dict[str, Any]]) -> Section:
    """A line a model."""
    columns = [
        "model", "layers", "attention", "window", "experts", "parameters G", "active G",
        *(f"{name} GiB" for name in ("own", *FORMATS)), "KV KiB a token", "at longest", "tokens",
    ]  # fmt: skip
    rows = []
    for each in records:
        size = each["weight_bytes"]
        rows.append([
            each["name"], str(each["layers"]), _attention(each), _window(each), _experts(each),
            f"{each['parameters'] / 1e9:,.2f}", f"{each['active_parameters'] / 1e9:,.2f}",
            *(f"{size[name] / 2**30:,.1f}" for name in (each["weights"], *FORMATS)),
            f"{each['kv_bytes_a_token'] / 1024:,.4g}",
            f"{each['kv_bytes_a_token_at_longest'] / 1024:,.4g}", f"{each['longest_context']:,}",
        ])  # fmt: skip
    note = (
        "attention: query/KV heads x head_dim, or the latent of a token. window: tokens, layers."
        " experts: a token's of all, +shared, after dense layers. own: the format it is published"
        " in. at longest: KV that attention needs at the longest context, a token of it."
    )
    return Section("Models", [Grid("", columns, rows), Say(note)])


def _attention(model: dict[str, Any]) -> str:
    if model["latent"]:
        return f"{model['heads']} latent {model['head_dim']}"
    return f"{model['heads']}/{model['kv_heads']} x {model['head_dim']}"


def _window(model: dict[str, Any]) -> str:
    window = model["window_tokens"]
    return f"{window:,} in {model['window_layers']}" if window else "–"


def _experts(model: dict[str, Any]) -> str:
    experts = model["experts"]
    if not experts:
        return "–"
    shared, dense = experts["shared_intermediate"], experts["first_dense_layers"]
    text = f"{experts['per_token']} of {experts['count']}" + " +shared" * bool(shared)
    return text + f", after {dense}" * bool(dense)


def described(imported: Imported) -> str:
    """The text of a model file: every value with its source."""
    kind = json.dumps(imported.model_type)
    architecture = f"what every model of type {imported.model_type} has (transformers)"
    lines = [
        "kind: model",
        f"name: {json.dumps(imported.spec.name)}",
        f"summary: {json.dumps(_summary(imported.spec))}",
        "sources:",
        f"  config: {json.dumps(f'its config.json (model_type {kind[1:-1]})')}",
        f"  architecture: {json.dumps(architecture)}",
    ]
    stated = {key for keys in imported.understood.values() for key in keys.split(", ")}
    return "\n".join([*lines, *_lines(imported.description, stated, ())]) + "\n"


def _lines(keys: dict[str, Any], stated: set[str], path: tuple[str, ...]) -> Iterator[str]:
    """A line a value of a description, and of those inside it."""
    for key, value in keys.items():
        if not path and key in ("kind", "name"):
            continue
        indent, place = "  " * len(path), (*path, key)
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, stated, place)
        else:
            source = "config" if ".".join(place) in stated else "architecture"
            yield f"{indent}{key}: {{value: {json.dumps(value)}, source: {source}}}"


def _summary(model: TransformerSpec) -> str:
    active = model.active_parameters
    some = f", {active / 1e9:.3g} B active" if active < model.parameters else ""
    kib = model.kv_token_bytes / 1024
    return f"{model.parameters / 1e9:.3g} B parameters{some}, {kib:g} KiB of KV a token"


def import_sheet(imported: Imported) -> Section:
    """What became of each field."""
    rows = [[field, "understood", key] for field, key in imported.understood.items()]
    rows += [[field, "ignored", why] for field, why in imported.ignored.items()]
    rows += [
        [field, "not understood", json.dumps(value)[:60]]
        for field, value in imported.unknown.items()
    ]
    told = f"{imported.spec.name}: {_summary(imported.spec)}"
    return Section(imported.spec.name, [Grid("", ["field", "is", "as"], rows), Say(told)])
