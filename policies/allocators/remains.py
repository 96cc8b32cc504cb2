"""What runs leave in memory: the tokens of a freed run stay until its slots are reserved again."""

from __future__ import annotations

from typing import NamedTuple

from policies.allocators.allocator import Demand


class TokenRun(NamedTuple):
    """`tokens` of a request in a reservation of `size` slots."""

    request: int
    demand: Demand
    start: int
    size: int
    tokens: int

    def holds(self, request: int, demand: Demand) -> int:
        """How many tokens here are the first ones of a request."""
        own, tokens = self.demand, self.tokens
        same = own.session == demand.session >= 0
        return tokens if same or self.request == request else min(tokens, in_common(own, demand))


class Remains:
    """Freed runs, as far as they are not overwritten. flat: whether a token's place depends on its
    slot alone, and not on the reservation's size."""

    def __init__(self, flat: bool) -> None:
        self.flat = flat
        self.runs: list[TokenRun] = []

    def leave(self, run: TokenRun) -> None:
        """A run was freed; what an earlier turn of its session left serves no more."""
        session = run.demand.session
        if session >= 0:
            self.runs = [old for old in self.runs if old.demand.session != session]
        if run.tokens:
            self.runs.append(run)

    def overwrite(self, start: int, size: int) -> None:
        """The slots [start, start + size) are reserved: what lies behind them is no prefix."""
        kept: list[TokenRun] = []
        for run in self.runs:
            if start + size <= run.start or run.start + run.size <= start:
                kept.append(run)
            elif self.flat and run.start < start:
                kept.append(run._replace(size=start - run.start))
        self.runs = [run._replace(tokens=min(run.tokens, run.size)) for run in kept]


def in_common(one: Demand, other: Demand) -> int:
    """Tokens that two requests begin with alike, by their texts in common."""
    shared = 0
    for (mine, end), (theirs, their_end) in zip(_path(one), _path(other), strict=False):
        if mine != theirs:
            break
        shared = min(end, their_end)
        if end != their_end:
            break
    return shared


def _path(demand: Demand) -> tuple[tuple[int, int], ...]:
    """What a prompt has in common with others, as far as it goes."""
    texts = (*demand.above, (demand.prefix_id, demand.prefix_tokens))
    ends = tuple((prefix, min(end, demand.prompt)) for prefix, end in texts)
    return ends if demand.prefix_id >= 0 else ()
