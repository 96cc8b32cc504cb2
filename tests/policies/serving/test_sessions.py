"""Does a turn come when it should, and is what it finds in memory what earlier turns left there?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.allocators.registry import POLICIES
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from tests.policies.requests.test_sessions import OPENINGS, spec
from tests.policies.small import run
from tests.rotation import rotated

PLENTY = 1 << 17
COPIES = {"prefixes": "copy", "fit": "next"}


def talks(count: int = 80, clients: int = 6, **law: Any) -> Requests:
    arrivals = {"process": "closed", "clients": clients}
    return generate(spec(arrivals, pause_s=0.002, **{**OPENINGS, **law}), count, None, 1)


def two_turns() -> Requests:
    """40 + 30 tokens, of which 69 are stored, 4 blocks; the next turn has 64 of its 80 in them."""
    return Requests(
        np.zeros(2), np.array([40, 80]), np.array([30, 2]), session=np.zeros(2, np.int64),
        think_s=np.array([np.nan, 0.0]),
    )  # fmt: skip


def found_at_most(stream: Requests, block: int) -> int:
    """Prompt tokens that memory without an end could hold when their requests are admitted one
    after another, in whole blocks: what the turn before stored, and texts seen earlier."""
    stored, seen, total = stream.prompt_tokens + stream.output_tokens - 1, {}, 0
    for request, before in enumerate(stream.turn_before.tolist()):
        most = int(stored[before]) if before >= 0 else 0
        for prefix, end in stream.prefixes(request):
            most = max(most, min(seen.get(prefix, 0), end))
        for prefix, end in stream.prefixes(request):
            seen[prefix] = max(seen.get(prefix, 0), end)
        total += min(most, int(stream.prompt_tokens[request]) - 1) // block * block
    return total


@pytest.mark.parametrize(("policy", "engine"), rotated(list(POLICIES), ["v0", "v1"]))
def test_every_policy_sends_a_turn_a_pause_after_the_last_answer(policy: str, engine: str) -> None:
    stream = talks()
    changes = {
        "policy": {"name": policy}, "engine": {"name": engine, "max_model_len": 1024},
    }  # fmt: skip
    found = run(4096, stream, **changes)
    before = stream.turn_before
    after = np.flatnonzero(before >= 0)
    assert found.arrival_s[after] == pytest.approx(found.finish_s[before[after]] + 0.002)
    assert found.metrics["finished"] == len(stream)
    slow = run(4096, stream, **changes, advance_together=False)
    assert (slow.finish_s == found.finish_s).all()


@pytest.mark.parametrize(
    ("engine", "policy", "block"),
    [("v1", {"name": "paged"}, 16), ("v1", {"name": "paged", "block": 32}, 32),
     ("v1", {"name": "radix"}, 1), ("v1", {"name": "radix", "page": 8}, 8),
     ("v1", {"name": "static", **COPIES}, 1), ("v1", {"name": "oracle", **COPIES}, 1),
     ("v0", {"name": "paged", "prefix_caching": True, "free_list": "fifo"}, 16)],
)  # fmt: skip
def test_with_plenty_of_memory_hits_are_the_closed_form(
    engine: str, policy: Any, block: int
) -> None:
    stream = talks(40, clients=1)
    metrics = run(PLENTY, stream, policy=policy, engine={"name": engine}).metrics
    assert metrics["cached_tokens"] == found_at_most(stream, block) > 0
    assert metrics["cached_tokens"] + metrics["prefill_tokens"] == stream.prompt_tokens.sum()
    share = metrics["cached_tokens"] / stream.prompt_tokens.sum()
    assert metrics["cached_share"] == pytest.approx(share)


def test_answers_are_found_again_in_whole_blocks() -> None:
    stream = two_turns()
    assert run(1024, stream).metrics["cached_tokens"] == 64
    late = run(1024, stream, engine={"name": "v1", "async_scheduling": True}).metrics
    assert late["cached_tokens"] == 64
    off = {"name": "paged", "prefix_caching": False}
    assert run(1024, stream, policy=off).metrics["cached_tokens"] == 0
    # a run is copied whole, and every token is read and written
    copied = run(1024, stream, policy={"name": "static", **COPIES}).metrics
    assert copied["cached_tokens"] == copied["migrated_tokens"] == 69
    assert copied["phase_share"]["migration"] > 0
    # first fit takes the slots where the last run lay, and what is there already is not copied
    here = run(
        1024, stream, policy={"name": "static", "prefixes": "copy"}, kv_layout="layer_kv_token"
    ).metrics
    assert (here["cached_tokens"], here["migrated_tokens"]) == (69, 0)
    nothing = run(1024, stream, policy={"name": "static"}).metrics
    assert nothing["cached_tokens"] == nothing["migrated_tokens"] == 0


@pytest.mark.parametrize(
    ("policy", "slots"),
    rotated(
        [{"name": "paged"}, {"name": "radix"}, {"name": "static", "prefixes": "copy"},
         {"name": "odma", **COPIES}],
        [1024, 4096],
    ),
)  # fmt: skip
def test_hits_never_exceed_the_closed_form(policy: Any, slots: int) -> None:
    stream, options = talks(60, clients=4), {"policy": policy, "engine": {"max_model_len": 1024}}
    found = run(slots, stream, **options)
    metrics = found.metrics
    computed = metrics["cached_tokens"] + metrics["prefill_tokens"]
    assert computed >= stream.prompt_tokens.sum()
    if not metrics["preemptions"]:
        assert metrics["cached_tokens"] <= found_at_most(stream, 1)
        assert computed == stream.prompt_tokens.sum()
    assert (run(slots, stream, **options, advance_together=False).finish_s == found.finish_s).all()
