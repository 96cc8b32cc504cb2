"""Do transfers of every kind know of each other where they take one link?"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from bankwise.conservation import Auditor, watched_links
from policies.transfers.fabric import Fabric
from policies.transfers.kv_link import OUT, KvLink, KvPlace, Transfer
from tests.policies.engines.test_engine_v0 import Scene
from tests.policies.serving.features import Setting, run_of, stream

MS = 1e-3
PREFILL, FIRST, SECOND, THIRD = (KvPlace("prefill", 0), *(KvPlace("decode", at) for at in range(3)))


def sent(
    source: KvPlace, target: KvPlace, way: str, ms: float = 1.0, priority: int = 0
) -> Transfer:
    return Transfer(
        source=(source,), target=(target,), bytes=1000, alone_s=ms * MS, way=way, priority=priority
    )


def landed(link: KvLink[Transfer]) -> dict[str, float]:
    found: dict[str, float] = {}
    while link.due_s < math.inf:
        found |= {each.way: link.now_s for each in link.until(link.due_s)}
    return found


def test_do_a_migration_and_a_transfer_of_pools_to_one_card_wait_for_each_other() -> None:
    network = Fabric().network
    network.put(sent(PREFILL, FIRST, "pools"), 0.0)
    network.put(sent(SECOND, FIRST, "migration"), 0.0)
    assert landed(network) == {"pools": pytest.approx(MS), "migration": pytest.approx(2 * MS)}


def test_do_the_two_ways_of_a_card_s_link_not_wait_for_each_other() -> None:
    network = Fabric().network
    network.put(sent(PREFILL, FIRST, "pools"), 0.0)
    network.put(sent(FIRST, SECOND, "migration"), 0.0)
    assert landed(network) == {"pools": pytest.approx(MS), "migration": pytest.approx(MS)}


def test_does_what_goes_at_once_stop_what_is_under_way_at_its_ends_alone() -> None:
    network = Fabric().network
    network.put(sent(PREFILL, FIRST, "pools", 4.0), 0.0)
    network.put(sent(SECOND, THIRD, "migration", 4.0), 0.0)
    network.put(sent(SECOND, FIRST, "attention", 1.0, priority=-1), MS)
    network.put(sent(THIRD, FIRST, "second", 1.0, priority=-1), MS)
    expected = {"attention": 2, "second": 3, "migration": 5, "pools": 6}
    assert landed(network) == {way: pytest.approx(ms * MS) for way, ms in expected.items()}


def test_is_what_will_land_known_before_it_does() -> None:
    network = Fabric().network
    given = [sent(PREFILL, FIRST, "a", 2.0), sent(SECOND, FIRST, "b"), sent(THIRD, SECOND, "c")]
    for each in given:
        network.put(each, MS)
    assert [network.end_s(each) for each in given] == pytest.approx([3 * MS, 4 * MS, 2 * MS])
    assert landed(network) == pytest.approx({"a": 3 * MS, "b": 4 * MS, "c": 2 * MS})


def test_has_a_card_one_link_to_its_host_whoever_asks() -> None:
    fabric = Fabric()
    one, other = fabric.at(FIRST), fabric.at(FIRST, SECOND)
    assert one.host() is other.host(8.0) and one.host() is not fabric.at(SECOND).host()
    assert one.host().far_bandwidth == 8.0
    assert one.drive is other.drive and len(fabric.hosts) == 3


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
