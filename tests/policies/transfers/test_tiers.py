"""Does KV that the device has lost come back from the host, when its blocks have moved?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from tests.policies.serving.test_sessions import talks
from tests.policies.small import Audited, run
from tests.rotation import LONG

LINK = "pcie5-h100-batched"
ENGINE = {"name": "v1", "max_model_len": 1024}
LENGTH = {"async_scheduling": True, "ends": "length"}


def tiers(host: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {"host": {"link": LINK, "cpu_bytes_to_use": "4MiB", **(host or {})}, **changes}


def served(stream: Requests, slots: int = 512, **changes: Any) -> ServingResult:
    return run(slots, stream, **{"engine": ENGINE, **changes})


AGAIN = Requests(
    np.arange(3) * 1.0, np.array([160, 496, 200]), np.full(3, 2), np.array([0, -1, 0]),
    np.array([160, 0, 160]), tree=np.array([[-1, 0]]),
)  # fmt: skip
"""A prompt of 160 tokens, another that overwrites it, and one that goes on from the first."""


def slow(folder: Path) -> dict[str, Any]:
    """A host behind a link that takes a tenth of a second."""
    link = folder / "slow.yaml"
    link.write_text("kind: link\nname: slow\nbased_on: nvme-pcie4\nlatency: 100ms\n")
    return {"link": str(link)}


def test_layer_by_layer_only_the_first_layer_s_load_shows() -> None:
    """Two layers: the load of the first, then whichever takes longer, then the last layer."""
    whole = served(AGAIN, tiers=tiers())
    by_layer = served(AGAIN, tiers=tiers(layerwise=True))
    there = served(AGAIN, slots=1 << 14)
    load_s = whole.metrics["tiers"]["load"]["ms"]["mean"] / 1e3
    step_s = there.first_token_s[2] - there.arrival_s[2]
    expected = max(load_s / 2 + step_s, load_s + step_s / 2)
    assert by_layer.first_token_s[2] - 2.0 == pytest.approx(expected, rel=1e-3)
    assert by_layer.first_token_s[2] < whole.first_token_s[2]


def test_sooner_recomputes_where_the_link_is_slower_than_the_cores(tmp_path: Path) -> None:
    host = slow(tmp_path)
    found = served(AGAIN, tiers=tiers(host, load="sooner")).metrics
    assert found["tiers"]["recomputed_tokens"] == 160
    assert "load" not in found["tiers"]
    never = served(AGAIN, tiers=tiers(load="never")).metrics["tiers"]
    assert (never["recomputed_tokens"], "load" in never) == (160, False)
    assert served(AGAIN, tiers=tiers(host)).metrics["tiers"]["load"]["transfers"] == 1


@given(
    fails=st.lists(st.floats(1e-4, 0.1), max_size=4),
    slots=st.sampled_from((832, 1024)),
    room=st.sampled_from(("64KiB", "4MiB")),
    prompts=st.booleans(),
    policy=st.sampled_from(({"name": "paged"}, {"name": "radix", "page": 8})),
    late=st.sampled_from(({}, {"async_scheduling": True}, LENGTH)),
    card=st.lists(st.floats(1e-4, 0.1), max_size=3),
    way=st.sampled_from((
        {}, {"layerwise": True}, {"pauses": {"policy": "keep"}}, {"pauses": {"policy": "swap"}},
        {"host": {"hcache": {"layers": 2}, "block_size": 16}},
    )),
)  # fmt: skip
@settings(max_examples=200 if LONG else 12)
def test_every_transfer_arrives_once_or_is_dropped_whatever_is_preempted_or_fails(
    fails: list[float], slots: int, room: str, prompts: bool, policy: dict[str, Any],
    late: dict[str, Any], card: list[float], way: dict[str, Any],
) -> None:  # fmt: skip
    """Either end: the host, or the card."""
    stream = talks(30, 10)
    host = {"cpu_bytes_to_use": room, "offload_prompt_only": prompts, **way.get("host", {})}
    drive = {} if way.get("layerwise") else {"ssd": {"bytes": "2MiB"}}
    faults = [{"of": "host", "at_s": at_s} for at_s in (fails if drive else [])]
    faults += [{"at_s": at_s, "down_s": 0.0} for at_s in card]
    found = Audited(
        slots, stream, policy=policy, engine=ENGINE | late, faults=faults,
        tiers=tiers(**{**way, "host": host}, **drive),
    )  # fmt: skip
    assert found.metrics["finished"] == len(stream)
    # what is computed and what is found make up what was asked for
    computed = found.metrics["prefill_tokens"] + found.metrics["cached_tokens"]
    assert computed >= int(stream.prompt_tokens.sum())


def test_what_does_not_come_is_computed(tmp_path: Path) -> None:
    failing = [{"of": "host", "at_s": 2.05}]
    found = served(AGAIN, tiers=tiers(slow(tmp_path)), faults=failing)
    assert found.metrics["cached_tokens"] == 0
    assert found.metrics["prefill_tokens"] == 160 + 496 + 200
    assert found.metrics["tiers"]["dropped"] == 1
    lone = served(AGAIN)
    spent = found.finish_s[2] - lone.finish_s[2]
    assert spent == pytest.approx(0.05, rel=0.05)
