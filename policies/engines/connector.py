"""The seam between a replica and what it has beside its scheduler and its memory: KV in a tier
below the device's memory, on another replica or on its way, requests of other cards, beams. One
base, all of whose hooks do nothing; a feature overrides those that concern it.

Of a request in line, by the scheduler, which may hold memory for it (vLLM's names beside ours):

| hook | called | what it may do |
|---|---|---|
| `first`, `passes_over` | before requests are tried, often several times | choose who is tried |
| `resumed` | as one is tried | give memory up that was held for it |
| `matched` | as one is tried (`get_num_new_matched_tokens`) | say what KV is elsewhere |
| `admit` | where it has no room, once a try | reserve what there is, the rest elsewhere |
| `admitted` | once it has room of its own | give room elsewhere back |
| `allocated` | once it is admitted (`update_state_after_alloc`) | put transfers to its memory |
| `yields` | nothing runs and nobody in line fits | give held memory up |

Of requests that run, by the scheduler:

| hook | called | what it may do |
|---|---|---|
| `busy` | at any time | say whether there is something to do |
| `begins` | once before a step is scheduled | prepare, fork |
| `grow` | for each chunk of a prefill that goes on | store a part elsewhere |
| `swap_out`, `swap_in`, `undo_swap_in`, `swaps` | as v0 preempts, and takes back | copy KV |
| `gives_way` | nothing could be scheduled | give memory back |
| `scheduled` | once a step (`build_connector_meta`) | note what the step asks elsewhere |
| `rounds` | once a stretch of steps | say how many are equal |
| `stepped` | a stretch is over (`update_connector_output`) | put transfers of what is computed |
| `preempted`, `joined` | as it happens | forget, or learn of, a request |
| `goes_on`, `moves`, `away`, `apart`, `holding`, `holders` | at any time | answer alone |

Of requests that have ended, and of what is on its way:

| hook | called | what it may do |
|---|---|---|
| `finished` | once an end (`request_finished`) | hold its memory |
| `leave` | once an end or a preemption, before memory is free | give back what it has elsewhere |
| `forgotten` | when the memory of one that ended is free | forget it |
| `arrived`, `released` | before each step (`get_finished`) | say who may go on, or be freed |
| `lost` | the same (`get_block_ids_with_load_errors`) | say who computes again |
| `computed` | once for one that was lost | clean up |
| `drained`, `reset` | the card has lost all: once each, in this order | lose all |

Of time, by the replica (vLLM's worker side):

| hook | called | what it may do |
|---|---|---|
| `due_s` | at any time | say when something happens next |
| `clock` | before each step | learn the time |
| `moving`, `stalls` | once a stretch, before it begins | make steps wait; put what they wait for |
| `passed` | once a stretch, as it is over, before `stepped` | count |
| `host_fails` | as it happens | lose what the host has |
| `retire` | its replica serves no more | lose all |
| `mark`, `figures` | when the warm-up ends; at the end | count anew; report |

A request whose KV comes from elsewhere has its memory from its admission on. It runs when all of
its KV is there, and others run meanwhile (vLLM: `WAITING_FOR_REMOTE_KVS`), or at once, where its
layers come one by one. One that has ended keeps its memory as long as a connector holds it. If one
that comes back has no room for its first chunk, it gives its memory back and waits in front of the
line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.engines.scheduled_step import Step, SwapCopies
from policies.requests.requests import FloatArray, IntArray, Requests

NONE: IntArray = np.zeros(0, np.int64)
"""No requests."""


@dataclass(frozen=True)
class Match:
    """What a request begins with beyond what it computes: tokens 0 to `start` are on the device,
    those from there to `end` come from elsewhere. A connector may add what it has to remember."""

    start: int
    end: int
    waits: bool = True
    """Whether the request waits until all of it is there; or runs at once, and its layers wait."""
    computed: bool = False
    """Whether the output token that follows from them is known, too: then the request decodes once
    they are there. `end` is one token less than it has."""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a Match is of tokens 0 <= start <= end; got {self}")


class Ending(Enum):
    """What becomes of the memory of a request that has ended."""

    FREE = "free"
    """It goes; what it holds may be found again."""
    HELD = "held"
    """It stays until the connector has `released` it."""
    FORGET = "forget"
    """It goes, and what it holds is not to be found again."""


class Loading(NamedTuple):
    """A request that holds memory for KV on its way, and who brings it."""

    match: Match
    connector: Connector


class ConnectedEngine(Protocol):
    """What a connector may ask of the engine that has it."""

    allocator: Allocator
    running: IntArray
    left: IntArray
    """Output tokens that each request must still produce."""
    output: IntArray
    prompt: IntArray
    loading: dict[int, Loading]
    ending: list[int]
    """Requests whose last token is known, and whose memory is not free yet."""

    @property
    def requests(self) -> Requests:
        """All requests of the run."""

    def demand(self, request: int) -> Demand:
        """What a request asks for now."""

    def total(self, request: int) -> int:
        """Tokens that it has: its prompt and what it has generated."""

    def cached(self, request: int, limit: int) -> int:
        """How many of its first tokens, at most `limit`, the device has."""

    def known(self, request: int) -> int:
        """Tokens stored of it whose text is known: not those of a step under way."""

    def give_up(self, request: int) -> None:
        """One that is `loading` gets nothing: it gives its memory back, but for what it found."""

    def wake(self) -> None:
        """Something has changed for requests in line that could not be admitted."""

    def retire(self) -> None:
        """Take back the memory of the requests that are `ending`."""

    def whole(self, request: int) -> bool:
        """Whether all of a request that has its memory lies here, and stays."""


class Connector:
    """Base of all connectors; as it is, it has nothing anywhere else, and takes no time. The tables
    above say when each hook is called. Times of steps are those of `policies.memory.step_times`.

    Example: a store that has the KV of every prompt which it has seen, whole, at once.

        >>> class Perfect(Connector):
        ...     def __init__(self) -> None:
        ...         self.seen: set[int] = set()
        ...     def matched(self, request, demand, cached, total):
        ...         end = demand.prompt - 1
        ...         if demand.prefix_id not in self.seen or end <= cached:
        ...             return None
        ...         return Match(cached, end, waits=False)
        ...     def finished(self, request, demand, tokens):
        ...         self.seen.add(demand.prefix_id)
        ...         return Ending.FREE
        >>> Perfect().passes_over(0, None, 10)
        False
    """

    name: ClassVar[str]
    """For messages."""
    engine: ConnectedEngine
    foresees_ends: ClassVar[bool] = False
    """Whether it is known in which step each request ends here, also where the engine does not
    know the lengths of outputs."""
    keeps_preempted: ClassVar[bool] = False
    """Whether it can take KV of requests that a scheduler with a queue of such preempts (v0)."""
    outlives: ClassVar[bool] = False
    """Whether it keeps what it has when its card fails, which then comes again with it."""

    def connect(self, engine: ConnectedEngine) -> None:
        """This engine has it from now on.

        Args:
            engine: what it may ask; its own.
        """
        self.engine = engine

    # of requests in line

    def first(self, line: Iterable[int]) -> int:
        """The place of a request in line that goes before all others; -1: none.

        Args:
            line: requests, from the head of the line on.
        """
        return -1

    def passes_over(self, request: int, demand: Demand, total: int) -> bool:
        """Whether a request in line is not to be tried now, while others behind it are.

        Args:
            total: tokens to prefill.
        """
        return False

    def resumed(self, request: int) -> Sequence[int]:
        """A request is tried now; returns ended ones that it `held` until then."""
        return ()

    def yields(self) -> Sequence[int]:
        """Nothing runs, and those in line find no room: ended requests that it holds and gives up
        for that; none: it cannot."""
        return ()

    def matched(self, request: int, demand: Demand, cached: int, total: int) -> Match | None:
        """What it has of a request behind what the device has; None: nothing. May be asked several
        times before the request is admitted.

        Args:
            cached: tokens that the device has.
            total: tokens to prefill; the last one is computed in any case, unless the match says
                that its output is known.
        """
        return None

    def allocated(
        self, request: int, demand: Demand, cached: int, total: int, match: Match | None
    ) -> None:  # fmt: skip
        """A request has its memory: what it matched may begin to move.

        Args:
            match: its own last one; None: the request runs without it.
        """

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

    # of requests that run

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
        (n,); not those that the engine holds for it."""
        return NONE

    def begins(self) -> None:
        """A step is about to be scheduled."""

    def gives_way(self) -> bool:
        """Nothing could be scheduled: give memory back, if there is any; whether there was."""
        return False

    def scheduled(self, step: Step) -> Step:
        """The step, with what it adds to it."""
        return step

    def away(self, request: int) -> int:
        """Tokens that a request stores in other places."""
        return 0

    def apart(self, request: int) -> bool:
        """Whether a request has room, or tokens, in other places: nobody else moves it."""
        return False

    def grow(self, request: int, tokens: int) -> bool | None:
        """Store the next tokens of a prefill, here and in other places; whether there is room. None
        (nothing changes): all of it lies here."""
        return None

    def leave(self, request: int) -> int | None:
        """A request ends or is preempted: the tokens that it gives back in other places. Then what
        it stores here cannot be found again. None: it has nothing there."""
        return None

    def rounds(self, step: Step, limit: int) -> int:
        """How many steps, of at most `limit`, are like this one as far as it can tell."""
        return limit

    def stepped(self, step: Step, prefilled: Sequence[int]) -> None:
        """Steps like this one are done.

        Args:
            prefilled: requests whose prefill ended in it.
        """

    def goes_on(self, request: int) -> bool:
        """Whether a request that ends here goes on elsewhere."""
        return False

    def moves(self, request: int) -> bool:
        """Whether KV of a request is on its way from its memory, or to it."""
        return False

    def joined(self, request: int) -> None:
        """A request runs here from now on whose KV was computed on another card, and has come."""

    def preempted(self, request: int) -> None:
        """A request has lost its memory before its end, or before it came; or it has gone to
        another card with its KV."""

    # of requests that are preempted and come back with their KV, if `keeps_preempted`; steps wait

    def swap_out(self, request: int) -> bool:
        """A request that decodes has to give its memory up: whether its KV is copied elsewhere, and
        the memory free."""
        return False

    def swap_in(self, request: int) -> bool:
        """Whether such a request has its memory again, to which its KV is copied in this step."""
        return False

    def undo_swap_in(self, request: int) -> None:
        """One that has just got its memory has no room for its next token, and stays elsewhere."""

    def swaps(self) -> SwapCopies | None:
        """What the step being scheduled copies so, and waits for."""
        return None

    # of requests that have ended

    def finished(self, request: int, demand: Demand, tokens: int) -> Ending:
        """A request has ended: what becomes of its memory.

        Args:
            tokens: those stored whose text is known.
        """
        return Ending.FREE

    def released(self) -> Sequence[tuple[int, Ending]]:
        """Requests that it held and holds no longer, since the last call: FREE or FORGET."""
        return ()

    def forgotten(self, request: int) -> None:
        """A request has ended, and its memory is free."""

    # of what is on its way

    def arrived(self) -> Sequence[int]:
        """Requests whose KV is there, since the last call, in order."""
        return ()

    def lost(self) -> Sequence[int]:
        """Requests whose KV will not come, since the last call: they compute it (vLLM:
        `kv_load_failure_policy: recompute`)."""
        return ()

    def computed(self, request: int) -> None:
        """Such a request has computed what was to come, or has lost its memory."""

    def drained(self) -> list[int]:
        """The card has lost all that it had: it keeps memory for nobody any more.

        Returns:
            Requests that were here alone and did not run: they begin again.
        """
        return []

    def reset(self) -> None:
        """The card has lost all that it had: nothing is on its way any more, and nobody is held."""

    # of time

    @property
    def due_s(self) -> float:
        """When something happens next; inf: never, as far as it is known."""
        return math.inf

    def clock(self, now_s: float) -> None:
        """It is `now_s`, and a step may begin; it never goes back. No step ran since `passed`."""

    def moving(self, allocator: Allocator) -> list[Any]:
        """What moves to and from the card's memory now, where that is simulated
        (`policies.memory.contention.Moving`)."""
        return []

    def stalls(self, step: Step, times: Any, efficiency: Any, cost: float) -> FloatArray | None:
        """Seconds that each of the steps, which begin now, takes longer; float64 (rounds,), or
        None: none does. Of these as many are done as `passed` has times of, or none.

        Args:
            step: the first of equal steps.
            times: theirs, with what connectors before this one stall (`StepTimes`).
            efficiency: of the memory (`Efficiency`).
            cost: of a byte of `moving` over one of the step's (`StepTimes.contended`).
        """
        return None

    def passed(self, end_s: float, times: Any) -> None:
        """The first `len(times.total_s)` of the steps that `stalls` was last asked for are done,
        the last at `end_s`."""

    def host_fails(self, at_s: float) -> None:
        """The host's memory loses all content then, which is not before now."""

    def retire(self) -> None:
        """Its replica serves no more; others have its cards, and their hosts."""

    def mark(self) -> None:
        """The warm-up is over: what was counted before does not count."""

    def figures(self) -> dict[str, Any]:
        """For the metrics, by name."""
        return {}
