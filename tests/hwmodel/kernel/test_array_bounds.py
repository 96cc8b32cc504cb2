"""No kernel reads or writes outside its arrays: a run compiled with Numba's bounds checks.

In a process and with a cache of its own, for Numba ignores the setting where compiled code is at
hand. Indices are compiled as they stand (`hwmodel.kernel.jit`), so a negative one would be found as
well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
from hwmodel.specs.device import load_device
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure.open_loop import OpenLoop

chance = np.random.default_rng(5)
CONTROLLERS = [
    [],
    ["controller.page_policy=adaptive", "controller.page_timeout=50ns",
     "controller.row_hit_limit=4"],
    ["controller.queue_scope=bank", "controller.read_queue=3", "controller.write_queue=3",
     "controller.partial_write=read_modify_write", "controller.page_policy=closed"],
    ["controller.scheduler=frfcfs_oldest_ready", "controller.activation_buffer=3",
     "controller.refresh_postpone=8", "controller.refresh_order=idle_first"],
    ["controller.scheduler=fcfs", "controller.activation_buffer=0", "controller.refresh=all_bank",
     "controller.page_policy=closed"],
]
for name in ("lpddr5-6400-x16", "hbm2e-3.2", "ramulator-lpddr5-6400-x16"):
    bus = load_device(name).memory.commands["PRE"].bus
    fields = ("kind=PERIODIC", "every=900", "banks=open", "slots=2", f"bus={bus}")
    periodic = [f"commands.{each}.{field}" for each in ("ZQ", "MRR", "ECS") for field in fields]
    for settings in [*CONTROLLERS, periodic]:
        if name.startswith("ramulator"):
            settings = [text for text in settings if "postpone" not in text]
        memory = load_device(name, settings).memory
        run = OpenLoop(memory)
        address = chance.integers(0, memory.organisation.capacity_bytes, 4000)
        address[::3] = address[0]
        run.feed(0, address, chance.integers(0, 3, 4000))
        run.finish()
        assert run.total("requests") + run.total("forwarded") == 4000
device = load_device("mlu370-x4")
start = chance.integers(0, device.capacity_bytes // 4096 - 1, 400) * 4096 + 13
found = simulate_system(
    device, Descriptors(np.arange(400) % 32, start, np.full(400, 3000), np.arange(400) % 3 == 0)
)
assert found.finished
try:
    from hwmodel.kernel.jit import kernel

    kernel(lambda values, at: values[at])(np.zeros(3), 5)
except IndexError:
    print("checked")
"""


@pytest.mark.long
def test_kernels_stay_inside_their_arrays(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "IndexError" not in done.stderr  # where C calls a kernel, an error is only printed
    assert done.stdout.split() == ["checked"]
