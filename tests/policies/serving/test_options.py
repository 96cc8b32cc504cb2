"""Does every option move the number it is there to move?"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

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
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import FakeMemory, mixed, run

RECORDS = yaml.safe_load(Path(__file__).with_name("option_moves.yaml").read_text(encoding="utf-8"))
MOVES = {
    name: (group["before"], *what.split(" => "))
    for group in RECORDS["moves"]
    for name, what in (line.split(": ", 1) for line in group["moves"].splitlines())
}
"""By option: what a run has before it, what is set, and the figure that moves."""
STREAM = mixed(300)


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
