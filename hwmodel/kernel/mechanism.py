"""What a mechanism of a memory controller consists of: its scalars, its state, and hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from hwmodel.description.description import Document, Strict
from hwmodel.specs.controller_rule import ControllerRule
from hwmodel.specs.memory_spec import MemorySpec

Options = TypeVar("Options", bound=Strict)

Hook = Callable[..., Any]
"""A part of a kernel (`hwmodel.kernel.jit.called` or `inlined`). `memory` is a CONSTANTS record,
`state` a CHANNEL record, modified in place. A hook returns at once where the memory has no such
mechanism (`if memory.<on> == 0: return`): of a memory whose kernel is compiled for it, no more is
compiled."""


@dataclass(frozen=True)
class Mechanism:
    """A mechanism as a file of `hwmodel.kernel.mechanisms` exports it (rules.md: hooks).

    Args:
        on: the scalar of CONSTANTS that is 0 for memories without it.
        lower: gives what a memory has of `constants` and `arrays`, by name (of arrays their first
            numbers); nothing where it has none of it. Raises ValueError or DescriptionError.
        constants: scalars of CONSTANTS, unit and meaning.
        arrays: arrays of CONSTANTS, shape.
        state: scalars and arrays of CHANNEL, shape, () for a scalar.
        first: gives the values of state that do not begin with 0, by name, for a memory's
            CONSTANTS.
        passed: gives those of them that differ where as many ticks have passed, for a memory's
            CONSTANTS and the ticks (rules.md: what has passed).
        table: its large table, as `CountTable` says; it lies behind the states.
        opened(memory, state, bank): a row of a bank was opened, now.
        closed(memory, state, bank, row): a row of a bank was closed, now.
        due(memory, state, rank) -> banks of its pseudo-channel that must be left alone, a bit mask:
            before a choice, once `state.next_due` has come. A rank for which `offer` is to be asked
            gets its bit of `state.maintained`; `state.next_due` becomes the least tick at which
            this is to be asked again.
        offer(memory, state, rank, pair_open, best) -> Candidate: the first of the best candidate so
            far and of this mechanism's, of a rank in `state.maintained`
            (`hwmodel.kernel.maintenance`).
        done(memory, state, command, rank, which): a command to set `which` of a rank's banks, or to
            the whole rank, was issued, now.
    """

    on: str
    lower: Callable[[MemorySpec], Mapping[str, Any]]
    constants: Mapping[str, str]
    arrays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    state: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    first: Callable[[np.void], Mapping[str, Any]] | None = None
    passed: Callable[[np.void, int], Mapping[str, Any]] | None = None
    table: CountTable | None = None
    opened: Hook | None = None
    closed: Hook | None = None
    due: Hook | None = None
    offer: Hook | None = None
    done: Hook | None = None


def of_rule(rule: type[ControllerRule]) -> Mechanism:
    """The mechanism that a class of one's own describes."""
    return Mechanism(
        rule.on, rule.lower, rule.constants, rule.arrays, rule.state, first=rule.first,
        opened=rule.opened, closed=rule.closed, due=rule.due, offer=rule.offer, done=rule.done,
    )  # fmt: skip


@dataclass(frozen=True)
class CountTable:
    """Counts of a channel that are too many for its record. `pointer`: the scalar of CHANNEL that
    has their address, 0 where there are none; `length`: the scalar of CONSTANTS that says how many;
    each is an int32."""

    pointer: str
    length: str


def options_of(memory: MemorySpec, rule: str, kind: type[Options]) -> Options | None:
    """The options under `controller.rules` of a rule that has them; None where the memory's
    controller does not name it. Raises DescriptionError."""
    given = memory.controller.rules.get(rule)
    return None if given is None else Document(given, f"controller.rules.{rule}").build(kind)
