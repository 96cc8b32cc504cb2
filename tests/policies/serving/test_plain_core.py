"""Does the compiled core of plain runs give what the general way gives, in every leaf?"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from policies.requests.requests import Requests
from policies.serving.counted_runs import RUNS
from policies.serving.serving import ServingResult
from tests.policies.serving.plain_pairs import RARE, Drawn, differences, drawn, pairs, served
from tests.policies.small import EXPERTS, FakeMemory, mixed, run
from tests.rotation import LONG

FEW = (
    5, 8, 9, 10, 11, 12, 17, 19, 20, 24, 25, 27, 28, 31, 33, 37, 38, 41, 42, 45, 48, 55, 57, 58, 61,
    63, 70, 74, 79, 80, 84, 87, 88, 92, 98, 100, 107, 111, 113, 114, 116, 120, 121, 122, 123, 124,
    126, 128, 133, 144, 145, 147, 150, 154, 159, 160, 166, 169, 170, 175, 178, 179, 183, 184, 187,
    188, 192, 193, 198, 199,
)  # fmt: skip
"""Of the first 200 runs of seed 1 the cheapest in which all that is rare is met ten times, or as
often as it is in them."""
SELDOM = {
    "next larger", "preempts last", "idle", "compaction", "samples", "odma-best", "prefix found",
    "pools", "pools cut anew", "ideal", "ideal reserves", "copies are free",
}  # fmt: skip
"""Of what is rare, what less than a twentieth of runs meets."""


def test_is_every_figure_of_random_runs_equal_both_ways() -> None:
    numbers = range(2000) if LONG else FEW
    found = pairs(numbers, seed=1)
    assert not found.differ
    assert found.why[""] >= (0.75 * len(numbers) if LONG else len(FEW))
    for name in RARE:
        assert found.met[name] > (0.05 * len(numbers) if LONG and name not in SELDOM else 0), name


def test_is_what_is_unneeded_found_anew_where_two_migrate_in_turn() -> None:
    """Of two steps, in each of which another request moved, as much was reserved in all."""
    run = drawn(11, 1863, first=True)
    assert not differences(served(run, plain=False), served(run, plain=True))


def test_is_what_the_allocator_refuses_as_a_whole_tried_under_v0() -> None:
    """A pool that is cut anew gives a smaller block than was asked for."""
    run = drawn(31337, 1025)
    assert run.changes["engine"]["name"] == "v0"
    assert not differences(served(run, plain=False), served(run, plain=True))


def test_are_rows_over_time_of_buckets_equal() -> None:
    """A row is of 1,000 requests, so that no small run has one."""
    changes = {
        "policy": {"name": "odma", "refresh": 100, "gamma": 0.0, "large_full": "next_larger"},
        "predictor": {"kind": "lognormal", "sigma": 0.6}, "memory": {"efficiency": 1.0},
        "engine": {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 1024},
    }  # fmt: skip
    many = Drawn(mixed(1100), 2048, "mlu370-x4", 50, changes)
    plain = served(many, plain=True)
    assert isinstance(plain, ServingResult)
    assert plain.metrics["migrations"] and plain.metrics["policy"]["over_time"][0]["until_s"]
    assert not differences(served(many, plain=False), plain)


def test_is_the_ideal_equal_where_memory_binds() -> None:
    """Small random runs seldom fill its memory."""
    made = {}
    for admit_on, reserve in product(("input", "output"), ("stored", "output")):
        changes = {
            "policy": {"name": "ideal", "admit_on": admit_on, "reserve": reserve},
            "memory": {"efficiency": 1.0},
            "predictor": {"kind": "lognormal", "sigma": 0.4},
            "engine": {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 1024},
        }  # fmt: skip
        many = Drawn(mixed(60, rate=1e6), 1024, "mlu370-x4", 0, changes)
        plain = made[admit_on, reserve] = served(many, plain=True)
        assert isinstance(plain, ServingResult)
        preempts = reserve == "stored" or admit_on == "input"
        assert bool(plain.metrics["preemptions"]) == preempts
        assert not differences(served(many, plain=False), plain)
    assert all(differences(*pair) for pair in combinations(made.values(), 2))


def test_does_the_router_know_who_ends_as_a_request_comes() -> None:
    """Of replicas, at the very same time: on the other two a request still runs."""
    changes = {
        "policy": {"name": "paged"}, "memory": {"efficiency": 1.0},
        "predictor": {"kind": "lognormal", "sigma": 0.4},
        "engine": {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 1024},
        "cluster": {"cards": 3, "placement": "least_requests"},
    }  # fmt: skip
    prompts, outputs = np.full(4, 50), np.array([60, 20, 60, 20])
    two = Drawn(Requests(np.zeros(2), prompts[:2], outputs[:2]), 1024, "mlu370-x4", 0, changes)
    first = served(two, plain=True)
    assert isinstance(first, ServingResult)
    end_s = first.finish_s[1]
    times_s = np.array([0.0, 0.0, end_s / 2, end_s])
    four = two._replace(requests=Requests(times_s, prompts, outputs))
    plain = served(four, plain=True)
    assert isinstance(plain, ServingResult)
    assert plain.metrics["node"]["cards"][1]["requests"] == 2
    assert not differences(served(four, plain=False), plain)


@pytest.fixture(autouse=True)
def few_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few requests are plain, whether the core was used before or not."""
    monkeypatch.setenv("BANKWISE_PLAIN", "1")


def _why(**changes: Any) -> str:
    before = RUNS.copy()
    shape = {"shape": changes.pop("shape")} if "shape" in changes else {}
    run(1024, mixed(6), **shape, **changes)
    (why,) = RUNS - before
    return why


@pytest.mark.parametrize("policy", ["paged", "static", "oracle", "odma", "odma-best", "ideal"])
@pytest.mark.parametrize("memory", ["analytic", "sampled"])
def test_is_a_run_with_nothing_special_plain(policy: str, memory: str) -> None:
    own: dict[str, Any] = {"memory": {"fidelity": memory}, "simulate": FakeMemory()}
    assert not _why(policy={"name": policy}, **(own if memory == "sampled" else {}))


@pytest.mark.parametrize("policy", ["static", "oracle", "odma"])
def test_is_what_reserves_plain_under_v0(policy: str) -> None:
    assert not _why(policy={"name": policy}, engine={"name": "v0"})


@pytest.mark.parametrize("why, changes", [
    ("EngineV0", {
        "engine": {"name": "v0"},
        "policy": {"name": "odma", "space": "arena", "compaction": "free"},
    }),
    ("EngineV0Spec chunked_prefill", {
        "engine": {"name": "v0", "chunked_prefill": True}, "policy": {"name": "static"},
    }),
    ("S3Allocator", {"policy": {"name": "s3"}}),
    ("EngineV0", {"engine": {"name": "v0"}}),
    ("several cards that learn", {"cluster": {"cards": 2}, "policy": {"name": "odma"}}),
    ("several cards that join holes", {
        "cluster": {"cards": 2},
        "policy": {"name": "static", "space": "arena", "compaction": "copied"},
    }),
    ("router least_kv", {"cluster": {"cards": 2, "placement": "least_kv"}}),
    ("watchers of every step", {"cluster": {"cards": 2}, "faults": [{"share": 0.5, "at_s": 1}]}),
    ("StepWorkModel experts", {"shape": EXPERTS}),
    ("PagedAllocator pool", {"policy": {"name": "paged", "free_list": "lifo"}}),
    ("EngineV1Spec packing", {"engine": {"packing": "first_fit"}}),
    ("OdmaOptions refresh_delay", {"policy": {"name": "odma", "refresh_delay": 1.0}}),
    ("Replica together", {"advance_together": False}),
])  # fmt: skip
def test_is_what_the_core_does_not_know_general(why: str, changes: dict[str, Any]) -> None:
    assert _why(**changes) == why


def test_does_an_attribute_that_nobody_named_make_a_run_general(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from policies.memory.step import StepModel

    made = StepModel.__init__

    def with_more(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self.new_feature = True

    monkeypatch.setattr(StepModel, "__init__", with_more)
    assert _why() == "StepModel new_feature"


def test_does_the_switch_select_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANKWISE_PLAIN", "0")
    assert _why() == "BANKWISE_PLAIN=0"
