"""Does predicting cost what the description says, and do requests wait for it?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from policies.predictors.inference import InferenceSpec, infer
from tests.policies.small import MODEL, mixed, requests, run

TABLE = {"sizes": [1, 4], "times": ["10ms", "16ms"]}
"""10 ms, 12, 14 and 16 for one to four at once."""


def cost(**changes: Any) -> InferenceSpec:
    return InferenceSpec.model_validate({**TABLE, **changes})


def test_batches_by_hand() -> None:
    # the first is alone; three came until it is done; the last finds it free
    found = infer(cost(), np.array([0.0, 0.001, 0.002, 0.003, 0.1]))
    assert found.ready_s == pytest.approx([0.010, 0.024, 0.024, 0.024, 0.110])
    assert found.size.tolist() == [1, 3, 3, 3, 1]
    assert found.own_s == pytest.approx([0.010, *[0.014 / 3] * 3, 0.010])


def test_max_batch_leaves_the_rest_in_line() -> None:
    found = infer(cost(max_batch=2), np.zeros(5))
    assert found.size.tolist() == [2, 2, 2, 2, 1]
    assert found.ready_s == pytest.approx([0.012, 0.012, 0.024, 0.024, 0.034])


def test_a_batch_lingers_unless_it_is_full() -> None:
    spec = cost(linger="20ms")
    # full with the fourth, 6 ms after the first
    full = infer(spec, np.array([0.0, 0.002, 0.004, 0.006]))
    assert full.ready_s == pytest.approx([0.022] * 4)
    # forming counts as the predictor's time
    assert full.own_s == pytest.approx([0.022 / 4] * 4)
    alone = infer(spec, np.array([0.0, 0.5]))
    assert alone.ready_s == pytest.approx([0.030, 0.530])


@pytest.mark.parametrize("linger", ["0ms", "20ms"])
def test_time_for_a_request_falls_as_the_load_rises(linger: str) -> None:
    spec = cost(linger=linger)
    gaps = np.random.default_rng(1).exponential(1, 4_000)
    found = [infer(spec, np.cumsum(gaps / rate)) for rate in (5, 20, 50, 100, 400)]
    each = [inference.own_s.mean() for inference in found]
    assert all(after < before for before, after in pairwise(each))
    assert each[-1] == pytest.approx(0.004, rel=0.1)  # four at once take 16 ms


def test_the_first_token_waits_for_the_prediction() -> None:
    alone = requests([0.0], 20, 5)
    before = run(256, alone, policy={"name": "s3"}).metrics
    after = run(256, alone, policy={"name": "s3"}, predictor={"cost": TABLE}).metrics
    assert after["ttft_s"]["mean"] == pytest.approx(before["ttft_s"]["mean"] + 0.010)
    assert after["tpot_s"] == pytest.approx(before["tpot_s"])
    own = after["predictor"]
    assert own["s_per_request"] == pytest.approx(0.010) and own["batch"] == 1
    assert own["added_ttft_s"]["p50"] == pytest.approx(0.010)


@pytest.mark.parametrize("cards", [1, 3])
def test_no_cost_is_no_difference(cards: int) -> None:
    changes: dict[str, Any] = {
        "policy": {"name": "odma"}, "cluster": {"cards": cards},
        "engine": {"max_model_len": 1024},
    }  # fmt: skip
    guess = {"kind": "lognormal", "sigma": 0.5}
    free = {**guess, "cost": {"sizes": [1], "times": ["0ms"]}}
    plain = run(2048, mixed(200), predictor=guess, **changes).metrics
    costed = run(2048, mixed(200), predictor=free, **changes).metrics
    assert costed.pop("predictor")["s_per_request"] == 0
    assert costed == plain and "predictor" not in plain


def test_what_lives_on_the_card_takes_room_for_kv() -> None:
    kept = 256 * MODEL.kv_token_bytes
    free = {"sizes": [1], "times": ["0ms"], "on_card": f"{kept}B"}
    found = run(2048, mixed(50), predictor={"cost": free}, engine={"max_model_len": 1024})
    assert found.metrics["kv_capacity_tokens"] == 2048 - 256
