"""The mechanisms of a controller, and each of their hooks as a part of the kernel that calls those
of all of them in this order. A mechanism is taken away with its line and its file."""

from __future__ import annotations

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


def _hooks(name: str) -> list[Hook]:
    return [hook for each in MECHANISMS.values() if (hook := getattr(each, name)) is not None]


def _opened(hooks: list[Hook]) -> Hook:
    @inlined
    def nothing(memory: Record, state: Record, bank: int) -> None:
        pass

    if not hooks:
        return nothing
    if len(hooks) == 1:
        return hooks[0]
    first, others = hooks[0], _opened(hooks[1:])

    @inlined
    def opened(memory: Record, state: Record, bank: int) -> None:
        first(memory, state, bank)
        others(memory, state, bank)

    return opened


def _closed(hooks: list[Hook]) -> Hook:
    @inlined
    def nothing(memory: Record, state: Record, bank: int, row: int) -> None:
        pass

    if not hooks:
        return nothing
    if len(hooks) == 1:
        return hooks[0]
    first, others = hooks[0], _closed(hooks[1:])

    @inlined
    def closed(memory: Record, state: Record, bank: int, row: int) -> None:
        first(memory, state, bank, row)
        others(memory, state, bank, row)

    return closed


def _due(hooks: list[Hook]) -> Hook:
    @inlined
    def nothing(memory: Record, state: Record, rank: int) -> int:
        return 0

    if not hooks:
        return nothing
    if len(hooks) == 1:
        return hooks[0]
    first, others = hooks[0], _due(hooks[1:])

    @inlined
    def due(memory: Record, state: Record, rank: int) -> int:
        return int(first(memory, state, rank) | others(memory, state, rank))

    return due


def _offer(hooks: list[Hook]) -> Hook:
    @inlined
    def nothing(
        memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate
    ) -> Candidate:
        return best

    if not hooks:
        return nothing
    if len(hooks) == 1:
        return hooks[0]
    first, others = hooks[0], _offer(hooks[1:])

    @inlined
    def offer(
        memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate
    ) -> Candidate:
        return others(memory, state, rank, pair_open, first(memory, state, rank, pair_open, best))

    return offer


def _done(hooks: list[Hook]) -> Hook:
    @inlined
    def nothing(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
        pass

    if not hooks:
        return nothing
    if len(hooks) == 1:
        return hooks[0]
    first, others = hooks[0], _done(hooks[1:])

    @inlined
    def done(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
        first(memory, state, command, rank, which)
        others(memory, state, command, rank, which)

    return done


opened = _opened(_hooks("opened"))
closed = _closed(_hooks("closed"))
due = _due(_hooks("due"))
offer = _offer(_hooks("offer"))
done = _done(_hooks("done"))
