"""Does every option move the number it is there to move?"""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import PolicyOptions
from policies.allocators.registry import POLICIES
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_v0 import EngineV0Spec
from policies.engines.engine_v1_options import EngineV1Spec
from policies.memory.fidelity import FidelitySpec
from policies.predictors.predictors import PREDICTORS
from policies.serving.cluster_options import ClusterSpec
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import MODEL, FakeMemory, device, mixed, requests, run, spec
from tests.rotation import shared

STREAM = mixed(300)
SHARED = dataclasses.replace(
    STREAM,
    prompt_tokens=STREAM.prompt_tokens + 64,
    prefix_id=np.arange(300) % 2,
    prefix_tokens=np.full(300, 64),
)
"""The same requests behind one of two system prompts."""
STREAMS = {"own": STREAM, "shared": SHARED}
UNSURE = {"kind": "lognormal", "sigma": 0.6}
ODMA = {"name": "odma", "refresh": 50, "window": 100}
SAMPLED = {"fidelity": "sampled", "every_steps": 20, "precision": 9.0, "probe_bytes": "4KiB"}


@functools.cache
def metrics(changes: str, stream: str) -> dict[str, Any]:
    """Of the run that JSON text says: what an option is compared with is often the same."""
    sets = json.loads(changes)
    return run(2048, STREAMS[stream], **sets, simulate=FakeMemory()).metrics


def figure(changes: dict[str, Any], name: str, stream: str = "own") -> Any:
    base: dict[str, Any] = {"engine": {"max_model_len": 1024}}
    for key, value in changes.items():
        if isinstance(value, dict):
            base[key] = {**base.get(key, {}), **value}
        else:
            base[key] = value
    found: Any = metrics(json.dumps(base, sort_keys=True), stream)
    for part in name.split("."):
        found = found[part]
    return found


def odma(**changes: Any) -> dict[str, Any]:
    return {"policy": {**ODMA, **changes}, "predictor": UNSURE}


PARTS = {"space": "partitioned", "pool_share": 0.55}
PARTED = odma(**PARTS)
MOVING = odma(balance="requests", space="arena", first_bounds="even")


def s3(**changes: Any) -> dict[str, Any]:
    return {"policy": {"name": "s3", **changes}, "predictor": {"kind": "lognormal", "sigma": 0.7}}


def sampled(**changes: Any) -> dict[str, Any]:
    return {"memory": {**SAMPLED, **changes}, "policy": {"name": "paged", "free_list": "lifo"}}


def v0(**changes: Any) -> dict[str, Any]:
    return {"engine": {"name": "v0", **changes}}


def classified(**changes: Any) -> dict[str, Any]:
    guess = {"kind": "confusion", "table": "bert-lmsys-4", **changes}
    return {"policy": {**ODMA, "tau": 2.0, "align": 16}, "predictor": guess}


CLASSIFIED = classified()
COST = {"cost": {"sizes": [1, 8], "times": ["2ms", "4ms"]}}
PACKED = {"packing": "decreasing_first_fit"}
NODE = {"cluster": {"cards": 3}}
SWAP, LEAST = {"preemption": "swap"}, {"preemption": "least"}
RARELY = {"memory": {**SAMPLED, "every_steps": 999}}
STATIC = {"policy": {"name": "static"}}
MOVES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "policy.static.reserve": (
        STATIC, {"policy": {"name": "static", "reserve": "max_model_len"}}, "utilization",
    ),
    "policy.static.fit": (
        STATIC, {"policy": {"name": "static", "fit": "best"}}, "external_fragmentation",
    ),
    "policy.static.stagger": (
        STATIC, {"policy": {"name": "static", "stagger": 100}}, "utilization",
    ),
    "policy.odma.stagger": (odma(), odma(stagger=100), "utilization"),
    "policy.s3.stagger": (s3(), s3(stagger=100), "utilization"),
    "policy.oracle.stagger": (
        {"policy": {"name": "oracle"}}, {"policy": {"name": "oracle", "stagger": 100}},
        "utilization",
    ),
    **{
        f"policy.{name}.{key}": (
            {"policy": {"name": name, "space": "arena", **before}},
            {"policy": {"name": name, "space": "arena", **after}}, figure,
        )
        for name in ("static", "oracle", "odma", "s3")
        for key, before, after, figure in (
            ("compaction", {}, {"compaction": "copied"}, "batch"),
            (
                "compaction_tokens", {"compaction": "copied"},
                {"compaction": "copied", "compaction_tokens": 10}, "migrated_tokens",
            ),
        )
    },
    "policy.paged.block": ({}, {"policy": {"name": "paged", "block": 64}}, "utilization"),
    "policy.paged.free_list": (
        {}, {"policy": {"name": "paged", "free_list": "sorted"}}, "mean_run_tokens",
    ),
    "policy.paged.free_list_window": (
        {"policy": {"name": "paged", "free_list": "spread"}},
        {"policy": {"name": "paged", "free_list": "spread", "free_list_window": 0.2}},
        "mean_run_tokens",
    ),
    "policy.paged.watermark": (
        {}, {"policy": {"name": "paged", "watermark": 0.2}}, "preemptions",
    ),
    "policy.paged.indirection": (
        {}, {"policy": {"name": "paged", "indirection": 1.5}}, "kv_gbps",
    ),
    "policy.paged.cached_recompute": (
        {}, {"policy": {"name": "paged", "cached_recompute": False}}, "cached_tokens",
    ),
    "policy.paged.null_block": (
        {}, {"policy": {"name": "paged", "null_block": True}}, "preemptions",
    ),
    "engine.like": ({}, {"engine": {"like": "0.11"}}, "ttft_s.mean"),
    "engine.async_scheduling": ({}, {"engine": {"async_scheduling": True}}, "steps"),
    "engine.ends": (
        {"engine": {"async_scheduling": True}},
        {"engine": {"async_scheduling": True, "ends": "length"}}, "makespan_s",
    ),
    "policy.odma.buckets": (odma(), odma(buckets=8), "utilization"),
    "policy.odma.gamma": (odma(), odma(gamma=1.0), "policy.coverage_final"),
    "policy.odma.tau": (odma(), odma(tau=0.3), "policy.large_share"),
    "policy.odma.window": (odma(), odma(window=40), "utilization"),
    "policy.odma.refresh": (odma(), odma(refresh=20), "policy.bucket_refreshes"),
    "policy.odma.align": (odma(), odma(align=16), "utilization"),
    "policy.odma.bucket_on": (odma(), odma(bucket_on="total"), "utilization"),
    "policy.odma.large": (odma(), odma(large="max_model_len"), "utilization"),
    "policy.odma.space": (odma(pool_share=0.55), PARTED, "batch"),
    "policy.odma.clip": (odma(gamma=2.0), odma(gamma=2.0, clip=False), "policy.large_share"),
    "policy.odma.balance": (odma(), odma(balance="requests"), "utilization"),
    "policy.odma.pool_share": (odma(), odma(pool_share=0.55), "batch"),
    "policy.odma.fit": (odma(), odma(fit="best"), "external_fragmentation"),
    "policy.odma.levels": (odma(), odma(levels=[0.5, 0.8, 0.95, 1.0]), "utilization"),
    "policy.odma.uncertainty": (odma(), odma(uncertainty="constant"), "utilization"),
    "policy.odma.constant": (
        odma(uncertainty="constant"), odma(uncertainty="constant", constant=2.0),
        "policy.large_share",
    ),
    "policy.odma.bounds": (odma(), odma(bounds=[64, 128, 256, 512]), "utilization"),
    "policy.odma.first_bounds": (odma(), odma(first_bounds="longest"), "utilization"),
    "policy.odma.refreshes": (odma(), odma(refreshes=1), "policy.bucket_refreshes"),
    "policy.odma.refresh_delay": (odma(), odma(refresh_delay=30.0), "utilization"),
    "policy.odma.pool_split": (PARTED, odma(**PARTS, pool_split="blocks"), "batch"),
    "policy.odma.repartition": (PARTED, odma(**PARTS, repartition="never"), "utilization"),
    "policy.odma.bucket_full": (PARTED, odma(**PARTS, bucket_full="next_larger"), "batch"),
    "policy.odma.large_full": (odma(), odma(large_full="preempt_last"), "preemptions"),
    "policy.oracle.fit": (
        {"policy": {"name": "oracle"}}, {"policy": {"name": "oracle", "fit": "best"}},
        "external_fragmentation",
    ),
    "policy.orca.variant": (
        {"policy": {"name": "orca"}}, {"policy": {"name": "orca", "variant": "pow2"}},
        "kv_stored_share",
    ),
    "policy.s3.buckets": (s3(), s3(buckets=3), "policy.bucket_accuracy"),
    "policy.s3.bounds": (
        s3(profile=20), s3(profile=20, bounds="quantiles"), "policy.coverage_raw",
    ),
    "policy.s3.lengths": (s3(), s3(lengths=[20, 50, 100]), "policy.bucket_accuracy"),
    "policy.s3.profile": (s3(), s3(profile=20), "policy.bucket_accuracy"),
    "policy.s3.outgrown": (s3(), s3(outgrown="double"), "policy.reservations_again"),
    "policy.s3.fit": (s3(), s3(fit="best"), "external_fragmentation"),
    "engine.max_num_batched_tokens": (
        {}, {"engine": {"max_num_batched_tokens": 256}}, "limit_share.token_budget",
    ),
    "engine.max_num_seqs": ({}, {"engine": {"max_num_seqs": 4}}, "limit_share.sequence_cap"),
    "engine.max_tokens": ({}, {"engine": {"max_tokens": 50}}, "cut_outputs"),
    "engine.max_model_len": (
        {"policy": {"name": "static", "reserve": "max_model_len"}},
        {
            "policy": {"name": "static", "reserve": "max_model_len"},
            "engine": {"max_model_len": 2000},
        },
        "utilization",
    ),
    "engine.admit_on": (
        {"engine": {"max_num_batched_tokens": 256}},
        {"engine": {"max_num_batched_tokens": 256, "admit_on": "chunk"}},
        "preemptions",
    ),
    "engine.name": ({}, v0(), "ttft_s.p50"),
    "engine.batching": (s3(), {**s3(), "engine": {"batching": "same_tag"}}, "limit_share.batching"),
    "engine.packing": (s3(), {**s3(), "engine": PACKED}, "batch"),
    "engine.packing_window": (
        {**s3(), "engine": PACKED}, {**s3(), "engine": {**PACKED, "packing_window": 4}}, "batch",
    ),
    "cluster.cards": ({}, {"cluster": {"cards": 2}}, "output_tokens_per_s"),
    "cluster.placement": (NODE, {"cluster": {"cards": 3, "placement": "pressure"}}, "ttft_s.p50"),
    "cluster.compute_weight": (
        {"cluster": {"cards": 3, "placement": "pressure"}},
        {"cluster": {"cards": 3, "placement": "pressure", "compute_weight": 0.0}},
        "ttft_s.p50",
    ),
    "cluster.bounds": (
        {**odma(), **NODE}, {**odma(), "cluster": {"cards": 3, "bounds": "own"}}, "utilization",
    ),
    "engine.v0.max_num_batched_tokens": (
        v0(chunked_prefill=True), v0(chunked_prefill=True, max_num_batched_tokens=256),
        "limit_share.token_budget",
    ),
    "engine.v0.chunked_prefill": (v0(), v0(chunked_prefill=True), "tpot_s.p99"),
    "engine.v0.preemption": (v0(), v0(**SWAP), "swapped_tokens"),
    "engine.v0.contention": (v0(**LEAST), v0(**LEAST, contention=False), "makespan_s"),
    "engine.v0.swap_space": (v0(**SWAP), v0(**SWAP, swap_space="16KiB"), "swapped_tokens"),
    "engine.v0.swap_link": (
        v0(**SWAP), v0(**SWAP, swap_link="pcie5-h100-single"), "makespan_s",
    ),
    "engine.v0.swap_dram": (
        v0(**SWAP), v0(**SWAP, swap_dram={"memory": "lpddr5-6400-x16", "channels": 1}),
        "makespan_s",
    ),
    "weights": ({}, {"weights": "int8"}, "phase_share.weights"),
    "kv": ({}, {"kv": "int8"}, "kv_capacity_tokens"),
    "tensor_parallel": ({}, {"tensor_parallel": 2}, "phase_share.all_reduce"),
    "engine.too_long": (
        {}, {"engine": {"max_model_len": 300, "too_long": "drop"}}, "dropped",
    ),
    "predictor.kind": ({"policy": ODMA}, odma(), "policy.bucket_accuracy"),
    "predictor.sigma": (
        odma(), {**odma(), "predictor": {**UNSURE, "sigma": 1.0}}, "policy.bucket_accuracy",
    ),
    "predictor.longest": (
        odma(), {**odma(), "predictor": {**UNSURE, "longest": 60}}, "policy.bucket_accuracy",
    ),
    "predictor.bias": (
        odma(), {**odma(), "predictor": {**UNSURE, "bias": -0.5}}, "policy.migration_rate",
    ),
    "predictor.table": (CLASSIFIED, classified(table="bert-lmsys-2"), "utilization"),
    "predictor.scale": (CLASSIFIED, classified(scale="tokens"), "utilization"),
    "predictor.cost": (
        {"policy": {"name": "s3"}}, {"policy": {"name": "s3"}, "predictor": COST}, "ttft_s.mean"
    ),
    "memory.fidelity": ({}, sampled(), "kv_gbps"),
    "memory.efficiency": ({}, {"memory": {"efficiency": 0.5}}, "kv_gbps"),
    "memory.weights": (
        {}, {"memory": {"efficiency": 1.0, "weights": 0.1}}, "phase_share.weights",
    ),
    "memory.attention": ({}, {"memory": {"efficiency": 1.0, "attention": 0.1}}, "kv_gbps"),
    "memory.prefill": (
        {}, {"memory": {"efficiency": 1.0, "prefill": 0.001}}, "phase_share.prefill",
    ),
    "memory.migration": (
        MOVING, {**MOVING, "memory": {"efficiency": 1.0, "migration": 0.1}},
        "phase_share.migration",
    ),
    "memory.weight_tile": ({}, {"memory": {"weight_tile": "256B"}}, "phase_share.weights"),
    "memory.probe_bytes": (sampled(), sampled(probe_bytes="8KiB"), "memory.simulated_bytes"),
    "memory.warmup": (sampled(), sampled(warmup="1us"), "kv_gbps"),
    "memory.measure": (sampled(), sampled(measure="5us"), "memory.simulated_bytes"),
    "memory.calibrate": (sampled(), sampled(calibrate="1B"), "memory.simulated_bytes"),
    "memory.precision": (
        RARELY, {"memory": {**RARELY["memory"], "precision": 1e-3}}, "memory.probes",
    ),
    "memory.change": (RARELY, {"memory": {**RARELY["memory"], "change": 1.0}}, "memory.probes"),
    "memory.every_steps": (sampled(), sampled(every_steps=90), "memory.probes"),
    "memory.seed": (
        sampled(), sampled(seed=1), "memory.simulated_bytes",
    ),
    "memory.spacing": (RARELY, {"memory": {**RARELY["memory"], "spacing": 0.5}}, "memory.probes"),
    "memory.max_probes": (sampled(), sampled(max_probes=3), "memory.probes"),
    "kv_layout": (sampled(), {**sampled(), "kv_layout": "layer_kv_token"}, "kv_gbps"),
    "gpu_memory_utilization": ({}, {"gpu_memory_utilization": 0.95}, "kv_capacity_tokens"),
    "activation_bytes": ({}, {"activation_bytes": "64KiB"}, "kv_capacity_tokens"),
    "kv_tokens": ({}, {"kv_tokens": 2000}, "kv_capacity_tokens"),
}  # fmt: skip


@pytest.mark.parametrize("option", shared(MOVES))
def test_it_moves_its_number(option: str) -> None:
    before, after, name = MOVES[option]
    assert figure(before, name) != figure(after, name)


@pytest.mark.parametrize(
    "override", ["work.spread=split", "work.spread=head", "work.grouped=false"]
)
def test_how_work_is_spread_over_cores_moves_the_kv_read(override: str) -> None:
    few = STREAM[:80]
    changes = spec(**sampled(), engine={"max_model_len": 1024})
    before, after = (
        serve(device(2048, *sets), MODEL, changes, few, seed=1, simulate=FakeMemory()).metrics
        for sets in ((), (override,))
    )
    assert before["kv_gbps"] != after["kv_gbps"]


def test_shared_prompts_are_found_where_prefix_caching_is_on() -> None:
    for caching in (True, False):
        policy = {"policy": {"name": "paged", "prefix_caching": caching, "cached_recompute": False}}
        assert (figure(policy, "cached_tokens", "shared") > 0) == caching


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(
            ({"name": name}, {"name": name, "space": "slabs"})
            for name in ("static", "s3", "oracle")
        ),
        ({**ODMA, "borrow": 1.0}, {**ODMA, "borrow": 2.0}),
    ],
    ids=lambda policy: policy["name"],
)
def test_slabs_differ_where_sizes_repeat(before: dict[str, Any], after: dict[str, Any]) -> None:
    """With sizes that are all different a slab is one block, and slabs are an arena."""
    rng = np.random.default_rng(3)
    prompt, output = rng.choice([32, 64, 160, 320], 300), rng.choice([16, 64, 200], 300)
    stream = requests(np.zeros(300), prompt, output)
    first, second = (
        run(8192, stream, policy=policy, engine={"max_model_len": 1024},
            predictor={"kind": "lognormal", "sigma": 0.6}).metrics["batch"]
        for policy in (before, after)
    )  # fmt: skip
    assert first != second


def test_no_option_is_left_out() -> None:
    known = {
        "kv_layout",
        "gpu_memory_utilization",
        "activation_bytes",
        "kv_tokens",
        "weights",
        "kv",
        "tensor_parallel",
    }
    for name, allocator in POLICIES.items():
        if name == "odma-best":  # odma's
            continue
        own = set(allocator.Options.model_fields) - set(PolicyOptions.model_fields)
        known |= {f"policy.{name}.{field}" for field in own}
    parts = {
        "engine": [EngineV1Spec], "predictor": PREDICTORS.values(), "memory": [FidelitySpec],
        "cluster": [ClusterSpec],
    }  # fmt: skip
    for part, options in parts.items():
        known |= {f"{part}.{field}" for each in options for field in each.model_fields}
    own = set(EngineV0Spec.model_fields) - set(EngineOptions.model_fields)
    known |= {f"engine.v0.{field}" for field in own}
    # tests of their own: four with slabs of many blocks, one with requests that begin alike, one
    # with a request that is alone, one with large devices, one with a model's file; `routing` of a
    # model with experts in memory/test_routing.py, its cards in memory/test_expert_parallel.py.
    # Copied prefixes in test_sessions.py, windows in allocators/test_windows.py, vattention and
    # radix in their own, `ideal` in test_ceilings.py, phases in memory/test_step.py
    runs = {"static", "s3", "odma", "oracle"}
    elsewhere = {f"policy.{name}.{key}" for name in runs for key in ("prefixes", "window_kv")}
    elsewhere |= {"policy.ideal.admit_on", "policy.ideal.reserve", "memory.phases"}
    elsewhere |= {"memory.again", "memory.refuse"}  # memory/test_sampling.py
    # engines/test_vllm_schedules.py
    elsewhere |= {"engine.prefill_schedule_interval", "engine.long_prefill_token_threshold"}
    elsewhere |= {"cluster.stages", "cluster.pipeline"}  # memory/test_pipeline.py
    elsewhere |= {"cluster.dropping", "cluster.migration"}  # test_moving.py
    elsewhere |= {"cluster.lending", "cluster.cells"}  # test_lending.py, test_fleet.py
    thresholds = ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold")
    elsewhere |= {f"cluster.{name}" for name in thresholds}  # test_routers.py
    elsewhere |= {"policy.paged.states", "policy.paged.state_ratio"}  # test_states.py
    # allocators/test_forks.py, allocators/test_odma.py
    elsewhere |= {"policy.paged.shared_samples", "policy.odma.pool_overflow"}
    # test_state_caching.py, test_plugins.py, test_sessions.py
    elsewhere |= {"policy.paged.state_caching", "cluster.controllers", "policy.orca.prefixes"}
    known, elsewhere = known | {"attention"}, elsewhere | {"attention"}  # memory/test_sparse.py
    for name in ("vattention", "radix"):
        options = POLICIES[name].Options.model_fields
        elsewhere |= {f"policy.{name}.{key}" for key in options if key != "name"}
    assert known - set(MOVES) - elsewhere == {
        "policy.odma.borrow", "policy.s3.space", "policy.static.space",
        "policy.oracle.space", "policy.paged.prefix_caching",
        "policy.paged.idle_watermark", "policy.paged.window_rules", "engine.usage",
    }  # fmt: skip
    # `model` is resolved by the caller; `moves` and
    # `tiers` in tests/policies/transfers, `pools` in test_pools.py, `speculation` in
    # engines/test_speculation.py
    assert set(ServingSpec.model_fields) - set(parts) - known == {
        "model", "policy", "routing", "free", "expert_parallel",
        "expert_exchange", "expert_group", "kv_pad", "memories", "moves", "tiers", "connectors",
        "pools",
        "speculation", "faults",
    }  # fmt: skip
