"""What one step of an engine computes, copies and holds back."""

from __future__ import annotations

from typing import NamedTuple

from policies.allocators.capabilities import Migration
from policies.engines.additions import Addition, Transfers
from policies.requests.requests import IntArray

STEP_LIMITS = ("kv_memory", "sequence_cap", "token_budget", "offered_load", "batching")
"""What can limit a step."""


class Chunk(NamedTuple):
    """Part of a prefill: `tokens` after the first `start`, which are stored already."""

    request: int
    start: int
    tokens: int
    last: bool
    """Whether it ends the prefill; then it makes an output token."""


class Step(NamedTuple):
    """One scheduled step, whose slots are reserved already."""

    decode: IntArray
    """Requests that decode one token, in running order."""
    context: int
    """Tokens they had stored before."""
    chunks: list[Chunk]
    migrations: list[Migration]
    preempted: int
    limit: str
    """Which of STEP_LIMITS limited the step."""
    cached: int = 0
    """Tokens that requests found in memory at their admission and need not prefill."""
    lengths: IntArray | None = None
    """Tokens that each of `decode` had stored before; only where not all of them are read, or where
    drafts are verified."""
    additions: tuple[Addition, ...] = ()
    """What features add to it."""

    def added(self, addition: Addition) -> Step:
        """With this, in the place of one of its class."""
        kind = type(addition)
        others = [each for each in self.additions if type(each) is not kind]
        return self._replace(additions=(*others, addition))

    @property
    def tokens(self) -> int:
        """Tokens decoded."""
        return len(self.decode)

    def _sum(self, name: str) -> int:
        """What all additions have of it."""
        return sum([getattr(each, name) for each in self.additions])

    @property
    def rows(self) -> IntArray | None:
        """See `Addition`; one feature at most has a say."""
        found = [each.rows for each in self.additions if each.rows is not None]
        return found[0] if found else None

    @property
    def drafts(self) -> int:
        """See `Addition`."""
        return self._sum("drafts") if self.additions else 0

    @property
    def pairs(self) -> int:
        """See `Addition`."""
        return self._sum("pairs") if self.additions else 0

    @property
    def accepted(self) -> int:
        """See `Addition`."""
        return self._sum("accepted") if self.additions else 0

    @property
    def output(self) -> int:
        """Output tokens of the requests that decode."""
        if not self.additions:
            return len(self.decode)
        return self.tokens + self.accepted - self._sum("overrun")

    @property
    def decoded(self) -> int:
        """Rows of the requests that decode: their last tokens and drafts."""
        return self.tokens + self.drafts

    def ordered(self, order: IntArray) -> Step:
        """The same of its decoding requests at these places, int64 (m,), with their drafts;
        copies stay."""
        lengths = None if self.lengths is None else self.lengths[order]
        additions = tuple([each.ordered(order, lengths) for each in self.additions])
        return self._replace(decode=self.decode[order], lengths=lengths, additions=additions)

    @property
    def still(self) -> Step:
        """What it computes, without what is moved beside."""
        additions = tuple([each for each in self.additions if not each.moves])
        return self._replace(migrations=[], additions=additions)

    @property
    def empty(self) -> bool:
        """Whether nothing is computed."""
        return not len(self.decode) and not self.chunks

    @property
    def batched(self) -> int:
        """Tokens that run through the matrix products: those decoded and those of chunks."""
        return self.decoded + sum(chunk.tokens for chunk in self.chunks)

    @property
    def elsewhere(self) -> tuple[int, int]:
        """See `Addition`."""
        decoded = chunked = 0
        for each in self.additions:
            decoded, chunked = decoded + each.elsewhere[0], chunked + each.elsewhere[1]
        return decoded, chunked

    @property
    def routed(self) -> int:
        """Tokens that pass through experts."""
        return self.batched + sum(self.elsewhere)

    @property
    def copies(self) -> tuple[Migration, ...]:
        """See `Addition`."""
        return tuple([copy for each in self.additions for copy in each.copies])

    @property
    def copied(self) -> int:
        """Tokens copied within the memory."""
        return sum(copy.tokens for copy in self.copies) if self.additions else 0

    @property
    def aged(self) -> int:
        """See `Addition`."""
        return self._sum("aged") if self.additions else 0

    @property
    def transfers(self) -> Transfers | None:
        """See `Addition`; one feature at most makes them."""
        found = [each.transfers for each in self.additions if each.transfers is not None]
        return found[0] if found else None

    @property
    def swapped(self) -> int:
        """Tokens copied to or from elsewhere."""
        return 0 if (moved := self.transfers) is None else sum(moved.moved)

    @property
    def repeats(self) -> bool:
        """Whether the next step is the same if no request arrives, ends or lacks room."""
        if self.chunks or self.migrations or self.preempted:
            return False
        return not any(each.moves for each in self.additions)
