"""Does ODMA put each request where its prediction and its uncertainty say?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.odma import OdmaAllocator
from policies.allocators.odma_options import OdmaOptions
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Hands

LAYOUT = KvLayout(0, 4096, 1, 1, 16)
LIMITS = Limits(max_tokens=400, max_model_len=1000)


def odma(**changes: Any) -> Any:
    """With the levels and the space of which figures are easily worked out by hand."""
    plain = {"align": 1, "balance": "requests", "clip": False}
    if "space" not in changes:
        plain["space"] = "arena"
    return Hands(OdmaAllocator(LAYOUT, 3000, LIMITS, OdmaOptions(**{**plain, **changes})))


def reserved(allocator: OdmaAllocator, request: int, prompt: int, guess: Prediction) -> int:
    assert allocator.reserve(request, Demand(prompt, 0, guess), prompt)
    return int(allocator.reserved[request])


TOTAL = {"bucket_on": "total"}
"""Bounds 250, 500, 750, 1000 of prompt and output."""


@pytest.mark.parametrize(
    ("changes", "prompt", "length", "spread", "slots"),
    [
        # the smallest covering bucket of 100, 200, 300, 400 follows the prompt
        ({}, 50, 1, 0.0, 150), ({}, 50, 100, 0.0, 150), ({}, 50, 101, 0.0, 250),
        ({}, 50, 300, 0.0, 350), ({}, 50, 301, 0.0, 450), ({}, 50, 401, 0.0, 450),
        (TOTAL, 200, 50, 0.0, 250), (TOTAL, 200, 51, 0.0, 500),
        # uncertainty inflates: u = 0.5, and 95 (1 + 0.2 u) is above 100
        ({}, 10, 95, 0.3, 210), ({"gamma": 0.0}, 10, 95, 0.3, 110),
        ({"uncertainty": "entropy_nats"}, 10, 95, 0.3, 210),  # u = 0.7
        ({"uncertainty": "entropy_nats", "tau": 0.6}, 10, 95, 0.3, 410),
        ({"uncertainty": "spread"}, 10, 95, 0.3, 210),  # u = 0.3: 95 x 1.06 = 100.7
        ({"uncertainty": "spread", "gamma": 0.1}, 10, 95, 0.3, 110),
        ({"uncertainty": "constant"}, 10, 95, 0.3, 210),  # u = 0.5
        ({"uncertainty": "constant", "constant": 0.1}, 10, 95, 0.3, 110),
        ({"uncertainty": "constant", "constant": 0.9}, 10, 95, 0.3, 410),
        # and beyond tau, here u = 0.9, the large reservation is taken
        ({}, 10, 150, 0.8, 410), ({"tau": 1.0, "gamma": 0.0}, 10, 150, 0.8, 210),
        ({"large": "max_model_len"}, 10, 150, 0.8, 1000),
        # a bucket that its pool can never hold is large: 4 x 256 slots have one block, of 250
        ({"space": "partitioned", "pool_share": 0.75}, 10, 300, 0.0, 410),
        ({"clip": True}, 10, 1000, 0.0, 410),
    ],
)  # fmt: skip
def test_how_many_slots_does_an_admission_reserve(
    changes: dict[str, Any], prompt: int, length: float, spread: float, slots: int
) -> None:
    assert reserved(odma(**changes), 0, prompt, Prediction(length, spread)) == slots
