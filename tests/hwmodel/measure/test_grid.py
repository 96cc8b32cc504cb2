"""Do cells of a grid come in their order, and do those not begun stay out after a failure?"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hwmodel.measure.grid import changed, measured, reads, shares
from hwmodel.specs.device import load_device


def test_cells_have_their_figures_in_their_order() -> None:
    assert list(measured(lambda n: n * n, [3, 1, 2]).items()) == [(3, 9), (1, 1), (2, 4)]


def test_a_failure_begins_no_more_cells() -> None:
    begun, failed = [], threading.Event()

    def cell(n: int) -> int:
        begun.append(n)
        if n == 0:
            failed.set()
            raise KeyboardInterrupt
        failed.wait(5)
        threading.Event().wait(0.05)
        return n

    with pytest.raises(KeyboardInterrupt):
        measured(cell, list(range(200)))
    assert len(begun) < 200


def test_streams_are_read_under_each_change_of_the_controller() -> None:
    memory = load_device("lpddr5-6400-x16").memory
    streams = {"in order": (memory, np.arange(4000) * 32)}
    (runs,) = reads(streams, [{"refresh": "none"}, {"read_queue": 1}]).values()
    assert [run.memory.controller.refresh for run in runs] == ["none", memory.controller.refresh]
    assert shares(runs) == [runs[0].end_tick / runs[1].end_tick] and shares(runs)[0] < 0.9
    assert changed(memory, {"read_queue": 1}).controller.read_queue == 1
