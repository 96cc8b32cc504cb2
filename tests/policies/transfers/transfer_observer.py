"""Every transfer of a run, whichever of today's clocks it has: observed from beside the run.

KV moves by `policies.transfers.kv_link` (pools, tiers, HCache, pauses), and by clocks of their own
of the swap space, of migration, of dropping and of lending. What else takes the same link is
observed beside it: weights that come back to cards which dropped them (way `weights`), queries and
partial results of attention on lenders (way `attention`).

    with observed() as seen:
        serve(...)
    seen.moved()

This is the one file of these tests that knows where transfers are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from policies.serving.replica_builder import ReplicaBuilder
from policies.transfers.kv_link import Link, Place, Transfer
from policies.transfers.lender import Lender

NETWORK, HOST = "network", "host"
"""What a transfer takes of a card: its link to other cards, or that to its host."""


@dataclass(eq=False)
class Moved:
    """One transfer: its ends, with cards named `0` or `prefill 0`, and their hosts `host 0`; bytes
    as its way counts them; None of `end_s`: it was lost, at `gone_s`."""

    way: str
    clock: int
    """Which clock it has: transfers of one know of each other."""
    takes: str
    ends: tuple[str, ...]
    bytes: int
    begin_s: float
    end_s: float | None
    gone_s: float

    @property
    def cards(self) -> set[str]:
        """Its ends by the names of their cards."""
        return {end.removeprefix("host ").removeprefix("drive ") for end in self.ends}

    def lost(self, at_s: float) -> None:
        """It ends there."""
        self.end_s, self.gone_s = None, at_s


class Pair(NamedTuple):
    """Two transfers that overlap."""

    one: Moved
    other: Moved

    @property
    def meet(self) -> set[str]:
        """The cards at which both end."""
        return self.one.cards & self.other.cards


def overlapping(moved: Iterable[Moved]) -> Iterator[Pair]:
    """All that overlap in time, wherever they are, by more than rounding."""
    under_way: list[Moved] = []
    for each in sorted(moved, key=lambda each: (each.begin_s, each.gone_s)):
        slack_s = 1e-12 * max(each.begin_s, 1.0)
        under_way = [other for other in under_way if other.gone_s > each.begin_s + slack_s]
        if each.gone_s > each.begin_s + slack_s:
            yield from (Pair(other, each) for other in under_way)
            under_way.append(each)


class Seen:
    """What was observed."""

    def __init__(self) -> None:
        self._all: list[Moved] = []
        self._cards: dict[int, tuple[str, ...]] = {}
        """By the id of a component, or of a link of its tiers."""
        self._owners: dict[int, Any] = {}
        """Tiers by the id of a link of theirs; also what must not be forgotten, by its own."""
        self._steps: dict[int, Callable[[Any], None]] = {}
        """By component: what its step under way moves, told the times of what was done of it."""
        self._host_s = 0.0

    def moved(self) -> list[Moved]:
        """All that has moved, by when it began; nothing of zero bytes."""
        for component in list(self._steps):
            self._drop_step(component)
        return sorted(
            (each for each in self._all if each.bytes),
            key=lambda each: (each.begin_s, each.gone_s, each.way, each.ends),
        )

    def _add(
        self, way: str, clock: object, takes: str, ends: Sequence[str], size: float, begin_s: float,
        end_s: float, landed: bool = True,
    ) -> Moved:  # fmt: skip
        self._owners[id(clock)] = self._owners.get(id(clock), clock)
        one = Moved(
            way, id(clock), takes, tuple(ends), round(size), begin_s, end_s if landed else None,
            end_s,
        )  # fmt: skip
        self._all.append(one)
        return one

    # replicas, by whose components cards are known

    def built(self, method: Any, own: ReplicaBuilder, *given: Any) -> Any:
        """A replica, of a card or of several."""
        replica = method(own, *given)
        side = "" if own._port is None else ("prefill ", "decode ")[own._side]
        cards = given[0] if isinstance(given[0], tuple) else given[:1]
        names = tuple(f"{side}{card}" for card in cards)
        for component in replica.connectors:
            self._cards[id(component)], self._owners[id(component)] = names, component
        return replica

    # links

    def arrives(self, method: Any, own: Link[Any], now_s: float) -> Any:
        came = method(own, now_s)
        for job in came:
            self._over(own, job, True)
        return came

    def dropped(self, method: Any, own: Link[Any], job: Transfer, at_s: float = 0.0) -> None:
        began = job in own.under_way
        method(own, job, at_s)
        if began:
            self._over(own, job, False)

    def cleared(self, method: Any, own: Link[Any], way: str) -> Any:
        began = own.under_way
        jobs = method(own, way)
        for job in began:
            if job.way == way:
                self._over(own, job, False)
        return jobs

    def _over(self, link: Link[Any], job: Transfer, landed: bool) -> None:
        times = job.bytes, job.began_s, link.now_s, landed
        names: Iterable[str] = dict.fromkeys(_name(each) for each in job.places)
        if job.way in ("dropping", "weights", "swap"):  # whichever way
            names = sorted(names)
        takes = NETWORK if all(each.kind == "card" for each in job.places) else HOST
        self._add(job.way, link, takes, tuple(names), *times)

    # steps that wait for copies: swap, and lending

    def _drop_step(self, key: int) -> None:
        if (step := self._steps.pop(key, None)) is not None:
            step(None)

    def passed(self, method: Any, own: Any, end_s: float, times: Any) -> None:
        if (step := self._steps.pop(id(own), None)) is not None:
            step(times)
        method(own, end_s, times)

    def lends(self, method: Any, own: Lender, *given: Any) -> Any:
        """What a step asks of lenders, then what it copies to them."""
        self._drop_step(id(own))
        waits_s = method(own, *given)
        asked, work, begin_s = own._asked, own._work, own._now_s
        tokens, asks_of = own._fresh + own._leaving, list(own._shares)
        loans = [loan for _, loan, sent in own._sent if sent]
        loans += [each for many in own.loans.values() for each in many if each.moving]
        keepers = dict.fromkeys(each.lender for each in loans if own._leaving or own._fresh)
        copy_s, home = work.copy_s(tokens), self._cards[id(own)]

        def ends(lenders: Iterable[int]) -> list[str]:
            return [*home, *(card for at in lenders for card in self._cards[id(own._cards[at])])]

        ends_of_asks, ends_of_copies = ends(asks_of), ends(keepers)
        asked_bytes = asked.query_bytes + asked.partial_bytes

        def over(times: Any) -> None:
            rounds = np.zeros(1) if times is None else times.total_s
            at_s, landed = begin_s, times is not None
            for total_s in rounds.tolist():
                then_s = at_s + asked.link_s
                for way, many, size, span in (
                    ("attention", ends_of_asks, asked_bytes, (at_s, then_s)),
                    ("lending", ends_of_copies, tokens * work._token_bytes,
                     (then_s, then_s + copy_s)),
                ):  # fmt: skip
                    if size:
                        self._add(way, own, NETWORK, many, size, *span, landed)
                at_s += total_s

        self._steps[id(own)] = over
        return waits_s


def _name(place: Place) -> str:
    kind = "" if place.kind == "card" else place.kind
    return " ".join(filter(None, (kind, place.node, str(place.card))))


@contextmanager
def observed() -> Iterator[Seen]:
    """All transfers of runs inside are seen."""
    seen = Seen()
    told: list[tuple[type, str, Callable[..., Any]]] = [
        (ReplicaBuilder, "card", seen.built), (ReplicaBuilder, "group", seen.built),
        (Link, "until", seen.arrives), (Link, "drop", seen.dropped), (Link, "clear", seen.cleared),
        (Lender, "stalls", seen.lends), (Lender, "passed", seen.passed),
    ]  # fmt: skip
    with ExitStack() as stack:
        for kind, name, tell in told:
            stack.enter_context(patch.object(kind, name, _telling(getattr(kind, name), tell)))
        yield seen


def _telling(method: Any, tell: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, *given: tell(method, own, *given)
