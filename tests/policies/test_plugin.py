"""Is one file of plain Python enough for an allocator of one's own, and is `paged` no more than
that, only faster?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.registry import POLICIES
from tests.policies import small
from tests.policies.plugin import PluginAllocator


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "plugin", PluginAllocator)


@pytest.mark.parametrize("block", [1, 16, 64])
@pytest.mark.parametrize("rate", [20.0, 50_000.0])
def test_serves_exactly_as_paged_does(block: int, rate: float) -> None:
    def figures(**policy: Any) -> dict[str, Any]:
        stream = small.mixed(200, rate=rate)
        return small.run(1024, stream, policy={"block": block, **policy}).metrics

    plain = figures(name="plugin")
    paged = figures(name="paged", free_list="lifo", cached_recompute=False)
    assert plain == {**paged, "policy": {}}
    assert (plain["preemptions"] > 0) == (rate > 1000)
