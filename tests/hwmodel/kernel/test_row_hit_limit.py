"""By default no stream of row hits keeps another row of its bank waiting for ever."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.oracle.command_log import CODE
from hwmodel.specs.controller import MemoryController
from tests.hwmodel.memories import SHIPPED, spec
from tests.hwmodel.one_channel import simulate_channel
from tests.hwmodel.oracle.reference import decode

HITS = 5_000


@pytest.mark.parametrize(
    ("limit", "starves"), [(MemoryController().row_hit_limit, False), (0, True)]
)
def test_a_read_behind_row_hits_is_served_soon(limit: int, starves: bool) -> None:
    memory = spec("hbm2-2.0", controller__row_hit_limit=limit, controller__refresh="none")
    other_row = memory.organisation.capacity_bytes // 2
    assert decode(memory, 0)[0] == decode(memory, other_row)[0]
    address = np.zeros(HITS, dtype=np.int64)
    address[1] = other_row
    none = np.zeros(HITS, dtype=np.int64)
    found = simulate_channel(memory, none, address, none, log=True)
    opened = found.commands.tick[found.commands.command == CODE["ACT"]]
    assert (opened[1] > 0.9 * found.end_tick) == starves
    assert starves or opened[1] < 0.05 * found.end_tick


def test_what_other_simulators_are_compared_with_has_no_limit() -> None:
    for name in SHIPPED:
        peer = name.startswith(("ramulator-", "dramsys-"))
        assert spec(name).controller.row_hit_limit == (0 if peer else 16)
