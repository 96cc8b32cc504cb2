"""Servings drawn at random, each of two or three features (`tests.policies.serving.features`) on a
random card, model and stream of requests: does each lose nothing, and is it the same twice, and
on one replica to the digit where steps are advanced one by one?

A serving is told by its seed and its number alone; `tools/random_runs.py` serves many.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from hwmodel.specs.attention import LatentAttention
from hwmodel.specs.transformer import TransformerSpec
from policies.requests.requests import Requests
from tests.policies.serving.features import (
    EXPERTS,
    FEATURES,
    HYBRID,
    TWO_WINDOWS,
    WINDOWS,
    Audit,
    Setting,
    audited,
    laid,
    patience,
    reason,
    repeated,
    run_of,
)

DEVICES = (
    "a100-80gb", "ai200", "arc-pro-b60", "dgx-spark-gb10", "gaudi-3", "grace-cpu", "h100-sxm",
    "h200", "jetson-agx-orin", "m4-max", "mi300x", "mlu370-x4", "oaken-lpddr", "mtia-2i",
    "spyre", "tpu-v5e",
)  # fmt: skip
STRETCHED = {"KV by request"}
"""Where the memory that a step waits for changes within a stretch, which is as its first step."""
LATENT = LatentAttention(
    q_lora_rank=32, kv_lora_rank=48, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16
)
LAYOUTS = ("layer_kv_token", "layer_kv_block_head", "layer_kv_head_block", "layer_block_kv_head")


class Serving(NamedTuple):
    """Features, and what they are served in."""

    names: tuple[str, ...]
    setting: Setting


def serving(seed: int, number: int, faults: bool = False) -> Serving:
    """The so many-th of a seed. faults: with faults that return, whatever else is drawn."""
    rng = random.Random(f"{seed} {number}")
    names: list[str] = []
    for _ in range(rng.choice((2, 3))):
        kinds = {FEATURES[name].kind for name in names}
        names.append(rng.choice([each for each in FEATURES if FEATURES[each].kind not in kinds]))
    if faults:
        names = [name for name in names if FEATURES[name].kind != "faults"]
    kinds = {FEATURES[name].kind for name in names}
    longest = rng.choice((512, 1024, 2048))
    setting = Setting(
        _requests(rng, longest),
        rng.choice(DEVICES),
        _model(rng, bool({"model", "split"} & kinds)),
        64 * rng.randint(8, 40),
        _changes(rng, kinds, longest),
        rng.randrange(1000),
    )
    if faults:
        changes = laid(setting.changes, {"faults": _returning(rng, kinds)})
        setting = setting._replace(changes=changes)
    return Serving(tuple(names), setting)


def _requests(rng: random.Random, longest: int) -> Requests:
    """At rates from far below to far above what a card serves; or all at once, or in bursts."""
    count, draws = rng.randint(8, 72), np.random.default_rng(rng.randrange(1 << 30))
    gaps_s = draws.exponential(1 / 10 ** rng.uniform(2, 5), count)
    gaps_s[draws.random(count) < rng.choice((0, 0, 0.5, 1))] = 0
    prompts = draws.lognormal(rng.uniform(2, 6), rng.uniform(0, 1.2), count)
    outputs = draws.lognormal(rng.uniform(1, 6), rng.uniform(0, 1.2), count)
    return Requests(
        np.cumsum(gaps_s),
        np.clip(prompts, 1, longest * 5 // 4).astype(np.int64),  # of which the longest are dropped
        np.clip(outputs, 1, longest // 2).astype(np.int64),
    )


def _once(rng: random.Random, kinds: set[str]) -> list[dict[str, Any]]:
    return [{"replica": 0, "at_s": 10 ** rng.uniform(-4, -1), "down_s": 10 ** rng.uniform(-4, -1)}]


def _returning(rng: random.Random, kinds: set[str]) -> list[dict[str, Any]]:
    """Each card by itself, from once in a run to every few steps; hosts too, where there are."""
    law = {"mean_up_s": 10 ** rng.uniform(-2.5, -0.5), "down_s": 10 ** rng.uniform(-4, -1)}
    hosts = [{**law, "of": "host"}] * ("tiers" in kinds and rng.random() < 0.5)
    return [law, *hosts]


def _model(rng: random.Random, plain: bool) -> TransformerSpec:
    """plain: a feature says what else it has."""
    heads = rng.choice((4, 8))
    kv_heads = rng.choice([each for each in (1, 2, 4, 8) if each <= heads])
    head_dim, layers = rng.choice((32, 64, 128)), rng.choice((4, 8))
    latent = {"latent": LATENT}
    kinds = ({}, {}, latent, WINDOWS, TWO_WINDOWS, EXPERTS, HYBRID)
    more: dict[str, Any] = {} if plain else rng.choice(kinds)
    if more is latent:
        kv_heads, head_dim = 1, 64
    return TransformerSpec(
        kind="model", name="drawn", layers=layers, hidden=64 * rng.randint(1, 6), heads=heads,
        kv_heads=kv_heads, head_dim=head_dim, intermediate=128 * rng.randint(1, 8), vocabulary=1000,
        max_position=4096, qkv_bias=more is not latent and rng.random() < 0.3,
        tied_embeddings=rng.random() < 0.3, **more,
    )  # fmt: skip


def _changes(rng: random.Random, kinds: set[str], longest: int) -> dict[str, Any]:
    """What the features leave open, in part drawn."""
    changes: dict[str, Any] = {"engine": {
        "max_model_len": longest, "too_long": "drop", "max_num_seqs": rng.choice((2, 8, 32, 256)),
    }}  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "allocator": {"policy": {
            "name": "paged", "block": rng.choice((8, 16, 32)), "prefix_caching": rng.random() < 0.5,
            "free_list": rng.choice(("fifo", "lifo", "sorted")),
        }},
        "engine": {"engine": {
            "max_num_batched_tokens": rng.choice((256, 512, 2048)),
        }},
        "split": {"tensor_parallel": rng.choice((1, 2, 4))},
        "stages": {"cluster": {"stages": rng.choice((1, 1, 2))}},
        "router": {"cluster": {"cards": rng.choice((1, 2, 3))}},
        "format": {"kv": rng.choice(("fp16", "fp8", "int8"))},
        "faults": {"faults": rng.choice((_once, _returning))(rng, kinds)},
        "predictor": {"predictor": rng.choice((
            {"kind": "oracle"}, {"kind": "lognormal", "sigma": rng.uniform(0, 2)},
        ))},
        "layout": {"kv_layout": rng.choice(LAYOUTS)},
        "memory": {"memory": {"efficiency": rng.uniform(0.3, 1)}},
    }  # fmt: skip
    for kind, each in own.items():
        if kind not in kinds and rng.random() < 0.4:
            changes = laid(changes, each)
    return changes


def once(drawn: Serving) -> Audit | str:
    """The audit of one run of it; or why these features do not go together. Patient: replicas that
    are up for hardly longer than a step make a token in many tries."""
    try:
        with patience(90):
            return audited(*drawn)[1]
    except (DescriptionError, ValidationError) as error:
        return reason(error)
    except Exception as error:
        return Audit([f"{type(error).__name__}: {error}"])


def audit(drawn: Serving) -> Audit | str:
    """As `repeated`; also that equal steps counted together are the single steps."""
    found = repeated(*drawn)
    if isinstance(found, str) or found.breaches or STRETCHED & set(drawn.names):
        return found
    together = run_of(drawn.names, setting=drawn.setting)
    if not {"node", "pools"} & set(together.metrics):
        changes = laid(drawn.setting.changes, {"advance_together": False})
        alone = run_of(drawn.names, setting=drawn.setting._replace(changes=changes))
        if not np.array_equal(alone.finish_s, together.finish_s, equal_nan=True):
            found.breaches.append("steps advanced one by one differ")
    return found
