"""Beam search, above the engine: each beam is a request of its own, and which of a prompt's go on,
and from which others are forked, is chosen before each step (Kwon et al. 2023, section 4.4; vLLM
since 0.9 searches above its engine, too).

By a law (assumed: no paper states one): after each token each beam gives way with the probability
`Requests.forks`, and is then a fork of one of those that go on, any of them alike; one goes on in
any case. All beams of a prompt have as many tokens. The choice of the best tokens takes no time.
A beam whose source does not run here, or has fewer tokens, goes on alone (assumed): so after a
preemption, until both have as many again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Forks
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray, Requests

Seed = int | tuple[int, ...]


class BeamLaw:
    """What beam search chooses, the same under every policy."""

    def __init__(self, requests: Requests, output: IntArray, seed: Seed) -> None:
        """requests: each beam one of them (`Requests.apart`). output: of each, int64 (n,)."""
        self._forks, self._output, self._seed = requests.forks, output, seed
        parent, rows = requests.parent, np.arange(len(requests))
        several = parent >= 0
        _, first, prompt = np.unique(parent[several], return_index=True, return_inverse=True)
        self._first = rows.copy()
        """The first beam of each one's prompt."""
        self._first[several] = rows[several][first[prompt]]
        self._beams = np.bincount(self._first, minlength=len(rows))
        self._drawn: dict[int, IntArray] = {}

    def source(self, request: int, made: int) -> int:
        """The beam that one goes on from behind so many output tokens, itself where it does not
        give way: at first all from one, as there is only the prompt."""
        first = int(self._first[request])
        if (drawn := self._drawn.get(first)) is None:
            drawn = self._drawn[first] = self._draw(first)
        return first + int(drawn[made - 1, request - first])

    def group(self, request: int) -> int:
        """The first beam of its prompt."""
        return int(self._first[request])

    def _draw(self, first: int) -> IntArray:
        """int64 (output tokens, beams): places among the beams of a prompt."""
        key = (*b"policies.beams", first)
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))
        shape = int(self._output[first]), int(self._beams[first])
        chance = rng.random(shape)
        goes_on = chance >= self._forks[first]
        goes_on[np.arange(len(chance)), chance.argmax(axis=1)] = True
        # those that go on first, of which each of the others follows one
        order = np.argsort(~goes_on, axis=1, kind="stable")
        nth = (rng.random(shape) * goes_on.sum(axis=1, keepdims=True)).astype(np.int64)
        followed = np.take_along_axis(order, nth, axis=1)
        parents: IntArray = np.where(goes_on, np.arange(shape[1]), followed)
        parents[0] = 0
        return parents


def require_beams(engine: Engine) -> Forks:
    """The allocator of an engine, whose requests can be forked. Raises DescriptionError where they
    cannot."""
    allocator: Allocator = engine.allocator
    layout, limits = allocator.layout, allocator.limits
    if (
        layout.groups is not None
        or layout.sparse is not None
        or limits.states
        or not engine.growth.alike
    ):
        raise DescriptionError(
            "workload.beams: not modelled with windows, states, chosen tokens or drafts; expected "
            "a model whose layers keep everything, without speculation"
        )
    if engine.spec.ahead:
        raise DescriptionError(
            "workload.beams: not with engine.async_scheduling; which beams go on is known when a "
            "step is over, and the next one is scheduled before"
        )
    if (able := allocator.able(Forks)) is None:
        raise DescriptionError(
            f"workload.beams: not modelled with policy {allocator.options.name}; expected paged, "
            "or a policy that reserves runs"
        )
    return able


class Beams(Connector):
    """The beams of an engine's requests."""

    def __init__(self, engine: Engine, law: BeamLaw) -> None:
        """Joins the connectors of `engine`. Raises DescriptionError where it cannot have beams."""
        self._engine, self._law, self._shares = engine, law, engine.requests.forks
        self._forks = require_beams(engine)
        self._made: dict[int, int] = {}
        """Output tokens behind which each beam that runs has gone on."""
        self._blocks_apart = self._blocks_saved = 0
        """Units of beams over all steps, had each its own, and those of them that sharing saves."""
        engine.connect(self)

    def rounds(self, step: Step, limit: int) -> int:
        """Any step may end in forks."""
        return 1 if self._shares[self._engine.running].any() else limit

    def begins(self) -> None:
        """Beams go on from the tokens that the last step has made."""
        engine = self._engine
        decoding = engine.decoding()
        beams = decoding[self._shares[decoding] > 0]
        if not len(beams):
            return
        made = engine.output[beams] - engine.left[beams]
        stored = dict(zip(beams.tolist(), engine.allocator.stored[beams].tolist(), strict=True))
        self._count(list(stored))
        for request, tokens in zip(beams.tolist(), made.tolist(), strict=True):
            if not tokens or self._made.get(request) == tokens:
                continue
            self._made[request] = tokens
            source = self._law.source(request, tokens)
            if source != request and stored.get(source, -1) >= stored[request]:
                self._forks.fork(request, source)

    def _count(self, beams: list[int]) -> None:
        """What sharing saves in a step of these."""
        groups: dict[int, list[int]] = {}
        for request in beams:
            groups.setdefault(self._law.group(request), []).append(request)
        for together in groups.values():
            starts = [self._engine.allocator.units(each).start for each in together]
            held = np.concatenate(starts)
            self._blocks_apart += len(held)
            self._blocks_saved += len(held) - len(np.unique(held))

    def preempted(self, request: int) -> None:
        self._made.pop(request, None)

    def forgotten(self, request: int) -> None:
        self._made.pop(request, None)

    def figures(self) -> dict[str, Any]:
        """The share of blocks that beams save by sharing, over all steps (Kwon et al. 2023, figure
        15)."""
        saved = self._blocks_saved / max(self._blocks_apart, 1)
        return {"beams": {"blocks_saved_share": saved}}
