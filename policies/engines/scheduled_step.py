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
    """Whether it ends the prefill; then it makes an output token."""


class SwapCopies(NamedTuple):
    """KV that a step copies to and from the host's memory."""

    moved: tuple[int, ...]
    """Tokens of each request."""
    hidden: int = 0
    """Of these, tokens for which the step does not wait."""


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
    rows: IntArray | None = None
    """Rows that each decoding request computes, int64 (n,): its last token and drafts; None: one of
    each."""
    drafts: int = 0
    """Rows that are computed beyond the tokens decoded."""
    pairs: int = 0
    """Of these rows and the tokens that they attend to, themselves included."""
    accepted: int = 0
    """Of these rows, those that are output."""
    overrun: int = 0
    """Tokens decoded that are no output, of requests that have ended, which asynchronous scheduling
    sees a step later."""
    copies: tuple[Migration, ...] = ()
    """KV copied within the memory, from place to place."""
    swaps: SwapCopies | None = None
    aged: int = 0
    """Tokens whose KV changes from one of the card's memories to another as requests grow."""
    elsewhere: tuple[int, int] = (0, 0)
    """Tokens of other replicas that pass through the same experts: decoded, and of chunks."""

    @property
    def tokens(self) -> int:
        """Tokens decoded."""
        return len(self.decode)

    @property
    def output(self) -> int:
        """Output tokens of the requests that decode."""
        return len(self.decode) + self.accepted - self.overrun

    @property
    def decoded(self) -> int:
        """Rows of the requests that decode: their last tokens and drafts."""
        return len(self.decode) + self.drafts

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
        """Tokens copied within the memory."""
        return sum([copy.tokens for copy in self.copies]) if self.copies else 0

    @property
    def swapped(self) -> int:
        """Tokens copied to or from the host's memory."""
        return 0 if self.swaps is None else sum(self.swaps.moved)

    @property
    def empty(self) -> bool:
        """Whether nothing is computed."""
        return not len(self.decode) and not self.chunks

    @property
    def repeats(self) -> bool:
        """Whether the next step is the same if no request arrives, ends or lacks room."""
        moved = self.migrations or self.copies or self.swaps is not None
        return not (self.chunks or self.preempted or moved)

    @property
    def still(self) -> Step:
        """What it computes, without what is moved beside."""
        return self._replace(migrations=[], copies=(), swaps=None)

    def verifying(self, lengths: IntArray, rows: IntArray) -> Step:
        """With so many rows of each decoding request behind so many stored tokens, int64 (n,)
        each."""
        pairs = (rows - 1) * lengths + rows * (rows + 1) // 2 - 1
        drafts = int((rows - 1).sum())
        return self._replace(lengths=lengths, rows=rows, drafts=drafts, pairs=int(pairs.sum()))

    def ordered(self, order: IntArray) -> Step:
        """The same of its decoding requests at these places, int64 (m,), with their drafts; copies
        stay."""
        if self.lengths is None:
            return self._replace(decode=self.decode[order])
        chosen = self._replace(decode=self.decode[order], lengths=self.lengths[order])
        if self.rows is None:
            return chosen
        return chosen.verifying(self.lengths[order], self.rows[order])

    def part(self, low: int, high: int) -> Step:
        """Of what is moved and elsewhere that which goes with tokens `low` to `high` of all: one of
        each request that decodes, then those of chunks. Copies go with the first tokens, the rest
        is spread evenly (assumed)."""
        whole = max(len(self.decode) + sum(chunk.tokens for chunk in self.chunks), 1)

        def spread(amount: int) -> int:
            return amount * high // whole - amount * low // whole

        decoded, chunked = self.elsewhere
        return self._replace(
            migrations=[] if low else self.migrations, copies=() if low else self.copies,
            swaps=None if low else self.swaps, aged=spread(self.aged),
            elsewhere=(spread(decoded), spread(chunked)),
        )  # fmt: skip
