"""What an allocator class declares of itself, so that whoever compares policies asks for it instead
of knowing their names.

A registered class sets `losses`, `searched` and `references` itself: none of them is inherited,
since a subclass may lose what its parent does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hwmodel.description.description import DescriptionError

if TYPE_CHECKING:
    from policies.allocators.allocator import Allocator, PolicyOptions

Loss = Literal["copies", "prediction", "reservation", "holes", "line", "held", "recompute"]
"""Why a policy serves less than the ceiling does on memory without banks: copies that it makes;
mispredicted lengths; reservations beyond the length; holes; head-of-line blocking; memory reserved
for tokens not yet generated; preemption, with recompute and blocks."""
DECLARED = ("losses", "searched", "references")


def always(options: Any) -> bool:
    """Whatever the options are."""
    return True


class Removal(NamedTuple):
    """What takes a loss away; all else of the serving description stays."""

    policy: Callable[[PolicyOptions], PolicyOptions] | None = None
    """From the options to those without the loss. They may be those of a reference, by which
    another removal has replaced the policy already."""
    reference: Callable[[PolicyOptions], PolicyOptions] | None = None
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


def declared(name: str, kind: type[Allocator]) -> type[Allocator]:
    """`kind`, the class of policy `name`. Raises DescriptionError where it does not declare all of
    `DECLARED` itself, and says which it lacks."""
    lacks = [each for each in DECLARED if each not in vars(kind)]
    if lacks:
        raise DescriptionError(
            f"policy {name}: {kind.__name__} does not declare {', '.join(lacks)}; without them its "
            "losses cannot be explained nor its options searched (policies.allocators.declaration)"
        )
    return kind


def refusal(kind: type[Allocator], option: str, value: Any) -> str | None:
    """Why a study may not give this value to an option; None where it may."""
    if option not in kind.searched:
        options = ", ".join(kind.searched)
        return f"{kind.__name__} declares no search of {option}; expected {options}"
    allowed = kind.searched[option]
    number = len(value) if isinstance(value, list) else value
    if allowed is None or not isinstance(number, int | float):
        return None
    if allowed.least <= number <= allowed.most:
        return None
    return f"expected {option} from {allowed.least:g} to {allowed.most:g}; got {number}"
