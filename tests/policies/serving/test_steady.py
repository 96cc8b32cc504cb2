"""Is the steady part the same, whoever looks on?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.serving.serving import serve
from tests.policies.serving.features import LINK, card, stream
from tests.policies.serving.test_moving import SHAPE
from tests.policies.small import FakeMemory, spec


def served(warmup: int, **cluster: Any) -> dict[str, Any]:
    device = card(65536, SHAPE.weight_bytes, SHAPE.kv_token_bytes)
    described = spec(cluster={"cards": 2, **cluster}, engine={"max_num_batched_tokens": 256})
    found = serve(
        device, SHAPE, described, stream(), seed=1, simulate=FakeMemory(), warmup_requests=warmup
    )
    return found.metrics


@pytest.mark.parametrize("warmup", [0, 20])
@pytest.mark.parametrize("name", ["dropping", "migration"])
def test_a_controller_that_finds_nothing_to_do_changes_nothing(name: str, warmup: int) -> None:
    without = served(warmup)
    beside = served(warmup, **{name: {"link": LINK, "every_s": 0.0041}})
    done = beside["node"].pop(name)
    assert not done.get("drops", 0)
    assert not done.get("moved", 0)
    assert repr(beside) == repr(without)  # to the last digit
