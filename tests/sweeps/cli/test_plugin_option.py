"""Does `--plugin` bring one's own to every command that names it, and does a run record it?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import bankwise as api
from policies.serving.plugins import KINDS, LOADED
from sweeps.cli.schema import schema
from tests.sweeps.cli.test_command_line import bankwise, refusal

OWN = Path(__file__).resolve().parents[2] / "policies/serving/own.py"
SMALL = ("--set", "requests=20", "--set", "replications=2", "--jobs", "2")
ASKED = (
    "--set",
    "policy=[paged, room]",
    "--set",
    "serving.predictor={kind: doubled, times: 1.5}",
    *SMALL,
)


def unplug() -> None:
    for name in LOADED.values():
        for kind, stated in name.defined:
            del KINDS[kind].known[stated]
    LOADED.clear()
    schema.cache_clear()


@pytest.fixture(autouse=True)
def unplugged() -> Iterator[None]:
    yield
    unplug()


@pytest.mark.long
def test_a_run_records_it_and_is_explained_and_resumed_with_it(tmp_path: Path) -> None:
    done = bankwise("run", "smoke", "--out", "run", *ASKED, "--plugin", OWN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "room" in done.stdout
    digest = LOADED["own.py"].sha256
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    assert provenance["inputs"]["plugins"] == {"own.py": digest}
    unplug()
    assert refusal("explain", "run", cwd=tmp_path) == (
        "run/config.yaml: made with a plug-in: name it with --plugin own.py"
    )
    explained = bankwise("explain", "run", "--plugin", OWN, "--json", cwd=tmp_path)
    assert explained.returncode == 0, explained.stderr
    names = {
        (each["winner"], each["loser"]) for each in json.loads(explained.stdout)["explanations"]
    }
    assert names <= {("paged", "room"), ("room", "paged")} and names
    other = tmp_path / "own.py"
    other.write_text(OWN.read_text().replace("64", "65"))
    unplug()
    changed = refusal("run", "run/config.yaml", "--plugin", other, cwd=tmp_path)
    assert "own.py has changed since this was recorded: sha256 was" in changed
    unplug()
    again = bankwise("run", "run/config.yaml", "--out", "again", "--plugin", OWN, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    rows = [
        [
            json.loads(line)["metrics"]
            for line in (tmp_path / run / "results.jsonl").read_text().splitlines()
        ]
        for run in ("run", "again")
    ]
    assert rows[0] == rows[1]


def test_check_and_schema_see_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "kind: sweep\nname: mine\nsummary: Mine.\naxes: {serving.policy: [paged, room]}\n"
        "compare: serving.policy\n"
        "base: {device: mlu370-x4, model: llama-2-7b, workload: alpaca, warmup_requests: 1,"
        " requests: 5}\n"
    )
    assert "serving.policy: unknown policy" in refusal("check", "mine.yaml", cwd=tmp_path)
    assert bankwise("check", "mine.yaml", "--plugin", OWN, cwd=tmp_path).returncode == 0
    schema.cache_clear()
    assert bankwise("check", "--schema", "s", "--plugin", OWN, cwd=tmp_path).returncode == 0
    shown = (tmp_path / "s/sweep.json").read_text()
    assert "room" in shown and "doubled" in shown and "last" in shown


@pytest.mark.long
def test_python_offers_the_same(tmp_path: Path) -> None:
    assert ("policy", "room") in api.plugin(OWN).defined
    found = api.simulate("smoke", set={"policy": "room", "requests": 20})
    assert found["overrides"] == {"serving.policy": "room"}


FORGETFUL = """
from typing import Any, Literal
from policies.allocators.allocator import PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.reservation import ContiguousAllocator

LATELY = []

class Room(ContiguousAllocator):
    class Options(PolicyOptions):
        name: Literal["room"] = "room"

    def __init__(self, layout: Any, requests: int, limits: Any, options: Any) -> None:
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))

    def size(self, request: int, demand: Any) -> int:
        {keeps}
        return int(self.needs(demand.prompt, demand.generated))

    def needs(self, prompt: Any, output: Any) -> Any:
        return prompt + self.limits.max_tokens + len(LATELY)
"""


def test_a_plug_in_that_keeps_something_from_run_to_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    words = ("run", "smoke", "--set", "policy=[paged, room]", *SMALL, "--plugin", file)
    file.write_text(FORGETFUL.replace("{keeps}", "LATELY.append(request)"))
    done = bankwise(*words, cwd=tmp_path)
    said = done.stderr.strip().splitlines()[-1]  # behind progress
    assert done.returncode == 2 and "mine.py: two runs of one seed differ" in said
    assert said.endswith("is there a draw without a seed, or what outlasts a run?")
    unplug()
    file.write_text(FORGETFUL.replace("{keeps}", "pass"))
    assert bankwise(*words, cwd=tmp_path).returncode == 0


MEASURE = """
from typing import Any, ClassVar
from sweeps.analyse.objective import Objective
from sweeps.plan.experiment import Described, Task

class Slots(Described):
    name: ClassVar[str] = "own_slots"
    objective: ClassVar[Objective | None] = Objective("slots", "Slots", "tokens", "has {} slots")

    def measure(self, task: Task) -> dict[str, Any]:
        return {"model": self.model} | SLOTS
"""
OWN_SWEEP = """
kind: sweep
name: slots
summary: slots of two cards
measure: own_slots
base: {model: llama-3.1-8b, replications: 1}
axes: {device: [l4, a100-80gb]}
compare: device
"""


@pytest.mark.parametrize(
    ("slots", "given"),
    [('{"slots": float("nan")}', "nan as"), ('{"slots": "many"}', "'many' as"), ("{}", "no")],
)
def test_a_measure_gives_what_its_points_are_compared_by(
    slots: str, given: str, tmp_path: Path
) -> None:
    """The run ended with "no results yet"."""
    (tmp_path / "own.py").write_text(MEASURE.replace("SLOTS", slots))
    (tmp_path / "slots.yaml").write_text(OWN_SWEEP)
    said = refusal("run", "slots.yaml", "--plugin", "own.py", "--jobs", "1", cwd=tmp_path)
    expected = f"measure own_slots: {given} slots: expected a finite number"
    assert said == f"slots.yaml: l4: {expected} (own.py)"
