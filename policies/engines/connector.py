"""The seam between a replica and KV of its requests that is elsewhere: in a tier below the device's
memory, on another replica or on its way. One base, all of whose hooks do nothing; a feature
overrides those that concern it. What few features need are parts that a connector has, or has not:

| part | what it says | its hooks |
|---|---|---|
| `delays` | what steps wait for | `policies.engines.step_delays` |
| `rooms` | tokens of requests here that lie on other cards | `policies.engines.memory_beside` |
| `visitors` | requests of others that hold memory here | the same |
| `turns` | ended turns that keep their memory | the same |
| `swap` | KV of requests that v0 preempts | `policies.engines.preempted_kv` |

Of a request in line, by the scheduler, which may hold memory for it (vLLM's names beside ours):

| hook | called | what it may do |
|---|---|---|
| `passes_over` | before requests are tried, often several times | choose who is tried |
| `matched` | as one is tried (`get_num_new_matched_tokens`) | say what KV is elsewhere |
| `allocated` | once it is admitted (`update_state_after_alloc`) | put transfers to its memory |

Of requests that run, by the scheduler:

| hook | called | what it may do |
|---|---|---|
| `begins` | once before a step is scheduled | prepare, fork |
| `rounds` | once a stretch of steps | say how many are equal |
| `stepped` | a stretch is over (`update_connector_output`) | put transfers of what is computed |
| `preempted`, `joined` | as it happens | forget, or learn of, a request |
| `goes_on`, `moves` | at any time | answer alone |

Of requests that have ended, and of what is on its way:

| hook | called | what it may do |
|---|---|---|
| `finished` | once an end (`request_finished`) | hold its memory |
| `forgotten` | when the memory of one that ended is free | forget it |
| `arrived`, `released` | before each step (`get_finished`) | say who may go on, or be freed |
| `lost` | the same (`get_block_ids_with_load_errors`) | say who computes again |
| `computed` | once for one that was lost | clean up |
| `reset` | once the card has lost all | lose all |

Of time, by the replica (vLLM's worker side):

| hook | called | what it may do |
|---|---|---|
| `due_s` | at any time | say when something happens next |
| `clock` | before each step | learn the time |
| `passed` | once a stretch, as it is over, before `stepped` | learn the time |
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
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from policies.allocators.allocator import Allocator, Demand
from policies.engines.memory_beside import KeptTurns, Rooms, Visitors
from policies.engines.preempted_kv import PreemptedKv
from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
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

    def retire(self) -> None:
        """Take back the memory of the requests that are `ending`."""

    def whole(self, request: int) -> bool:
        """Whether all of a request that has its memory lies here, and stays."""


class Connector:
    """Base of all connectors; as it is, it has nothing anywhere else, and takes no time. The tables
    above say when each hook is called.

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
    outlives: ClassVar[bool] = False
    """Whether it keeps what it has when its card fails, which then comes again with it."""
    delays: StepDelays | None = None
    """Its parts, which stand when it is connected, and stay."""
    rooms: Rooms | None = None
    visitors: Visitors | None = None
    turns: KeptTurns | None = None
    swap: PreemptedKv | None = None

    def connect(self, engine: ConnectedEngine) -> None:
        """This engine has it from now on.

        Args:
            engine: what it may ask; its own.
        """
        self.engine = engine

    # of requests in line

    def passes_over(self, request: int, demand: Demand, total: int) -> bool:
        """Whether a request in line is not to be tried now, while others behind it are.

        Args:
            total: tokens to prefill.
        """
        return False

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

    def begins(self) -> None:
        """A step is about to be scheduled."""

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

    # of time

    @property
    def due_s(self) -> float:
        """When something happens next; inf: never, as far as it is known."""
        return math.inf

    def clock(self, now_s: float) -> None:
        """It is `now_s`, and a step may begin; it never goes back. No step ran since `passed`."""

    def passed(self, end_s: float) -> None:
        """Steps are done, the last at `end_s`."""

    def host_fails(self, at_s: float) -> None:
        """The host's memory loses all content then, which is not before now."""

    def retire(self) -> None:
        """Its replica serves no more; others have its cards, and their hosts."""

    def mark(self) -> None:
        """The warm-up is over: what was counted before does not count."""

    def figures(self) -> dict[str, Any]:
        """For the metrics, by name."""
        return {}
