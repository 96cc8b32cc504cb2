"""One trace through Ramulator 2.1, by its own Python: run as a script whose PYTHONPATH is its
folder `python`. Standard input: JSON as `peers` writes it; counts go to its `out`, JSON."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Counts of the only channel, when the last line of the trace has been accepted."""
    r: Any = importlib.import_module("ramulator")
    controller = getattr(r.controller, asked["controller"])(
        dram=getattr(r.dram, asked["standard"])(**asked["dram"]),
        scheduler=r.scheduler.FRFCFSRowHit(),
        refresh_manager=r.refresh_manager.AllBank() if asked["refresh"] else
        r.refresh_manager.NoRefresh(),
        row_policy=r.row_policy.Open(),
        addr_mapper=getattr(r.addr_mapper, asked["mapper"])(),
        read_buffer_size=asked["read_queue"], write_buffer_size=asked["write_queue"],
        wr_low_watermark=asked["drain_low"], wr_high_watermark=asked["drain_high"],
    )  # fmt: skip
    simulation = r.Simulation(
        r.frontend.LoadStoreTrace(clock_ratio=1, path=asked["trace"]),
        r.memory_system.GenericDRAM(
            clock_ratio=1, controllers=[controller],
            channel_mapper=r.channel_mapper.CacheLineInterleave(),
        ),
    )  # fmt: skip
    simulation.run()
    counts: dict[str, Any] = simulation.stats["memory_system"]["controller"]
    return counts


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    Path(asked["out"]).write_text(json.dumps(run(asked)), encoding="utf-8")
