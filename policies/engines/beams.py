"""Beam search: which beams of a request go on, and from which others are forked (Kwon et al. 2023,
section 4.4).

By a law (assumed: no paper states one): after each token each beam gives way with the probability
`Requests.forks`, and is then a fork of one of those that go on, any of them alike; one goes on in
any case. All beams of a request end together. The choice of the best tokens takes no time.
"""

from __future__ import annotations

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.capabilities import Forks
from policies.engines.additions import Samples
from policies.engines.engine import Engine
from policies.engines.part import Part
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray, Requests

Seed = int | tuple[int, ...]


class Law:
    """What beam search chooses, the same under every policy."""

    def __init__(self, requests: Requests, output: IntArray, seed: Seed) -> None:
        self._forks, self._beams = requests.forks, requests.samples
        self._output, self._seed = output, seed
        self._drawn: dict[int, IntArray] = {}

    def parents(self, request: int, made: int) -> IntArray:
        """From which beam each of a request goes on behind so many output tokens, int64 (beams,):
        at first all from one, as there is only the prompt."""
        if (drawn := self._drawn.get(request)) is None:
            drawn = self._drawn[request] = self._draw(request)
        return drawn[made - 1]

    def _draw(self, request: int) -> IntArray:
        """int64 (output tokens, beams)."""
        key = (*b"policies.beams", request)
        rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))
        shape = int(self._output[request]), int(self._beams[request])
        chance = rng.random(shape)
        goes_on = chance >= self._forks[request]
        goes_on[np.arange(len(chance)), chance.argmax(axis=1)] = True
        # those that go on first, of which each of the others follows one
        order = np.argsort(~goes_on, axis=1, kind="stable")
        nth = (rng.random(shape) * goes_on.sum(axis=1, keepdims=True)).astype(np.int64)
        followed = np.take_along_axis(order, nth, axis=1)
        parents: IntArray = np.where(goes_on, np.arange(shape[1]), followed)
        parents[0] = 0
        return parents

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._drawn.pop(request, None)


def require_beams(engine: Engine) -> Forks:
    """The allocator of an engine, which can have beams. Raises DescriptionError where it cannot."""
    requests = engine.requests
    if ((requests.forks > 0) & (requests.samples == 1)).any():
        raise DescriptionError(
            "workload.beams: a beam goes on from another one's KV, and here each is a request of "
            "its own, as in vLLM of today, which does beam search above its engine; expected "
            "engine v0, or v1 without like, and policy paged with prefixes cached, or one that "
            "reserves whole outputs, without drafts, windows, states, chosen tokens or lending"
        )
    if engine.spec.ahead:
        raise DescriptionError(
            "workload.beams: not with engine.async_scheduling; which beams go on is known when a "
            "step is over, and the next one is scheduled before"
        )
    if (able := engine.allocator.able(Forks)) is None:
        raise DescriptionError(
            "workload.beams: this policy has no row for each beam, of which some are forked as "
            "others give way: it moves, maps or counts a request as one; expected paged, or "
            "static, orca or oracle, which reserve whole outputs"
        )
    return able


class Beams(Part):
    """The beams of an engine's requests."""

    def __init__(self, engine: Engine, law: Law) -> None:
        """Joins the parts of `engine`. Raises DescriptionError where it cannot have beams."""
        self._engine, self._law, self._requests = engine, law, engine.requests
        self._forks = require_beams(engine)
        self._made: dict[int, int] = {}
        """Output tokens behind which beams have gone on, of each request that runs."""
        engine.parts.append(self)

    @property
    def changing(self) -> bool:
        """Any step may end in forks."""
        return bool(self._requests.forks[self._engine.running].any())

    def begins(self) -> None:
        """Beams go on from the tokens that the last step has made."""
        engine = self._engine
        running = engine.running[self._requests.forks[engine.running] > 0]
        made = engine.output[running] - engine.left[running]
        for request, tokens in zip(running.tolist(), made.tolist(), strict=True):
            if tokens and self._made.get(request) != tokens:
                self._made[request] = tokens
                self._forks.fork(request, self._law.parents(request, tokens))

    def scheduled(self, step: Step) -> Step:
        """Beams that share nothing have, and read, the prompt each."""
        if self._forks.shares:
            return step
        engine, decode = self._engine, step.decode
        again = np.where(self._requests.forks[decode] > 0, engine.samples[decode] - 1, 0)
        tokens = int(again @ engine.prompt[decode])
        return step.added(Samples(step.tokens - len(decode), step.common, tokens))

    def leave(self, request: int) -> None:
        """A request ends or is preempted."""
        if not self._engine.left[request]:
            self._made.pop(request, None)
            self._law.forget(request)
