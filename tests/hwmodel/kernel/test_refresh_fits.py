"""Refreshes that leave no time to serve are refused; and no simulation ignores a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from tests.hwmodel.memories import spec
from tests.hwmodel.one_channel import simulate_channel

LPDDR5 = "lpddr5-6400-x16"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("clocks", [480, 481])
def test_ranks_whose_refreshes_keep_each_other_apart_share_the_interval(
    ranks: int, clocks: int
) -> None:
    row = {"scope": "channel", "after": "REFAB", "before": "REFAB", "delay": 240}
    changes = {"organisation__ranks": ranks, "timing__tREFI": f"{clocks}nCK"}
    base = spec(LPDDR5)
    rows = [r.model_dump(exclude_none=True) for r in base.constraints]
    changes |= {"constraints": [*rows, row], "controller__refresh": "all_bank"}
    changes["address_map"] = ["column", "bank", "bankgroup", "rank", "row"]
    if ranks == 2 and clocks == 480:
        with pytest.raises(DescriptionError, match="the REFAB of an interval take 600 ns"):
            spec(LPDDR5, **changes)
    else:
        spec(LPDDR5, **changes)


@pytest.mark.parametrize("refresh", ["per_bank", "all_bank"])
def test_what_just_fits_is_served(refresh: str) -> None:
    interval = {"per_bank": "722.5ns", "all_bank": "240ns"}[refresh]
    memory = spec(LPDDR5, controller__refresh=refresh, timing__tREFI=interval)
    address = np.random.default_rng(2).integers(0, 1 << 25, 300) * 32
    none = np.zeros(300, dtype=np.int64)
    for kind in (none, none + 1):
        found = simulate_channel(memory, none, address, kind)
        assert found.row_hits + found.row_misses + found.row_conflicts + found.forwarded == 300


ENDLESS = f"""
import signal
import numpy as np
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.specs.device import load_device

run = OpenLoop(load_device("{LPDDR5}").memory, CHANNELS, threads=CHANNELS)
run._constants = run._constants.copy()
run._constants["refresh_interval"] = 391  # which no description may have
address = np.arange(4000) * 4096
print("begun", flush=True)
run.feed_all((channel, address, np.zeros(4000, np.int64)) for channel in range(CHANNELS))
"""


@pytest.mark.parametrize("channels", [1, 2])
def test_an_endless_simulation_can_be_interrupted(channels: int) -> None:
    code = ENDLESS.replace("CHANNELS", str(channels))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            time.sleep(0.5)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) != 0
        finally:
            process.kill()
