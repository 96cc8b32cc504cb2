"""Does a served run give the records that it gave?

Every choice of every option of every policy is served once, each in the next of some ways: model,
formats, engine, workload, layout. Figures, and a checksum of all that was asked of the memory, are
held against `records.json`. A case keeps its place in that file, and so its way; new cases come
last. A change that is meant to move them writes the file anew:

    python -m tests.policies.test_records
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.requests.requests import Requests
from policies.serving.serving import serve
from tests.policies.allocators.settings import cases
from tests.policies.small import EXPERTS, LATENT, MODEL, WINDOWS, FakeMemory, device, mixed, spec

RECORDS = Path(__file__).parent / "records.json"
COUNT = 24
FIGURES = (
    "steps", "preemptions", "makespan_s", "prefill_tokens", "cached_tokens", "migrated_tokens",
    "copied_tokens", "utilization", "external_fragmentation", "mean_run_tokens", "kv_gbps",
    "compute_share",
)  # fmt: skip
SAMPLED: dict[str, Any] = {"fidelity": "sampled", "every_steps": 40, "probe_bytes": "64KiB"}
FULL: dict[str, Any] = {"fidelity": "full"}
TOGETHER: dict[str, Any] = {**SAMPLED, "phases": "together"}
TOP: dict[str, Any] = {"name": "top_k", "tokens": 48, "index_bytes": "12B"}
KEPT: dict[str, Any] = {"name": "budget", "tokens": 48, "frees": "slots"}
APART: dict[str, Any] = {"kv": "oaken", "kv_layout": "layer_kv_head_block"}
WHOLE: dict[str, Any] = {"expert_parallel": "balanced", "tensor_parallel": 2}
WAYS: list[tuple[TransformerSpec, str, str, dict[str, Any]]] = [
    (MODEL, "plain", "slice", {"memory": SAMPLED}),
    (WINDOWS, "prefixes", "head", {"memory": SAMPLED}),
    (LATENT, "turns", "split", {"memory": FULL, "engine": "v0"}),
    (EXPERTS, "samples", "sequence", {"memory": TOGETHER, "tensor_parallel": 2}),
    (MODEL, "prefixes", "slice", {**APART, "memory": SAMPLED}),
    (MODEL, "plain", "head", {"memory": SAMPLED, "attention": TOP}),
    (WINDOWS, "turns", "sequence", {"memory": FULL, "kv_layout": "block_layer_kv_token"}),
    (MODEL, "samples", "head_major", {"memory": SAMPLED, "kv_layout": "block_layer_kv_head"}),
    (EXPERTS, "prefixes", "slice", {**WHOLE, "memory": FULL}),
    (MODEL, "plain", "split", {"memory": TOGETHER, "attention": KEPT}),
    (WINDOWS, "plain", "head_major", {"memory": TOGETHER, "engine": "v0"}),
]  # fmt: skip
PLACES = {name: at for at, name in enumerate(json.loads(RECORDS.read_text()))}
CASES = sorted(cases(), key=lambda case: PLACES.get(case[0], len(PLACES)))


class Noted(FakeMemory):
    """Keeps a checksum of all that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = 0

    def __call__(self, device: Device, d: Any, **how: Any) -> Any:
        span = np.round([how["warmup_ns"], how["measure_ns"]], 3)
        frames = np.zeros(0) if how.get("frames") is None else how["frames"].virtual
        for column in (d.engine, d.start, d.size, d.write, span, frames):
            self.streams = zlib.crc32(np.asarray(column, np.float64).tobytes(), self.streams)
        return super().__call__(device, d, **how)


def streams() -> dict[str, Requests]:
    """Requests alone, behind system prompts, with several samples, and as turns of sessions."""
    plain, turn = mixed(COUNT), np.arange(COUNT)
    return {
        "plain": plain,
        "prefixes": dataclasses.replace(
            plain, prompt_tokens=plain.prompt_tokens + 50, prefix_id=turn % 2,
            prefix_tokens=np.full(COUNT, 50),
        ),
        "samples": dataclasses.replace(
            plain, samples=1 + turn % 3, output_tokens=np.minimum(plain.output_tokens, 90)
        ),
        "turns": Requests(
            np.zeros(COUNT), 40 + 70 * (turn % 4) + turn // 4, np.full(COUNT, 30),
            session=turn // 4, think_s=np.where(turn % 4, 0.002, np.nan),
        ),
    }  # fmt: skip


def record(at: int) -> dict[str, Any]:
    """What case `at` gives."""
    name, options = CASES[at]
    # neither lays out windows, parts that lie apart or an index
    plain = options.name == "vattention" or name.endswith("-copy")
    model, stream, spread, way = WAYS[(0, 3, 7)[at % 3] if plain else at % len(WAYS)]
    engine = {"name": way.get("engine", "v1"), "max_model_len": 1024}
    changes = {
        "kv_layout": "layer_kv_token",
        **way,
        "engine": engine,
        "policy": options.model_dump(exclude_unset=True, mode="json"),
    }
    if options.name == "odma":
        changes["policy"] |= {"refresh": 10, "window": 20}
    if options.name == "vattention":
        changes |= {"kv_layout": "layer_kv_token", "policy": {**changes["policy"], "frame": "4KiB"}}
    memory = Noted()
    metrics = serve(
        device(3072, f"work.spread={spread}"), model,
        spec(**changes, predictor={"kind": "lognormal", "sigma": 0.6}), streams()[stream],
        seed=1, warmup_requests=6, simulate=memory,
    ).metrics  # fmt: skip
    figures = {name: metrics[name] for name in FIGURES} | metrics["memory"]["efficiency"]
    figures |= {k: v for k, v in metrics.get("policy", {}).items() if isinstance(v, int | float)}
    rounded = {name: float(f"{value:.6g}") for name, value in figures.items()}
    return {**rounded, "simulations": len(memory.calls), "streams": memory.streams}


@pytest.mark.parametrize("at", range(len(CASES)), ids=[name for name, _ in CASES])
def test_does_a_run_give_the_records_that_it_gave(at: int) -> None:
    name, _ = CASES[at]
    assert record(at) == json.loads(RECORDS.read_text())[name]


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps(record(at))}" for at, (name, _) in enumerate(CASES)]
    RECORDS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
