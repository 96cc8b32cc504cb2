"""A request on its way through a node that prefills and one that decodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.transfers.ports import Sent


@dataclass
class Trip:
    """`source`, `target`: its replica of each."""

    source: int
    target: int
    """-1: none serves."""
    made: int
    """Tokens that it has made before this prefill."""
    kv: int
    """Tokens whose KV moves."""
    moves: bool
    """Whether tokens are left for the decode side."""
    computed: tuple[int, float, float] | None = None
    """Tokens whose KV the prefill side has, and when the step of the last ones began and ends."""
    entered: bool = False
    """Whether the prefill side has it."""
    done: bool = False
    """Whether its prefill is done."""
    skip: int | None = None
    """Tokens that need not move (again); None: it has no memory at the decode side."""
    sent: list[Sent] = field(default_factory=list)
