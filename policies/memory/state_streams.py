"""The accesses of a layer's states: each is read and written once by its sequence in a step.

Where drafts are verified, the state behind the first row is written whole and those behind the
others as far as a row changes them. They have places of their own (vLLM: the running state is found
by its slot), or the one that holds is copied to the request's slot (SGLang; assumed: the first).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Contiguous, KeepsStates, Migration
from policies.allocators.kv_layout import ByteRuns
from policies.engines.scheduled_step import Step
from policies.memory.traffic import Extents

Access = tuple[int, ByteRuns, bool]
"""Place of the sequence, what is moved, whether it is written."""


class StateStreams:
    """Of the states of a model; `layers`: which of its layers have one, in order."""

    def __init__(self, model: TransformerSpec) -> None:
        self.layers = [n for n in range(model.layers) if model.layer(n).state is not None]
        state = model.layer(self.layers[0]).state
        assert state is not None
        self._size, self._row = state.bytes(), state.row_bytes

    def decode(self, step: Step, allocator: Allocator, layer: int) -> Extents:
        """Of what decodes, in a layer of the model."""
        rows = np.ones(len(step.decode), np.int64) if step.rows is None else step.rows
        found: list[Access] = []
        places, nth = self._places(allocator), self.layers.index(layer)
        for owner, (request, many) in enumerate(
            zip(step.decode.tolist(), rows.tolist(), strict=True)
        ):
            copied = int(places.commits_states and step.drafts > 0)
            running, first = (
                places.state_runs(request, copy, nth, self._size) for copy in (0, copied)
            )
            found += [(owner, running, False), (owner, first, True)]
            for draft in range(1, many):
                behind = places.state_runs(request, copied + draft, nth, self._row)
                found.append((owner, behind, True))
            if copied:
                found += [(owner, first, False), (owner, running, True)]
        return _extents(found)

    def prefill(self, step: Step, allocator: Allocator, layer: int) -> Extents:
        """Of prompt chunks."""
        found: list[Access] = []
        places, nth = self._places(allocator), self.layers.index(layer)
        for owner, chunk in enumerate(step.chunks):
            runs = places.state_runs(chunk.request, 0, nth, self._size)
            found += [(owner, runs, False), (owner, runs, True)]
        return _extents(found)

    def migration(self, moves: Iterable[Migration], allocator: Allocator, layer: int) -> Extents:
        """Of requests that are moved: read from the old place and written to the new."""
        runs = allocator.able(Contiguous)
        assert runs is not None, "only runs are moved"
        found: list[Access] = []
        nth = self.layers.index(layer)
        for owner, move in enumerate(moves):
            old, new = runs.moved_states(move, nth, self._size)
            found += [(owner, old, False), (owner, new, True)]
        return _extents(found)

    def _places(self, allocator: Allocator) -> KeepsStates:
        able = allocator.able(KeepsStates)
        assert able is not None, "building says so first"
        return able


def _extents(found: list[Access]) -> Extents:
    counts = np.array([len(runs.start) for _, runs, _ in found], np.int64)
    owner, write = ([each[at] for each in found] for at in (0, 2))
    return Extents(
        np.concatenate([runs.start for _, runs, _ in found]),
        np.concatenate([runs.size for _, runs, _ in found]),
        np.repeat(np.array(write, np.bool_), counts),
        np.repeat(np.array(owner, np.int64), counts),
    )
