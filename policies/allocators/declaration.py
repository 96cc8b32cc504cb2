"""What an allocator class declares of itself, so that whoever compares policies asks for it instead
of knowing their names.

A registered class sets `losses`, `searched` and `references` itself: none of them is inherited,
since a subclass may lose what its parent does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Loss = Literal["copies", "prediction", "reservation", "holes", "line", "held", "recompute"]
"""Why a policy serves less than the ceiling does on memory without banks: copies that it makes;
mispredicted lengths; reservations beyond the length; holes; head-of-line blocking; memory reserved
for tokens not yet generated; preemption, with recompute and blocks."""
DECLARED = ("losses", "searched", "references")


def always(options: Any) -> bool:
    """Whatever the options are."""
    return True


class Removal(NamedTuple):
    """What takes a loss away; all else of the serving description stays. Functions of options
    (`policies.allocators.allocator.PolicyOptions`)."""

    policy: Callable[[Any], Any] | None = None
    """From the options to those without the loss. They may be those of a reference, by which
    another removal has replaced the policy already."""
    reference: Callable[[Any], Any] | None = None
    """The same, to the options of another policy, a reference."""
    exact_lengths: bool = False
    """The predictor knows the lengths."""
    free_copies: bool = False
    """Copies of KV within the memory take no time."""
    applies: Callable[[Any], bool] = always
    """Whether a policy with these options has the loss."""


class Range(NamedTuple):
    """Numbers from `least` to `most`, both included. Of a list of quantiles: how many."""

    least: float
    most: float


CHOICES = None
"""Any value that the option may have."""
Searched = dict[str, Range | None]
"""Option -> what of it a study may search."""


class References(NamedTuple):
    """Policies, with their defaults, that a policy wants to be compared with."""

    rivals: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()
    """Those that no choice of its options should beat, the one to measure by first."""
