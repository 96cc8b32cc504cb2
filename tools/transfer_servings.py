"""Small servings in which KV moves, each told by its way and its number: `pools 7`.

They are light, and most draws still have transfers that overlap: `moves_alone` of
`tests/policies/transfers/test_transfer_records.py` says of which that is not so. Models have
windows, states or latents; engines, policies, devices and links differ; some have tensor
parallelism, another way beside their own, or a fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from policies.requests.requests import Requests
from tests.policies.serving.features import Setting, laid
from tests.policies.serving.test_moving import SHAPE
from tests.policies.transfers.test_transfer_records import MODELS

WAYS = {
    "pools": 13, "tiers": 13, "swap": 12, "migration": 13, "dropping": 12, "lending": 12,
    "hcache": 12, "pauses": 13,
}  # fmt: skip
"""And how many servings of each are recorded."""
DEVICES = ("a100-80gb", "dgx-spark-gb10", "gaudi-3", "h100-sxm", "mi300x", "mlu370-x4")
NETWORKS = ("mooncake-rdma-400", "mooncake-rdma-400-merged", "rdma-200", "nixl-cuda-ipc")
HOST_LINKS = ("nvme-pcie4", "pcie4-a30-kernel", "pcie5-h100-merged", "pcie5-h100-batched")
DRAWN = ("", "", "", "windows", "windows of two lengths", "states", "latents")
"""Models, by their names in MODELS."""
PAGED: tuple[dict[str, Any], ...] = (
    {"name": "paged", "prefix_caching": True}, {"name": "paged"}, {"name": "paged", "block": 32},
)  # fmt: skip
ALLOCATORS: tuple[dict[str, Any], ...] = (
    *PAGED, {"name": "radix"}, {"name": "static"}, {"name": "odma"}, {"name": "s3"},
    {"name": "orca"}, {"name": "vattention", "frame": "4KiB"},
)  # fmt: skip


def named(name: str) -> Setting:
    """Of `pools 7`, or `pools 7 fails 1 0.05`: with a card that fails then."""
    way, number, *fault = name.split()
    setting = serving(way, int(number))
    if fault:
        law = {"replica": int(fault[1]), "at_s": float(fault[2]), "down_s": 0.004}
        setting = setting._replace(changes=laid(setting.changes, {"faults": [law]}))
    return setting


def serving(way: str, number: int) -> Setting:
    """The so many-th of a way."""
    rng = random.Random(f"{way} {number}")
    requests, tokens, own = OWN[way](rng)
    model = SHAPE.model_copy(update=MODELS[rng.choice(DRAWN)])
    engine = {
        "name": rng.choice(("v1", "v1", "v0", "sglang")), "max_model_len": 1024,
        "too_long": "drop",
    }  # fmt: skip
    policies = PAGED if way in ("dropping", "lending") else ALLOCATORS
    changes = laid({"engine": engine, "policy": rng.choice(policies)}, own)
    if model.state is not None:  # prompts are not to be cut where their blocks end
        changes["policy"] = {"name": "paged"}
    if rng.random() < 0.2:
        changes = laid(changes, {"tensor_parallel": 2})
    if rng.random() < 0.2:
        changes = laid(changes, BESIDE[way](rng))
    if rng.random() < 0.25:
        changes = laid(changes, {"faults": [_fault(rng, changes)]})
    return Setting(
        requests, rng.choice(DEVICES), model, tokens, changes, rng.randrange(1000)
    )  # fmt: skip


def _fault(rng: random.Random, changes: dict[str, Any]) -> dict[str, Any]:
    of = {"of": "host"} if "tiers" in changes and rng.random() < 0.4 else {"down_s": 0.004}
    return {"replica": 0, "at_s": 10 ** rng.uniform(-2.5, -0.5), **of}


# streams


def _apart(rng: random.Random, most: int = 8) -> Requests:
    """Requests with time between them, or two at a time."""
    count, draws = rng.randint(3, most), np.random.default_rng(rng.randrange(1 << 30))
    gaps_s = draws.exponential(10 ** rng.uniform(-2.3, -1), count)
    gaps_s[draws.random(count) < rng.choice((0, 0.3))] *= 0.02
    return Requests(
        np.cumsum(gaps_s),
        np.clip(draws.lognormal(4.8, 0.7, count), 20, 420).astype(np.int64),
        np.clip(draws.lognormal(3.2, 0.8, count), 3, 90).astype(np.int64),
    )


def _bursts(rng: random.Random, prompt: float, output: float, size: tuple[int, int]) -> Requests:
    """One to three bursts of requests of about so many tokens."""
    draws = np.random.default_rng(rng.randrange(1 << 30))
    at_s: list[float] = []
    begin_s = 0.0
    for _ in range(rng.randint(1, 3)):
        many = rng.randint(*size)
        at_s += (begin_s + np.cumsum(draws.exponential(3e-4, many))).tolist()
        begin_s += rng.uniform(0.1, 0.3)
    return Requests(
        np.array(sorted(at_s)),
        np.clip(draws.lognormal(np.log(prompt), 0.5, len(at_s)), 16, 600).astype(np.int64),
        np.clip(draws.lognormal(np.log(output), 0.5, len(at_s)), 4, 400).astype(np.int64),
    )


def _talks(rng: random.Random) -> Requests:
    """Sessions whose turns alternate, or system prompts that come again."""
    draws = np.random.default_rng(rng.randrange(1 << 30))
    sessions, turns = rng.randint(2, 3), rng.randint(2, 4)
    count, gap_s = sessions * turns, rng.uniform(0.01, 0.05)
    session, turn = np.arange(count) // turns, np.arange(count) % turns
    fresh, output = draws.integers(60, 220, count), draws.integers(4, 60, count)
    whole = np.zeros(count, np.int64)
    for at in range(count):
        whole[at] = fresh[at] + (whole[at - 1] + output[at - 1] if turn[at] else 0)
    think_s = np.where(turn > 0, gap_s * draws.uniform(0.8, 2.5, count), np.nan)
    return Requests(
        np.asarray(session * gap_s, np.float64), whole, output, session=session, think_s=think_s
    )


def _uneven(rng: random.Random) -> Requests:
    """By turns a long request and one that ends at once, so that one of two cards overflows while
    nothing runs on the other."""
    many = rng.choice((3, 3, 5, 7))
    gaps_s = [rng.uniform(0.002, 0.012) for _ in range(many)]
    long = [at % 2 == 0 for at in range(many)]
    return Requests(
        np.cumsum(gaps_s),
        np.array([rng.randint(300, 560) if each else rng.randint(16, 60) for each in long]),
        np.array([rng.randint(80, 300) if each else rng.randint(1, 3) for each in long]),
    )


# ways: a stream, the slots of a card, and what is described


Drawn = tuple[Requests, int, dict[str, Any]]


def _pools(rng: random.Random) -> Drawn:
    mode = rng.choice(({}, {"mode": "push"}, {"mode": "push", "transfer": "layers"}))
    sides: dict[str, Any] = {"prefill": {}, "decode": {}}
    sides["decode"] = rng.choice(({}, {"tensor_parallel": 2}, {"kv": "int8"}, {"replicas": 2}))
    link = {"link": rng.choice(NETWORKS), **mode, "contention": rng.random() < 0.8}
    return _apart(rng), 2048, {"pools": {**sides, **link}}


def _host(rng: random.Random) -> dict[str, Any]:
    return {"link": rng.choice(HOST_LINKS), "cpu_bytes_to_use": "64MiB"}


def _tiers(rng: random.Random) -> Drawn:
    tiers: dict[str, Any] = {"host": _host(rng)}
    tiers |= rng.choice(
        ({}, {}, {"layerwise": True}, {"synchronous": True}, {"ssd": {"bytes": "256MiB"}})
    )
    if "ssd" in tiers and rng.random() < 0.6:  # so that the drive is read
        tiers = laid(tiers, {"host": {"cpu_bytes_to_use": "6MiB"}})
    stream = _talks(rng) if rng.random() < 0.8 else _apart(rng)
    return stream, rng.choice((832, 1024, 1536)), {"tiers": tiers}


def _hcache(rng: random.Random) -> Drawn:
    hcache = {"layers": rng.choice((None, 2, 4)), "overlap": rng.random() < 0.5}
    tiers = {"host": {**_host(rng), "hcache": hcache}}
    return _talks(rng), rng.choice((832, 1024, 1536)), {"tiers": tiers}


def _pauses(rng: random.Random) -> Drawn:
    pauses = rng.choice(
        ({"policy": "swap"}, {"policy": "swap"}, {"policy": "least"},
         {"policy": "least", "known": True})
    )  # fmt: skip
    tiers = {"host": _host(rng), "pauses": pauses}
    return _talks(rng), rng.choice((832, 1024, 1536)), {"tiers": tiers}


def _swap(rng: random.Random) -> Drawn:
    engine: dict[str, Any] = {"name": "v0", "preemption": rng.choice(("swap", "swap", "least"))}
    guess = {"kind": "lognormal", "sigma": rng.uniform(0.5, 1.5)}
    more = {"cluster": {"cards": 2}} if rng.random() < 0.2 else {}
    tokens = rng.choice((512, 640, 832))
    return (
        _bursts(rng, 120, 120, (3, 6)), tokens, {"engine": engine, "predictor": guess, **more}
    )  # fmt: skip


def _migration(rng: random.Random) -> Drawn:
    options = {
        "link": rng.choice(NETWORKS), "every_s": rng.choice((0.002, 0.005)),
        "last_blocks": rng.choice((1, 3)), "freeness": rng.choice((8, 16, 32)),
    }  # fmt: skip
    cluster = {"cards": rng.choice((2, 3)), "migration": options}
    return _bursts(rng, 150, 90, (2, 5)), 1024, {"cluster": cluster}


def _dropping(rng: random.Random) -> Drawn:
    options = {
        "link": rng.choice(NETWORKS), "every_s": 0.002, "exchange": rng.choice(("chunks", "whole")),
        "frame": rng.choice(("64KiB", None)), "restore_below": rng.choice((0.5, 0.3, 0)),
    }  # fmt: skip
    cluster = {"cards": 2, "placement": "round_robin", "dropping": options}
    return _uneven(rng), rng.choice((832, 1024)), {"cluster": cluster}


def _lending(rng: random.Random) -> Drawn:
    options = {"link": rng.choice(NETWORKS), "every_s": rng.choice((0.002, 0.005))}
    steps = {"max_num_batched_tokens": 256, "max_num_seqs": 64}
    if rng.random() < 0.3:
        options["step_tokens"] = 16
    cluster = {"cards": rng.choice((2, 2, 3)), "lending": options}
    engine = rng.choice(({"name": "v1"}, {"name": "v0", "chunked_prefill": True})) | steps
    return _bursts(rng, 300, 100, (1, 3)), 640, {"cluster": cluster, "engine": engine}


OWN: dict[str, Callable[[random.Random], Drawn]] = {
    "pools": _pools, "tiers": _tiers, "swap": _swap, "migration": _migration,
    "dropping": _dropping, "lending": _lending, "hcache": _hcache, "pauses": _pauses,
}  # fmt: skip


def _no_more(rng: random.Random) -> dict[str, Any]:
    return {}


def _with_tiers(rng: random.Random) -> dict[str, Any]:
    return _tiers(rng)[2]


def _with_migration(rng: random.Random) -> dict[str, Any]:
    return _migration(rng)[2]


BESIDE: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    **dict.fromkeys(("pools", "migration", "dropping", "lending"), _with_tiers),
    **dict.fromkeys(("tiers", "hcache", "pauses"), _with_migration),
    "swap": _no_more,
}  # fmt: skip
"""Another way that a serving of each may have."""
