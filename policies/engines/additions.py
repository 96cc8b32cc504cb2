"""What features add to a step, beside what every step has: each in a class of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policies.allocators.capabilities import Migration
from policies.requests.requests import IntArray


class Cut(NamedTuple):
    """Tokens `low` to `high` of the `whole` of a step: one of each of the requests that decode,
    then those of chunks."""

    low: int
    high: int
    whole: int

    def spread(self, amount: int) -> int:
        """Of an amount that is spread evenly over all tokens."""
        return amount * self.high // self.whole - amount * self.low // self.whole


class Addition:
    """What a feature adds to a step: as it is, nothing. A feature overrides what it adds; a step
    has the sums of all its additions.

    Example: a feature that makes each step wait for one copy of three tokens.

        >>> class Shifted(Addition):
        ...     copies = (Migration(0, 0, 3, 3, 3),)
        ...     moves = True
    """

    __slots__ = ()

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
        tokens stored; copies stay."""
        return self

    def cut(self, cut: Cut) -> Addition | None:
        """To a micro-batch, whose requests `ordered` has chosen; None: nothing."""
        return self


@dataclass(frozen=True, slots=True)
class Copied(Addition):
    """KV copied within the memory, from place to place."""

    copies: tuple[Migration, ...]
    moves = True

    def cut(self, cut: Cut) -> Copied | None:
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
    """Tokens of requests that have ended, which asynchronous scheduling sees a step later."""

    overrun: int


@dataclass(frozen=True, slots=True)
class Elsewhere(Addition):
    """Tokens of replicas that have their experts in common with this one."""

    elsewhere: tuple[int, int]

    def cut(self, cut: Cut) -> Elsewhere:
        """Spread evenly (assumed)."""
        decoded, chunked = self.elsewhere
        return Elsewhere((cut.spread(decoded), cut.spread(chunked)))
