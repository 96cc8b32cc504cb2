"""Drive the scheduler of vLLM V1 on models with sliding windows, without a GPU or a model.

    PYTHON drive_vllm_windows.py SCHEDULES.json.gz GROUPS.json

runs the cases below with PYTHON's vLLM, asks it for the groups of layers of some patterns, and
writes both beside those of other versions there. Only vLLM's Scheduler, KVCacheManager, BlockPool
and Request run; outputs are made up. Made with 0.11.2, 0.19.0, 0.23.0 and 0.33.0; README.md has the
form.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import zlib
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "CRITICAL", "VLLM_NO_USAGE_STATS": "1"}

import numpy as np
import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

try:
    from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
except ImportError:  # older
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

BLOCK, LONGEST, STOP = 16, 32768, 50
OLD = vllm.__version__.startswith("0.11")
MARKS = "watermark" in SchedulerConfig.__dataclass_fields__
MODEL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 60000,
    "torch_dtype": "float16", "max_position_embeddings": LONGEST,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    # groups: window of each, None: full attention; load: mean steps between arrivals
    "half": {"groups": [None, 64], "blocks": 400},
    "half-tight": {"groups": [None, 64], "blocks": 150},
    "half-odd": {"groups": [None, 100], "blocks": 180, "budget": 96},
    "gemma": {"groups": [128, 128, 128, 128, 128, None], "blocks": 500},
    "gemma-tight": {"groups": [128, 128, 128, None], "blocks": 260, "longest": 640},
    "mistral": {"groups": [256], "blocks": 100},
    "mistral-chunked": {"groups": [512], "blocks": 120, "budget": 192, "longest": 1400},
    "wide": {"groups": [None, 1024], "blocks": 380, "budget": 512, "longest": 2500, "requests": 16},
    "chunk": {"groups": [None, 96, 96], "blocks": 260, "full": False, "longest": 1200},
    "narrow": {"groups": [64, None], "blocks": 110, "budget": 64, "seqs": 12, "longest": 450},
    "watermark": {"groups": [None, 64], "blocks": 200, "watermark": 0.05},
    "async": {"groups": [None, 64], "blocks": 170, "async": True},
    "async-stop": {"groups": [128, 128, None], "blocks": 200, "async": True, "ends": "stop"},
    "async-chunked": {"groups": [200], "blocks": 90, "async": True, "budget": 80, "longest": 1000},
}


LAYERS: dict[str, tuple[int, list[int | None]]] = {
    # layers, and the pattern of their windows
    "gemma-3-1b": (26, [512] * 5 + [None]), "gemma-3-12b": (48, [1024] * 5 + [None]),
    "gemma-3-27b": (62, [1024] * 5 + [None]), "gpt-oss-20b": (24, [128, None]),
    "mistral-7b-v0.1": (32, [4096]), "9 and 4": (13, [64, 64, None]), "5 and 4": (9, [64, None]),
    "7 and 2": (9, [None] + [64] * 4), "3 and 2": (5, [64, None]),
    "7 and 6": (13, [None, 64]),
}  # fmt: skip


def made(name: str, kind: dict[str, Any]) -> dict[str, Any] | None:
    """A case with its requests; None where this version has no such option."""
    config = {
        "blocks": kind["blocks"], "block_size": BLOCK, "groups": kind["groups"],
        "max_num_batched_tokens": kind.get("budget", 256), "max_num_seqs": kind.get("seqs", 32),
        "prefix_caching": False, "reserve_full_isl": kind.get("full", True) and not OLD,
        "watermark": kind.get("watermark", 0.0), "async": kind.get("async", False),
        "ends": kind.get("ends", "length"),
    }  # fmt: skip
    if (OLD and config["async"]) or (config["watermark"] and not MARKS):
        return None
    rng, count = np.random.default_rng(zlib.crc32(name.encode())), kind.get("requests", 30)
    longest = kind.get("longest", 500)
    prompt = np.clip(rng.lognormal(np.log(longest / 4), 0.9, count).astype(int), 4, longest)
    output = np.clip(rng.lognormal(np.log(60), 0.8, count).astype(int), 1, 400)
    trace = {
        "arrival": np.cumsum(rng.poisson(kind.get("load", 2.0), count)).tolist(),
        "prompt": prompt.tolist(), "output": output.tolist(),
    }  # fmt: skip
    version = vllm.__version__
    return {"name": f"{name}-{version}", "vllm": version, "config": config, "trace": trace}


def config_of(config: dict[str, Any]) -> VllmConfig:
    options = {
        key: config[key] for key in ("max_num_seqs", "max_num_batched_tokens")
    } | {"max_model_len": LONGEST, "enable_chunked_prefill": True}  # fmt: skip
    options["async_scheduling"] = config["async"]
    if not OLD:
        options |= {"is_encoder_decoder": False}
        options |= {"scheduler_reserve_full_isl": config["reserve_full_isl"]}
        options |= {"watermark": config["watermark"]} if MARKS else {}
    folder = tempfile.mkdtemp()
    Path(folder, "config.json").write_text(json.dumps(MODEL))
    model = ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float16", seed=0,
        max_model_len=LONGEST,
    )  # fmt: skip
    cache = CacheConfig(
        block_size=config["block_size"], cache_dtype="auto", enable_prefix_caching=False,
        **({"swap_space": 0, "gpu_memory_utilization": 0.9} if OLD else {}),
    )  # fmt: skip
    made = VllmConfig(
        scheduler_config=SchedulerConfig(**options), model_config=model, cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
    )  # fmt: skip
    cache.num_gpu_blocks = config["blocks"] + 1  # one is the null block
    cache.enable_prefix_caching = False
    return made


def spec_of(window: int | None, block: int = BLOCK) -> FullAttentionSpec | SlidingWindowSpec:
    shape = {"block_size": block, "num_kv_heads": 1, "head_size": 16, "dtype": torch.float32}
    return (
        SlidingWindowSpec(**shape, sliding_window=window) if window else FullAttentionSpec(**shape)
    )


def scheduler_of(config: dict[str, Any]) -> Scheduler:
    groups = [
        KVCacheGroupSpec([f"layer.{at}"], spec_of(window))
        for at, window in enumerate(config["groups"])
    ]
    kind = AsyncScheduler if config["async"] else Scheduler
    scheduler = kind(
        vllm_config=config_of(config), block_size=BLOCK, log_stats=False,
        kv_cache_config=KVCacheConfig(config["blocks"] + 1, [], groups),
        structured_output_manager=SimpleNamespace(
            should_advance=lambda request: False, accept_tokens=lambda *given, **named: True
        ),
    )  # fmt: skip
    assert scheduler.max_num_scheduled_tokens == config["max_num_batched_tokens"]
    assert not scheduler.kv_cache_manager.enable_caching
    return scheduler


def request_of(case: dict[str, Any], at: int) -> Request:
    length = case["trace"]["output"][at]
    if case["config"]["ends"] == "stop":
        params = SamplingParams(max_tokens=LONGEST, ignore_eos=True, stop_token_ids=[STOP])
    else:
        params = SamplingParams(max_tokens=length, ignore_eos=True)
    more = {"eos_token_id": None} if OLD else {}
    return Request(
        request_id=str(at), prompt_token_ids=[100] * case["trace"]["prompt"][at],
        sampling_params=params, pooling_params=None, **more,
    )  # fmt: skip


def output_of(scheduled: Any, samples: dict[str, bool], left: Any) -> ModelRunnerOutput:
    """One token for each request whose prefill is done; the last one stops it."""
    ids = list(scheduled.num_scheduled_tokens)
    tokens: list[Any] = [[STOP if left(one) == 1 else 101] * samples[one] for one in ids]
    more = {}
    if OLD:
        tokens = [np.array(one, np.int64) for one in tokens]
        more = {"logprobs": None, "prompt_logprobs_dict": {}, "pooler_output": []}
    places = {one: at for at, one in enumerate(ids)}
    return ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=tokens, **more)


def tables_of(scheduler: Scheduler) -> list[Any]:
    """[request, blocks group by group] in running order; vLLM's numbers less 1, null: -1."""
    known = scheduler.kv_cache_manager.get_block_ids
    return [
        [int(one.request_id), [block - 1 for group in known(one.request_id) for block in group]]
        for one in scheduler.running
    ]


def digest(tables: list[Any]) -> int:
    flat = [number for one, blocks in tables for number in (one, len(blocks), *blocks)]
    return zlib.crc32(np.array(flat, "<i4").tobytes())


def drive(case: dict[str, Any]) -> None:
    """Adds `steps` and `tables` to the case."""
    scheduler, requests = scheduler_of(case["config"]), case["trace"]
    pool = scheduler.kv_cache_manager.block_pool
    arrivals = deque(enumerate(requests["arrival"]))
    depth = 2 if case["config"]["async"] else 1
    flying: deque[Any] = deque()
    steps, tables, clock, empty = [], [], 0, 0

    def left(one: str) -> int:
        known = scheduler.requests.get(one)
        return 0 if known is None else requests["output"][int(one)] - known.num_output_tokens

    while arrivals or flying or scheduler.get_num_unfinished_requests():
        if not flying and not scheduler.get_num_unfinished_requests():
            clock = max(clock, arrivals[0][1])
        while arrivals and arrivals[0][1] <= clock:
            scheduler.add_request(request_of(case, arrivals.popleft()[0]))
        if scheduler.get_num_unfinished_requests():
            before = [(one, one.num_preemptions) for one in scheduler.running]
            out = scheduler.schedule()
            tokens, by_id = out.num_scheduled_tokens, scheduler.requests
            if tokens:
                tables.append(tables_of(scheduler))
                lost = [one for one, times in before[::-1] if one.num_preemptions > times]
                steps.append([
                    clock, [[int(one), count] for one, count in tokens.items()],
                    [int(one.request_id) for one in lost], 0, len(scheduler.running),
                    len(scheduler.waiting), pool.get_num_free_blocks(), digest(tables[-1]),
                ])  # fmt: skip
                clock += 1
            else:
                empty += 1
                assert depth > 1 or empty < 1000, "stuck"
            samples = {
                one: by_id[one].num_computed_tokens >= by_id[one].num_tokens if OLD
                else not by_id[one].is_prefill_chunk for one in tokens
            }  # fmt: skip
            flying.append((out, samples))
            if len(flying) < depth and tokens:
                continue
        out, samples = flying.popleft()
        scheduler.update_from_output(out, output_of(out, samples, left))
    assert pool.get_num_free_blocks() == case["config"]["blocks"]
    shown = sorted({round(at) for at in np.linspace(0, len(steps) - 1, 4)})
    case |= {"steps": steps, "tables": {str(at): tables[at] for at in shown}}


def groups_of(layers: int, pattern: list[int | None]) -> list[list[int]]:
    """The layers of each group, of one page size, whose layout does not matter."""
    first = next(iter(CASES))
    whole = config_of(made(first, CASES[first])["config"])
    whole.scheduler_config.disable_hybrid_kv_cache_manager = False
    if hasattr(whole.cache_config, "kv_cache_layout"):
        whole.cache_config.kv_cache_layout = "LBNHC"
    specs = {str(at): spec_of(pattern[at % len(pattern)]) for at in range(layers)}
    return [[int(one) for one in each.layer_names] for each in get_kv_cache_groups(whole, specs)]


def main() -> None:
    path, beside = Path(sys.argv[1]), Path(sys.argv[2])
    known = json.loads(beside.read_text()) if beside.exists() else {}
    known[vllm.__version__] = {
        name: {"layers": layers, "pattern": pattern, "groups": groups_of(layers, pattern)}
        for name, (layers, pattern) in LAYERS.items()
    }
    beside.write_text(json.dumps(known, sort_keys=True) + "\n")
    kept = json.loads(gzip.decompress(path.read_bytes()))["cases"] if path.exists() else []
    kept = [case for case in kept if case["vllm"] != vllm.__version__]
    for name, kind in CASES.items():
        if case := made(name, kind):
            drive(case)
            kept.append(case)
            preempted = sum(len(step[2]) for step in case["steps"])
            print(f"{case['name']:24} {len(case['steps']):5} steps {preempted:4} preemptions")
    kept.sort(key=lambda case: [int(part) for part in case["vllm"].split(".")])
    text = json.dumps({"cases": kept}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
