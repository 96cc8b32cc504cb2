"""What steps put on the network for KV that lies on other cards: queries to lenders with their
partial results, and copies (`lender.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from policies.memory.distributed_attention import LenderWork
from policies.transfers.kv_link import IN, OUT, KvLink, KvPlace, Transfer


class Wire(Protocol):
    """Puts transfers on the network, in the time of the event core."""

    link: KvLink[Transfer]

    def put(self, transfer: Transfer, at_s: float) -> None:
        """It waits for its links from then on."""

    def drop(self, transfers: Iterable[Transfer]) -> None:
        """These are lost, those that have not landed."""

    def interrupt(self, place: KvPlace, at_s: float) -> None:
        """No step of a card that was planned begins then or later."""


class LendingTraffic:
    """Of the card at `place`. `wire`: where it is put."""

    def __init__(self, place: KvPlace, wire: Wire) -> None:
        self._place, self.wire = place, wire
        self._put: list[Transfer] = []
        """What the steps under way ask and copy, step by step, and how many each."""
        self._of_step = 0

    def question(self, lenders: Iterable[KvPlace], work: LenderWork, at_s: float) -> Transfer:
        """Queries of a step to lenders, and their partial results, in turn on both ways of their
        links, between the pieces of what else moves there (assumed)."""
        places = (self._place, *lenders)
        return Transfer(
            source=places[:1], target=places[1:], way="attention", priority=-1,
            ends=tuple((each, way) for each in places for way in (OUT, IN)), felt=False,
            bytes=work.query_bytes + work.partial_bytes, alone_s=work.link_s, put_s=at_s,
        )  # fmt: skip

    def late_s(self, transfer: Transfer) -> float:
        """How much later it ends than by itself, for what else takes its links, as far as is
        known now."""
        if not transfer.target:
            return 0.0
        late_s = self.wire.link.end_s(transfer) - transfer.put_s - transfer.alone_s
        return late_s if late_s > 1e-9 * transfer.alone_s + 1e-15 else 0.0

    def send(self, transfers: list[Transfer], steps: int, now_s: float) -> None:
        """Put what so many steps ask and copy, in order."""
        self._put = transfers
        self._of_step = len(transfers) // steps if steps > 1 else len(transfers)
        for each in self.wire.link.planned:  # steps planned without these look again
            if any(each.meets(own) for own in transfers):
                self.wire.interrupt(each.source[0], now_s)
        for each in transfers:
            self.wire.put(each, each.put_s)

    def done(self, steps: int) -> None:
        """So many of the steps are done; what the others put is lost."""
        self._drop(self._put[steps * self._of_step :])
        self._put = []

    def lose(self, place: KvPlace | None = None) -> None:
        """What has not landed is lost; place: that to a card which has failed."""
        self._drop([each for each in self._put if place is None or place in each.target])

    def _drop(self, transfers: Sequence[Transfer]) -> None:
        gone = [each for each in transfers if not each.over]
        self._put = [each for each in self._put if each not in gone]
        if gone:
            self.wire.drop(gone)
