"""A pool of replicas that prefill and one of those that decode, with KV that moves between them.

A request goes to a replica of each pool. With `pull` it is computed, then gets memory at the
decode side; with `push` it gets that first. Its KV moves from the real blocks of both
(`policies.transfers.transfer`), without what the decode side has of it, over the fabric
(`policies.transfers.fabric`). The blocks that it leaves are free when all of it has arrived.

What is moved of a request layer by layer can arrive a layer's time after its chunk is computed, at
the soonest. A replica that fails loses all its content, at the end of the step under way; requests
whose KV is lost are computed again, with the tokens that they have made; others move again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.engines.scheduled_step import Step
from policies.requests.percentiles import summary
from policies.requests.requests import IntArray, Requests
from policies.serving.pool_options import FailureSpec, PoolsSpec
from policies.serving.pool_replica import DECODE, PREFILL, Pool, PoolReplica
from policies.transfers.fabric import Fabric, Place, Sent
from policies.transfers.ports import Places, ReceivingPort, between


@dataclass
class _Trip:
    """A request on its way through the pools."""

    source: int
    target: int
    made: int
    """Tokens that it has made before this prefill."""
    kv: int
    """Tokens whose KV moves."""
    moves: bool
    """Whether tokens are left for the decode side."""
    computed: tuple[int, float, float] | None = None
    """Tokens whose KV the prefill side has, and when the step of the last ones began and ended."""
    entered: bool = False
    """Whether the prefill side has it."""
    done: bool = False
    """Whether its prefill is done."""
    skip: int | None = None
    """Tokens that need not move (again); None: it has no memory at the decode side."""
    sent: list[Sent] = field(default_factory=list)


class Pools:
    """Both pools and what moves between them."""

    def __init__(
        self, spec: PoolsSpec, link: LinkSpec, model: TransformerSpec, prefill: Pool, decode: Pool,
        fabric: Fabric, requests: Requests,
    ) -> None:  # fmt: skip
        """model: whole, in the formats it is served in. Raises DescriptionError for KV that
        `transfer` refuses."""
        self._spec, self._link, self._model, self._fabric = spec, link, model, fabric
        self.pools = {PREFILL: prefill, DECODE: decode}
        self._requests = requests
        self._metrics = prefill.metrics.whole
        self._output = self._metrics.output
        self.made: IntArray = np.zeros(len(requests), np.int64)
        """Tokens made of each request before its next prefill."""
        self._trips: dict[int, _Trip] = {}
        self._homes: dict[int, tuple[int, int]] = {}
        """Where the last turn of each session went."""
        self._at: dict[Place, set[int]] = {}
        self._up_s: dict[Place, float] = {}
        for name, many in ((PREFILL, spec.prefill.replicas), (DECODE, spec.decode.replicas)):
            pool = self.pools[name]
            pool.replicas = [pool.make(number) for number in range(many)]
            self._at |= {(name, number): set() for number in range(many)}
        self._fails = sorted(spec.fails, key=lambda each: each.at_s)
        self._coming: list[tuple[float, int]] = []
        self._closed, self._sessions = requests.closed, bool((requests.session >= 0).any())
        self.more = False
        """Whether clients have more to send."""
        self.arrived: list[tuple[int, int, float, float, float]] = []
        """Descriptors, bytes; ms for memory, in line and on the link: of each transfer."""
        self.lost: list[Sent] = []
        """Transfers that were dropped."""
        self.again = 0
        """Requests whose KV was lost."""
        self._began_s, self._busy_s = 0.0, dict[Place, float]()
        near, far = (pool.replicas[0].port.empty() for pool in self.pools.values())
        self._move(0, 1, near, far)  # whether it can be

    # the run

    def arrive(self, requests: Sequence[int], at_s: Sequence[float]) -> None:
        """These requests come at these times."""
        for item in zip(at_s, requests, strict=True):
            heapq.heappush(self._coming, item)

    def advance(self) -> tuple[list[int], float]:
        """Go on to the next event, or by a replica's next steps: (requests that ended, when)."""
        replica, place = self._next()
        events_s = self._events_s()
        now_s = min(replica.next_s, events_s)
        waits = any(each.engine.waiting for pool in self.pools.values() for each in pool.replicas)
        if self.more or (not self._sessions and (self._coming or waits)):
            self._metrics.saturated(now_s)
        if now_s == math.inf:
            self._untie()
            return [], now_s
        if events_s <= now_s:
            self._event(now_s)
            return [], now_s
        ended = replica.go_on(lambda: self._horizon(place))
        if place[0] == DECODE:
            self._given(replica)
        elif replica.step is not None:
            self._prefilled(replica, replica.step)
        warm = self._metrics.begin[0]
        if warm > self._began_s:  # with these requests the warm-up ended
            self._began_s, self._busy_s = warm, dict(self._fabric.busy_s)
            self.arrived.clear()
            for pool in self.pools.values():
                pool.metrics.begin = (warm, pool.metrics.sums.copy())
        for request in ended:
            self._at[place].discard(request)
            self._trips.pop(request, None)
        return ended, replica.now_s

    def _next(self) -> tuple[PoolReplica, Place]:
        """The replica whose next step is earliest."""
        each = (
            (replica.next_s, name, number)
            for name, pool in self.pools.items()
            for number, replica in enumerate(pool.replicas)
        )
        _, name, number = min(each, key=lambda found: found[0])
        return self.pools[name].replicas[number], (name, number)

    def _events_s(self) -> float:
        return min(
            self._fabric.due_s,
            self._coming[0][0] if self._coming else math.inf,
            self._fails[0].at_s if self._fails else math.inf,
        )

    def _horizon(self, place: Place) -> float:
        """Until when nothing that happens elsewhere can reach a replica."""
        self._given(self.pools[place[0]].replicas[place[1]])
        names = (PREFILL, DECODE) if self._closed else (PREFILL,)
        others = (
            other.next_s
            for name in names
            for number, other in enumerate(self.pools[name].replicas)
            if (name, number) != place
        )
        return min(self._events_s(), *others, math.inf)

    def _event(self, now_s: float) -> None:
        if self._fails and self._fails[0].at_s <= now_s:
            self._fail(self._fails.pop(0))
        elif self._coming and self._coming[0][0] <= now_s:
            self._enter(heapq.heappop(self._coming)[1], now_s)
        else:
            for sent in self._fabric.step():
                self._landed(sent)

    # a request's way

    def _enter(self, request: int, now_s: float) -> None:
        """A request comes, or comes again with its tokens."""
        made = int(self.made[request])
        home = self._homes.get(int(self._requests.session[request]), (-1, -1))
        trip = _Trip(
            self._place(PREFILL, home[0], now_s), self._place(DECODE, home[1], now_s), made,
            int(self._requests.prompt_tokens[request]) + made,
            made + 1 < self._output[request],
        )  # fmt: skip
        self._trips[request] = trip
        if self._requests.session[request] >= 0:
            self._homes[int(self._requests.session[request])] = (trip.source, trip.target)
        self._at[PREFILL, trip.source].add(request)
        if trip.moves:
            self._at[DECODE, trip.target].add(request)
        if trip.moves and self._spec.mode == "push":
            self._to_decode(request, now_s)
        else:
            self._to_prefill(request, now_s)

    def _place(self, name: str, home: int, now_s: float) -> int:
        """The replica of a pool with the fewest requests, of those that are up; `home` if it is."""
        many = range(len(self.pools[name].replicas))
        down_s = [max(self._up_s.get((name, number), 0.0) - now_s, 0.0) for number in many]
        if home >= 0 and not down_s[home]:
            return home
        return min(many, key=lambda number: (down_s[number], len(self._at[name, number])))

    def _to_prefill(self, request: int, now_s: float) -> None:
        trip = self._trips[request]
        trip.entered = True
        self.pools[PREFILL].replicas[trip.source].meet(request, trip.made, now_s)

    def _to_decode(self, request: int, now_s: float) -> None:
        trip = self._trips[request]
        self.pools[DECODE].replicas[trip.target].meet(request, trip.made, now_s)

    def _given(self, replica: PoolReplica) -> None:
        """Requests have got memory at the decode side."""
        port = replica.port
        if not isinstance(port, ReceivingPort):
            return
        for request in port.asked:
            trip = self._trips[request]
            trip.skip = port.loading[request]
            if trip.entered:
                self._send(request, replica.now_s)
            else:
                self._to_prefill(request, replica.now_s)
        port.asked.clear()

    def _prefilled(self, replica: PoolReplica, step: Step) -> None:
        """A step of a prefill replica is over."""
        for chunk in step.chunks:
            request, trip = chunk.request, self._trips[chunk.request]
            trip.computed = chunk.start + chunk.tokens, replica.began_s, replica.now_s
            if chunk.last:
                trip.done = True
                self.made[request] = trip.made + 1
                if trip.moves and self._spec.mode == "pull":
                    self._to_decode(request, replica.now_s)
            if trip.skip is not None:
                self._send(request, replica.now_s)

    def _send(self, request: int, now_s: float) -> None:
        """Put what is computed of a request and has not been sent."""
        trip, layers = self._trips[request], self._spec.transfer == "layers"
        if trip.computed is None or trip.skip is None or (not trip.done and not layers):
            return
        near, far = (
            self.pools[name].replicas[number].port
            for name, number in ((PREFILL, trip.source), (DECODE, trip.target))
        )
        end, began_s, ended_s = trip.computed
        step = math.gcd(near.block, far.block)
        tokens = trip.kv if trip.done else end // step * step
        if tokens <= trip.skip:
            return
        sent = self._move(trip.skip, tokens, near.places(request), far.places(request), trip.done)
        sent.request, sent.last, sent.tokens = request, trip.done, (trip.skip, tokens)
        sent.source, sent.target = (PREFILL, trip.source), (DECODE, trip.target)
        at_s = now_s
        if layers and now_s == ended_s:
            at_s = began_s + (ended_s - began_s) / self._model.layers
            sent.until_s = ended_s + sent.seconds / self._model.layers
        trip.skip = tokens
        trip.sent.append(sent)
        self._fabric.put(sent, max(at_s, self._fabric.now_s))

    def _move(self, skip: int, tokens: int, near: Places, far: Places, last: bool = False) -> Sent:
        """A transfer of a request's tokens from `skip` to `tokens` between such places; with the
        last ones go its states, in the shares of the side with fewer cards."""
        by_layer, beside = self._spec.transfer == "layers", None
        if last:
            fewest = min(self.pools.values(), key=lambda pool: pool.cards)
            beside = fewest.replicas[0].port.states
        moved = between(self._link, self._model, skip, tokens, near, far, by_layer, beside)
        found = moved.pieces
        return Sent(
            -1, ("", 0), ("", 0), found.bytes, found.descriptors, moved.cost.total_ns / 1e9,
            moved.ranks / self.pools[DECODE].cards,
        )  # fmt: skip

    def _landed(self, sent: Sent) -> None:
        request, now_s = sent.request, self._fabric.now_s
        trip = self._trips[request]
        trip.sent.remove(sent)
        assert trip.computed is not None
        memory_s = max(sent.put_s - trip.computed[2], 0.0)
        line_s, link_s = sent.began_s - sent.put_s, now_s - sent.began_s
        times = memory_s * 1e3, line_s * 1e3, link_s * 1e3
        self.arrived.append((sent.descriptors, sent.bytes, *times))
        if sent.last:
            for name, number in (sent.source, sent.target):
                self.pools[name].replicas[number].port.came(now_s, request)
            self._at[sent.source].discard(request)

    # failures

    def _fail(self, failure: FailureSpec) -> None:
        """A replica has lost all that it had."""
        place = failure.pool, failure.replica
        pool, requests = self.pools[failure.pool], sorted(self._at[place])
        old = pool.replicas[failure.replica]
        now_s = max(failure.at_s, old.now_s)
        up_s = now_s + failure.down_s
        new = pool.make(failure.replica)
        pool.metrics.idle(up_s - old.now_s)
        new.now_s = self._up_s[place] = up_s
        pool.former.append(old)
        pool.replicas[failure.replica] = new
        for request in requests:
            if failure.pool == PREFILL:
                self._source_lost(request, now_s)
            else:
                self._target_lost(request, old, now_s)

    def _source_lost(self, request: int, now_s: float) -> None:
        trip = self._trips[request]
        if trip.moves:
            self._give_up(request, now_s)
            self._at[DECODE, trip.target].discard(request)
        self._at[PREFILL, trip.source].discard(request)
        self.again += trip.computed is not None
        self._enter(request, now_s)

    def _untie(self) -> None:
        """After a failure with push, each side may wait for the other's blocks: who came last of
        those that hold a prompt's KV and have no memory at the decode side is computed again."""
        held = (at for at, trip in self._trips.items() if trip.done and trip.skip is None)
        request = max(held)
        now_s = max(each.now_s for pool in self.pools.values() for each in pool.replicas)
        self.pools[PREFILL].replicas[self._trips[request].source].port.landed(request)
        self._source_lost(request, now_s)

    def _give_up(self, request: int, now_s: float) -> None:
        """A request leaves the decode side; others that wait for its KV ask for memory again."""
        trip = self._trips[request]
        self._drop(trip)
        replica = self.pools[DECODE].replicas[trip.target]
        port = replica.port
        assert isinstance(port, ReceivingPort)
        replica.withdraw(request)
        port.remote.discard(request)
        if request not in port.loading:
            return
        for other in port.cancel(request):
            theirs = self._trips[other]
            if other == request:
                continue
            self._drop(theirs)
            if other in self._at[PREFILL, theirs.source]:
                self._to_decode(other, now_s)
                continue
            self._at[DECODE, theirs.target].discard(other)  # its own KV had come, and is lost
            self.again += 1
            self._enter(other, now_s)

    def _target_lost(self, request: int, old: PoolReplica, now_s: float) -> None:
        trip = self._trips[request]
        self._drop(trip)
        if request in self._at[PREFILL, trip.source] and trip.moves:
            self._at[DECODE, trip.target].discard(request)
            trip.target = self._place(DECODE, -1, now_s)
            self._at[DECODE, trip.target].add(request)
            if trip.done or self._spec.mode == "push":
                self._to_decode(request, now_s)
            return
        self._at[DECODE, trip.target].discard(request)
        self.made[request] = self._output[request] - old.engine.left[request]
        self.again += 1
        self._enter(request, now_s)

    def _drop(self, trip: _Trip) -> None:
        for sent in trip.sent:
            self._fabric.drop(sent)
            self.lost.append(sent)
        trip.sent, trip.skip = [], None

    # figures

    def close(self) -> None:
        """The run is over: replicas idle until the last of them ends."""
        ends_s = {place: self.pools[place[0]].replicas[place[1]].now_s for place in self._at}
        for place, end_s in ends_s.items():
            self.pools[place[0]].metrics.idle(max(ends_s.values()) - end_s)

    def figures(self) -> dict[str, Any]:
        """After the warm-up: of each pool what its steps did (`Metrics.figures`), and the shares of
        time, until no request waits, and of DRAM that its links took; transfers, of which
        `memory_ms` is the wait for blocks after the prefill, `link_ms` that for the link; all that
        failures cost."""
        found: dict[str, Any] = {}
        span_s = max(self._metrics._steady()[1], 1e-300)
        moved = sum(each[1] for each in self.arrived)
        for name, pool in self.pools.items():
            many = len(pool.replicas)
            busy_s = [
                self._fabric.busy_s.get((name, number), 0.0) - self._busy_s.get((name, number), 0.0)
                for number in range(many)
            ]  # fmt: skip
            bandwidth = pool.replicas[0].port.bandwidth
            figures, reports = pool.figures(), pool.reports()
            kept = ("kv_capacity_tokens", "kv_stored_share", "batch", "steps", "step_s",
                    "preemptions", "prefill_tokens", "cached_tokens", "phase_share", "limit_share",
                    "mean_run_tokens")  # fmt: skip
            came = figures["cached_tokens"] + figures["prefill_tokens"]
            found[name] = {
                "replicas": many, "cards": many * pool.cards,
                **{key: figures[key] for key in kept}, **reports,
                "hit_share": figures["cached_tokens"] / max(came, 1),
                "busy_share": 1 - figures["limit_share"].get("idle", 0.0),
                "link_share": sum(busy_s) / many / span_s,
                "dram_share": moved / many / span_s / bandwidth,
                "stalled_s": sum(each.port.stalled_s for each in pool.replicas),
            }  # fmt: skip
        rows = np.array(self.arrived or np.zeros((0, 5)), np.float64)
        found["transfers"] = {"count": len(rows)}
        if len(rows):
            descriptors, size, memory, link, moving = rows.T
            found["transfers"] |= {
                "descriptors": float(descriptors.mean()), "bytes": float(size.mean()),
                "memory_ms": summary(memory), "link_ms": summary(link), "ms": summary(moving),
                "gbps": float(size.sum() / moving.sum() / 1e6),
            }  # fmt: skip
        found["failures"] = {
            "replicas": len(self._spec.fails) - len(self._fails), "again": self.again,
            "dropped_transfers": len(self.lost),
        }  # fmt: skip
        return found
