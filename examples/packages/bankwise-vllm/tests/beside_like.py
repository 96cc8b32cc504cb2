"""Small runs drawn at random, each scheduled by the installed vLLM and by the model of it (`like`):
is every figure and every time equal?

    PYTHONPATH=. python examples/packages/bankwise-vllm/tests/beside_like.py --count 20 --seed 1

prints each run that differs, what the runs met, and how many steps a second each way makes. A run
is told by its seed and its number alone. The time of a step hangs on where its KV lies, so that
equal times mean equal block ids.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import bankwise_vllm
import numpy as np
from bankwise_vllm.installed_vllm import rules_of, vllm_version

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from policies.engines.engine_v1 import EngineV1
from policies.engines.schedulers import SCHEDULERS
from policies.requests.requests import Requests
from policies.serving.plain.why_not import SWITCH
from policies.serving.plugins import load_plugin
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.serving.plain_pairs import differences, sharing
from tests.policies.small import MODEL, WINDOWS, FakeMemory

for _file in ("vllm_scheduler.py", "vllm_blocks.py"):
    load_plugin(Path(bankwise_vllm.__file__).with_name(_file))


class PlacedMemory(FakeMemory):
    """As `FakeMemory`, with a bandwidth that hangs on every address that is read."""

    def __call__(self, device: Any, d: Any, **rest: Any) -> Any:
        gave = super().__call__(device, d, **rest)
        mixed = int((d.start * (2 * np.arange(len(d.start)) + 1)).sum()) % 10_007
        gave.gbps *= 1 - 0.3 * mixed / 10_007
        return gave


class Drawn(NamedTuple):
    """A run: what is offered, to which model, in how many slots, and the options of both ways."""

    requests: Requests
    model: Any
    slots: int
    engine: dict[str, Any]
    policy: dict[str, Any]


def drawn(seed: int, number: int) -> Drawn:
    """The so many-th of a seed."""
    rng = random.Random(f"vllm {seed} {number}")
    draws = np.random.default_rng(rng.randrange(1 << 30))
    block, count = rng.choice((8, 16, 16, 32)), rng.randint(10, 40)
    blocks, longest = rng.randint(24, 120), 512
    slots = 64 * -(-blocks * block // 64)
    gaps_s = draws.exponential(10 ** -rng.uniform(3, 5), count) * rng.choice((0, 1, 1))
    requests = Requests(
        np.cumsum(gaps_s),
        np.clip(draws.lognormal(4, 1, count), 1, longest // 2).astype(np.int64),
        np.clip(draws.lognormal(3.5, 1, count), 1, longest // 4).astype(np.int64),
    )
    windowed = rng.random() < 0.25
    if rng.random() < 0.6:
        requests = _consistent(sharing(rng, requests, longest))
    budget = rng.choice((64, 128, 512, 2048))
    engine = {
        "max_num_batched_tokens": budget, "max_num_seqs": min(rng.choice((4, 16, 64)), budget),
        "max_model_len": 4096, "too_long": "drop", "async_scheduling": rng.random() < 0.5,
        "ends": rng.choice(("stop", "length")),
    }  # fmt: skip
    if rng.random() < 0.2:
        engine["admit_on"] = "chunk"
    if rng.random() < 0.15:
        engine["long_prefill_token_threshold"] = 48
    policy: dict[str, Any] = {"block": block, "prefix_caching": rng.random() < 0.75}
    if rules_of(vllm_version() or "0.33") == "0.33" and rng.random() < 0.2:
        policy["watermark"] = 0.05
    return Drawn(requests, WINDOWS if windowed else MODEL, slots, engine, policy)


def _consistent(requests: Requests) -> Requests:
    """Turns that go on with a session begin with the system prompt of its first one, if any."""
    prefix, tokens = requests.prefix_id.copy(), requests.prefix_tokens.copy()
    for at, before in enumerate(requests.turn_before.tolist()):
        if before >= 0 and requests.context[at] >= 0:
            prefix[at], tokens[at] = prefix[before], tokens[before]
    return replace(requests, prefix_id=prefix, prefix_tokens=tokens)


def plugin_module() -> Any:
    """The module that the scheduler is in."""
    return sys.modules[SCHEDULERS["vllm"].__module__]


def served(run: Drawn, vllm: bool, **names: str) -> ServingResult | str:
    """The result of a run, or why it is refused. names: of another `engine` or `policy`."""
    engine: dict[str, Any] = {"name": "vllm"}
    policy = {"name": "vllm", **run.policy}
    if not vllm:
        engine = {"name": "v1", "like": rules_of(vllm_version() or "0.33")}
        policy = {**policy, "name": "paged", "cached_recompute": run.policy["prefix_caching"]}
    engine["name"], policy["name"] = (
        names.get("engine", engine["name"]), names.get("policy", policy["name"]),
    )  # fmt: skip
    os.environ[SWITCH] = "0"
    strips = vars(EngineV1)["repeats"]
    EngineV1.repeats = False  # type: ignore[assignment,method-assign]  # a step at a time, as vLLM
    try:
        spec = ServingSpec.model_validate({
            "model": run.model.name, "gpu_memory_utilization": 1.0, "activation_bytes": "0B",
            "kv_tokens": run.slots, "policy": policy, "engine": {**engine, **run.engine},
            "memory": {"fidelity": "sampled", "weights": 0.8, "every_steps": 1},
        })  # fmt: skip
        return serve(
            load_device("mlu370-x4"), run.model, spec, run.requests, seed=1, simulate=PlacedMemory()
        )
    except DescriptionError as error:
        return str(error)
    finally:
        EngineV1.repeats = strips  # type: ignore[method-assign]
        os.environ.pop(SWITCH)


def pair(run: Drawn) -> tuple[list[str], Counter[str]]:
    """(where the two ways differ, what was met, their CPU seconds in microseconds)."""
    began = time.process_time()
    ours = served(run, vllm=False)
    between = time.process_time()
    theirs = served(run, vllm=True)
    met = Counter({"us of like": round(1e6 * (between - began))})
    met["us of vllm"] = round(1e6 * (time.process_time() - between))
    if isinstance(ours, str) or isinstance(theirs, str):
        met["refused"] = 1
        return [] if isinstance(ours, str) and isinstance(theirs, str) else [
            f"{ours!s:.200} beside {theirs!s:.200}"
        ], met  # fmt: skip
    metrics = theirs.metrics
    met["steps"] = int(metrics["steps"])
    met |= Counter({
        "preemptions": metrics["preemptions"], "found tokens": metrics["cached_tokens"],
        "windows": run.model is WINDOWS, "asynchronous": run.engine["async_scheduling"],
    })  # fmt: skip
    for each in (ours, theirs):
        each.metrics.pop("policy")  # reports of the allocator, which has none for vLLM's
    return differences(ours, theirs), met


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    met: Counter[str] = Counter()
    differ = 0
    numbers = range(asked.count) if asked.only is None else [asked.only]
    for number in numbers:
        run = drawn(asked.seed, number)
        where, counted = pair(run)
        met += counted
        if where:
            differ += 1
            print(f"run {number} differs: {'; '.join(where[:4])}")
    print(f"vLLM {vllm_version()}: {len(numbers)} runs, {differ} differ; met {dict(met)}")


if __name__ == "__main__":
    main()
