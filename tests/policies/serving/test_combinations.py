"""Is what does not go together refused with a reason, and nothing else?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from policies.serving.combinations import (
    DECLARATIONS,
    NAMED,
    OF_RUN,
    Declaration,
    Facts,
    conflicts,
    present,
)
from policies.serving.controllers import CONTROLLERS
from policies.serving.serving_spec import ServingSpec
from policies.transfers.connectors import CONNECTORS
from tests.policies.small import MODEL, mixed, run, spec

LINK = "mooncake-rdma-400"
HOST = {"host": {"link": "pcie5-h100-batched", "cpu_bytes_to_use": "1GB"}}
POOLS: dict[str, Any] = {"link": LINK, "prefill": {}, "decode": {}}
MOST_REASONS = 12
FEATURES = sorted({name for each in DECLARATIONS for name in (each.key, *each.others)})


@pytest.mark.parametrize("feature", FEATURES)
def test_a_declaration_names_a_key_of_the_description(feature: str) -> None:
    if feature in NAMED:
        return
    own: Any = ServingSpec
    named = {name: kind.Options for name, kind in {**CONNECTORS, **CONTROLLERS}.items()}
    for part in feature.split("."):
        field = own.model_fields.get(part)
        assert field is not None or part == "swap_dram", feature
        if part in named:
            own = named[part]
            continue
        kinds = (
            [] if field is None else [field.annotation, *getattr(field.annotation, "__args__", ())]
        )
        own = next((kind for kind in kinds if hasattr(kind, "model_fields")), own)


def test_experts_of_each_replica_may_be_dropped_and_frames_lie_in_any_memory() -> None:
    """What once was refused, and runs (tests/policies/serving/test_pairs.py)."""
    cluster = {"cards": 2, "dropping": {"link": LINK}}
    spec(cluster=cluster, expert_group="replica", expert_parallel="linear", tensor_parallel=2)
    for memories in ({"kv": "far"}, {"name": "interleaved"}):
        spec(policy={"name": "vattention"}, memories=memories)


def test_few_reasons_make_pairs_mean_nothing() -> None:
    reasons = {each.reason for each in DECLARATIONS}
    assert all(len(reason) > 15 for reason in reasons)
    assert len(reasons) <= MOST_REASONS


@pytest.mark.parametrize(
    "changes",
    [
        {"tiers": HOST},
        {"pools": POOLS, "speculation": {"method": "ngram", "tokens": 1, "acceptance": [0.5]}},
        {"cluster": {"cards": 2, "migration": {"link": LINK}}, "engine": {"name": "v0"}},
        {"cluster": {"cards": 2, "dropping": {"link": LINK}, "pipeline": {"drains": True}}},
        {"expert_parallel": "linear", "expert_exchange": "all_to_all", "tensor_parallel": 2},
    ],
)
def test_what_goes_together_is_no_conflict(changes: dict[str, Any]) -> None:
    assert not conflicts(Facts(spec(**changes)))


def test_what_a_run_tells_is_asked_of_a_run() -> None:
    cluster = {"cards": 2, "lending": {"link": LINK}}
    given = spec(cluster=cluster)
    assert not conflicts(Facts(given, MODEL))
    (conflict,) = conflicts(Facts(given, MODEL, sparse=True))
    assert conflict.startswith("cluster.lending: not with sparse attention")
    assert all(not present(Facts(given), name) for name in OF_RUN)
    with pytest.raises(DescriptionError, match=r"small, serving\.cluster\.lending: not with"):
        run(
            2048, mixed(3), attention={"name": "top_k", "tokens": 48, "index_bytes": "12B"},
            cluster=cluster,
        )  # fmt: skip


def test_a_key_that_is_gone_is_never_there() -> None:
    gone = Declaration("cluster.teleporting", ("tiers",), "it is nowhere")
    assert gone.breach(Facts(spec(tiers=HOST))) is None


@pytest.mark.parametrize(("policy", "unused"), [("static", 1), ("odma", 0), ("paged", 0)])
def test_what_has_nothing_to_do_is_served_and_said(policy: str, unused: int) -> None:
    given = {"engine": {"name": "v0", "preemption": "swap"}, "policy": {"name": policy}}
    assert not conflicts(Facts(spec(**given)))
    found = run(4096, mixed(3), **given).metrics
    assert len(found.get("without_use", [])) == unused
    assert all("nothing to do" in each for each in found.get("without_use", []))
