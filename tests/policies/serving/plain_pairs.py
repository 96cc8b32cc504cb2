"""Small runs drawn at random, each served by the compiled core and in the general way: is every
figure and every time equal?

A run is told by its seed and its number alone; `tools/random_runs.py` serves many.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from policies.requests.requests import Requests
from policies.serving.counted_runs import RUNS
from policies.serving.plain.why_not import SWITCH
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec
from policies.serving.simulation import Watcher
from tests.policies.small import MODEL, FakeMemory

DEVICES = ("mlu370-x4", "a100-80gb", "h100-sxm", "mi300x", "jetson-agx-orin", "arc-pro-b60")
SHARES_BY_SIZE = "rtx-4090"
"""A device whose memory has a share of its rate by the size of what is read."""
LENT = (64, 128, 256)
"""Slots of blocks that are lent."""
ROUTERS = (
    "round_robin", "least_requests", "least_requests", "pressure", "session", "prefix", "least_kv",
)  # fmt: skip
RARE = (
    "preemption", "chunked prompt", "own blocks found", "slabs", "borrowing", "migration",
    "refresh", "probe", "next larger", "preempts last", "idle", "warm-up", "compaction",
    "pool of large ones", "odma-best", "prefix found", "session", "closed loop", "samples",
    "pools", "pools cut anew", "ideal", "shares by size", "prefills first",
    "ideal reserves", "copies are free", "replicas",
)  # fmt: skip


class Drawn(NamedTuple):
    """A run."""

    requests: Requests
    slots: int
    device: str
    warmup: int
    changes: dict[str, Any]


def drawn(seed: int, number: int, first: bool = False) -> Drawn:
    """The so many-th of a seed. first: with the options alone that the core knew first."""
    rng = random.Random(f"{seed} {number}")
    slots = 64 * rng.randint(6, 32)
    longest = min(slots - 64, rng.choice((256, 512, 1024)))
    stream = _requests(rng, longest)
    budget = rng.choice((64, 96, 256, 2048))
    engine = {
        "max_num_batched_tokens": budget, "max_num_seqs": min(rng.choice((2, 8, 64, 64)), budget),
        "max_model_len": longest, "too_long": "drop",
    }  # fmt: skip
    if rng.random() < 0.4:
        engine["max_tokens"] = rng.choice((32, 64, 128))
    if rng.random() < 0.05:
        engine |= rng.choice((
            {"admit_on": "chunk"}, {"async_scheduling": True}, {"packing": "first_fit"},
            {"long_prefill_token_threshold": 32},
        ))  # fmt: skip
    memory: dict[str, Any] = {"efficiency": rng.choice((1.0, 0.7))}
    if rng.random() < 0.4:
        memory = {"fidelity": "sampled", "weights": 0.8, "every_steps": rng.choice((20, 200, 2000))}
    policy = rng.choice((_paged,) * 4 + (_static, _oracle) + (_odma,) * 6)(rng)
    if policy.get("borrow", 1) > 1 and rng.random() < 0.98:
        stream, policy["align"] = _alike(rng), 16
        engine |= {"max_tokens": 48, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    if not first:
        more = random.Random(f"{seed} {number} more")
        _more(more, policy)
        joins = policy.get("compaction", "none") != "none"
        if joins and more.random() < 0.7:  # which begins where requests wait
            at_once = np.zeros(len(stream)), stream.prompt_tokens, stream.output_tokens
            stream, engine["max_num_seqs"] = Requests(*at_once), min(64, budget)
        elif more.random() < 0.4:
            stream = sharing(more, stream, longest)
    changes = {
        "policy": policy, "engine": engine, "memory": memory,
        "predictor": {"kind": "lognormal", "sigma": rng.choice((0.0, 0.4, 1.0))},
    }  # fmt: skip
    warmup, device = rng.choice((0, 0, len(stream) // 4)), rng.choice(DEVICES)
    if not first and "fidelity" not in memory and more.random() < 0.2:
        device = SHARES_BY_SIZE
    reserves = policy["name"] in ("static", "oracle", "odma")
    if (
        not first
        and reserves
        and policy.get("compaction", "none") == "none"
        and more.random() < 0.3
    ):
        changes["engine"] = _prefills_first(engine, longest)
    last = random.Random(f"{seed} {number} last")
    if not first and policy["name"] == "ideal":
        policy["reserve"] = last.choice(("stored", "output"))
    if not first and policy["name"].startswith("odma") and last.random() < 0.2:
        changes["free"] = ["copies"]
    lends = random.Random(f"{seed} {number} lends")
    if (
        not first
        and policy.get("borrow", 1) > 1
        and changes["engine"] is engine
        and lends.random() < 0.7
    ):
        stream, slots = _lent(lends, policy), 64 * lends.randint(24, 40)
        changes["engine"] = engine | {"max_tokens": LENT[-1] - 32, "max_model_len": 448}
        warmup = 0
    elif not first and lends.random() < 0.05:
        stream = dataclasses.replace(stream, arrival_s=1e3 * stream.arrival_s)
    fleet = random.Random(f"{seed} {number} fleet")
    learns = policy["name"].startswith("odma")
    if not first and not learns and "fidelity" not in memory and fleet.random() < 0.6:
        changes["cluster"] = {"cards": fleet.randint(2, 5), "placement": fleet.choice(ROUTERS)}
    return Drawn(stream, slots, device, warmup, changes)


def _prefills_first(engine: dict[str, Any], longest: int) -> dict[str, Any]:
    """The same under v0, which computes whole prompts."""
    kept = ("max_num_seqs", "max_model_len", "too_long", "max_tokens")
    budget = max(longest, engine["max_num_batched_tokens"])
    return {
        "name": "v0", "max_num_batched_tokens": budget,
        **{key: engine[key] for key in kept if key in engine},
    }  # fmt: skip


def _requests(rng: random.Random, longest: int) -> Requests:
    """At rates from far below to far above what a card serves, in part all at once."""
    count, draws = rng.randint(8, 80), np.random.default_rng(rng.randrange(1 << 30))
    gaps_s = draws.exponential(1 / 10 ** rng.uniform(0.5, 5), count)
    gaps_s[draws.random(count) < rng.choice((0, 0.5, 1))] = 0
    most = rng.choice((4, 6))  # of small ones many run at once
    prompts = draws.lognormal(rng.uniform(2, most), rng.uniform(0, 1.2), count)
    outputs = draws.lognormal(rng.uniform(2, most), rng.uniform(0, 1.2), count)
    return Requests(
        np.cumsum(gaps_s),
        np.clip(prompts, 1, longest * 5 // 4).astype(np.int64),  # of which the longest are dropped
        np.clip(outputs, 1, longest // 2).astype(np.int64),
    )


def _alike(rng: random.Random) -> Requests:
    """Many whose reservations are of a few sizes, so that blocks of one are lent to another."""
    count, draws = rng.randint(40, 80), np.random.default_rng(rng.randrange(1 << 30))
    prompts = np.clip(draws.normal(50, 25, count), 1, 120).astype(np.int64)
    return Requests(np.zeros(count), prompts, draws.integers(1, 48, count))


def _lent(rng: random.Random, policy: dict[str, Any]) -> Requests:
    """Many whose blocks are of `LENT` slots, so that what is free for one is exactly so many times
    as large as another needs, or more. Changes the policy."""
    policy.pop("first_bounds", None)
    on_total = policy["bucket_on"] == "total"
    policy |= {
        "bounds": [size if on_total else size - 32 for size in LENT], "buckets": len(LENT),
        "borrow": rng.choice((2, 2, 4)), "large": "prompt_plus_max_tokens",
    }  # fmt: skip
    count, draws = rng.randint(80, 120), np.random.default_rng(rng.randrange(1 << 30))
    return Requests(
        np.zeros(count), np.full(count, 32), draws.choice([24, 90, 200], count, p=[0.4, 0.5, 0.1])
    )


def sharing(rng: random.Random, stream: Requests, longest: int) -> Requests:
    """The same lengths with texts in common, as turns of sessions, as samples, or from clients who
    wait for answers."""
    draws = np.random.default_rng(rng.randrange(1 << 30))
    count = len(stream)
    prompts, outputs = stream.prompt_tokens.copy(), stream.output_tokens
    columns: dict[str, Any] = {}
    if rng.random() < 0.6:
        ids = rng.randint(1, 6)
        columns["prefix_id"] = draws.integers(-1, ids, count)
        lengths = draws.integers(1, longest // 2, ids)
        if rng.random() < 0.3:
            lengths = np.sort(lengths)
            above = np.array([[rng.randrange(-1, at) if at else -1, 0] for at in range(ids)])
            above[:, 1] = np.where(above[:, 0] >= 0, lengths[above[:, 0]], 0)
            columns["tree"] = above
        columns["prefix_tokens"] = np.where(
            columns["prefix_id"] >= 0, lengths[columns["prefix_id"]], 0
        )
        prompts = np.maximum(prompts, columns["prefix_tokens"])
    arrival_s, kind = stream.arrival_s, rng.choice(("none", "clients", "turns", "turns", "samples"))
    begun = rng.choice((1, 2, 8, 1000))
    if kind == "clients":
        columns["think_s"] = np.where(np.arange(count) < begun, np.nan, _pauses_s(draws, count))
    if kind == "turns":
        columns["session"] = session = np.sort(draws.integers(0, max(count // 3, 1), count))
        arrival_s = np.sort(draws.exponential(0.01, count) * rng.choice((0, 1)))[session]
        for at in np.flatnonzero(np.diff(session) == 0) + 1:
            prompts[at] += prompts[at - 1] + outputs[at - 1]
        first = np.append(True, np.diff(session) > 0)
        alone = first & (np.cumsum(first) <= begun)
        columns["think_s"] = np.where(alone, np.nan, _pauses_s(draws, count))
        if rng.random() < 0.3:
            columns["context"] = np.where(session % 2, session, -1)
    if kind == "samples":
        columns["samples"] = draws.integers(1, 4, count)
        return Requests(arrival_s, prompts, outputs, **columns).apart()
    return Requests(arrival_s, prompts, outputs, **columns)


def _pauses_s(draws: np.random.Generator, count: int) -> Any:
    return draws.exponential(1e-3, count) * (draws.random(count) < 0.7)


def _paged(rng: random.Random) -> dict[str, Any]:
    return {
        "name": "paged", "block": rng.choice((1, 4, 16, 16, 64)),
        "watermark": rng.choice((0, 0, 0.05)), "null_block": rng.random() < 0.2,
        "cached_recompute": rng.random() < 0.8,
        "free_list": rng.choice(("fifo",) * 20 + ("lifo",)),
    }  # fmt: skip


def _space(rng: random.Random) -> dict[str, Any]:
    fit = rng.choice(("first",) * 8 + ("best", "next"))
    return {"space": rng.choice(("arena", "slabs", "slabs")), "fit": fit}


def _static(rng: random.Random) -> dict[str, Any]:
    reserve = rng.choice(("prompt_plus_max_tokens", "max_model_len"))
    return {"name": "static", "reserve": reserve, **_space(rng)}


def _oracle(rng: random.Random) -> dict[str, Any]:
    return {"name": "oracle", **_space(rng)}


def _odma(rng: random.Random) -> dict[str, Any]:
    space = _space(rng)
    borrow = {"borrow": rng.choice((1, 2, 4, 4))} if space["space"] == "slabs" else {}
    return {
        "name": "odma", **space, **borrow, "buckets": rng.choice((1, 2, 4, 8)),
        "balance": rng.choice(("requests", "residents", "slots", "least_unused")),
        "gamma": rng.choice((0, 0, 0.2, 1)), "tau": rng.choice((0.5, 0.9, 2)),
        "clip": rng.random() < 0.7,
        "uncertainty": rng.choice(("entropy", "entropy_nats", "spread", "constant")),
        "window": rng.choice((10, 100)), "refresh": rng.choice((0, 1, 2, 5)),
        "refreshes": rng.choice((None, None, 2)), "align": rng.choice((1, 16, 64)),
        "refresh_delay": 1e-3 * (rng.random() < 0.05),
        "first_bounds": rng.choice(("even", "even", "even", "longest")),
        "bucket_on": rng.choice(("output", "total")),
        "large": rng.choice(("prompt_plus_max_tokens", "max_model_len")),
        "bucket_full": rng.choice(("wait", "next_larger")),
        "large_full": rng.choice(("preempt", "preempt_last", "next_larger")),
    }  # fmt: skip


def _more(rng: random.Random, policy: dict[str, Any]) -> None:
    """Adds to a policy what the core learnt later."""
    if policy["name"] in ("paged", "static") and rng.random() < 0.15:
        policy.clear()
        policy |= {"name": "ideal", "admit_on": rng.choice(("input", "output"))}
    if policy["name"] == "paged" and rng.random() < 0.5:
        policy["prefix_caching"] = rng.random() < 0.8
        policy["shared_samples"] = rng.choice((None, False, True))
    if policy["name"] == "odma":
        if rng.random() < 0.2 and policy.get("borrow", 1) == 1:
            policy |= {"name": "odma-best", "space": "arena"}
            policy.pop("borrow", None)
        if rng.random() < 0.3:
            policy |= {"pool_share": rng.choice((0.25, 0.6)), "pool_overflow": rng.random() < 0.8}
        if rng.random() < 0.3 and policy.get("borrow", 1) == 1:
            policy |= {
                "space": "partitioned", "pool_share": rng.choice((0.25, 0.4)),
                "pool_split": rng.choice(("slots", "blocks", "demand")),
                "repartition": rng.choice(("never", "when_empty", "on_refresh", "on_refresh")),
            }  # fmt: skip
            policy.pop("borrow", None)
            policy["compaction"] = "none"
    if policy.get("space") == "arena" and rng.random() < 0.7:
        policy["compaction"] = rng.choice(("copied", "copied", "free"))
        if policy["compaction"] == "copied" and rng.random() < 0.3:
            policy["compaction_tokens"] = rng.choice((20, 200))


class _ByRows(Watcher):
    """Asks for rows, and for nothing else."""

    by_rows = True

    def __init__(self) -> None:
        self.stretches = 0

    def done(self, *told: Any) -> None:
        self.stretches += 1

    def rows(self, node: Any, rows: Any, waits: Any) -> None:
        self.stretches += len(waits)


_device = functools.cache(load_device)


def served(run: Drawn, plain: bool) -> ServingResult | str:
    """The result of a run, or why it is refused."""
    spec = ServingSpec.model_validate({
        "model": "small", "gpu_memory_utilization": 1.0, "activation_bytes": "0B",
        "kv_tokens": run.slots, **run.changes,
    })  # fmt: skip
    simulate = FakeMemory() if "fidelity" in run.changes["memory"] else None
    os.environ[SWITCH] = str(int(plain))
    rows = _ByRows()
    try:
        result = serve(
            _device(run.device), MODEL, spec, run.requests, seed=1, warmup_requests=run.warmup,
            simulate=simulate, watchers=[] if "cluster" in run.changes else [rows],
        )  # fmt: skip
    except DescriptionError as error:
        return str(error)
    finally:
        os.environ.pop(SWITCH)
    result.metrics["stretches"] = rows.stretches
    return result


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Paths at which two results differ, but for how long probes took."""
    if isinstance(one, ServingResult) and isinstance(other, ServingResult):
        found = differences(one.metrics, other.metrics)
        for name in ("arrival_s", "first_token_s", "finish_s"):
            if not np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True):
                found.append(name)
        return found
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return [f"{path}: keys"]
        pairs = ((key, one[key], other[key]) for key in one if key != "probe_wall_s")
        return [each for key, a, b in pairs for each in differences(a, b, f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = ((str(at), a, b) for at, (a, b) in enumerate(zip(one, other, strict=True)))
        return [each for key, a, b in pairs for each in differences(a, b, f"{path}.{key}")]
    same = one == other or (one != one and other != other)
    return [] if same and type(one) is type(other) else [f"{path}: {one!r} != {other!r}"]


def rare(run: Drawn, result: ServingResult) -> set[str]:
    """Of what is rare, what a run met."""
    metrics, policy = result.metrics, run.changes["policy"]
    report, budget = metrics["policy"], run.changes["engine"]["max_num_batched_tokens"]
    met = {
        "preemption": metrics["preemptions"] > 0,
        "chunked prompt": bool((run.requests.prompt_tokens > budget).any()),
        "own blocks found": metrics["cached_tokens"] > 0,
        "slabs": policy.get("space") == "slabs",
        "borrowing": policy.get("space") == "slabs" and report.get("larger_share", 0) > 0,
        "migration": metrics["migrations"] > 0,
        "refresh": report.get("bucket_refreshes", 0) > 0,
        "probe": metrics["memory"].get("probes", 0) > 0,
        "next larger": policy.get("large_full") == "next_larger" and metrics["migrations"] > 0,
        "preempts last": policy.get("large_full") == "preempt_last" and metrics["preemptions"] > 0,
        "idle": bool((np.diff(run.requests.arrival_s) > 1.0).any()),
        "warm-up": run.warmup > 0,
        "compaction": policy.get("compaction") == "copied" and metrics["migrations"] > 0,
        "pool of large ones": policy.get("pool_share", 0) > 0,
        "odma-best": policy["name"] == "odma-best",
        "prefix found": (report.get("prefix_hit_tokens") or 0) > 0,
        "session": bool((run.requests.session >= 0).any()),
        "closed loop": run.requests.closed,
        "ideal": policy["name"] == "ideal",
        "ideal reserves": policy.get("reserve") == "output" and policy["name"] == "ideal",
        "copies are free": "free" in run.changes and metrics["migrations"] > 0,
        "prefills first": run.changes["engine"].get("name") == "v0",
        "shares by size": run.device == SHARES_BY_SIZE,
        "pools": policy.get("space") == "partitioned",
        "pools cut anew": policy.get("repartition") in ("when_empty", "on_refresh")
        and report.get("bucket_refreshes", 0) > 0,
        "replicas": "cluster" in run.changes,
        "samples": bool((run.requests.parent >= 0).any()),
    }
    return {name for name in RARE if met[name]}


class Counted(NamedTuple):
    """Over pairs of runs. `differ`: number -> where."""

    differ: dict[int, list[str]]
    why: Counter[str]
    """Runs by why they were general; '': they were plain."""
    met: Counter[str]
    """Of the plain ones."""
    refused: int


def pairs(numbers: Iterable[int], seed: int) -> Counted:
    """These runs of a seed, both ways."""
    found = Counted({}, Counter(), Counter(), 0)
    refused = 0
    for number in numbers:
        run = drawn(seed, number)
        general = served(run, plain=False)
        before = RUNS.copy()
        plain = served(run, plain=True)
        new = RUNS - before
        found.why.update(new)
        if where := differences(general, plain):
            found.differ[number] = where
        if isinstance(plain, str):
            refused += 1
        elif new[""]:
            found.met.update(rare(run, plain))
    return found._replace(refused=refused)
