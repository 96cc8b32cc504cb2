"""What one step of an engine computes, copies and holds back."""

from __future__ import annotations

from typing import NamedTuple

from policies.allocators.capabilities import Migration
from policies.requests.requests import IntArray

STEP_LIMITS = ("kv_memory", "sequence_cap", "token_budget", "offered_load", "batching")
"""What can limit a step."""


class Chunk(NamedTuple):
    """Part of a prefill: `tokens` after the first `start`, which are stored already."""

    request: int
    start: int
    tokens: int
    last: bool
    """Whether it ends the prefill; then each sample makes an output token."""
    samples: int = 1
    """Samples of the request."""


class Verified(NamedTuple):
    """Drafts that a step verifies."""

    rows: IntArray
    """Of each request that decodes: its last token and drafts, int64 (n,)."""
    drafts: int
    """Rows of drafts, beside the last tokens."""
    pairs: int
    """Of these rows and the tokens that they attend to, themselves included."""
    accepted: int = 0
    """Drafts that are output."""

    @classmethod
    def behind(cls, lengths: IntArray, rows: IntArray, accepted: int = 0) -> Verified:
        """So many rows of each request behind so many stored tokens, int64 (n,) each."""
        pairs = (rows - 1) * lengths + rows * (rows + 1) // 2 - 1
        return cls(rows, int((rows - 1).sum()), int(pairs.sum()), accepted)


class Transfers(NamedTuple):
    """Copies of KV between the device and elsewhere that belong to a step."""

    tokens: tuple[int, ...]
    """Of each request whose KV is copied."""
    hidden: int = 0
    """Of these, tokens for which the step does not wait."""

    @property
    def hidden_share(self) -> float:
        """Of all that is copied."""
        return self.hidden / sum(self.tokens)


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
    further: int = 0
    """Samples of the decoding requests beyond the first of each."""
    common: int = 0
    """Tokens of `context` that those samples also attend to: their prompts."""
    transfers: Transfers | None = None
    """Copies to and from elsewhere that it waits for."""
    copies: tuple[Migration, ...] = ()
    """Copies on write."""
    lengths: IntArray | None = None
    """Tokens that each of `decode` had stored before; only where not all of them are read, or where
    drafts are verified."""
    verified: Verified | None = None
    """Where drafts are verified."""
    overrun: int = 0
    """Of `tokens`, those of samples that have ended, which asynchronous scheduling sees a step
    later; they are no output."""
    elsewhere: tuple[int, int] = (0, 0)
    """Tokens of other replicas that pass through the same experts: decoded, and of chunks."""

    @property
    def tokens(self) -> int:
        """Tokens decoded: one of each sample."""
        return len(self.decode) + self.further

    @property
    def rows(self) -> IntArray | None:
        """See `Verified`."""
        return None if self.verified is None else self.verified.rows

    @property
    def drafts(self) -> int:
        """See `Verified`."""
        return 0 if self.verified is None else self.verified.drafts

    @property
    def pairs(self) -> int:
        """See `Verified`."""
        return 0 if self.verified is None else self.verified.pairs

    @property
    def accepted(self) -> int:
        """See `Verified`."""
        return 0 if self.verified is None else self.verified.accepted

    @property
    def decoded(self) -> int:
        """Rows of the requests that decode: their last tokens and drafts."""
        return self.tokens + self.drafts

    def ordered(self, order: IntArray) -> Step:
        """The same of its decoding requests at these places, int64 (m,), with their drafts; sums
        over samples and copies stay."""
        step = self._replace(decode=self.decode[order])
        if self.lengths is None:
            return step
        lengths = self.lengths[order]
        if self.verified is None:
            return step._replace(lengths=lengths)
        verified = Verified.behind(lengths, self.verified.rows[order], self.accepted)
        return step._replace(lengths=lengths, verified=verified)

    @property
    def empty(self) -> bool:
        """Whether nothing is computed."""
        return not len(self.decode) and not self.chunks

    @property
    def batched(self) -> int:
        """Tokens that run through the matrix products: those decoded and those of chunks."""
        return self.decoded + sum(chunk.tokens for chunk in self.chunks)

    @property
    def routed(self) -> int:
        """Tokens that pass through experts."""
        return self.batched + sum(self.elsewhere)

    @property
    def copied(self) -> int:
        """Tokens copied on write."""
        return sum(copy.tokens for copy in self.copies) if self.copies else 0

    @property
    def swapped(self) -> int:
        """Tokens copied to or from elsewhere."""
        return 0 if self.transfers is None else sum(self.transfers.tokens)

    @property
    def repeats(self) -> bool:
        """Whether the next step is the same if no request arrives, ends or lacks room."""
        moved = self.migrations or self.preempted or self.copies or self.transfers
        return not self.chunks and not moved
