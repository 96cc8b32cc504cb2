"""Does the loop serve everybody, conserve tokens, and give the numbers a hand calculation gives?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from tests.policies.allocators.settings import cases
from tests.policies.small import MODEL, mixed, requests, run
from tests.rotation import LONG, shared

STREAM = mixed(400)
CASES = cases()


def flat(value: Any, name: str = "") -> dict[str, float]:
    """Every number by its dotted name."""
    if not isinstance(value, dict):
        return {name: value} if isinstance(value, int | float) else {}
    return {k: v for key, part in value.items() for k, v in flat(part, f"{name}.{key}").items()}


@pytest.mark.parametrize(
    "options", shared((c[1] for c in CASES), every=4), ids=[c[0] for c in CASES]
)
class TestEveryPolicy:
    def test_steps_advanced_together_are_the_single_steps(self, options: Any) -> None:
        changes = {
            "policy": options,
            "predictor": {"kind": "lognormal", "sigma": 0.5},
            "engine": {"max_model_len": 1024, "max_num_seqs": 20, "max_num_batched_tokens": 256},
            "warmup_requests": 50,
        }
        half = STREAM[: 200 if LONG else 120]
        fast = run(4096, half, **changes)
        slow = run(4096, half, **changes, advance_together=False)
        assert (fast.finish_s == slow.finish_s).all()
        assert (fast.first_token_s == slow.first_token_s).all()
        assert flat(fast.metrics) == pytest.approx(flat(slow.metrics), rel=1e-12)


def test_one_request_by_hand() -> None:
    # prompt 10, output 3: a prefill step makes the first token, two decode steps the others
    result = run(1024, requests([0.5], 10, 3))
    metrics = result.metrics
    assert metrics["steps"] == 3
    assert metrics["prefill_tokens"] == 10
    # the decode steps read 10 and 11 tokens and write one each
    read = (10 + 1 + 11 + 1) * MODEL.kv_token_bytes
    assert metrics["kv_gbps"] == pytest.approx(
        read / (metrics["phase_share"]["attention"] * metrics["steps"] * metrics["step_s"]) / 1e9
    )
    assert metrics["ttft_s"]["mean"] == result.first_token_s[0] - 0.5
    assert metrics["tpot_s"]["mean"] == pytest.approx(
        (result.finish_s[0] - result.first_token_s[0]) / 2
    )
    assert metrics["makespan_s"] == pytest.approx(3 * metrics["step_s"])
    assert metrics["limit_share"]["idle"] == pytest.approx(0.5 / (0.5 + metrics["makespan_s"]))
    assert metrics["utilization"] == 13 / 16  # 12 tokens are stored, in one block
    first_s, rest_s = metrics["ttft_s"]["mean"], metrics["tpot_s"]["mean"]
    held = (10 * first_s + (11 + 12) * rest_s) / (16 * (first_s + 2 * rest_s))
    assert metrics["time_weighted_utilization"] == pytest.approx(held)
    # one device's peak is 307.2 GB/s: each step streams the weights at it, where FLOPs are hidden
    assert metrics["phase_gbps"]["weights"] == pytest.approx(307.2)
    assert metrics["phase_gbps"]["attention"] == metrics["kv_gbps"]
    assert metrics["phase_gbps"]["migration"] == metrics["phase_gbps"]["swap"] == 0


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"name": "static"}, (100 + 50 + 100 + 10) / (150 + 150)),
        ({"name": "static", "reserve": "max_model_len"}, 260 / 512),
        ({"name": "paged"}, (150 + 110) / (160 + 112)),
        ({"name": "paged", "block": 64}, (150 + 110) / (192 + 128)),
        # bounds 13, 25, 38, 50 are 64 each when rounded up; prompt 100 + 64 is rounded up to 192
        ({"name": "odma"}, (150 + 110) / (192 + 192)),
        # rounded up to whole tokens only: bounds 13, 25, 38, 50
        ({"name": "odma", "align": 1}, (150 + 110) / (150 + 113)),
        # bounds 64, 128, 192, 256 of prompt + output
        ({"name": "odma", "bucket_on": "total"}, (150 + 110) / (192 + 128)),
    ],
)
def test_utilization_by_hand(policy: dict[str, Any], expected: float) -> None:
    stream = requests([0.0, 0.0], 100, [50, 10])
    metrics = run(1024, stream, policy=policy, engine={"max_model_len": 256}).metrics
    assert metrics["utilization"] == pytest.approx(expected)


@pytest.mark.parametrize(("cached", "found"), [(True, 16), (False, 0)])
def test_preemption_by_hand(cached: bool, found: int) -> None:
    # 4 blocks of 16. Both prompts fill one block and a half; at 32 tokens each wants a third.
    stream = requests([0.0, 0.0], 24, 20)
    metrics = run(64, stream, policy={"name": "paged", "cached_recompute": cached}).metrics
    # steps 1: both prefilled (24 each); 2-9: 8 tokens each, 32 stored; 10: the first takes none -
    # no block is free, so the second is preempted, and the first goes on to its 43 tokens
    assert metrics["preemptions"] == 1
    # recompute: 24 prompt + 9 generated tokens are prefilled again, but for the second one's first
    # block, which it freed last; the other one is what the first request takes
    assert metrics["cached_tokens"] == found
    assert metrics["prefill_tokens"] == 24 + 24 + 33 - found
    assert metrics["finished"] == 2
    assert metrics["limit_share"]["kv_memory"] > 0


class TestErrors:
    def test_a_request_longer_than_the_model_is_named(self) -> None:
        with pytest.raises(
            DescriptionError, match=r"request 1 \(4000 prompt \+ 200 output tokens\)"
        ):
            run(8192, requests([0, 0], [10, 4000], [5, 200]))

    @pytest.mark.parametrize("policy", ["static", "paged", "odma"])
    def test_a_request_longer_than_the_device_is_named(self, policy: str) -> None:
        with pytest.raises(DescriptionError, match=r"request 0 \(100 prompt \+ 900 output.* 64"):
            run(64, requests([0.0], 100, 900), policy={"name": policy})

    def test_it_can_be_dropped_instead(self) -> None:
        stream = requests([0.0, 0.0, 1.0], [10, 100, 10], [5, 900, 5])
        result = run(64, stream, engine={"too_long": "drop"})
        assert (result.metrics["dropped"], result.metrics["finished"]) == (1, 2)
        assert np.isnan(result.finish_s).tolist() == [False, True, False]

    def test_a_device_too_small_for_the_weights(self) -> None:
        with pytest.raises(DescriptionError, match="too small for small"):
            run(0, requests([0.0], 1, 1))

    def test_a_warm_up_of_everything_leaves_nothing(self) -> None:
        with pytest.raises(DescriptionError, match="a warm-up of 3 requests leaves none of 3"):
            run(64, requests([0.0] * 3, 10, 5), warmup_requests=3)


def test_nothing_asked_is_nothing_served() -> None:
    assert run(64, requests([], [], [])).metrics["finished"] == 0


def test_the_seed_decides_and_nothing_else() -> None:
    changes = {
        "policy": {"name": "odma"}, "predictor": {"kind": "lognormal", "sigma": 0.5},
        "engine": {"max_model_len": 1024},
    }  # fmt: skip
    first, again, other = (run(4096, STREAM, seed=s, **changes).metrics for s in (1, 1, 2))
    assert first == again
    assert first["policy"] != other["policy"]
