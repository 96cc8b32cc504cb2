"""The mechanisms of a controller, and each of their hooks as a part of the kernel that calls those
of all of them in this order. A mechanism is taken away with its line and its file."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import Record
from hwmodel.kernel.maintenance import Candidate
from hwmodel.kernel.mechanism import Hook, Mechanism, of_rule
from hwmodel.kernel.mechanisms.periodic_commands import MECHANISM as PERIODIC
from hwmodel.kernel.mechanisms.prac import MECHANISM as PRAC
from hwmodel.kernel.mechanisms.rfm import MECHANISM as RFM
from hwmodel.specs.controller_rule import settled
from hwmodel.specs.memory_spec import MemorySpec

MECHANISMS: dict[str, Mechanism] = {"rfm": RFM, "prac": PRAC, "periodic": PERIODIC}
for _name, _rule in settled().items():
    if _name in MECHANISMS:
        raise DescriptionError(f"controller: a rule {_name!r} is there already; name it otherwise")
    MECHANISMS[_name] = of_rule(_rule)


def lowered_mechanisms(memory: MemorySpec) -> dict[str, Any]:
    """Scalars, and the first numbers of arrays, of CONSTANTS by name. Raises DescriptionError for a
    mechanism that a memory needs and that is not there."""
    for name in memory.mechanisms:
        if name not in MECHANISMS:
            known = nearest(name, list(MECHANISMS))
            raise DescriptionError(
                f"controller: there is no mechanism {name!r}; {known}; one of a file of yours:"
                " --plugin FILE.py"
            )
    return {k: v for each in MECHANISMS.values() for k, v in each.lower(memory).items()}


def _chain(name: str, both: Callable[[Hook, Hook], Hook], nothing: Hook) -> Hook:
    """This hook of all mechanisms that have it, one after another.

    Args:
        both: a hook that calls the first of two and then the second.
        nothing: what it is where no mechanism has it.
    """
    hooks = [hook for each in MECHANISMS.values() if (hook := getattr(each, name)) is not None]
    return reduce(lambda others, first: both(first, others), reversed(hooks)) if hooks else nothing


def _one_after_another(first: Hook, others: Hook) -> Hook:
    @inlined
    def both(*arguments: Any) -> None:
        first(*arguments)
        others(*arguments)

    return both


def _either(first: Hook, others: Hook) -> Hook:
    @inlined
    def both(*arguments: Any) -> int:
        return int(first(*arguments) | others(*arguments))

    return both


def _best(first: Hook, others: Hook) -> Hook:
    @inlined
    def both(
        memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate
    ) -> Candidate:
        return others(memory, state, rank, pair_open, first(memory, state, rank, pair_open, best))

    return both


@inlined
def _nothing(*arguments: Any) -> None:
    pass


@inlined
def _not_due(memory: Record, state: Record, rank: int) -> int:
    return 0


@inlined
def _as_it_was(
    memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate
) -> Candidate:
    return best


opened = _chain("opened", _one_after_another, _nothing)
closed = _chain("closed", _one_after_another, _nothing)
due = _chain("due", _either, _not_due)
offer = _chain("offer", _best, _as_it_was)
done = _chain("done", _one_after_another, _nothing)
