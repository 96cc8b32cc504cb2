"""Do transfers of every kind know of each other where they take one link?"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from bankwise.conservation import Auditor, watched_links
from policies.transfers.kv_link import OUT, Transfer
from tests.policies.engines.test_engine_v0 import Scene
from tests.policies.serving.features import Setting, run_of, stream


def test_does_a_step_wait_for_what_a_tier_stores_before_its_copies_of_swapped_kv() -> None:
    space = Scene(1024, [(100, 3)], preemption="swap").swaps
    space.site.links.host().put(Transfer(ends=(OUT,), bytes=8, alone_s=2.0, way="tiers"))
    space.now_s = 0.5
    assert space.delays._put(space.delays._copied(8, 1.0)) == pytest.approx(1.5)
    space.swap.back = True  # the other way is free
    assert space.delays._put(space.delays._copied(8, 1.0)) == 0.0


@pytest.mark.parametrize(
    "names",
    [("pools", "migration"), ("pools", "dropping"), ("tier", "swap"), ("pools", "lending")],
    ids=" + ".join,
)  # fmt: skip
def test_does_no_end_of_a_link_carry_two_at_once(names: tuple[str, ...]) -> None:
    auditor = Auditor()
    with watched_links() as links:
        run_of(names, [auditor], Setting(stream()))
        assert not [*auditor.breaches(), *links.breaches()]
    spans: dict[object, list[tuple[float, float]]] = {}
    for each in links.put.values():
        for end in each.ends if each.landed_s < math.inf else ():
            way = each.places[0].kind, each.places[-1].kind
            key = (each.source[0] if way != ("card", "card") else None, end, each.priority < 0)
            spans.setdefault(key, []).append((each.began_s, each.landed_s))
    assert len(spans) > 1
    for of in spans.values():
        of.sort()
        assert all(end <= begin + 1e-12 for (_, end), (begin, _) in pairwise(of))
