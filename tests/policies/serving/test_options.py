"""Does every option move the number it is there to move?"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import yaml
from hwmodel.description.description import Document
from hwmodel.description.yaml_reader import override
from policies.allocators.allocator import PolicyOptions
from policies.allocators.registry import POLICIES
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_v0 import EngineV0Spec
from policies.engines.engine_v1_options import EngineV1Spec
from policies.memory.fidelity import FidelitySpec
from policies.predictors.predictors import PREDICTORS
from policies.serving.cluster_options import ClusterSpec
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import MODEL, FakeMemory, device, mixed, requests, run, spec

RECORDS = yaml.safe_load(Path(__file__).with_name("option_moves.yaml").read_text(encoding="utf-8"))
MOVES = {
    name: (group["before"], *what.split(" => "))
    for group in RECORDS["moves"]
    for name, what in (line.split(": ", 1) for line in group["moves"].splitlines())
}
"""By option: what a run has before it, what is set, and the figure that moves."""
STREAM = mixed(300)
ODMA = {"name": "odma", "refresh": 50, "window": 100}
SAMPLED = {"fidelity": "sampled", "every_steps": 20, "precision": 9.0, "probe_bytes": "4KiB"}


@functools.cache
def metrics(changes: str) -> dict[str, Any]:
    """Of the run that JSON text says: what an option is compared with is often the same."""
    return run(2048, STREAM, **json.loads(changes), simulate=FakeMemory()).metrics


def figure(before: dict[str, Any], settings: list[str], name: str) -> Any:
    engine = {"max_model_len": 1024, **before.get("engine", {})}
    document = Document(json.loads(json.dumps({**before, "engine": engine})), "before")
    for each in settings:
        override(document, each)
    found: Any = metrics(json.dumps(document.data, sort_keys=True))
    for part in name.split("."):
        found = found[part]
    return found


@pytest.mark.parametrize("option", MOVES)
def test_it_moves_its_number(option: str) -> None:
    before, settings, name = MOVES[option]
    assert figure(before, [], name) != figure(before, settings.split(" & "), name)


def test_how_work_is_spread_over_cores_moves_the_kv_read() -> None:
    changes = spec(
        memory=SAMPLED, policy={"name": "paged", "free_list": "lifo"},
        engine={"max_model_len": 1024},
    )  # fmt: skip
    sets = ((), ("work.spread=split",), ("work.spread=head",), ("work.grouped=false",))
    read = {
        serve(
            device(2048, *each), MODEL, changes, STREAM[:80], seed=1, simulate=FakeMemory()
        ).metrics["kv_gbps"]
        for each in sets
    }  # fmt: skip
    assert len(read) == len(sets)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(
            ({"name": name}, {"name": name, "space": "slabs"})
            for name in ("static", "s3", "oracle")
        ),
        ({**ODMA, "borrow": 1.0}, {**ODMA, "borrow": 2.0}),
    ],
    ids=lambda policy: policy["name"],
)
def test_slabs_differ_where_sizes_repeat(before: dict[str, Any], after: dict[str, Any]) -> None:
    """With sizes that are all different a slab is one block, and slabs are an arena."""
    rng = np.random.default_rng(3)
    prompt, output = rng.choice([32, 64, 160, 320], 300), rng.choice([16, 64, 200], 300)
    stream = requests(np.zeros(300), prompt, output)
    first, second = (
        run(8192, stream, policy=policy, engine={"max_model_len": 1024},
            predictor={"kind": "lognormal", "sigma": 0.6}).metrics["batch"]
        for policy in (before, after)
    )  # fmt: skip
    assert first != second


def test_no_option_is_left_out() -> None:
    parts: dict[str, Any] = {
        "engine": [EngineV1Spec], "predictor": PREDICTORS.values(), "memory": [FidelitySpec],
        "cluster": [ClusterSpec],
    }  # fmt: skip
    known = {
        f"{part}.{field}" for part in parts for each in parts[part] for field in each.model_fields
    }
    for name, allocator in POLICIES.items():
        if name != "odma-best":  # odma's
            own = set(allocator.Options.model_fields) - set(PolicyOptions.model_fields)
            known |= {f"policy.{name}.{field}" for field in own}
    own = set(EngineV0Spec.model_fields) - set(EngineOptions.model_fields)
    known |= {f"engine.v0.{field}" for field in own}
    known |= set(ServingSpec.model_fields) - {*parts, "policy", "model"}
    elsewhere = {name for names in RECORDS["elsewhere"].values() for name in names}
    assert known == set(MOVES) | elsewhere and not set(MOVES) & elsewhere
    assert all((Path(__file__).parents[1] / file).is_file() for file in RECORDS["elsewhere"])
