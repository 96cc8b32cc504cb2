"""Are states read and written where their requests have them, once each, in the order of a step?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hwmodel.specs.state import LayerState
from policies.allocators.capabilities import Migration
from policies.allocators.kv_layout import ByteRuns
from policies.engines.scheduled_step import Chunk
from policies.memory.state_streams import StateStreams
from policies.memory.traffic import Extents
from tests.policies.memory.test_step import decode
from tests.policies.memory.test_step_work import HYBRID

LAYER, NTH = 3, 2
"""The third of the layers with a state, behind one with KV."""
STATE = cast(LayerState, HYBRID.layer(LAYER).state)
Moved = tuple[int, int, int, int, bool]
"""Place of the sequence, request, copy, bytes, whether it is written."""


class Places:
    """Runs of a state are two, whose start says whose copy it is; `commits_states` as in
    `KeepsStates`."""

    def __init__(self, commits: bool = False) -> None:
        self.commits_states = commits

    def able(self, kind: Any) -> Places:
        return self

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        assert nth == NTH
        return ByteRuns(np.array([100 * request + copy, 0]), np.array([size - 7, 7]))

    def moved_states(self, move: Migration, nth: int, size: int) -> tuple[ByteRuns, ByteRuns]:
        old, new = (self.state_runs(each, 0, nth, size) for each in (move.request, 9))
        return old, new


def told(found: Extents) -> list[Moved]:
    """Both runs of each access as one."""
    assert (found.start[1::2] == 0).all() and (found.size[1::2] == 7).all()
    both = [column.reshape(-1, 2) for column in (found.write, found.owner)]
    assert all((column[:, 0] == column[:, 1]).all() for column in both)
    return [
        (owner, start // 100, start % 100, size + 7, write)
        for owner, start, size, write in zip(
            *(column[::2].tolist() for column in (found.owner, found.start, found.size)),
            found.write[::2].tolist(), strict=True,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("rows", [None, [1, 1], [3, 1]])
def test_what_decodes_reads_its_state_and_writes_one_for_each_row(
    rows: list[int] | None, commits: bool
) -> None:
    """Whole behind the first row, as far as a row changes it behind others; where that is committed
    a step with drafts writes behind the running one, to which the first is copied."""
    drafts = sum(rows) - 2 if rows else 0
    step = decode(2, 200)._replace(
        decode=np.array([5, 8]), rows=None if rows is None else np.array(rows), drafts=drafts
    )
    expected: list[Moved] = []
    behind = int(commits and drafts > 0)
    for place, (request, many) in enumerate(zip((5, 8), rows or (1, 1), strict=True)):
        whole, row = STATE.bytes(), STATE.row_bytes
        expected += [(place, request, 0, whole, False), (place, request, behind, whole, True)]
        expected += [(place, request, behind + n, row, True) for n in range(1, many)]
        if behind:
            expected += [(place, request, 1, whole, False), (place, request, 0, whole, True)]
    assert told(StateStreams(HYBRID).decode(step, Places(commits), LAYER)) == expected  # type: ignore[arg-type]


def test_chunks_and_moves_read_a_state_and_write_it() -> None:
    streams, places, size = StateStreams(HYBRID), Places(), STATE.bytes()
    assert streams.layers == [n for n in range(6) if HYBRID.layer(n).state is not None]
    step = decode(0, 0)._replace(chunks=[Chunk(4, 0, 9, True), Chunk(2, 16, 3, False)])
    assert told(streams.prefill(step, places, LAYER)) == [  # type: ignore[arg-type]
        (place, request, 0, size, write)
        for place, request in enumerate((4, 2))
        for write in (False, True)
    ]
    moves: Any = [SimpleNamespace(request=each) for each in (6, 1)]
    assert told(streams.migration(moves, places, LAYER)) == [  # type: ignore[arg-type]
        move
        for place, request in enumerate((6, 1))
        for move in ((place, request, 0, size, False), (place, 9, 0, size, True))
    ]
