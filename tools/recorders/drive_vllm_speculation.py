"""Drive the scheduler of vLLM V1 with speculative decoding, without a GPU or a model.

    PYTHON drive_vllm_speculation.py SCHEDULES.json.gz [DRAWS]

runs the cases below with PYTHON's vLLM, DRAWS of each (1), and writes them beside those of other
versions there. A stub stands for `SpeculativeConfig`; outputs, and how many drafts hold, are drawn
here. Made with 0.23.0 and 0.33.0; README.md has the form.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import vllm
from drive_vllm_windows import BLOCK, LONGEST, STOP, config_of, digest, spec_of, tables_of
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

METHODS = {"ngram": "ngram", "draft": "draft_model", "eagle": "eagle", "mtp": "mtp"}

CASES: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "tokens": 4},
    "draft": {"method": "draft", "tokens": 3},
    "eagle": {"method": "eagle", "tokens": 3},
    "eagle-long": {"method": "eagle", "tokens": 8, "blocks": 150},
    "eagle-cached": {"method": "eagle", "tokens": 3, "shares": True},
    "ngram-cached": {"method": "ngram", "tokens": 5, "shares": True, "blocks": 110},
    "mtp-even": {"method": "mtp", "tokens": 2, "shares": True, "even": True},
    "budget": {"method": "eagle", "tokens": 4, "budget": 64, "seqs": 24},
    "chunk": {"method": "eagle", "tokens": 3, "full": False, "longest": 1200, "blocks": 160},
    "watermark": {"method": "eagle", "tokens": 3, "watermark": 0.05},
    "async-ngram": {"method": "ngram", "tokens": 4, "async": True},
    "async-eagle": {"method": "eagle", "tokens": 3, "async": True, "shares": True},
    "async-stop": {"method": "eagle", "tokens": 5, "async": True, "ends": "stop", "shares": True},
    "async-tight": {"method": "mtp", "tokens": 1, "async": True, "blocks": 60, "seqs": 12},
}


def made(name: str, kind: dict[str, Any], nth: int) -> dict[str, Any] | None:
    """A case with its requests; None where this version has no such option."""
    if kind.get("watermark") and vllm.__version__ < "0.3":
        return None
    config = {
        "blocks": kind.get("blocks", 100), "block_size": BLOCK, "groups": [None],
        "max_num_batched_tokens": kind.get("budget", 256), "max_num_seqs": kind.get("seqs", 32),
        "prefix_caching": kind.get("shares", False), "reserve_full_isl": kind.get("full", True),
        "watermark": kind.get("watermark", 0.0), "async": kind.get("async", False),
        "ends": kind.get("ends", "length"),
        "speculation": {"method": kind["method"], "tokens": kind["tokens"]},
    }  # fmt: skip
    rng, count = np.random.default_rng([zlib.crc32(name.encode()), nth]), kind.get("requests", 30)
    longest = kind.get("longest", 500)
    prompt = np.clip(rng.lognormal(np.log(longest / 4), 0.9, count).astype(int), 4, longest)
    if kind.get("even"):  # prompts that end with a block, or a token behind it
        prompt = -(-prompt // BLOCK) * BLOCK + rng.integers(0, 2, count)
    output = np.clip(rng.lognormal(np.log(60), 0.8, count).astype(int), 1, 400)
    drafts = rng.choice(kind["tokens"] + 1, (count, 401))
    trace = {
        "arrival": np.cumsum(rng.poisson(kind.get("load", 2.0), count)).tolist(),
        "prompt": prompt.tolist(), "output": output.tolist(),
        "held": ["".join(map(str, row[:end])) for row, end in zip(drafts, output, strict=True)],
    }  # fmt: skip
    if config["prefix_caching"]:
        ids = rng.integers(-1, 3, count)
        shared = np.minimum(np.array([64, 100, 37, 0])[ids], prompt)
        trace |= {"prefix_id": ids.tolist(), "prefix_tokens": shared.tolist()}
    version = vllm.__version__
    return {"name": f"{name}-{nth}-{version}", "vllm": version, "config": config, "trace": trace}


def speculative(method: str, tokens: int) -> SimpleNamespace:
    """What the scheduler asks of `SpeculativeConfig`."""
    eagle = method in ("eagle", "mtp")
    return SimpleNamespace(
        method=METHODS[method], num_speculative_tokens=tokens, use_eagle=lambda: eagle,
        uses_draft_model=lambda: method == "draft", use_dflash=lambda: False,
        use_dspark=lambda: False, use_eagle_block_drop=lambda: eagle,
        needs_eagle_block_drop=lambda: eagle, disable_eagle_block_drop=False,
        disable_lookahead_block_hashes=False, num_speculative_tokens_per_batch_size=None,
        use_multi_module_mtp=lambda: False, max_num_new_slots_for_drafting=0,
        draft_model_config=SimpleNamespace(hf_config=SimpleNamespace()),
        parallel_drafting=False, uses_dynamic_speculative_decoding=lambda: False,
    )  # fmt: skip


def scheduler_of(config: dict[str, Any]) -> tuple[Scheduler, int]:
    """The scheduler, and tokens behind a block that its hash covers."""
    whole, block = config_of(config), config["block_size"]
    whole.cache_config.enable_prefix_caching = config["prefix_caching"]
    if drafts := config.get("speculation"):
        object.__setattr__(whole, "speculative_config", speculative(**drafts))
    groups = [
        KVCacheGroupSpec([f"layer.{at}"], spec_of(window, block))
        for at, window in enumerate(config["groups"])
    ]
    state = MambaSpec(
        block_size=LONGEST, shapes=((block, 16),), dtypes=(torch.float32,),
        num_speculative_blocks=drafts["tokens"] if drafts else 0,
    )  # fmt: skip
    many = config.get("states", 0)  # layers with a state come first, as in the models
    groups = [*(KVCacheGroupSpec([f"state.{at}"], state) for at in range(many)), *groups]
    own, tokens = config.get("drafter", (0, block))  # of a draft model, with blocks of its own
    groups += [KVCacheGroupSpec([f"drafter.{at}"], spec_of(None, tokens)) for at in range(own)]
    kind = AsyncScheduler if config["async"] else Scheduler
    scheduler = kind(
        vllm_config=whole, block_size=LONGEST if many else block, log_stats=False,
        kv_cache_config=KVCacheConfig(config["blocks"] + 1, [], groups),
        structured_output_manager=SimpleNamespace(
            should_advance=lambda request: False, accept_tokens=lambda *given, **named: True,
            validate_tokens=lambda request, tokens: tokens,
        ),
    )  # fmt: skip
    assert scheduler.num_spec_tokens == (drafts["tokens"] if drafts else 0)
    assert scheduler.kv_cache_manager.enable_caching == config["prefix_caching"]
    return scheduler, getattr(whole, "num_hash_lookahead_tokens", 0)


def requests_of(case: dict[str, Any], behind: int) -> tuple[list[Request], list[list[int]]]:
    """Requests and their outputs. Prompts are random, but for what those with one prefix_id, and
    turns of a session, begin with."""
    trace, hasher, block = case["trace"], None, case["config"]["block_size"]
    if case["config"]["prefix_caching"]:
        init_none_hash(sha256)
        more = {"num_hash_lookahead_tokens": behind} if behind else {}
        hasher = get_request_block_hasher(block, sha256, **more)
    rng = np.random.default_rng(zlib.crc32(case["name"].encode()))
    prefixes = rng.integers(100, 59999, (4, LONGEST))
    sessions = case.get("bankwise", {}).get("session") or [-1] * len(trace["prompt"])
    found, outputs, said = [], [], {}
    for at, length in enumerate(trace["prompt"]):
        tokens = rng.integers(100, 59999, length)
        if "prefix_id" in trace:
            shared = trace["prefix_tokens"][at]
            tokens[:shared] = prefixes[trace["prefix_id"][at], :shared]
        before = said.get(sessions[at], [])
        tokens[: len(before)] = before
        outputs.append(rng.integers(100, 59999, trace["output"][at]).tolist())
        outputs[-1][-1] = STOP
        if sessions[at] >= 0:
            said[sessions[at]] = [*tokens.tolist(), *outputs[-1]]
        ends = {"max_tokens": trace["output"][at]}
        if case["config"]["ends"] == "stop":
            ends = {"max_tokens": LONGEST, "stop_token_ids": [STOP]}
        found.append(Request(
            request_id=str(at), prompt_token_ids=tokens.tolist(), pooling_params=None,
            sampling_params=SamplingParams(ignore_eos=True, **ends), block_hasher=hasher,
        ))  # fmt: skip
    return found, outputs


def drive(case: dict[str, Any]) -> None:
    """Adds `steps` and `tables` to the case."""
    config, trace = case["config"], case["trace"]
    scheduler, behind = scheduler_of(config)
    requests, outputs = requests_of(case, behind)
    drafted = (config.get("speculation") or {"tokens": 0})["tokens"]
    pool = scheduler.kv_cache_manager.block_pool
    sessions = case.get("bankwise", {}).get("session") or [-1] * len(requests)
    arrivals = deque(enumerate(trace["arrival"]))
    depth = 2 if config["async"] else 1
    flying: deque[Any] = deque()
    steps, tables, clock, empty = [], [], 0, 0

    def tokens_of(one: str, rows: int) -> list[int]:
        known = scheduler.requests.get(one)
        if known is None:
            return [100]
        made = known.num_output_tokens
        held = int(trace["held"][int(one)][made]) if rows and made < len(outputs[int(one)]) else 0
        return outputs[int(one)][made : made + 1 + min(held, rows)] or [100]

    while arrivals or flying or scheduler.get_num_unfinished_requests():
        if not flying and not scheduler.get_num_unfinished_requests():
            clock = max(clock, arrivals[0][1])
        while arrivals and arrivals[0][1] <= clock:
            joins = arrivals.popleft()[0]
            before = sessions.index(sessions[joins]) if sessions[joins] >= 0 else joins
            assert not any(
                sessions[at] == sessions[joins] and str(at) in scheduler.requests
                for at in range(before, joins)
            ), "a turn ends late"
            scheduler.add_request(requests[joins])
        if scheduler.get_num_unfinished_requests():
            before = [(one, one.num_preemptions) for one in scheduler.running]
            ran = {one.request_id for one, _ in before}
            out = scheduler.schedule()
            tokens, by_id = out.num_scheduled_tokens, scheduler.requests
            if tokens:
                tables.append(tables_of(scheduler))
                lost = [one for one, times in before[::-1] if one.num_preemptions > times]
                cached = sum(
                    by_id[one].num_computed_tokens - count
                    for one, count in tokens.items() if one not in ran
                )  # fmt: skip
                steps.append([
                    clock, [[int(one), count] for one, count in tokens.items()],
                    [int(one.request_id) for one in lost], cached, len(scheduler.running),
                    len(scheduler.waiting), pool.get_num_free_blocks(), digest(tables[-1]),
                ])  # fmt: skip
                clock += 1
            else:
                empty += 1
                assert depth > 1 or empty < 1000, "stuck"
            samples = {one: not by_id[one].is_prefill_chunk for one in tokens}
            flying.append((out, samples, ran))
            if len(flying) < depth and tokens:
                continue
        out, samples, ran = flying.popleft()
        ids = list(out.num_scheduled_tokens)
        # rows that pad an admitted request hold no drafts
        drafts = {one: each for one, each in out.scheduled_spec_decode_tokens.items() if one in ran}
        made = [tokens_of(one, len(drafts.get(one, ()))) if samples[one] else [] for one in ids]
        places = {one: at for at, one in enumerate(ids)}
        scheduler.update_from_output(
            out, ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=made)
        )
        if depth == 1 and drafted:
            sampled = [one for one in ids if samples[one]]
            scheduler.update_draft_token_ids(
                DraftTokenIds(sampled, [[7] * drafted for _ in sampled])
            )
    assert pool.get_num_free_blocks() == config["blocks"]
    shown = sorted({round(at) for at in np.linspace(0, len(steps) - 1, 4)})
    case |= {"steps": steps, "tables": {str(at): tables[at] for at in shown}}


def of_other_versions(path: Path) -> list[dict[str, Any]]:
    """The cases of a file that other versions of vLLM made."""
    kept = json.loads(gzip.decompress(path.read_bytes()))["cases"] if path.exists() else []
    return [case for case in kept if case["vllm"] != vllm.__version__]


def write(path: Path, cases: list[dict[str, Any]]) -> None:
    """Cases into a file, by version."""
    cases.sort(key=lambda case: [int(part) for part in case["vllm"].split(".")])
    text = json.dumps({"cases": cases}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


def main() -> None:
    path, draws = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept = of_other_versions(path)
    for name, kind in CASES.items():
        for nth in range(draws):
            if case := made(name, kind, nth):
                drive(case)
                kept.append(case)
                print(
                    f"{case['name']:24} {len(case['steps']):5} steps"
                    f" {sum(len(step[2]) for step in case['steps']):4} preemptions"
                    f" {sum(step[3] for step in case['steps']):6} found"
                )
    write(path, kept)


if __name__ == "__main__":
    main()
