"""Does the fast loop equal a plain one that shares no code with it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.policies.serving.plain import Life, serve
from tests.policies.small import requests, run
from tests.rotation import LONG

POLICIES: dict[str, dict[str, Any]] = {
    "paged": {"name": "paged"},
    "blocks of 4": {"name": "paged", "block": 4},
    "all again": {"name": "paged", "cached_recompute": False},
    "static": {"name": "static"},
    "by chunk": {"name": "paged"},
}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30 if LONG else 12, phases=(Phase.explicit, Phase.generate))
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0, 1e-4, 7e-4, 5e-3, 0.1]), min_size=1, max_size=14),
    data=st.data(),
    budget=st.sampled_from([8, 24, 100]),
    cap=st.sampled_from([2, 5, 8]),
)
def test_equals_the_plain_loop(
    name: str, gaps: list[float], data: st.DataObject, budget: int, cap: int
) -> None:
    count = len(gaps)
    lengths = st.lists(st.integers(1, 60), min_size=count, max_size=count)
    prompts, outputs = data.draw(lengths), data.draw(lengths)
    arrivals = np.cumsum(gaps).tolist()
    policy = POLICIES[name]
    engine: dict[str, Any] = {
        "max_num_batched_tokens": budget,
        "max_num_seqs": cap,
        "max_tokens": 60,
    }
    engine["admit_on"] = "chunk" if name == "by chunk" else "input"
    result = run(128, requests(arrivals, prompts, outputs), policy=policy, engine=engine)
    lives = [Life(p, o, a) for p, o, a in zip(prompts, outputs, arrivals, strict=True)]
    reserve = 60 if name == "static" else None
    remember = name != "static" and policy.get("cached_recompute", True)
    found = serve(
        lives, 128, budget, cap, policy.get("block", 16), reserve, remember, name != "by chunk"
    )
    names = ("preemptions", "prefill_tokens", "cached_tokens")
    assert tuple(result.metrics[name] for name in names) == found
    assert result.first_token_s == pytest.approx([life.first for life in lives], rel=1e-9)
    assert result.finish_s == pytest.approx([life.end for life in lives], rel=1e-9)
