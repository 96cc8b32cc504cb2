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
    swapped: int = 0
    """Tokens copied to or from host memory."""
    hidden: int = 0
    """Of those, tokens for which the step does not wait."""
    beside: int = 0
    """Of these, tokens that take bandwidth from the step."""
    copies: tuple[Migration, ...] = ()
    """Copies on write."""
    lengths: IntArray | None = None
    """Tokens that each of `decode` had stored before; only where not all of them are read, or
    drafts are verified."""
    rows: IntArray | None = None
    """Where drafts are verified: rows of each of `decode`."""
    overrun: int = 0
    """Of `tokens`, those of samples that have ended, which asynchronous scheduling sees a step
    later; they are no output."""
    drafts: int = 0
    """Rows of drafts that are verified beside the decoding requests' last tokens."""
    pairs: int = 0
    """Of these rows and the tokens that they attend to, themselves included."""
    accepted: int = 0
    """Drafts that are output."""
    elsewhere: tuple[int, int] = (0, 0)
    """Tokens of other replicas that pass through the same experts: decoded, and of chunks."""

    @property
    def tokens(self) -> int:
        """Tokens decoded: one of each sample."""
        return len(self.decode) + self.further

    @property
    def empty(self) -> bool:
        """Whether nothing is computed."""
        return not len(self.decode) and not self.chunks

    @property
    def batched(self) -> int:
        """Tokens that run through the matrix products: those decoded and those of chunks."""
        return self.tokens + self.drafts + sum(chunk.tokens for chunk in self.chunks)

    @property
    def routed(self) -> int:
        """Tokens that pass through experts."""
        return self.batched + sum(self.elsewhere)

    @property
    def copied(self) -> int:
        """Tokens copied on write."""
        return sum(copy.tokens for copy in self.copies) if self.copies else 0

    @property
    def repeats(self) -> bool:
        """Whether the next step is the same if no request arrives, ends or lacks room."""
        moved = self.migrations or self.preempted or self.copies or self.swapped
        return not self.chunks and not moved
