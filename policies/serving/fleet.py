"""A fleet: cards that advance each by itself, from one event of their own to the next.

A node cuts the steps of all cards at each arrival, so that a request costs more the more cards
there are. Here a stretch of equal steps lies ahead of its card and is done when its end comes, or
is cut when a request comes to that card that could join. The router sees what it would see in a
node: arrivals in order, ends at the end of their step. So times are those of a node, and a request
costs the same in a fleet of any size.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from policies.engines.scheduled_step import Step
from policies.memory.step import StepTimes
from policies.requests.requests import FloatArray, IntArray
from policies.serving.clients import Clients
from policies.serving.cluster import ROUTERS, KvAware, Manager, Node
from policies.serving.fleet_options import FailureSpec
from policies.serving.replica import Replica

DONE, RETURN, FAIL, COME, BEGIN = range(5)
"""What happens, in the order in which it does at one time; arrivals come before BEGIN."""
_ALWAYS = -1
_PERCENTILES = (0, 10, 50, 90, 100)


class _Stretch(NamedTuple):
    """Equal steps that lie ahead of a card."""

    step: Step
    fitting: int
    times: StepTimes
    begin_s: float
    end_s: float

    def made(self, before_s: float) -> int:
        """Output tokens of the steps that begin before then."""
        begins = self.begin_s + np.cumsum(self.times.total_s) - self.times.total_s
        rounds = int(np.searchsorted(begins, before_s))
        first = sum(chunk.samples for chunk in self.step.chunks if chunk.last)
        each = self.step.tokens - self.step.overrun + self.step.accepted
        return rounds * each + (first if rounds else 0)


class Fleet(Node):
    """Cards behind a manager, some of which may fail. `make(card, life)`: an empty card, the
    `life`-th in that place, counted from 0. All share what they know of requests."""

    def __init__(
        self, replicas: list[Replica], manager: Manager, failures: FailureSpec | None, seed: int,
        make: Callable[[int, int], Replica],
    ) -> None:  # fmt: skip
        super().__init__(replicas, manager)
        self.built = replicas[:1]  # holds what all of them know of requests
        self._make = make
        self._ahead: list[_Stretch | None] = [None] * len(replicas)
        self._events: list[tuple[float, int, int, int]] = []
        """A heap of (when, what, card, number): one that is not the card's latest is void. Of a
        request that clients send (COME) it has the number of the request instead of a card's."""
        self.clients: Clients | None = None
        """Of a closed loop and of sessions: who sends what as requests end."""
        self._sessions = bool((manager.requests.session >= 0).any())
        self._lasts_s = math.inf
        self._latest = [0] * len(replicas)
        self._reports = ROUTERS[manager.spec.placement] is KvAware
        self._failures = failures
        self._rng = np.random.default_rng((seed, len(replicas)))
        self._early = 0
        """Output tokens of steps under way as the steady part began: they are not of it."""
        self._late: list[_Stretch] = []
        """That end after the steady part, as far as it is known."""
        self._most_late = 4 * len(replicas)
        self._held: list[int] = []
        """Requests that found no card up."""
        self._failed_s: FloatArray = np.full(len(replicas), np.nan)
        self.lives = [1] * len(replicas)
        self.rerouted = 0
        self.lost_s = self.down_s = 0.0
        for card, at_s in (
            {} if failures is None else failures.first_s(len(replicas), self._rng).items()
        ):
            heapq.heappush(self._events, (at_s, FAIL, card, _ALWAYS))

    def serve(
        self, requests: IntArray, arrival_s: FloatArray,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self._count, self._progress = len(requests), progress
        if self.clients is not None:
            requests, arrival_s = self.clients.first()
            self._lasts_s = float(arrival_s.max())
            order = np.argsort(arrival_s, kind="stable")
            requests, arrival_s = requests[order], arrival_s[order]
        for request, at_s in zip(requests.tolist(), arrival_s.tolist(), strict=True):
            self._until(at_s)
            self._place(request, at_s)
        self._until(math.inf)
        close_s, made = self._metrics.close
        made -= self._early
        made += sum(each.made(close_s) for each in self._late if each.end_s > close_s)
        self._metrics.close = (close_s, made)
        last_s = max(replica.now_s for replica in self.replicas)
        for card, replica in enumerate(self.replicas):
            if card in self.manager.cards:
                self._metrics.idle(last_s - replica.now_s, replica.stages)
            else:
                self.down_s += max(last_s - float(self._failed_s[card]), 0.0)

    def _until(self, until_s: float) -> None:
        """All that happens before a request arrives, or until the last one has ended."""
        events, latest = self._events, self._latest
        while events and (events[0][0], events[0][1]) < (until_s, BEGIN):
            if until_s == math.inf and self._metrics.ended == self._count:
                return
            at_s, kind, card, number = heapq.heappop(events)
            if kind == COME:
                self._place(card, at_s)
                continue
            if number not in (latest[card], _ALWAYS):
                continue
            if kind == BEGIN:
                self._begin(card, until_s)
            elif kind == DONE:
                self._done(card)
            elif kind == FAIL:
                cards = [card]
                while events and events[0][:2] == (at_s, FAIL):
                    cards.append(heapq.heappop(events)[2])
                self._fail(cards, at_s)
            else:
                self._return(card, at_s)

    def _at(self, at_s: float, kind: int, card: int) -> None:
        """What the card does next, instead of what it would have done."""
        self._latest[card] += 1
        if at_s < math.inf:
            heapq.heappush(self._events, (at_s, kind, card, self._latest[card]))

    def _place(self, request: int, at_s: float) -> None:
        if not len(self.manager.cards):
            self._held.append(request)
            return
        card = self.manager.place(request, at_s)
        replica, ahead = self.replicas[card], self._ahead[card]
        replica.arrive([request], [at_s])
        if ahead is None:
            self._at(replica.next_s, BEGIN, card)
            return
        times, end_s = replica.cut(ahead.step, ahead.times, math.inf)
        if len(times.total_s) < len(ahead.times.total_s):
            self._ahead[card] = ahead._replace(times=times, end_s=end_s)
            self._at(end_s, DONE, card)

    def _begin(self, card: int, until_s: float) -> None:
        replica = self.replicas[card]
        if self.clients is not None:
            replica.more = bool(self.clients.to_send)
            if self._sessions:
                replica.lasts_s = math.inf if replica.more else self._lasts_s
        step, fitting = replica.begin(until_s)
        replica.lasts_s = None  # `_late` knows what of its steps is of the steady part
        if replica.idles(step):
            self._at(replica.next_s, BEGIN, card)
            return
        times, end_s = replica.cut(step, replica.times(step, *replica.observe(step)), math.inf)
        self._ahead[card] = _Stretch(step, fitting, times, replica.now_s, end_s)
        self._at(end_s, DONE, card)

    def _done(self, card: int) -> None:
        ahead, replica = self._ahead[card], self.replicas[card]
        assert ahead is not None
        self._ahead[card] = None
        self._late.append(ahead)
        if len(self._late) > self._most_late:
            close_s = self._metrics.close[0]
            self._late = [each for each in self._late if each.end_s > close_s]
            self._most_late = 2 * len(self._late) + 4 * len(self.replicas)
        warm_s, before_s = self._metrics.begin[0], self._metrics.sums.seconds
        ended = replica.end(ahead.step, ahead.fitting, ahead.times, ahead.end_s)
        self.busy_s[card] += self._metrics.sums.seconds - before_s
        if (now_s := self._metrics.begin[0]) != warm_s:
            others = (each.made(now_s) for each in self._ahead if each is not None)
            self._early = sum(others)
        self.manager.ended(ended, replica.now_s)
        if self.clients is not None:
            for request, sent_s in self.clients.after(ended, replica.now_s):
                self._metrics.arrival_s[request] = sent_s
                heapq.heappush(self._events, (sent_s, COME, request, _ALWAYS))
        if self._reports and (ended or ahead.step.chunks):
            self.manager.kv_slots[card] = replica.kv_slots()
        if ended and self._progress is not None:
            self._progress(self._metrics.ended, self._count)
        self._at(replica.next_s, BEGIN, card)

    def _fail(self, cards: list[int], at_s: float) -> None:
        """These fail together: who was there goes elsewhere."""
        assert self._failures is not None
        requests: list[int] = []
        for card in cards:
            self._stop(card, at_s)
            self.manager.serves(card, False)
            self._failed_s[card] = at_s
            requests += self.replicas[card].drain()
            back_s = at_s + self._failures.down_s
            heapq.heappush(self._events, (back_s, RETURN, card, _ALWAYS))
        self.manager.withdraw(requests)
        self.rerouted += len(requests)
        for request in requests:
            self._place(request, at_s)

    def _stop(self, card: int, at_s: float) -> None:
        """What its steps have done until then counts; the one under way is lost."""
        ahead, replica = self._ahead[card], self.replicas[card]
        if ahead is None:
            self._metrics.idle(max(at_s - replica.now_s, 0.0), replica.stages)
        else:
            ends = replica.now_s + np.cumsum(ahead.times.total_s)
            if done := int(np.searchsorted(ends, at_s, "right")):
                end_s = float(ends[done - 1])
                self._ahead[card] = ahead._replace(times=ahead.times.first(done), end_s=end_s)
                self._done(card)
            self._ahead[card] = None
            self.lost_s += at_s - replica.now_s
        self._at(math.inf, BEGIN, card)

    def _return(self, card: int, at_s: float) -> None:
        assert self._failures is not None
        replica = self.replicas[card] = self._make(card, self.lives[card])
        replica.now_s = at_s
        self.lives[card] += 1
        self.down_s += at_s - float(self._failed_s[card])
        self.manager.serves(card, True)
        if (next_s := self._failures.next_s(at_s, self._rng)) < math.inf:
            heapq.heappush(self._events, (next_s, FAIL, card, _ALWAYS))
        held, self._held = self._held, []
        for request in held:
            self._place(request, at_s)

    def report(self, outputs: IntArray) -> dict[str, Any]:
        """What `together` takes."""
        served = self.manager.card_of >= 0
        cards, own = self.manager.card_of[served], len(self.replicas)
        return {
            "requests": np.bincount(cards, minlength=own),
            "output_tokens": np.bincount(cards, outputs[served], own),
            "busy_s": self.busy_s,
            "failures": sum(self.lives) - len(self.manager.cards),
            "rerouted": self.rerouted,
            "lost_s": self.lost_s,
            "down_s": self.down_s,
        }


def together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The report of a fleet of these cells. Quantiles over the cards (p0 is the least) of the
    requests that ended there, their output tokens, and seconds of steps; `imbalance` as of a node;
    `failures` of cards; `rerouted` requests, once each time they left a card that failed; `lost_s`,
    of steps that a failure ended; `down_s`, while cards were away."""
    found: dict[str, Any] = {}
    for key in ("requests", "output_tokens", "busy_s"):
        values = np.concatenate([report[key] for report in reports]).astype(np.float64)
        points = np.percentile(values, _PERCENTILES)
        found[key] = dict(zip((f"p{p}" for p in _PERCENTILES), points.tolist(), strict=True))
        if key == "output_tokens":
            found["imbalance"] = float(values.max() * len(values) / max(values.sum(), 1) - 1)
    for key in ("failures", "rerouted", "lost_s", "down_s"):
        found[key] = sum(report[key] for report in reports)
    return found
