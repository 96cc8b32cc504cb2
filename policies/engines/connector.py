"""KV that is somewhere else, as an engine sees it: in a tier below the device's memory, on another
replica, or on its way. The hooks are those of vLLM's `KVConnectorBase_V1`:

| here | vLLM |
|---|---|
| `matched` | `get_num_new_matched_tokens` |
| `allocated` | `update_state_after_alloc` |
| `stepped` | `build_connector_meta`, `update_connector_output` |
| `finished` | `request_finished` |
| `arrived`, `released` | `get_finished` (received, sent) |
| `lost` | `get_block_ids_with_load_errors` |

A request whose KV comes from elsewhere has its memory from its admission on. It runs when all of
its KV is there, and others run meanwhile (vLLM: `WAITING_FOR_REMOTE_KVS`), or at once, where its
layers come one by one. One that has ended keeps its memory as long as a connector holds it. If one
that comes back has no room for its first chunk, it gives its memory back and waits in front of the
line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol

from policies.allocators.allocator import Allocator, Demand
from policies.engines.scheduled_step import Step, SwapCopies
from policies.requests.requests import IntArray, Requests


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


class Scheduler(Protocol):
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
    """Base of all connectors; as it is, it has nothing anywhere else.

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
    engine: Scheduler
    foresees_ends: ClassVar[bool] = False
    """Whether it is known in which step each request ends here, also where the engine does not
    know the lengths of outputs."""
    keeps_preempted: ClassVar[bool] = False
    """Whether it can take KV of requests that a scheduler with a queue of such preempts (v0)."""

    def connect(self, engine: Scheduler) -> None:
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

    # of requests that run

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

    def begins(self) -> None:
        """A step is about to be scheduled."""

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

    def reset(self) -> None:
        """The card has lost all that it had: nothing is on its way any more, and nobody is held."""
