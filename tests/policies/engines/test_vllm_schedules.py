"""Does v1 schedule as vLLM does: tokens, preemptions and physical blocks of every step?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from tests.policies.engines.vllm_schedule import Scheduled, Scheduler, schedules

DUPLICATE = "vLLM keeps both copies of a last block that is all system prompt, and finds either"
DIFFERENT = {
    "watermark-alone/0.33.0": "vLLM has no watermark for a request when nothing else runs",
    "watermark-round/0.33.0": "vLLM's watermark is a share of the blocks with its null block",
    "duplicate-preempted/0.33.0": DUPLICATE,
    "duplicate-evicted/0.33.0": DUPLICATE,
    "async-memory/0.33.0": "asynchronous scheduling is not modelled",
}
"""Why these cases come out differently."""


def cases() -> list[Any]:
    found = {case["name"]: case for case in schedules()}
    assert {name for name, case in found.items() if not case["bankwise"]["agrees"]} == {*DIFFERENT}
    differs = {
        name: pytest.mark.xfail(
            strict=True, raises=(AssertionError, DescriptionError), reason=reason
        )
        for name, reason in DIFFERENT.items()
    }
    return [
        pytest.param(case, id=name, marks=[differs[name]] if name in differs else [])
        for name, case in found.items()
    ]


@pytest.mark.parametrize("case", cases())
def test_every_step_is_that_of_vllm(case: dict[str, Any]) -> None:
    ours = Scheduler(case)
    steps = 0
    for at, (found, expected) in enumerate(zip(ours.steps(), case["steps"], strict=False)):
        assert found == Scheduled(*expected), f"step {at}"
        if str(at) in case["tables"]:
            assert ours.tables() == case["tables"][str(at)], f"step {at}"
        steps += 1
    assert steps == len(case["steps"]) and not ours.engine.busy
