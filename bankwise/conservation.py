"""An auditor of serving runs: what comes in goes out once, and nothing is left behind.

It watches a run from beside it, and does not ask what the run counts of itself: every transfer of
whatever kind that is put on a link of the fabric has to land or to be lost, once; every request
that is admitted has to end, once; and when all that is under way is over, nobody holds memory on a
card, at a host or on a drive.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from policies.allocators.capabilities import Caches
from policies.serving.node import Node
from policies.serving.replica import Replica
from policies.serving.simulation import LINK, LOOK, Simulation, Watcher
from policies.serving.unit import ReplicaSteps
from policies.transfers.kv_link import KvLink, Transfer


class LinkLedger:
    """What is put on links, and what becomes of it."""

    def __init__(self) -> None:
        self.put: dict[int, Transfer] = {}
        self.ends: Counter[int] = Counter()
        self.landed_bytes = self.lost_bytes = 0
        self.faults: list[str] = []

    @property
    def put_bytes(self) -> int:
        """Of all transfers."""
        return sum(each.bytes for each in self.put.values())

    def leaves(self, transfer: Transfer) -> None:
        """It is put; kept, so that no other is taken for it."""
        if id(transfer) in self.put:
            self.faults.append(f"{transfer} was put twice")
        self.put[id(transfer)] = transfer

    def lands(self, transfer: Transfer) -> None:
        """All of it has arrived."""
        self._ends(transfer, "landed")
        self.landed_bytes += transfer.bytes

    def loses(self, transfer: Transfer) -> None:
        """It is taken back; it may be that it was never put."""
        if id(transfer) in self.put:
            self._ends(transfer, "was lost")
            self.lost_bytes += transfer.bytes

    def _ends(self, transfer: Transfer, how: str) -> None:
        self.ends[id(transfer)] += 1
        if id(transfer) not in self.put or self.ends[id(transfer)] > 1:
            self.faults.append(f"{transfer} {how} and was not under way")

    def breaches(self) -> Iterator[str]:
        """What is wrong when nothing is under way any more."""
        yield from self.faults
        for key, transfer in self.put.items():
            if not self.ends[key]:
                yield f"{transfer} never ended"
        if self.put_bytes != self.landed_bytes + self.lost_bytes:
            yield (
                f"{self.put_bytes} bytes were put on links; {self.landed_bytes} landed and "
                f"{self.lost_bytes} were lost"
            )


@contextmanager
def watched_links() -> Iterator[LinkLedger]:
    """All links that are used inside are watched."""
    links = LinkLedger()
    told: list[tuple[type, str, Callable[[Any, Any, Any], Any]]] = [
        (KvLink, "put", lambda own, given, _: links.leaves(given[0])),
        (KvLink, "until", lambda own, given, came: list(map(links.lands, came))),
        (KvLink, "drop", lambda own, given, _: links.loses(given[0])),
        (KvLink, "clear", lambda own, given, gone: list(map(links.loses, gone))),
    ]  # fmt: skip
    patches = [patch.object(kind, name, _telling(kind, name, tell)) for kind, name, tell in told]
    for each in patches:
        each.start()
    try:
        yield links
    finally:
        for each in patches:
            each.stop()


def _telling(kind: type, name: str, tell: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """A method of a class that also tells what it was given and gave."""
    method = getattr(kind, name)

    def telling(own: Any, *given: Any) -> Any:
        found = method(own, *given)
        tell(own, given, found)
        return found

    return telling


class Auditor(Watcher):
    """Beside a run: give it to `serve`, and ask `breaches` when that has returned."""

    def __init__(self) -> None:
        self.ends: Counter[int] = Counter()

    def done(self, node: Node, part: ReplicaSteps, begin_s: float, ended: list[int]) -> None:
        self.ends.update(ended)

    def breaches(self) -> Iterator[str]:
        """What is wrong at the end of the run. Lets all that is under way come to its end."""
        yield from _of_requests(self.simulation, self.ends)
        _let_controllers_end(self.simulation)
        replicas = [each for node in self.simulation.nodes for each in _replicas(node)]
        for check in (_rest, _of_engine, _of_memory, _of_tiers):  # all rest before any is looked at
            for at, replica in enumerate(replicas):
                for breach in check(replica):
                    yield f"replica {at}: {breach}"
        _let_links_end(replicas)


def _let_controllers_end(simulation: Simulation) -> None:
    """A copy between cards may be under way when the last request ends: what controllers wait for
    comes, within what is long beside a run of small cards."""
    until_s = simulation.now_s + 1.0
    events = simulation._events
    while events and events[0][0] <= until_s:
        at_s, kind, *_, act = heapq.heappop(events)
        if kind in (LINK, LOOK):
            simulation.now_s = max(simulation.now_s, at_s)
            act(at_s)


def _let_links_end(replicas: Iterable[Replica]) -> None:
    """What a last step has copied to a host lands, though nobody asks for it."""
    sites = [each.site for own in replicas for each in own.connectors if hasattr(each, "site")]
    for link in dict.fromkeys(link for site in sites for link in site.links.fabric.hosts):
        while link.due_s < math.inf:
            link.until(link.due_s)


def _replicas(node: Node) -> list[Replica]:
    """All there have been, those that failed with their cards among them."""
    return list({id(each): each for each in (*node.built, *node.own, *node.replicas)}.values())


def _of_requests(simulation: Simulation, ends: Counter[int]) -> Iterator[str]:
    """Each that is admitted ends once, with all of its tokens."""
    metrics, count = simulation.metrics, simulation.source.count
    ended = np.flatnonzero(np.isfinite(metrics.requests.end_s))
    if sorted(ends) != ended.tolist() or len(ended) != count:
        yield f"{count} requests were to end; {len(ends)} did, {len(ended)} have a time"
    often = [request for request, times in ends.items() if times > 1]
    if often:
        yield f"requests {often} ended more than once"
    owed = int(metrics.requests.output[ended].sum())
    if metrics.sums.output_tokens != owed:
        yield f"{metrics.sums.output_tokens} tokens were output; the requests have {owed}"


def _rest(replica: Replica) -> Iterator[str]:
    """Let what is under way end."""
    replica.engine.retire()
    for _ in range(100_000):
        if (next_s := replica.next_s) == math.inf:
            return
        if replica.begin(next_s) is not None:
            yield "it computes, and all requests have ended"
            return
        replica.engine.retire()
    yield "what is under way never ends"


def _of_engine(replica: Replica) -> Iterator[str]:
    """Nobody waits, runs, loads or is held, here or in its connectors."""
    engine = replica.engine
    there = {
        "wait": engine.waiting, "run": engine.running.tolist(), "load": engine.loading,
        "are held": engine.held, "end": engine.ending,
    }  # fmt: skip
    for what, requests in there.items():
        if requests:
            yield f"requests {list(requests)} {what}"
    for each in engine.loads.visitors:
        if len(each.holders):
            yield f"requests {each.holders.tolist()} of {type(each).__name__} hold memory"


def _of_memory(replica: Replica) -> Iterator[str]:
    """No slot is reserved, and each is free."""
    allocator = replica.engine.allocator
    if (caching := allocator.able(Caches)) is not None:
        caching.forget()
    for name in ("reserved", "stored", "resident"):
        if (held := np.flatnonzero(getattr(allocator, name))).size:
            yield f"{name} of requests {held.tolist()} is not 0"
    if allocator.reserved_total:
        yield f"{allocator.reserved_total} slots are reserved"
    if allocator.free_slots < allocator.reach:
        yield f"{allocator.free_slots} slots are free; {allocator.reach} can be reserved"


def _of_tiers(replica: Replica) -> Iterator[str]:
    """No transfer is under way, and no block of a host or a drive is in use."""
    for connector in replica.connectors:
        if hasattr(connector, "store"):  # tiers, where they are there
            yield from _of_store(connector.store)


def _of_store(store: Any) -> Iterator[str]:
    there = {
        "loads": store.loads, "stores": store._stores, "missing": store._missing,
        "coming": store.coming,
    }  # fmt: skip
    for name, pool in (("host", store.host), ("drive", store.drive)):
        if pool is not None:
            there |= {f"in use at the {name}": pool._used, f"coming to the {name}": pool._coming}
            ids = [*pool._ids.values(), *pool._free]
            if len(set(ids)) != len(ids) or len(ids) > pool.blocks:
                yield f"blocks of the {name} are lost, or are there twice"
    for what, found in there.items():
        if found:
            yield f"{what}: {found}"
