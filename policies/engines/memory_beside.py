"""Memory that is not simply that of a running request: three parts that a connector may have.

`rooms`: a request that runs here stores a part of its tokens on other cards.

| hook of `Rooms` | called | what it may do |
|---|---|---|
| `admit` | a request in line has no room, once a try | reserve what there is, the rest elsewhere |
| `admitted` | once it has room of its own | give room elsewhere back |
| `grow` | for each chunk of a prefill that goes on | store a part elsewhere |
| `leave` | once an end or a preemption, before memory is free | give back what lies elsewhere |
| `scheduled` | once a step (`build_connector_meta`) | note what it asks elsewhere |
| `away`, `apart` | at any time | answer alone |

`visitors`: requests that do not run here hold memory here.

| hook of `Visitors` | called | what it may do |
|---|---|---|
| `gives_way` | nothing could be scheduled | give memory back |
| `drained` | once the card has lost all, before `Connector.reset` | lose all |
| `busy`, `holding`, `holders` | at any time | answer alone |

`turns`: the memory of a turn that has ended is kept until its session's next one.

| hook of `KeptTurns` | called | what it may do |
|---|---|---|
| `first` | before requests in line are tried, often several times | choose who is tried |
| `resumed` | as one of them is tried | give up what was kept for it |
| `yields` | nothing runs and nobody in line fits | give up what is kept |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from policies.allocators.allocator import Demand
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray

NONE: IntArray = np.zeros(0, np.int64)
"""No requests."""


class Rooms:
    """Base of room on other cards; as it is, there is none."""

    def admit(self, request: int, demand: Demand, total: int, cached: int, tokens: int) -> bool:
        """Reserve slots for a request that has no room of its own here, with what it has room for
        in other places; whether there were enough.

        Args:
            total: tokens to prefill.
            cached: those of them that are in memory here.
            tokens: those that its first step stores behind them.
        """
        return False

    def admitted(self, request: int) -> None:
        """A request has all of its memory here."""

    def grow(self, request: int, tokens: int) -> bool | None:
        """Store the next tokens of a prefill, here and in other places; whether there is room. None
        (nothing changes): all of it lies here."""
        return None

    def leave(self, request: int) -> int | None:
        """A request ends or is preempted: the tokens that it gives back in other places. Then what
        it stores here cannot be found again. None: it has nothing there."""
        return None

    def scheduled(self, step: Step) -> None:
        """This is the next step."""

    def away(self, request: int) -> int:
        """Tokens that a request stores in other places."""
        return 0

    def apart(self, request: int) -> bool:
        """Whether a request has room, or tokens, in other places: nobody else moves it."""
        return False


class Visitors:
    """Base of requests that hold memory here and do not run; as it is, there are none."""

    def gives_way(self) -> bool:
        """Nothing could be scheduled: give memory back, if there is any; whether there was."""
        return False

    def drained(self) -> list[int]:
        """The card has lost all that it had: it keeps memory for nobody any more.

        Returns:
            Requests that were here alone and did not run: they begin again.
        """
        return []

    def busy(self, own: bool) -> bool:
        """Whether the engine has something to do now.

        Args:
            own: whether it has, as far as its scheduler knows.
        """
        return own

    @property
    def holding(self) -> bool:
        """Whether memory is held that will be given back, though nothing runs."""
        return len(self.holders) > 0

    @property
    def holders(self) -> IntArray:
        """Requests for which it holds memory, and which neither run nor have just ended, int64
        (n,); not those that the engine holds for its connector."""
        return NONE


class KeptTurns:
    """Base of ended turns that keep their memory (`Ending.HELD`); as it is, there are none."""

    def first(self, line: Iterable[int]) -> int:
        """The place of a request in line that goes before all others; -1: none.

        Args:
            line: requests, from the head of the line on.
        """
        return -1

    def resumed(self, request: int) -> Sequence[int]:
        """A request is tried now; returns ended ones that were kept until then."""
        return ()

    def yields(self) -> Sequence[int]:
        """Nothing runs, and those in line find no room: ended requests that it gives up for that;
        none: it cannot."""
        return ()
