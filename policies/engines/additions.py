"""What features add to a step, beside what every step has: each in a class of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policies.allocators.capabilities import Migration
from policies.requests.requests import IntArray


class Cut(NamedTuple):
    """Tokens `low` to `high` of the `whole` of a step: one of each of the requests that decode, of
    which there are `decoding`, then those of chunks."""

    low: int
    high: int
    whole: int
    decoding: int

    def decoded(self, amount: int) -> int:
        """Of an amount that is spread evenly over the requests that decode."""
        many = max(self.decoding, 1)
        low, high = min(self.low, self.decoding), min(self.high, self.decoding)
        return amount * high // many - amount * low // many

    def spread(self, amount: int) -> int:
        """Of an amount that is spread evenly over all tokens."""
        return amount * self.high // self.whole - amount * self.low // self.whole


class Addition:
    """What a feature adds to a step: as it is, nothing. A feature overrides what it adds; a step
    has the sums of all its additions.

    Example: a feature that makes each step of three tokens wait for one copy on write.

        >>> class Copied(Addition):
        ...     copies = (Migration(0, 0, 3, 3, 3),)
        ...     moves = True
    """

    __slots__ = ()

    further: int = 0
    """Tokens that requests decode beyond one each."""
    common: int = 0
    """Tokens of the step's context that those also attend to."""
    apart: int = 0
    """Of these, tokens that lie for each of those anew, and are read for each."""
    rows: IntArray | None = None
    """Rows that each decoding request computes, int64 (n,); None: one of each token."""
    drafts: int = 0
    """Rows that are computed beyond the tokens decoded."""
    pairs: int = 0
    """Of these rows and the tokens that they attend to, themselves included."""
    accepted: int = 0
    """Of these rows, those that are output."""
    overrun: int = 0
    """Tokens decoded that are no output."""
    elsewhere: tuple[int, int] = (0, 0)
    """Tokens of other replicas that pass through the same experts: decoded, and of chunks."""
    copies: tuple[Migration, ...] = ()
    """KV copied within the memory."""
    aged: int = 0
    """Tokens whose KV changes from one of the card's memories to another."""
    transfers: Transfers | None = None
    """KV copied to and from elsewhere, for which the step waits."""
    moves: bool = False
    """Whether something is moved, so that the next step is not the same."""

    def ordered(self, order: IntArray, lengths: IntArray | None) -> Addition:
        """To the step of the decoding requests at these places, int64 (m,), which have so many
        tokens stored; sums over samples and copies stay."""
        return self

    def cut(self, cut: Cut) -> Addition | None:
        """To a micro-batch, whose requests `ordered` has chosen; None: nothing."""
        return self


@dataclass(frozen=True, slots=True)
class Samples(Addition):
    """Several answers to one prompt: `common`, their prompts."""

    further: int
    common: int = 0
    apart: int = 0

    def cut(self, cut: Cut) -> Samples:
        """Spread evenly (assumed)."""
        return Samples(*map(cut.decoded, (self.further, self.common, self.apart)))


@dataclass(frozen=True, slots=True)
class CopiedOnWrite(Addition):
    """Blocks that several had, of which one of them writes into a copy."""

    copies: tuple[Migration, ...]
    moves = True

    def cut(self, cut: Cut) -> CopiedOnWrite | None:
        """They go with the first tokens."""
        return None if cut.low else self


@dataclass(frozen=True, slots=True)
class Transfers(Addition):
    """Copies of KV between the device and elsewhere that belong to a step."""

    moved: tuple[int, ...]
    """Tokens of each request whose KV is copied."""
    hidden: int = 0
    """Of these, tokens for which the step does not wait."""
    moves = True

    @property
    def transfers(self) -> Transfers:  # type: ignore[override]
        """Itself."""
        return self

    @property
    def hidden_share(self) -> float:
        """Of all that is copied."""
        return self.hidden / sum(self.moved)

    def cut(self, cut: Cut) -> Transfers | None:
        """They go with the first tokens."""
        return None if cut.low else self


@dataclass(frozen=True, slots=True)
class Aged(Addition):
    """What a placement moves as requests grow."""

    aged: int

    def cut(self, cut: Cut) -> Aged:
        """Spread evenly (assumed)."""
        return Aged(cut.spread(self.aged))


@dataclass(frozen=True, slots=True)
class Overrun(Addition):
    """Tokens of samples that have ended, which asynchronous scheduling sees a step later."""

    overrun: int


@dataclass(frozen=True, slots=True)
class Elsewhere(Addition):
    """Tokens of replicas that have their experts in common with this one."""

    elsewhere: tuple[int, int]

    def cut(self, cut: Cut) -> Elsewhere:
        """Spread evenly (assumed)."""
        decoded, chunked = self.elsewhere
        return Elsewhere((cut.spread(decoded), cut.spread(chunked)))
