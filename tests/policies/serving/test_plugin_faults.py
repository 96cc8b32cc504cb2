"""Is a plug-in that goes nowhere, or returns or raises what it should not, named?

`plugin_faults.yaml` are the records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import yaml
from hwmodel.description.description import DescriptionError
from policies.serving.plugins import LOADED, register
from tests.policies import small

RECORDS = Path(__file__).with_name("plugin_faults.yaml").read_text(encoding="utf-8")
CASES = [
    pytest.param(group, case, id=f"{group.get('given', {})} {case['says']}"[:90])
    for group in yaml.safe_load(RECORDS)
    for case in group["cases"]
]
ALLOCATOR = yaml.safe_load(RECORDS)[0]["file"]
SCHEDULER = """
from typing import Literal
from policies.engines.engine_v1 import EngineV1, EngineV1Spec

class Spec(EngineV1Spec):
    name: Literal["own"] = "own"

class Own(EngineV1):
    Options = Spec
"""
CONNECTOR = """
from policies.engines.connector import Ending, Match
from policies.transfers.kv_connector import ConnectorOptions, KvConnector

class Options(ConnectorOptions):
    most: int = 16

class Mine(KvConnector):
    name, Options = "mine", Options
    def matched(self, request, demand, cached, total):
        return Match(cached, total - 1) if total - 1 > cached else None
"""


pytestmark = pytest.mark.usefixtures("unplugged")


@pytest.mark.parametrize(("group", "case"), CASES)
def test_a_fault_is_named(group: dict[str, Any], case: dict[str, Any]) -> None:
    file, adds = group.get("file", ""), case["adds"]
    text = file.replace("GIVEN", adds) if "GIVEN" in file else f"{file}{adds}\n"
    with pytest.raises(DescriptionError) as error:
        register("own.py", text if file else text.rstrip("\n"))
        small.run(1024, small.mixed(30), **{**group["given"], **case.get("given", {})})
    assert all(part in str(error.value) for part in case["says"].split(" ... "))
    assert file or "own.py" not in LOADED


def test_two_of_one_name_are_named() -> None:
    with pytest.raises(DescriptionError, match="policy 'room' is both Room and Other; name one"):
        register("own.py", ALLOCATOR + ALLOCATOR.replace("class Room", "class Other"))


def test_thrashing_that_goes_on_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long prompts admitted chunk by chunk preempt themselves again and again, and all end, though
    progress is judged after each 32 preemptions."""
    monkeypatch.setattr("policies.engines.engine_progress.MOST_FUTILE", 1)
    register("own.py", SCHEDULER)
    engine = {"admit_on": "chunk", "max_num_batched_tokens": 64, "max_num_seqs": 8}
    stream = small.mixed(200, rate=1e6)
    own, shipped = (
        small.run(1024, stream, engine={"name": name, **engine}).metrics for name in ("own", "v1")
    )
    assert own == shipped
    assert own["preemptions"] > 100 and own["finished"] == 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"connectors": {"mine": {"moist": 3}}}, "connectors.mine.moist"),
        ({"connectors": {"mine": {"most": "x"}}}, "connectors.mine.most"),
        ({"connectors": {"nine": {}}}, "unknown connector; did you mean 'mine'"),
        ({"connectors": {"tiers": {"host": {"link": "nvme-pcie4", "cpu_bytes_to_use": "1GB"}}}},
         "connectors.tiers: stands at tiers"),
        ({"cluster": {"controllers": {"nine": {}}}}, "unknown controller; did you mean 'lending'"),
    ],
)  # fmt: skip
def test_options_of_a_plug_in_are_read_as_those_of_shipped_ones(
    changes: dict[str, Any], said: str
) -> None:
    register("own.py", CONNECTOR)
    with pytest.raises(ValueError) as error:
        small.spec(**changes)
    assert said in str(error.value)


def test_options_that_are_none_are_refused() -> None:
    text = CONNECTOR.replace('name, Options = "mine", Options', "name, Options = 'mine', 3")
    with pytest.raises(DescriptionError, match="Mine lacks Options that are ConnectorOptions"):
        register("own.py", text)
