"""Does every step of a run move the bytes that its requests need, at places that they hold?

Each step is looked at in another layout and with another spread: the slots are the same in all of
them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.registry import POLICIES
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory import dealing, traffic
from policies.memory.fidelity import Memory
from policies.memory.step_times import Efficiency
from policies.requests.requests import IntArray
from policies.serving import building
from tests.policies.small import LATENT, MODEL, mixed, run
from tests.rotation import rotated

ENGINES = 7
SPREADS: tuple[traffic.Spread, ...] = (
    "slice", "sequence", "split", "head", "head_major", "head_slice", "head_turn",
)  # fmt: skip
ORDERS = list(LAYOUTS.values())


class Watching(Memory):
    """Builds the streams of every step, and checks them."""

    def __init__(self) -> None:
        super().__init__(Efficiency())
        self.steps = self.chunks = self.moves = 0

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        allocator = engine.allocator
        allocator.layout = dataclasses.replace(
            allocator.layout, dims=ORDERS[self.steps % len(ORDERS)]
        )
        layout, layer = allocator.layout, self.steps % allocator.layout.layers
        reading = traffic.Reading(SPREADS[self.steps % len(SPREADS)], 1 + self.steps % 3)
        token = layout.token_bytes // layout.layers
        written = []
        if len(step.decode):
            extents = traffic.attention(allocator, step.decode, layer, reading)
            expected = step.context * reading.repeats * token, len(step.decode) * token
            written.append(_checked(extents, reading, layout, *expected))
            _inside(extents, allocator, step.decode, layer, reading)
        if step.chunks:
            extents = traffic.prefill(allocator, step.chunks, layer, reading)
            read = sum(chunk.start for chunk in step.chunks) * reading.repeats * token
            new = sum(chunk.tokens for chunk in step.chunks) * token
            written.append(_checked(extents, reading, layout, read, new))
            requests = np.array([chunk.request for chunk in step.chunks])
            _inside(extents, allocator, requests, layer, reading)
        if step.migrations:
            extents = traffic.migration(allocator, step.migrations, layer, 100)
            moved = sum(move.tokens for move in step.migrations) * token
            written.append(_checked(extents, traffic.Reading(), layout, moved, moved))
            targets = np.array([move.request for move in step.migrations])
            only = extents.of(extents.write)
            _inside(only, allocator, targets, layer, traffic.Reading())
        if written:
            start, size = (np.concatenate(column) for column in zip(*written, strict=True))
            order = np.argsort(start)
            ends = (start + size)[order]
            assert (start[order][1:] >= ends[:-1]).all(), "a byte is written twice in a step"
        self.steps += 1
        self.chunks += len(step.chunks)
        self.moves += len(step.migrations)
        return self.efficiency


def _checked(
    extents: traffic.Extents, reading: traffic.Reading, layout: KvLayout, read: int, new: int
) -> tuple[IntArray, IntArray]:
    """(start, bytes) of the writes, once the stream has as many bytes as it should."""
    dealt = dealing.deal(extents, ENGINES, reading.spread, 64)
    for part in (extents, dealt):
        assert part.size.min() > 0
        assert part.size[~part.write].sum() == read and part.size[part.write].sum() == new
        assert part.start.min() >= layout.base
        assert (part.start + part.size).max() <= layout.base + layout.bytes
    return extents.start[extents.write], extents.size[extents.write]


def _inside(
    extents: traffic.Extents, allocator: Any, requests: IntArray, layer: int,
    reading: traffic.Reading,
) -> None:  # fmt: skip
    """Every access of a request lies in what that request holds."""
    parts = allocator.layout.kv_heads * reading.repeats if reading.by_head else 1
    for place, request in enumerate(requests.tolist()):
        units = allocator.units(request)
        held = allocator.layout.extents(Units(units.start, units.size, units.size), layer, None)
        order = np.argsort(held.start)
        start, end = held.start[order], (held.start + held.size)[order]
        # runs that touch in address order are one
        first = np.flatnonzero(np.concatenate(([True], start[1:] > end[:-1])))
        start, end = start[first], end[np.concatenate((first[1:] - 1, [len(end) - 1]))]
        own = extents.owner // parts == place
        if reading.spread == "head_turn":  # parts are heads of all sequences
            continue
        if reading.spread in ("head_major", "head_slice"):
            own = extents.owner % len(requests) == place
        at = np.searchsorted(start, extents.start[own], side="right") - 1
        assert (at >= 0).all()
        assert ((extents.start + extents.size)[own] <= end[at]).all()


@pytest.mark.parametrize(
    ("policy", "shape"), rotated(sorted(POLICIES), [(MODEL, 1), (MODEL, 2), (LATENT, 2)])
)
def test_every_step_moves_what_it_must(
    policy: str, shape: tuple[TransformerSpec, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cards = shape
    watching = Watching()
    monkeypatch.setattr(building, "memory_model", lambda *_: watching)
    options: dict[str, Any] = {"name": policy}
    if policy == "odma":
        options |= {"window": 40, "refresh": 20, "balance": "requests", "first_bounds": "even"}
    if policy == "odma-best":  # a copy has the token that the step stores as well
        options |= {"compaction": "none"}
    predictor = {"kind": "lognormal", "sigma": 0.8}
    run(
        2048, mixed(40), policy=options, predictor=predictor, tensor_parallel=cards, shape=model,
        engine={"max_model_len": 1024}, advance_together=False,
    )  # fmt: skip
    assert watching.steps > 100 and watching.chunks >= 40
    assert watching.moves > 0 or policy != "odma"
