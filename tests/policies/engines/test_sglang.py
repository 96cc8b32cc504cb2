"""Does engine `sglang` prefill, decode and retract what SGLang's classes do?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.radix import RadixOptions
from policies.allocators.registry import build
from policies.engines.engine import Engine
from policies.engines.engine_requests import Offered
from policies.engines.engine_sglang import EngineSglang, EngineSglangSpec
from policies.predictors.prediction import LognormalPredictions
from policies.requests.requests import Requests
from tests.policies.small import mixed, run
from tests.rotation import shared

SCHEDULES = Path(__file__).parents[2] / "reference" / "sglang_schedules.json.gz"
_COLUMNS = ("prompt", "output", "prefix_id", "prefix_tokens")


def cases(file: Path = SCHEDULES) -> list[dict[str, Any]]:
    return list(json.loads(gzip.decompress(file.read_bytes()))["cases"])


def engine_of(case: dict[str, Any]) -> EngineSglang:
    config, trace = case["config"], case["trace"]
    columns: list[Any] = [np.array(trace[name], np.int64) for name in _COLUMNS if name in trace]
    requests = Requests(np.array(trace["arrival"], np.float64), *columns)
    layout = KvLayout(0, config["slots"], 1, 1, 16)
    limits = Limits(config["asked"], 1 << 40, config["chunk"])
    allocator = build(layout, len(requests), limits, RadixOptions(page=config["page"]))
    spec = EngineSglangSpec(
        schedule_policy=config["policy"], chunked_prefill_size=config["chunk"],
        max_prefill_tokens=config["prefill"], max_num_seqs=config["cap"], ends=config["ends"],
        schedule_conservativeness=config["conservativeness"],
    )  # fmt: skip
    output = requests.output_tokens
    predicted = LognormalPredictions(output.astype(np.float64))
    return Engine(EngineSglang, spec, allocator, Offered(requests, output, predicted))


def steps(case: dict[str, Any]) -> Iterator[list[Any]]:
    """As the file has them."""
    engine, arrival, clock, came = engine_of(case), case["trace"]["arrival"], 0, 0
    while came < len(arrival) or engine.busy:
        if not engine.busy:
            clock = max(clock, arrival[came])
        while came < len(arrival) and arrival[came] <= clock:
            engine.waiting.append(came)
            came += 1
        ran = engine.running.tolist()
        step = engine.schedule()
        left = [one for one in engine.waiting if one in ran]
        spans = [[chunk.request, chunk.start, chunk.tokens] for chunk in step.chunks]
        yield [
            clock, spans, step.decode.tolist(), left, len(engine.running), len(engine.waiting)
        ]  # fmt: skip
        engine.complete(step, 1)
        clock += 1


def difference(case: dict[str, Any]) -> str:
    ours = steps(case)
    for at, theirs in enumerate(case["steps"]):
        mine = next(ours, None)
        if mine != theirs:
            return f"step {at}: SGLang {theirs}, here {mine}"
    return "" if next(ours, None) is None else "a further step"


@pytest.mark.parametrize("case", shared(cases()), ids=lambda case: case["name"])
def test_every_step_is_that_of_sglang(case: dict[str, Any]) -> None:
    assert difference(case) == ""


def test_more_is_kept_free_where_requests_may_ask_for_more() -> None:
    found = [
        run(
            700, mixed(60), policy={"name": "radix"},
            engine={"name": "sglang", "max_model_len": 1024, "ends": ends},
        ).metrics["steps"]
        for ends in ("length", "stop")
    ]  # fmt: skip
    assert found[0] < found[1]
