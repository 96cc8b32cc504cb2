"""Is a plug-in that goes nowhere, or returns or raises what it should not, named?"""

from __future__ import annotations

import re
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from policies.serving.plugins import register
from tests.policies import small

ALLOCATOR = """
from typing import Literal
import numpy as np
from policies.allocators.allocator import PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.reservation import ContiguousAllocator

class Room(ContiguousAllocator):
    class Options(PolicyOptions):
        name: Literal["room"] = "room"
    def __init__(self, layout, requests, limits, options):
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))
    def needs(self, prompt, output):
        return prompt + 0 * output
    def size(self, request, demand):
        return demand.prompt + 8
"""
SCHEDULER = """
from typing import Literal
from policies.engines.engine_v1 import EngineV1, EngineV1Spec

class Spec(EngineV1Spec):
    name: Literal["own"] = "own"

class Own(EngineV1):
    Options = Spec
"""
PAGES = """
from typing import Literal
from policies.allocators.free_lists.fifo import Queue
from policies.allocators.paged import PagedAllocator, PagedOptions

class Own(Queue):
    def pop(self, count):
        return {}

class Pages(PagedAllocator):
    class Options(PagedOptions):
        name: Literal["pages"] = "pages"
    def _free_list(self):
        return Own(self.layout.slots // self.block)
"""
EVICTS = """
    def schedule(self):
        step = super().schedule()
        for request in self.engine.running.tolist():
            self.preempt(request)
        self.engine.running = self.engine.running[:0]
        return step._replace(decode=step.decode[:0], chunks=[], preempted=len(step.chunks))
"""
ROUTER = "from policies.routers.router import Router\nclass A(Router):\n    name = 'far'\n"


pytestmark = pytest.mark.usefixtures("unplugged")


def refused(text: str, **changes: Any) -> str:
    register("own.py", text)
    engine = changes.pop("engine", {"name": "v1"})
    with pytest.raises(DescriptionError) as error:
        small.run(1024, small.mixed(30), engine=engine, **changes)
    return str(error.value)


@pytest.mark.parametrize("name", ["v0", "v1"])
@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("size(self, request, demand):\n        return 1.5 * demand.prompt",
         "policy room: Room.size of request 0: expected a whole number of slots, 1 or more; got"),
        ("size(self, request, demand):\n        return float('nan')",
         "1 or more; got nan"),
        ("size(self, request, demand):\n        return -3",
         "1 or more; got -3"),
        ("size(self, request, demand):\n        return 1 // 0",
         "own.py:18: size raised ZeroDivisionError: integer division or modulo by"),
        ("needs(self, prompt, output):\n        return prompt // 0",
         "own.py:18: needs raised"),
        ("grow(self, request, tokens):\n        pass",
         "request 0 was preempted 1000 times without progress (policy room, engine v1)"),
        ("reserve(self, request, demand, tokens):\n        return False",
         "does not fit the empty device's 1024 token slots, says policy room"),
    ],
)  # fmt: skip
def test_an_allocator_is_named(method: str, said: str, name: str) -> None:
    engine: dict[str, Any] = {"name": name}
    if "grow" in method:  # which prefills in chunks ask
        engine = {"name": "v1", "max_num_batched_tokens": 16, "max_num_seqs": 8}
    assert said in refused(f"{ALLOCATOR}    def {method}\n", policy={"name": "room"}, engine=engine)


@pytest.mark.parametrize(
    "popped", ["super().pop(count)[1:]", "super().pop(count) + 10**9", "super().pop(count) * 0",
               "super().pop(count).tolist()", "super().pop(count) * 1.0"],
)  # fmt: skip
def test_a_free_list_that_hands_out_what_it_has_not_is_named(popped: str) -> None:
    said = refused(PAGES.format(popped), policy={"name": "pages"})
    assert re.match(
        r"free list Own: expected an array of \d+ blocks from 0 to 63 that differ", said
    )


def test_an_allocator_with_more_room_than_there_is_is_named() -> None:
    text = ALLOCATOR.replace("layout.slots", "2 * layout.slots")
    said = refused(text, policy={"name": "room"})
    assert said == "policy room: it has 2048 free slots, and memory has 1024"


def test_two_of_one_name_are_named() -> None:
    with pytest.raises(DescriptionError, match="policy 'room' is both Room and Other; name one"):
        register("own.py", ALLOCATOR + ALLOCATOR.replace("class Room", "class Other"))


def test_a_reservation_that_never_grows_is_named() -> None:
    """One that was outgrown comes back to as much; or its prompt never fits, chunk by chunk."""
    said = refused(ALLOCATOR, policy={"name": "room"})
    assert said == "policy room: size gave request 0 87 slots, too few for its first 88 tokens"
    little = ALLOCATOR.replace("demand.prompt + 8", "48")
    engine = {"name": "v1", "max_num_batched_tokens": 16, "max_num_seqs": 8}
    said = refused(little, policy={"name": "room"}, engine=engine)
    assert "was preempted 1000 times without progress (policy room, engine v1)" in said


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("    def prefill_budget(self, left):\n        return left / 100",
         "engine own: Own.prefill_budget: expected tokens from 0 to 2048; got 20.48"),
        ("    def prefill_budget(self, left):\n        return -5",
         "engine own: Own.prefill_budget: expected tokens from 0 to 2048; got -5"),
        ("    def schedule(self):\n        return None",
         "own.py: AttributeError: 'NoneType' object has no attribute 'empty' (at replica.py:"),
        ("    def prefill_budget(self, left):\n        return 0",
         "nothing was scheduled in 1000 steps, while 0 requests run, 1 wait (policy paged, engine"),
        (EVICTS, "times without progress (policy paged, engine own)"),
    ],
    ids=("float", "negative", "none", "idle", "evicts"),
)  # fmt: skip
def test_a_scheduler_is_named(method: str, said: str) -> None:
    assert said in refused(f"{SCHEDULER}{method}\n", engine={"name": "own"})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "own.py: IndexError: only integers, slices"),
        ("-1", "placement far: expected a card from 0 to 1; got -1"),
        ("[][0]", "own.py:5: choose raised IndexError: list index out of range"),
    ],
)
def test_a_router_is_named(value: str, said: str) -> None:
    text = f"{ROUTER}    def choose(self, request, count, tokens):\n        return {value}\n"
    assert said in refused(text, cluster={"cards": 2, "placement": "far"})


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
CONTROLLER = """
from policies.serving.node_controller import Controller

class Mine(Controller):
    name = "mine"
    def report(self):
        return {}
    def decide(self, at_s):
        pass
"""


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("matched(self, request, demand, cached, total):\n        return 3",
         "own.py: AttributeError: 'int' object has no attribute 'waits'"),
        ("matched(self, request, demand, cached, total):\n        return Match(-5, float('nan'))",
         "own.py:13: matched raised ValueError: a Match is of tokens 0 <= start <= end; got"),
        ("matched(self, request, demand, cached, total):\n        return 1 // 0",
         "own.py:13: matched raised ZeroDivisionError"),
        ("arrived(self):\n        return [0.5]", "request 0 waits for KV that connector mine has"),
        ("released(self):\n        return [(0, True)]",
         "own.py: KeyError: 0 (at connected.py:"),
        ("matched(self, *_):\n        return None\n"
         "    from policies.engines.step_delays import StepDelays as Base\n"
         "    class Late(Base):\n        stalls = lambda *_: [float('nan')]\n    delays = Late()",
         "own.py: AttributeError: 'list' object has no attribute 'any'"),
        ("clock(self, now_s):\n        pass",
         "request 0 waits for KV that connector mine has (policy paged)"),
        ("due_s = property(lambda self: float('nan'))",
         "request 0 waits for KV that connector mine has (policy paged)"),
        ("due_s = property(lambda self: -1.0)",
         "request 0 waits for KV that connector mine has (policy paged)"),
    ],
)  # fmt: skip
def test_a_connector_is_named(method: str, said: str) -> None:
    line = f"    {method if method.startswith('due_s') else f'def {method}'}\n"
    assert said in refused(CONNECTOR + line, connectors={"mine": None})


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("decide(self, at_s):\n        return {}[at_s]",
         "own.py:11: decide raised KeyError: 0.1"),
        ("decide(self, at_s):\n        self.requeue(self.node.replicas[0].waiting[0], 2, at_s)",
         "controller mine: requeue: expected a card that serves, of 0, 1; got 2"),
        ("decide(self, at_s):\n        self.requeue(0, 1, at_s)",
         "controller mine: requeue: request 0 does not wait on a card"),
    ],
)  # fmt: skip
def test_a_controller_is_named(method: str, said: str) -> None:
    cluster = {"cards": 2, "controllers": {"mine": {}}}
    assert said in refused(f"{CONTROLLER}    def {method}\n", cluster=cluster)


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
