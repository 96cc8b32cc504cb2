"""What some allocators can do beyond the core contract of `policies.allocators.allocator`.

A policy inherits the capabilities it has, or has parts that do (`Allocator.members`), and all of
their methods are implemented. Engines, metrics and logs ask `allocator.able(Swaps)`, never for a
policy by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from hwmodel.kernel.extents import Frames
from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.kv_layout import ByteRuns
from policies.requests.requests import FloatArray, IntArray


class Migration(NamedTuple):
    """A contiguous copy of `tokens` stored tokens between two runs of slots."""

    request: int
    source: int
    target: int
    tokens: int
    left: int
    """Slots of the old reservation, which `settle` frees; in a copy on write, of a block."""


class OnDemand(ABC):
    """Reserves slots as tokens are stored, so an admitted request may lack room later."""

    @abstractmethod
    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """Whether this many tokens of a request could be stored now; without a request, of one
        that shares nothing."""

    @abstractmethod
    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        """Slots by which `reserved_total` was less after each of the last `rounds` rounds of
        `advance(requests, ...)`, which comes before, than it is now, int64 (rounds,). Of requests
        with slots behind them for drafts, whose steps are made one by one, only for one round."""


class Contiguous(ABC):
    """Reserves one run of slots at admission."""

    @abstractmethod
    def size(self, request: int, demand: Demand) -> int:
        """Slots to reserve for a request that is admitted now, or again."""

    @abstractmethod
    def moves(self) -> list[Migration]:
        """Copies of compaction since the last call, a request once. Its tokens are where
        `Migration.target` says; there is nothing to settle."""

    @abstractmethod
    def moved_states(self, move: Migration, nth: int, size: int) -> tuple[ByteRuns, ByteRuns]:
        """Where the first `size` bytes of the running state of a request that is moved lie in the
        `nth` of the layers that have one, in its old place and in its new."""


class Migrates(ABC):
    """Moves a request to a larger place when it has outgrown its own."""

    @abstractmethod
    def migrate(self, request: int) -> Migration | None:
        """Reserve a larger place for a request that cannot grow; None (nothing changes) if there is
        no room, or the request is pinned. The old place stays reserved until `settle`. Raises
        KeyError."""

    @abstractmethod
    def settle(self) -> None:
        """The copies of this step are done: free the old places."""


class Swaps(ABC):
    """Can give up the slots of a request whose tokens are copied to host memory."""

    @abstractmethod
    def swap_out(self, request: int) -> int:
        """Free all slots of a request and remember its state; returns the tokens it had stored.
        Raises KeyError."""

    @abstractmethod
    def swap_in(self, request: int) -> bool:
        """Reserve again what `swap_out` remembered, wherever there is room. False (nothing changes)
        if there is none. Raises KeyError for a request that is not swapped out."""


class CopiesKv(ABC):
    """Copies KV within the memory, for which a step waits."""

    @abstractmethod
    def copies(self) -> list[Migration]:
        """Copies since the last call; their targets are reserved already."""


class Forks(ABC):
    """Of one that copies KV: lets a request go on from what another one has stored, as beam search
    chooses."""

    @abstractmethod
    def fork(self, request: int, source: int) -> None:
        """All that a resident has stored is from now on what another resident has stored of as many
        tokens, which is no less. Raises KeyError."""


class Drafts(ABC):
    """Has room for drafts behind what requests store (`Limits.lookahead`)."""

    @abstractmethod
    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """Store `kept` tokens more of each of `requests`, with slots for `beyond` more behind them,
        in order until one has no room; how many had. unseen: rejected drafts that count as stored
        until the step is known. int64 (n,) each."""


class KeepsStates(ABC):
    """Has a place for the states of fixed size that some layers keep of a request
    (`Limits.states`)."""

    limits: Limits

    @property
    def state_block(self) -> int:
        """Tokens at whose multiples a state is saved where a step ends there; 0: none is."""
        return 0

    @property
    def commits_states(self) -> bool:
        """Whether the state that holds behind drafts is copied to copy 0."""
        return self.limits.commits_states

    @abstractmethod
    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        """Where the first `size` bytes of a resident's state lie in the `nth` of the layers that
        have one. copy: 0 is the running one, those behind a step's rows come after it."""


class Remembers(ABC):
    """Keeps state of a request between its residences, until it ends."""

    def ends(self, request: int) -> None:
        """A request has ended and is released next; `finished` follows."""
        return

    @abstractmethod
    def finished(self, request: int, prompt: int, output: int) -> None:
        """A released request has ended, with these realised lengths."""


class Caches(ABC):
    """Finds tokens that are still in memory when a request is admitted."""

    @abstractmethod
    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """How many first tokens of a request, at most `limit`, are in memory and would belong to it
        after `reserve`: from its last residence and, with its `demand`, from shared prefixes."""

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        """(How many of its first `limit` tokens a request would find, the free slots that hold
        them, which are its own once it is admitted); where it matters to what is lost first, they
        are asked for now."""
        return self.cached(request, limit, demand), 0

    def release_known(self, request: int, tokens: int) -> int:
        """As `release`; only the first `tokens` stored are known (asynchronous scheduling), and no
        block that ends behind them can be found again."""
        return self.release(request)

    @abstractmethod
    def release(self, request: int) -> int:
        """See `Allocator.release`."""

    @property
    def discards(self) -> bool:
        """Whether `discard` leaves nothing to be found."""
        return False

    def discard(self, request: int) -> int:
        """As `release`; what it stored cannot be found again, but what others have in common."""
        return self.release_known(request, 0)

    def forget(self) -> None:
        """All content of the memory is lost: nothing is found again."""
        return

    @property
    def loses_ends_first(self) -> bool:
        """Whether cached tokens are overwritten from the last on, one for each free slot handed
        out. Then a request that was refused stays refused until another one ends."""
        return True


class MovesBlocks(ABC):
    """Of an allocator: gives up, takes over and exchanges single blocks of `block` tokens, as a
    controller needs that moves KV between cards."""

    block: int
    """Tokens in a block."""
    lies_apart: ClassVar[bool] = True
    """Whether the first blocks of a request may lie elsewhere (`drop_first`)."""

    @abstractmethod
    def drop_first(self, request: int, tokens: int) -> None:
        """So many of its first tokens, in whole blocks, lie elsewhere from now on; what is left is
        not found by others."""

    @abstractmethod
    def keep(self, request: int, demand: Demand, tokens: int) -> bool:
        """Room for tokens of a request that runs on another card, which has its state; `grow` is
        that of all. False (nothing changes) if there is none."""

    @abstractmethod
    def give_back(self, request: int) -> int:
        """That room is free again, and nothing in it is found; its slots."""

    @abstractmethod
    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        """Admit a request whose `tokens` lie in these blocks, int64 (n,) in token order; others may
        hold them, too. False (nothing changes) where the memory ends before them, or what it holds
        is not told by blocks alone: then it is admitted with `reserve`, and copied."""

    @abstractmethod
    def free_blocks(self) -> IntArray:
        """Those that are free, in ascending order, int64 (n,)."""

    @abstractmethod
    def bar(self, blocks: IntArray) -> int | None:
        """These, int64 (n,), and no others, are not handed out from now on. What lies in them is
        copied to free blocks (`CopiesKv.copies`), and is not found again: tokens copied; None
        (nothing changes): no room."""


class Batches(ABC):
    """Hands out the slots of a step at once, when nothing more is preempted for it: of its decodes,
    then of its prefills. Takes back those of all requests that end in one together. `advance` may
    make room for a decode step as a whole, so it is so many times itself by one round, and not
    `grow` of each request."""

    @abstractmethod
    def advance_later(self, requests: IntArray) -> None:
        """As `advance` by one round, when `settle_step` is called; until then `stored` is as it
        was."""

    @abstractmethod
    def settle_step(self) -> None:
        """The step is known: choose the slots that `advance_later`, `reserve` and `grow` have
        promised."""

    @abstractmethod
    def make_room(self, slots: int) -> None:
        """Have so many slots at hand, where there are, without content that can be found."""

    @abstractmethod
    def release_together(self, begins: bool) -> None:
        """What is released from here on, up to the call with False, is freed as one group."""


class Classifies(ABC):
    """Has classes of predicted length."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, ...]:
        """Longest length of each class, ascending, in tokens."""

    @abstractmethod
    def tag(self, request: int, demand: Demand) -> int:
        """The class of a request, by which an engine may form batches."""


@runtime_checkable
class QuantileBuckets(Protocol):
    """Options of a policy whose classes end at quantiles of the lengths of outputs."""

    buckets: int
    align: int
    """Bounds are multiples of so many tokens."""

    def bounds_for(self, lengths: IntArray) -> tuple[int, ...]:
        """The bounds for these output lengths, in tokens; lengths: int64 (n,)."""


class Learns(ABC):
    """Adapts to realised lengths as time passes."""

    @abstractmethod
    def profile(self, prompt: IntArray, output: IntArray) -> None:
        """Lengths of earlier requests, int64 (n,) each, before the first request of the run."""

    @abstractmethod
    def clock(self, now_s: float) -> None:
        """Called before each step with the time in seconds, which never decreases."""

    @property
    @abstractmethod
    def due_s(self) -> float:
        """When `clock` may change what is admitted; inf if no change is pending."""

    @abstractmethod
    def share_bounds(self, other: Learns) -> None:
        """Learn together with `other`, an allocator of the same policy on another card."""


class Maps(ABC):
    """Maps physical frames to virtual addresses as requests grow."""

    frame_bytes: int

    @abstractmethod
    def stalls(self, requests: IntArray, steps_s: FloatArray) -> FloatArray:
        """Seconds that each of the coming steps waits for frames, float64 (steps,): the first for
        those mapped since `charged`, the others for those that `requests` need as each sample grows
        by a token a step. steps_s: how long they take else."""

    @abstractmethod
    def charged(self) -> None:
        """What was mapped so far is paid for."""

    @abstractmethod
    def frames(self) -> Frames:
        """The frames of the KV region as they are mapped now."""


class Reports(ABC):
    """Has figures of its own."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """Figures for the metrics, by name."""


def report_of(allocator: Allocator) -> dict[str, Any]:
    """The figures of an allocator; empty if it has none of its own."""
    return {} if (able := allocator.able(Reports)) is None else able.report()


def offers(kind: type[Allocator], capability: type) -> bool:
    """Whether allocators of a class have a capability."""
    return any(issubclass(each, capability) for each in (kind, *kind.members))
