"""Is one file of plain Python enough for an allocator of one's own, and is `paged` no more than
that, only faster? Is the one of the documentation an allocator?"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bankwise import run
from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.registry import POLICIES
from tests.policies import small
from tests.policies.allocators.lives import lead
from tests.policies.allocators.plugin import PluginAllocator
from tests.policies.allocators.settings import Setting


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "plugin", PluginAllocator)


@pytest.mark.parametrize(("block", "rate"), [(1, 50_000.0), (16, 20.0), (64, 50_000.0)])
def test_serves_exactly_as_paged_does(block: int, rate: float) -> None:
    def figures(**policy: Any) -> dict[str, Any]:
        stream = small.mixed(100, rate=rate)
        return small.run(1024, stream, policy={"block": block, **policy}).metrics

    plain = figures(name="plugin")
    paged = figures(name="paged", free_list="lifo", cached_recompute=False)
    assert plain == {**paged, "policy": {}}
    assert (plain["preemptions"] > 0) == (rate > 1000)


def test_without_the_capability_v0_recomputes_and_refuses_to_swap() -> None:
    def preempted(preemption: str) -> dict[str, Any]:
        engine = {"name": "v0", "max_model_len": 1024, "preemption": preemption}
        stream = small.mixed(60, rate=50_000.0)
        return small.run(1024, stream, engine=engine, policy={"name": "plugin"}).metrics

    metrics = preempted("recompute")
    assert metrics["preemptions"] > 0 and metrics["swapped_tokens"] == 0
    with pytest.raises(DescriptionError, match="policy plugin cannot swap"):
        preempted("swap")


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Allocator]:
    """The class that docs/extend.md shows, in a file of its own, registered."""
    page = (Path(__file__).resolve().parents[3] / "docs/extend.md").read_text()
    blocks = [each.split("```")[0] for each in page.split("```python\n")[1:]]
    (tmp_path / "room.py").write_text(next(each for each in blocks if "class Room" in each))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "room", raising=False)
    found: type[Allocator] = import_module("room").Room
    monkeypatch.setitem(POLICIES, "room", found)
    return found


def test_the_documented_allocator_keeps_the_contract_and_doubles_what_it_has(
    documented: type[Allocator],
) -> None:
    lead(Setting(documented.Options(name="room", tokens=8)))
    policy = {"name": "room", "tokens": 4}
    metrics = small.run(1024, small.mixed(60, rate=50_000.0), policy=policy).metrics
    assert metrics["preemptions"] > 0 and metrics["finished"] == 60


def test_a_notebook_runs_it_beside_the_others(documented: type[Allocator], tmp_path: Path) -> None:
    settings = {"policy": ["paged", {"name": "room", "tokens": 64}], "requests": 20}
    result = run("smoke", set=settings, out=tmp_path / "run", jobs=2)
    assert result.table()["replications"] == [2, 2]


@pytest.mark.parametrize("size", [64.0, float("nan"), 0, -5, None])
def test_a_size_that_is_no_number_of_slots_is_named(
    documented: type[Allocator], monkeypatch: pytest.MonkeyPatch, size: Any
) -> None:
    monkeypatch.setattr(documented, "size", lambda self, request, demand: size)
    with pytest.raises(DescriptionError, match=r"Room.size of request \d+: exp"):
        small.run(1024, small.mixed(5), policy={"name": "room", "tokens": 4})
