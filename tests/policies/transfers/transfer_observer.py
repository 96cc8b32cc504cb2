"""Every transfer of a run, observed from beside the run.

All of it is a transfer on a link of the fabric, so that links alone are watched. What else takes
the same links is seen beside it: weights that come back to cards which dropped them (way
`weights`), queries and partial results of attention on lenders (way `attention`).

    with observed() as seen:
        serve(...)
    seen.moved()

This is the one file of these tests that knows where transfers are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from policies.transfers.kv_link import KvLink, KvPlace, Transfer

NETWORK, HOST = "network", "host"
"""What a transfer takes of a card: its link to other cards, or that to its host."""


@dataclass(eq=False)
class Moved:
    """One transfer: its ends, with cards named `0` or `prefill 0`, and their hosts `host 0`; bytes
    as its way counts them; None of `end_s`: it was lost, at `gone_s`."""

    way: str
    clock: int
    """Which link it has: transfers of one know of each other."""
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

    def moved(self) -> list[Moved]:
        """All that has moved, by when it began; nothing of zero bytes."""
        return sorted(
            (each for each in self._all if each.bytes),
            key=lambda each: (each.begin_s, each.gone_s, each.way, each.ends),
        )

    def arrives(self, method: Any, own: KvLink[Any], now_s: float) -> Any:
        came = method(own, now_s)
        for job in came:
            self._over(own, job, True)
        return came

    def dropped(self, method: Any, own: KvLink[Any], job: Transfer, at_s: float = 0.0) -> None:
        began = job in own.under_way
        method(own, job, at_s)
        if began:
            self._over(own, job, False)

    def cleared(self, method: Any, own: KvLink[Any], way: str) -> Any:
        began = own.under_way
        jobs = method(own, way)
        for job in began:
            if job.way == way:
                self._over(own, job, False)
        return jobs

    def _over(self, link: KvLink[Any], job: Transfer, landed: bool) -> None:
        names: Iterable[str] = dict.fromkeys(_name(each) for each in job.places)
        if job.way in ("dropping", "weights", "swap"):  # whichever way
            names = sorted(names)
        takes = NETWORK if all(each.kind == "card" for each in job.places) else HOST
        end_s = link.now_s
        self._all.append(Moved(
            job.way, id(link), takes, tuple(names), job.bytes, job.began_s,
            end_s if landed else None, end_s,
        ))  # fmt: skip


def _name(place: KvPlace) -> str:
    kind = "" if place.kind == "card" else place.kind
    return " ".join(filter(None, (kind, place.node, str(place.card))))


@contextmanager
def observed() -> Iterator[Seen]:
    """All transfers of runs inside are seen."""
    seen = Seen()
    told: list[tuple[type, str, Callable[..., Any]]] = [
        (KvLink, "until", seen.arrives),
        (KvLink, "drop", seen.dropped),
        (KvLink, "clear", seen.cleared),
    ]
    with ExitStack() as stack:
        for kind, name, tell in told:
            stack.enter_context(patch.object(kind, name, _telling(getattr(kind, name), tell)))
        yield seen


def _telling(method: Any, tell: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, *given: tell(method, own, *given)
