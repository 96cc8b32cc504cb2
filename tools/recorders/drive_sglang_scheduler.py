"""Drive what SGLang schedules by, without a GPU or a model.

    PYTHON drive_sglang_scheduler.py SCHEDULES.json.gz [DRAWS]

runs drawn cases with PYTHON's SGLang, and writes their steps. `SchedulePolicy`, `PrefillAdder`,
`NewTokenRatioTracker`, `ScheduleBatch.retract_decode` and `check_decode_mem`, the allocators of
slots and the radix cache are SGLang's; the loop around them, that of `Scheduler` without overlap,
is written here. Made with 0.5.23; README.md has the form.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import sglang
import torch
from sglang.srt.managers import schedule_batch, schedule_policy
from sglang.srt.managers.schedule_batch import ReqKvInfo, ScheduleBatch
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder, SchedulePolicy
from sglang.srt.managers.scheduler_components import new_token_ratio_tracker
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import evict_from_tree_cache, match_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache

LONG = 4096
SCHEDULE = SimpleNamespace(
    retraction_policy="length", schedule_policy="fcfs", schedule_conservativeness=1.0
)
OTHERS = SimpleNamespace(
    disaggregation_mode="null", radix_eviction_policy="lru",
    mamba=SimpleNamespace(enable_mamba_extra_buffer=False),
    features=SimpleNamespace(enable_encoder_swa_bounded_replay=False),
)  # fmt: skip
for module in (schedule_policy, schedule_batch, new_token_ratio_tracker):
    for name in ("get_schedule", "get_disagg", "get_memory", "get_exec"):
        if hasattr(module, name):
            own = SCHEDULE if name == "get_schedule" else OTHERS
            setattr(module, name, lambda own=own: own)

CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "pages": {"page": 16}, "chunks": {"chunk": 64}, "chunked-pages": {
        "page": 16, "chunk": 96,
    },
    "tight": {"slots": 1200}, "tight-pages": {"slots": 1600, "page": 16}, "few": {"cap": 4},
    "shared": {"shares": True}, "shared-lpm": {"shares": True, "policy": "lpm"},
    "lpm-chunks": {"shares": True, "policy": "lpm", "chunk": 64},
    "lpm-tight": {"shares": True, "policy": "lpm", "slots": 1200},
    "lpm-pages": {"shares": True, "policy": "lpm", "page": 16},
    "exact": {"ends": "length", "slots": 1200}, "exact-lpm": {
        "ends": "length", "shares": True, "policy": "lpm", "slots": 1400,
    },
    "bold": {"conservativeness": 0.1, "slots": 1000, "ends": "length", "load": 1.0},
    "bold-lpm": {
        "conservativeness": 0.1, "slots": 1200, "ends": "length", "load": 1.0, "shares": True,
        "policy": "lpm",
    },
    "bold-pages": {
        "conservativeness": 0.1, "slots": 1200, "ends": "length", "load": 1.0, "page": 16,
        "shares": True,
    },
    "shy": {"conservativeness": 1.4}, "input": {"prefill": 200},
}  # fmt: skip


class SGLangRequest:
    """What SGLang's classes read of a request."""

    beam_group = session = extra_key = cache_salt = kv_rotation_base = None
    staged_prefetch_plan = mamba_pool_idx = input_embeds = lora_id = None
    host_hit_length = swa_host_hit_length = auxiliary_swa_host_hit_length = storage_hit_length = 0
    mamba_host_hit_length = host_loaded_length = storage_hit_start = priority = 0
    is_retracted = retracted_stain = host_hit_is_storage = skip_radix_cache_insert = False
    _done = False

    def __init__(self, at: int, prompt: list[int], output: int, asked: int) -> None:
        self.at, self.rid, self.output = at, str(at), output
        self.origin_input_ids, self.output_ids = array("q", prompt), array("q")
        self.kv, self.lock, self.last_node = ReqKvInfo(), None, None
        self.sampling_params = SimpleNamespace(max_new_tokens=asked, ignore_eos=False)
        self.prefix_len = self.extend_end = self.num_matched_prefix_tokens = 0
        self.cache_request_handle = None
        self.refill()

    def refill(self) -> None:
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    extend_input_len = extend_len

    def _compute_max_prefix_len(self, length: int) -> int:
        return max(length - 1, 0)

    def needs_host_load_back(self) -> bool:
        return False

    def materialized_host_hit_len(self) -> int:
        return 0

    def fulfilled_storage_hit_len(self, prefix: int) -> int:
        return 0

    def finished(self) -> bool:
        return self._done

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Batch(ScheduleBatch):
    """The running requests."""

    def __init__(self, run: SGLangRun) -> None:
        self.reqs: list[Any] = []
        self.batch_is_full = False
        self.run, self.tree_cache = run, run.tree
        self.token_to_kv_pool_allocator, self.req_to_token_pool = run.alloc, run.rows
        self.spec_algorithm = SimpleNamespace(is_none=lambda: True)
        self.hisparse_coordinator = None

    def release_req(self, idx: int, remaing_req_count: int, offload_kv: bool = True) -> bool:
        self.run.release(self.reqs[idx], checkpoint=False)
        evict_from_tree_cache(self.tree_cache, remaing_req_count * 20)
        return True

    def filter_batch(self, keep_indices: Any = None, **_: Any) -> None:
        if keep_indices is None:
            keep_indices = [at for at, one in enumerate(self.reqs) if not one.finished()]
        self.reqs = [self.reqs[at] for at in keep_indices]


class SGLangRun:
    """SGLang's pools, and the loop of its scheduler."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.config = case, case["config"]
        slots, page = self.config["slots"], self.config["page"]
        self.page, self.rows = page, ReqToTokenPool(512, LONG, "cpu", False)
        kind = TokenToKVPoolAllocator if page == 1 else PagedTokenToKVPoolAllocator
        size = (slots,) if page == 1 else (slots, page)
        self.alloc = kind(*size, torch.float16, "cpu", None, False)
        self.alloc.use_triton_kernels = False
        self.tree = RadixCache(CacheInitParams(
            disable=False, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.alloc,
            page_size=page,
        ))  # fmt: skip
        SCHEDULE.schedule_policy = self.config["policy"]
        SCHEDULE.schedule_conservativeness = self.config["conservativeness"]
        self.policy = SchedulePolicy(self.config["policy"], self.tree, False, False, False)
        self.ratio = new_token_ratio_tracker.NewTokenRatioTracker.from_config()
        self.waiting: list[SGLangRequest] = []
        self.running, self.last, self.chunked = Batch(self), None, None

    def next_batch(self) -> tuple[list[SGLangRequest], list[SGLangRequest], list[SGLangRequest]]:
        """Prefills, decodes and retracted requests of the next step."""
        if self.last is not None:
            kept = [one for one in self.last if one is not self.chunked and not one.finished()]
            if len(kept) < len(self.last):
                self.running.batch_is_full = False
            self.running.reqs += kept
        before = len(self.running.reqs)
        self.running.filter_batch()
        if len(self.running.reqs) < before or not self.running.reqs:
            self.running.batch_is_full = False
        self.last = None
        if prefills := self.prefills():
            self.last = prefills
            return prefills, [], []
        return [], *self.decodes()

    def prefills(self) -> list[SGLangRequest]:
        batch, config = self.running, self.config
        if (batch.batch_is_full or not self.waiting) and self.chunked is None:
            return []
        if config["cap"] - len(batch.reqs) <= 0 and self.chunked is None:
            batch.batch_is_full = True
            return []
        self.policy.calc_priority(self.waiting, batch)
        adder = PrefillAdder(
            self.page, self.tree, self.alloc, batch, self.ratio.current, config["prefill"],
            config["chunk"], waiting_queue_len=len(self.waiting),
        )  # fmt: skip
        if self.chunked is not None:
            self.chunked.refill()
            self.chunked = adder.add_chunked_req(self.chunked)
        for one in self.waiting:
            if adder.budget_state() == AddReqResult.OTHER:
                break
            if len(adder.can_run_list) >= config["cap"] - len(batch.reqs):
                batch.batch_is_full = True
                break
            one.refill()
            total = len(one.full_untruncated_fill_ids)
            match_kv_cache(one, self.tree, one.full_untruncated_fill_ids, max_prefix_len=total - 1)
            one.kv.cache_protected_len = one.prefix_len
            found = adder.add_one_req(
                one, has_chunked_req=self.chunked is not None, truncation_align_size=None
            )
            if found != AddReqResult.CONTINUE:
                if found == AddReqResult.NO_TOKEN:
                    batch.batch_is_full = bool(adder.can_run_list) or bool(batch.reqs)
                break
        chosen = adder.can_run_list
        self.waiting = [one for one in self.waiting if one not in chosen]
        if adder.new_chunked_req is not None:
            assert self.chunked is None
            self.chunked = adder.new_chunked_req
        return chosen

    def decodes(self) -> tuple[list[SGLangRequest], list[SGLangRequest]]:
        batch, retracted = self.running, []
        if not batch.reqs:
            return [], []
        if batch.check_decode_mem():
            self.ratio.decay_step()
        else:
            before = len(batch.reqs)
            retracted, self.ratio.current, aborted = batch.retract_decode()
            assert not aborted
            self.waiting += retracted
            batch.batch_is_full &= len(batch.reqs) == before
        return list(batch.reqs), retracted

    def extend(self, chosen: list[SGLangRequest]) -> None:
        fresh = [one for one in chosen if one.kv.req_pool_idx is None]
        if fresh:
            self.rows.alloc(fresh)
        starts, before = [one.prefix_len for one in chosen], []
        for one, start in zip(chosen, starts, strict=True):
            if one.kv.kv_allocated_len:
                before.append(self.rows.req_to_token[one.kv.req_pool_idx][:start].to(torch.int64))
            else:
                before.append(self.tree.path_device_indices(one.last_node)[:start])
        ends = [one.extend_end for one in chosen]
        count = sum(ends) - sum(starts)
        if self.page == 1:
            evict_from_tree_cache(self.tree, count)
            out = self.alloc.alloc(count)
        else:
            evict_from_tree_cache(self.tree, count + len(chosen) * self.page)
            first, last = torch.tensor(starts), torch.tensor(ends)
            tails = torch.cat([
                slots[-1:] if len(slots) else torch.full((1,), -1, dtype=torch.int64)
                for slots in before
            ])  # fmt: skip
            out = self.alloc.alloc_extend(first, first, last, last, tails, count)
        assert out is not None
        at = 0
        for one, start, end, slots in zip(chosen, starts, ends, before, strict=True):
            self.rows.write((one.kv.req_pool_idx, slice(0, start)), slots.to(torch.int32))
            new = out[at : at + end - start].to(torch.int32)
            self.rows.write((one.kv.req_pool_idx, slice(start, end)), new)
            one.kv.kv_allocated_len = one.kv.kv_committed_len = end
            at += end - start

    def decode(self, chosen: list[SGLangRequest]) -> None:
        lengths = torch.tensor([one.kv.kv_allocated_len for one in chosen])
        rows = torch.tensor([one.kv.req_pool_idx for one in chosen])
        if self.page == 1:
            evict_from_tree_cache(self.tree, len(chosen))
            out = self.alloc.alloc(len(chosen))
        else:
            evict_from_tree_cache(self.tree, len(chosen) * self.page)
            last = self.rows.req_to_token[rows, lengths - 1].to(torch.int64)
            out = self.alloc.alloc_decode(lengths + 1, lengths + 1, last)
        assert out is not None
        self.rows.write((rows, lengths), out.to(torch.int32))
        for one in chosen:
            one.kv.kv_allocated_len += 1
            one.kv.kv_committed_len += 1

    def release(self, one: SGLangRequest, checkpoint: bool = True) -> None:
        owned = one.kv.kv_committed_len
        if checkpoint:
            one._done = True
            one.refill()
            self.tree.checkpoint(one, up_to=owned)
        self.tree.free_kv_row(one.kv, [(one.kv.cache_protected_len, owned)])
        self.tree.unlock(one.lock)
        one.lock = None
        self.tree.on_release(one, checkpointed=checkpoint)
        self.rows.free(one)
        one.kv = ReqKvInfo()
        one.prefix_len = one.extend_end = 0

    def steps(self) -> list[Any]:
        """[clock, [[request, start, tokens], ...] of prefills, decodes, retracted, running,
        waiting] of each step."""
        trace, done, clock = self.case["trace"], [], 0
        rng = np.random.default_rng(zlib.crc32(self.case["name"].encode()))
        prefixes = rng.integers(100, 59999, (4, LONG))
        ids = trace.get("prefix_id") or [-1] * len(trace["prompt"])
        to_come = []
        for at, length in enumerate(trace["prompt"]):
            tokens = rng.integers(100, 59999, length)
            if ids[at] >= 0:
                shared = trace["prefix_tokens"][at]
                tokens[:shared] = prefixes[ids[at], :shared]
            output = trace["output"][at]
            asked = output if self.config["ends"] == "length" else self.config["asked"]
            asked = min(asked, self.config["slots"] - 1 - length - 1)
            to_come.append(SGLangRequest(at, tokens.tolist(), output, asked))
        while to_come or self.waiting or self.chunked or self.live():
            if not (self.waiting or self.chunked or self.live()):
                clock = max(clock, trace["arrival"][to_come[0].at])
                self.ratio.reset()
            while to_come and trace["arrival"][to_come[0].at] <= clock:
                self.waiting.append(to_come.pop(0))
            prefills, decodes, retracted = self.next_batch()
            if not prefills and not decodes:
                assert not self.waiting, "stuck"
                continue
            spans = [[one.at, one.prefix_len, one.extend_len] for one in prefills]
            whole = [one.extend_end == len(one.full_untruncated_fill_ids) for one in prefills]
            if prefills:
                self.extend(prefills)
            else:
                self.decode(decodes)
            done.append([
                clock, spans, [one.at for one in decodes], [one.at for one in retracted],
                len(self.running.reqs) + len(prefills), len(self.waiting),
            ])  # fmt: skip
            clock += 1
            for one, last in zip(prefills, whole, strict=True):
                self.tree.checkpoint(one, up_to=one.extend_end)
                one.prefix_len = one.extend_end
                if last:
                    self.sample(one, rng)
            for one in decodes:
                self.sample(one, rng)
            self.alloc.free_group_begin()
            for one in [*prefills, *decodes]:
                if len(one.output_ids) == one.output:
                    self.release(one)
            self.alloc.free_group_end()
        return done

    def sample(self, one: SGLangRequest, rng: np.random.Generator) -> None:
        one.output_ids.append(int(rng.integers(100, 59999)))
        one.refill()

    def live(self) -> bool:
        own = [*self.running.reqs, *(self.last or [])]
        return any(not one.finished() for one in own)


def made(name: str, kind: dict[str, Any], nth: int) -> dict[str, Any]:
    """A case with its requests."""
    rng = np.random.default_rng([zlib.crc32(f"sglang {name}".encode()), nth])
    count = 40
    config = {
        "slots": kind.get("slots", 3200), "page": kind.get("page", 1),
        "policy": kind.get("policy", "fcfs"), "chunk": kind.get("chunk", 512),
        "prefill": kind.get("prefill", 1024), "cap": kind.get("cap", 24),
        "conservativeness": kind.get("conservativeness", 1.0), "ends": kind.get("ends", "stop"),
    }  # fmt: skip
    prompt = np.clip(rng.lognormal(np.log(90), 0.9, count).astype(int), 4, 500)
    output = np.clip(rng.lognormal(np.log(60), 0.8, count).astype(int), 1, 300)
    config["asked"] = int(output.max())
    trace = {
        "arrival": np.cumsum(rng.poisson(kind.get("load", 3.0), count)).tolist(),
        "prompt": prompt.tolist(),
        "output": output.tolist(),
    }  # fmt: skip
    if kind.get("shares"):
        ids = rng.integers(-1, 3, count)
        shared = np.minimum(np.array([64, 100, 37, 0])[ids], prompt)
        trace |= {"prefix_id": ids.tolist(), "prefix_tokens": shared.tolist()}
    return {"name": f"{name}-{nth}", "sglang": sglang.__version__, "config": config, "trace": trace}


def main() -> None:
    path, draws = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    cases = [made(name, kind, nth) for name, kind in CASES.items() for nth in range(draws)]
    for case in cases:
        case["steps"] = SGLangRun(case).steps()
        print(
            f"{case['name']:18} {len(case['steps']):5} steps"
            f" {sum(len(step[3]) for step in case['steps']):4} retracted"
            f" {sum(span[1] for step in case['steps'] for span in step[1]):6} found or done",
            flush=True,
        )  # fmt: skip
    text = json.dumps({"cases": cases}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
