"""What a scheduler of an engine says: who runs in the next step, and with which tokens.

A scheduler of one's own derives from the nearest one (docs/extend.md). `engine` has the requests,
its line of those that wait (`line`), those whose KV comes from elsewhere (`loads`), and how decodes
get room (`growth`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Demand
from policies.engines.connector import Connector
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_requests import EngineRequests
from policies.engines.scheduled_step import Chunk, Step
from policies.requests.requests import IntArray

Ahead = Callable[[IntArray, Sequence[Chunk], int], int]
"""How many tokens a step prefills, beside those that decode, of what is queued: each prompt, or its
rest, whole. At most so many."""


class Scheduler(ABC):
    """Base of all schedulers."""

    Options: ClassVar[type[EngineOptions]]
    """Its options, whose `name` is that of the scheduler."""
    aligns_chunks: ClassVar[bool] = False
    """Whether chunks of prompts can end at the ends of blocks, where states are kept."""
    whole_inputs = False
    """Whether a request is admitted that has room for all its input, whatever a step computes."""
    looks_ahead: ClassVar[bool] = False
    """Whether a step chooses its prompts beside those that decode, so that `ahead` may say how
    many tokens of them."""
    ahead: Ahead | None = None
    """Says so, instead of the budget; None: nothing does."""
    spec: Any

    def __init__(self, engine: EngineRequests) -> None:
        self.engine, self.spec = engine, engine.spec
        self.swapped: deque[int] = deque()
        """Requests whose KV is elsewhere, in the order in which they were swapped out."""
        engine.budget = self.token_budget()
        if engine.state_block and not self.aligns_chunks:
            raise DescriptionError(
                f"policy.state_caching: engine {self.spec.name} ends chunks anywhere, where no "
                "state is kept; expected engine v1, or none"
            )

    # which step is next

    @abstractmethod
    def schedule(self) -> Step:
        """Choose the requests of the next step and reserve its slots."""

    @property
    def runs(self) -> bool:
        """Whether a running request has something to compute."""
        return len(self.engine.running) > 0

    def to_decode(self) -> IntArray:
        """The running requests that decode, in order."""
        return self.engine.running[:-1] if self.engine.partial else self.engine.running

    def decoding(self) -> IntArray:
        """The running requests that decode in the next step and have not ended, in order, int64
        (n,)."""
        decode = self.to_decode()
        return decode[self.engine.left[decode] > 0] if self.engine.ending else decode

    @property
    def prefilling(self) -> bool:
        """Whether a running request is in its prefill."""
        return self.engine.partial

    def token_budget(self) -> int:
        """Tokens a step may compute."""
        return int(self.spec.token_budget(self.engine.allocator.limits.max_model_len))

    def admits_arrivals(self, step: Step) -> bool:
        """Whether a request that arrives in a step like this could be admitted to the next one."""
        overtakes = step.limit == "batching" or self.spec.packing != "arrival"
        return (
            overtakes or not self.engine.waiting or self.engine.loads.holding
        )  # others may be passed over

    @property
    def repeats(self) -> bool:
        """Whether the next step may be as the last one."""
        return True

    # whom of the line it admits

    def orders(self) -> None:
        """The line is about to be tried from its head on."""
        return

    @abstractmethod
    def first_chunk(self, rest: int, budget: int) -> int:
        """How many of the `rest` of a request's tokens its first step computes; 0: it waits."""

    @abstractmethod
    def reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        """Reserve slots to admit a request with `cached` of its `total` tokens in memory; False if
        there is no room."""

    def first_stored(self, rest: int, budget: int, total: int) -> int:
        """How many of the `rest` of a request's `total` tokens `_reserve` stores."""
        return self.engine.line.chunk(rest, budget, total)

    def findable(self, request: int, total: int) -> int:
        """How many of a request's first `total` tokens may be cached: the last one is always
        computed, since the next token follows from it."""
        return total - 1

    def has_batch(self, begun: bool) -> bool:
        """Whether there is a batch that admitted requests join."""
        return begun or len(self.engine.running) > 0

    def begun(self, request: int, chunk: Chunk | None) -> None:
        """A request runs now, with this chunk of its prefill; None: it was loading."""
        return

    # who gives memory up

    @abstractmethod
    def preempt(self, request: int) -> None:
        """Take back the memory of a request, which waits from now on."""

    def put_back(self, request: int) -> None:
        """The same of one that computes again."""
        self.preempt(request)

    def release_early(self, request: int) -> int | None:
        """Free the slots of a request of which a part is computed again; how many were reserved.
        None: it is no such."""
        return None

    def forget(self, request: int) -> int:
        """As `_release`, of one that has all of its tokens here and is found again as it may be."""
        return self.engine.allocator.release(request)

    def unseen(self, request: int) -> int:
        """Tokens stored of a request by a step whose output is not known yet."""
        return 0

    @abstractmethod
    def reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        """Reserve slots to admit a request whose first `stored` of `total` tokens are there, or
        come from elsewhere; False if there is no room."""

    def extend(self, request: int, tokens: int, total: int) -> bool:
        """Reserve slots for the next `tokens` that one which comes back computes; False if there is
        no room."""
        return self.engine.allocator.grow(request, tokens)

    def recover(self, request: int) -> None:
        """The KV of one that is `loading` will not come: it gives its memory back, but for what it
        found, and waits in front of the line."""
        self.engine.loads.give_up(request)
        self.engine.loads.computed(request)
        self.engine.waiting.appendleft(request)

    def compute_again(self, request: int, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of what should have come to a request that has kept its memory; its
        tokens, 0 if nothing should have."""
        return 0

    # what it is told

    def connected(self, connector: Connector) -> None:
        """The engine has one more connector."""
        return

    def woken(self) -> None:
        """Something has changed for requests in line that could not be admitted."""
        return

    def repeated(self, rounds: int) -> None:
        """There are so many further steps like the last one."""
        return

    def completed(self, ended: list[int]) -> None:
        """A step is done, and with it these requests."""
        return

    def retires(self) -> None:
        """The memory of requests that have ended is about to be free."""
        return

    def stopped(self, request: int) -> None:
        """A running request runs here no more."""
        return

    def leaves(self) -> list[int]:
        """Requests that wait and are not in line, in order; it has none of them any more."""
        return []
